"""The hot loops in Python: CRC-32C, murmur2, and the records of a v2 batch to and from bytes.

This is the specification: whatever else `accel` may choose must answer the same and raise the same. It knows records,
not batches: no header, no compression.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

from kwire.wire._bulk import all_bytes
from kwire.wire._cursor import RecordFields, RecordIterator, columns, open_batches, open_cursor, record_class
from kwire.wire._decode import decode_records
from kwire.wire._encode import encode_records
from kwire.wire._sockets import receive_into, send_pieces
from kwire.wire.rows import Bytes

__all__ = [
    "RecordFields",
    "RecordIterator",
    "all_bytes",
    "alloc",
    "alloc_pooled",
    "columns",
    "crc32c",
    "decode_records",
    "encode_records",
    "message_reader",
    "murmur2",
    "open_batches",
    "open_cursor",
    "receive_into",
    "record_class",
    "send_pieces",
]


@cache  # found when first asked for: to import it may take longer than all of kwire
def _fastest_crc32c() -> Callable[..., int]:
    """That of the package crc32c, by the processor's instruction; else crcmod's, if a C compiler was there to build it.

    Measured in one run, in ns a byte of 262,144: 0.04, and 2.2; over lanes 8.7.
    """
    function: Callable[..., int]
    if find_spec("crc32c") is not None:
        function = importlib.import_module("crc32c").crc32c
    elif find_spec("crcmod._crcfunext") is not None:
        import crcmod

        function = crcmod.mkCrcFun(0x11EDC6F41, initCrc=0, rev=True, xorOut=0xFFFFFFFF)
    else:
        from kwire.wire import _lanes  # its tables take a few milliseconds

        function = _lanes.crc32c
    return function


def crc32c(data: Bytes, value: int = 0) -> int:
    """The CRC of RFC 3720 (Castagnoli) of `data` after what has the CRC `value`."""
    return _fastest_crc32c()(data, value)


def message_reader(plan: object) -> None:
    """Nothing here reads by a plan: messages are read by the functions in Python that kwire.protocol writes."""


def alloc(size: int) -> tuple[Bytes, memoryview]:
    """Memory for `size` bytes, and a view to write them through, which must be let go of before the bytes are used.

    `bytes()` of the former is then what was written; in C it is that already, so that nothing is copied.
    """
    whole = bytearray(size)
    return whole, memoryview(whole)


def alloc_pooled(size: int) -> tuple[Bytes, memoryview]:
    """As `alloc`, but in C it is memory that goes round: of fresh memory the system clears every page first."""
    return alloc(size)


def murmur2(data: Bytes) -> int:
    """MurmurHash2 of 32 bits with the seed of Kafka's Java client, as a signed int like Java's.

    >>> murmur2(b"21")
    -973932308
    """
    size = len(data)
    h = 0x9747B28C ^ size
    whole = size & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * 0x5BD1E995 & 0xFFFFFFFF
        k ^= k >> 24
        h = (h * 0x5BD1E995 ^ k * 0x5BD1E995) & 0xFFFFFFFF
    if whole < size:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * 0x5BD1E995 & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0x5BD1E995 & 0xFFFFFFFF
    h ^= h >> 15
    return h - 0x100000000 if h & 0x80000000 else h
