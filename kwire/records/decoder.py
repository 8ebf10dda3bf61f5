"""Decoding of the records of a v2 batch.

Every length is checked against the remaining data before an allocation of that size. Invalid data raises
CorruptRecordsError with the record's position in the data.
"""

from __future__ import annotations

from kwire.errors import CorruptRecordsError
from kwire.records.rows import Header, Row
from kwire.wire.accel import speedups
from kwire.wire.buffers import Bytes

# Length, attributes, timestamp, offset, lengths of key and value, count of headers.
RECORD_BYTES_MIN = 7


def decode_records(
    data: Bytes, pos: int, count: int, base_offset: int, base_timestamp: int, last_delta: int, timestamp: int | None
) -> list[Row]:
    """Return all `count` records of a v2 batch, which must end where `data` ends.

    `timestamp`, if not None, applies to every record (log append time). `last_delta` is the greatest offset delta that
    the batch's header allows.
    """
    data = bytes(data)
    if speedups is not None:
        decoded = speedups.decode_records(data, pos, count, base_offset, base_timestamp, last_delta, timestamp)
        if decoded is not None:
            return decoded
    if not 0 <= count <= (len(data) - pos) // RECORD_BYTES_MIN:
        raise CorruptRecordsError(f"{count} records cannot be in {len(data) - pos} bytes", offset=pos)
    rows: list[Row] = []
    append = rows.append  # varints of one and two bytes are read in line: a call for each would double the time
    size, start = len(data), pos
    try:
        for _ in range(count):
            start = pos
            if (n := data[pos]) < 0x80:
                pos += 1
            elif (byte := data[pos + 1]) < 0x80:
                n += (byte << 7) - 0x80
                pos += 2
            else:
                n, pos = _long(data, pos)
            end = pos + (n >> 1)
            if n & 1 or end > size:
                raise CorruptRecordsError(f"a record of {_undone(n)} bytes where {size - pos} are left", offset=start)
            pos += 1  # attributes, of which none is in use
            if (n := data[pos]) < 0x80:
                pos += 1
            else:
                n, pos = _long(data, pos)
            when = base_timestamp + ((n >> 1) ^ -(n & 1)) if timestamp is None else timestamp
            if (n := data[pos]) < 0x80:
                pos += 1
            elif (byte := data[pos + 1]) < 0x80:
                n += (byte << 7) - 0x80
                pos += 2
            else:
                n, pos = _long(data, pos)
            delta = n >> 1
            if n & 1 or delta > last_delta:
                raise CorruptRecordsError(f"offset delta {_undone(n)} where 0 to {last_delta} can be", offset=start)
            if (n := data[pos]) < 0x80:
                pos += 1
            else:
                n, pos = _long(data, pos)
            key = _null(n, start) if n & 1 else data[pos : (pos := pos + (n >> 1))]
            if (n := data[pos]) < 0x80:
                pos += 1
            elif (byte := data[pos + 1]) < 0x80:
                n += (byte << 7) - 0x80
                pos += 2
            else:
                n, pos = _long(data, pos)
            value = _null(n, start) if n & 1 else data[pos : (pos := pos + (n >> 1))]
            headers, pos = _headers(data, pos, end, start) if data[pos] else ((), pos + 1)
            if pos != end:
                raise CorruptRecordsError(f"a record's fields end at {pos}, its length says {end}", offset=start)
            append((base_offset + delta, when, key, value, headers))
    except IndexError:
        raise CorruptRecordsError("the data ends inside a record", offset=start) from None
    if pos != size:
        raise CorruptRecordsError(f"{size - pos} bytes are left after the last of {count} records", offset=pos)
    return rows


def _undone(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


def _null(n: int, start: int) -> bytes | None:
    """Return None for the length -1; raise CorruptRecordsError for other negative lengths."""
    if n != 1:
        raise CorruptRecordsError(f"a key or value of {_undone(n)} bytes", offset=start)
    return None


def _long(data: bytes, pos: int) -> tuple[int, int]:
    """Return a varint of any length, still zig-zag encoded, and its end; raise IndexError at the end of the data."""
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


def _headers(data: bytes, pos: int, end: int, start: int) -> tuple[tuple[Header, ...], int]:
    """Return the headers of the record at `start` .. `end`, and their end, which the caller compares with `end`."""
    if (n := data[pos]) < 0x80:
        pos += 1
    else:
        n, pos = _long(data, pos)
    if n & 1 or n > end - pos:  # n is twice the count, and a header has two bytes or more
        raise CorruptRecordsError(f"{_undone(n)} headers in {end - pos} bytes", offset=start)
    headers: list[Header] = []
    for _ in range(n >> 1):
        if (n := data[pos]) < 0x80:
            pos += 1
        else:
            n, pos = _long(data, pos)
        if n & 1 or n >> 1 > end - pos:
            raise CorruptRecordsError(f"a header's name of {_undone(n)} bytes in {end - pos}", offset=start)
        name = data[pos : (pos := pos + (n >> 1))].decode("utf-8", "surrogateescape")
        if (n := data[pos]) < 0x80:
            pos += 1
        else:
            n, pos = _long(data, pos)
        value = _null(n, start) if n & 1 else data[pos : (pos := pos + (n >> 1))]
        headers.append((name, value))
    return tuple(headers), pos
