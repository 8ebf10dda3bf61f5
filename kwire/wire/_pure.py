"""The hot loops in Python: CRC-32C, murmur2, and the records of a v2 batch to and from bytes.

This is the specification: whatever else `accel` may choose must answer the same and raise the same. It knows records,
not batches: no header, no compression.

A record here is a plain tuple. To be encoded, `(timestamp_ms, key, value, headers)`; decoded, the same with the offset
in front. Headers are a tuple (or any sequence) of `(name, value)`, name a str, value bytes or None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import crcmod

from kwire.errors import CorruptRecordsError, EncodeError
from kwire.wire.varint import decode_varint, encode_varint

Bytes = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

# The CRC of RFC 3720 (Castagnoli), reflected, as every Kafka client computes it.
crc32c: Callable[..., int] = crcmod.mkCrcFun(0x11EDC6F41, initCrc=0, rev=True, xorOut=0xFFFFFFFF)


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
        h = h * 0x5BD1E995 & 0xFFFFFFFF ^ k * 0x5BD1E995 & 0xFFFFFFFF
    if whole < size:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * 0x5BD1E995 & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0x5BD1E995 & 0xFFFFFFFF
    h ^= h >> 15
    return h - 0x100000000 if h & 0x80000000 else h


# Zig-zag varints of 0 .. 8191, which take one or two bytes: lengths, offset deltas and most timestamp deltas.
_VARINT = tuple(encode_varint(n) for n in range(1 << 13))
_SHORT = len(_VARINT)
_NULL = encode_varint(-1)
_INT32_MAX = (1 << 31) - 1


def encode_records(records: Sequence[NewRecord], base_timestamp: int, offset_deltas: Sequence[int] | None = None) -> bytes:
    """The records of a v2 batch, one after the other, at offset deltas 0, 1, 2, ... or those given."""
    parts: list[Bytes] = []
    append = parts.append
    varint = _VARINT
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    for delta, (timestamp, key, value, headers) in zip(deltas, records, strict=True):
        after = timestamp - base_timestamp
        head = (varint[after] if 0 <= after < _SHORT else encode_varint(after)) + (
            varint[delta] if 0 <= delta < _SHORT else encode_varint(delta)
        )
        if key is None:
            head += _NULL
            size = len(head) + 1
        else:
            size = len(key)
            head += varint[size] if size < _SHORT else encode_varint(size)
            size += len(head) + 1
        if value is None:
            middle = _NULL
        else:
            n = len(value)
            size += n
            middle = varint[n] if n < _SHORT else encode_varint(n)
        tail = b"\0" if not headers else encode_headers(headers)
        size += len(middle) + len(tail)
        append((varint[size] if size < _SHORT else encode_varint(size)) + b"\0" + head)
        if key:
            append(key)
        append(middle)
        if value:
            append(value)
        append(tail)
    return b"".join(parts)


def encode_headers(headers: Headers) -> bytes:
    """The count of the headers and the headers, as they end a record of a v2 batch."""
    parts: list[Bytes] = [encode_varint(len(headers))]
    for name, value in headers:
        if not isinstance(name, str):
            raise EncodeError(f"a header's name is a str, not {type(name).__name__}")
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


def decode_records(
    data: bytes, pos: int, count: int, base_offset: int, base_timestamp: int, last_delta: int, timestamp: int | None
) -> list[Row]:
    """All `count` records of a v2 batch, which must end where `data` ends.

    `timestamp`, if not None, is that of every record (log append time). `last_delta` is the greatest offset delta
    that the batch's header allows.
    """
    size = len(data)
    if not 0 <= count <= (size - pos) // 7:  # a record has at least seven bytes
        raise CorruptRecordsError(f"{count} records cannot be in {size - pos} bytes", offset=pos)
    rows: list[Row] = []
    append = rows.append
    start = pos
    try:
        for _ in range(count):
            start = pos
            n = data[pos]
            if n < 0x80:
                pos += 1
            elif (byte := data[pos + 1]) < 0x80:
                n = n & 0x7F | byte << 7
                pos += 2
            else:
                n, pos = _uvarint(data, pos)
            end = pos + (n >> 1)
            if n & 1 or end > size:
                raise CorruptRecordsError(f"a record says to end at {_says(n)} of {size}", offset=start)
            pos += 1  # attributes, of which none is in use

            n = data[pos]
            if n < 0x80:
                pos += 1
            elif (byte := data[pos + 1]) < 0x80:
                n = n & 0x7F | byte << 7
                pos += 2
            else:
                n, pos = _uvarint(data, pos)
            when = timestamp if timestamp is not None else base_timestamp + ((n >> 1) ^ -(n & 1))

            n = data[pos]
            if n < 0x80:
                pos += 1
            elif (byte := data[pos + 1]) < 0x80:
                n = n & 0x7F | byte << 7
                pos += 2
            else:
                n, pos = _uvarint(data, pos)
            delta = n >> 1
            if n & 1 or delta > last_delta:
                raise CorruptRecordsError(f"offset delta {_says(n)} where 0 to {last_delta} can be", offset=start)

            key: bytes | None
            n = data[pos]
            if n == 1:
                key = None
                pos += 1
            else:
                if n < 0x80:
                    pos += 1
                elif (byte := data[pos + 1]) < 0x80:
                    n = n & 0x7F | byte << 7
                    pos += 2
                else:
                    n, pos = _uvarint(data, pos)
                if n & 1:
                    raise CorruptRecordsError(f"a key of {_says(n)} bytes", offset=start)
                key = data[pos : (pos := pos + (n >> 1))]

            value: bytes | None
            n = data[pos]
            if n == 1:
                value = None
                pos += 1
            else:
                if n < 0x80:
                    pos += 1
                elif (byte := data[pos + 1]) < 0x80:
                    n = n & 0x7F | byte << 7
                    pos += 2
                else:
                    n, pos = _uvarint(data, pos)
                if n & 1:
                    raise CorruptRecordsError(f"a value of {_says(n)} bytes", offset=start)
                value = data[pos : (pos := pos + (n >> 1))]

            if data[pos] == 0:
                pos += 1
                headers: tuple[tuple[str, bytes | None], ...] = ()
            else:
                headers, pos = _headers(data, pos, end, start)
            if pos != end:
                raise CorruptRecordsError(f"a record's fields end at {pos}, its length says {end}", offset=start)
            append((base_offset + delta, when, key, value, headers))
    except IndexError:
        raise CorruptRecordsError("the data ends inside a record", offset=start) from None
    if pos != size:
        raise CorruptRecordsError(f"{size - pos} bytes are left after the last of {count} records", offset=pos)
    return rows


def _says(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


def _uvarint(data: bytes, pos: int) -> tuple[int, int]:
    """Any length; the zig-zag not undone. IndexError at the end of the data."""
    n = shift = 0
    for at in range(pos, pos + 10):
        byte = data[at]
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            if n >> 64:
                break
            return n, at + 1
        shift += 7
    raise CorruptRecordsError("a varint of more than 64 bits", offset=pos)


def _headers(data: bytes, pos: int, end: int, start: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    n, pos = _uvarint(data, pos)
    if n & 1 or n > end - pos:  # n is twice the count, and a header has at least two bytes
        raise CorruptRecordsError(f"{_says(n)} headers in {end - pos} bytes", offset=start)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(n >> 1):
        n, pos = _uvarint(data, pos)
        if n & 1 or n >> 1 > end - pos:
            raise CorruptRecordsError(f"a header's name of {_says(n)} bytes where {end - pos} are left", offset=start)
        try:
            name = data[pos : (pos := pos + (n >> 1))].decode()
        except UnicodeDecodeError:
            raise CorruptRecordsError("a header's name is not UTF-8", offset=start) from None
        n, pos = _uvarint(data, pos)
        if n == 1:
            headers.append((name, None))
            continue
        if n & 1 or n >> 1 > end - pos:
            raise CorruptRecordsError(f"a header of {_says(n)} bytes where {end - pos} are left", offset=start)
        headers.append((name, data[pos : (pos := pos + (n >> 1))]))
    return tuple(headers), pos
