"""Completed offsets above the committed one, as a string in a commit's metadata.

A consumer that processes records of a partition in parallel completes them out of order. It commits the first offset
that is not complete, and stores in the metadata which offsets above it are: after a restart or a rebalance they need
not be processed again. The format is that of Confluent's Parallel Consumer, so that clients of both may take over each
other's partitions.

The string is base64 of a magic byte and data. Offsets are counted from the committed one, the base:

    bit set      a count of bits, then a bit for each offset, the lowest first, 1 for complete; one spare byte
    run length   the lengths of runs of incomplete, complete, incomplete, ... offsets
    byte array   a byte for each offset, 1 for complete; never written

Version 1 has 16-bit counts and lengths, version 2 has 32 bits; all are big-endian. Each exists compressed by zstd, too.
Offsets behind the end are not complete.

Kafka Streams has metadata of its own, and so may any program: whatever cannot be read is `UnreadableOffsetMap`, never
an error. Then everything from the base is processed again.

Confluent's counterparts are `OffsetMapCodecManager`, `OffsetEncoding` and the encoders beside them.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

from kwire.errors import ConfigurationError, CorruptRecordsError, EncodeError
from kwire.records.compression import Compression, compress, decompress

OFFSET_MAX = 2**63 - 1
# Of decompressed data, and of a bit set that is written: 2 million offsets. Longer maps are written as run lengths.
BYTES_MAX = 256 * 1024
_INT_MAX = 2**31 - 1
_ZSTD_LEVEL = 19  # a map takes less than a millisecond, and a fifth less space than at level 3


@dataclass(frozen=True, slots=True)
class UnreadableOffsetMap:
    """Metadata that says nothing about completed offsets.

    `kind` is "kafka-streams", "unknown" for anything else that is not of this format, "broken" for data that
    contradict the format, or "needs-zstd" if no zstd library is installed. `reason` is for a log.
    """

    kind: Literal["kafka-streams", "unknown", "broken", "needs-zstd"]
    reason: str


def encode_offset_map(base: int, completed: Iterable[range]) -> str:
    """Return the metadata for a commit of `base`: the smallest encoding of version 2; "" if nothing is complete.

    `completed` are ranges of offsets in any order; what is below `base` does not count. Brokers refuse metadata above
    offset.metadata.max.bytes, 4,096 by default: check the length. Raises EncodeError for 2**31 offsets and more.
    """
    merged = _merged(base, completed)
    if not merged:
        return ""
    if merged[-1].stop - base > _INT_MAX:
        raise EncodeError(f"the completed offset {merged[-1].stop - 1} is too far above the committed {base}")
    edges = chain.from_iterable((each.start, each.stop) for each in merged)
    encodings = [b"e" + _run_lengths(base, edges)]
    if (merged[-1].stop - base) // 8 < BYTES_MAX:
        encodings.append(b"o" + _bit_set(base, merged))
    compressed = {b"e": b"p", b"o": b"s"}
    with suppress(ConfigurationError):  # there is no zstd library
        encodings += [compressed[each[:1]] + compress(Compression.ZSTD, each[1:], _ZSTD_LEVEL) for each in encodings]
    return b64encode(min(encodings, key=len)).decode()


def decode_offset_map(base: int, metadata: str | None) -> tuple[range, ...] | UnreadableOffsetMap:
    """Return the completed offsets above the committed one, `base`, as ascending ranges that do not touch."""
    if not metadata:
        return ()
    try:
        data = b64decode(metadata, validate=True)
    except (Base64Error, ValueError):  # ValueError: not ASCII
        return UnreadableOffsetMap("unknown", f"the metadata {metadata[:40]!r} is not base64")
    magic = data[:1]
    if magic in (b"\x01", b"\x02"):
        return UnreadableOffsetMap("kafka-streams", f"the metadata is that of Kafka Streams, version {magic[0]}")
    encoding = _ENCODINGS.get(magic)
    if encoding is None:
        return UnreadableOffsetMap("unknown", f"the metadata begins with the unknown magic byte 0x{magic.hex()}")
    try:
        plain = decompress(Compression.ZSTD, data[1:], BYTES_MAX) if encoding.is_compressed else data[1:]
        found = encoding.read(bytes(plain), base)
    except ConfigurationError as error:
        return UnreadableOffsetMap("needs-zstd", str(error))
    except (CorruptRecordsError, struct.error, ValueError) as error:
        return UnreadableOffsetMap("broken", f"the offset map {metadata[:40]!r} of {encoding.name} is invalid: {error}")
    if found and found[-1].stop - 1 > OFFSET_MAX:
        return UnreadableOffsetMap("broken", f"the offset map goes beyond all offsets, to {found[-1].stop - 1}")
    return tuple(found)


def _merged(base: int, completed: Iterable[range]) -> list[range]:
    merged: list[range] = []
    for each in sorted(completed, key=lambda each: each.start):
        start, stop = max(each.start, base), each.stop
        if start >= stop:
            continue
        if merged and start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(stop, merged[-1].stop))
        else:
            merged.append(range(start, stop))
    return merged


def _run_lengths(base: int, edges: Iterable[int]) -> bytes:
    lengths = []
    for edge in edges:
        lengths.append(edge - base)
        base = edge
    return struct.pack(f">{len(lengths)}i", *lengths)


def _bit_set(base: int, completed: Sequence[range]) -> bytes:
    count = completed[-1].stop - base
    digits = bytearray(b"0" * count)
    for each in completed:
        digits[each.start - base : each.stop - base] = b"1" * len(each)
    digits.reverse()  # the first offset is the lowest bit
    return struct.pack(">i", count) + int(digits, 2).to_bytes((count + 7) // 8, "little") + b"\0"


def _read_run_lengths(item: struct.Struct) -> Callable[[bytes, int], list[range]]:
    def read(data: bytes, base: int) -> list[range]:
        found: list[range] = []
        is_complete = False
        for (length,) in item.iter_unpack(data):
            if length < 0:
                raise ValueError(f"a run of {length}")
            if is_complete and length:
                if found and found[-1].stop == base:  # behind a run of no incomplete ones
                    found[-1] = range(found[-1].start, base + length)
                else:
                    found.append(range(base, base + length))
            base += length
            is_complete = not is_complete
        return found

    return read


_DIGITS = [f"{byte:08b}"[::-1] for byte in range(256)]  # lowest bit first


def _read_bit_set(count_of: struct.Struct) -> Callable[[bytes, int], list[range]]:
    def read(data: bytes, base: int) -> list[range]:
        count: int = count_of.unpack_from(data)[0]
        if count < 0:
            raise ValueError(f"a count of {count}")
        digits = "".join(map(_DIGITS.__getitem__, data[count_of.size :]))[:count]
        return [range(base + ones.start(), base + ones.end()) for ones in re.finditer("1+", digits)]

    return read


def _read_byte_array(data: bytes, base: int) -> list[range]:
    return [range(base + ones.start(), base + ones.end()) for ones in re.finditer(b"\x01+", data)]


class _Encoding(NamedTuple):
    name: str
    read: Callable[[bytes, int], list[range]]
    is_compressed: bool


_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")

# By magic byte.
_ENCODINGS: Mapping[bytes, _Encoding] = {
    magic: _Encoding(name, read, is_compressed)
    for name, read, plain, packed in (
        ("ByteArray", _read_byte_array, b"L", b"\xee"),
        ("BitSet", _read_bit_set(_SHORT), b"l", b"a"),
        ("RunLength", _read_run_lengths(_SHORT), b"n", b"J"),
        ("BitSetV2", _read_bit_set(_INT), b"o", b"s"),
        ("RunLengthV2", _read_run_lengths(_INT), b"e", b"p"),
    )
    for magic, is_compressed in ((plain, False), (packed, True))
}
