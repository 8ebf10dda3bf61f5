"""The bytes of a v2 batch: exact sizes of records, their encoding, and the header before them (KIP-98).

A record's size depends on its fields and on its position: its timestamp and offset deltas are varints.
`record_bytes_max` (rows.py) is an upper bound for any position.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from kwire.errors import EncodeError
from kwire.records.rows import BATCH_OVERHEAD_BYTES, Headers, NewRecord
from kwire.wire.accel import speedups
from kwire.wire.buffers import Bytes, as_bytes
from kwire.wire.varint import encode_varint, short_varints, varint_size

_NO_HEADERS_BYTES = 1
_NULL_BYTES = 1
_REMEMBERED = 1 << 13  # values shorter than this are cached: their sizes recur


def lead_bytes(after: int, number: int) -> int:
    """Return the bytes of the fields before the key: attributes, timestamp delta, offset delta."""
    return 1 + varint_size(after) + varint_size(number)


def record_bytes(lead: int, key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
    """Return the bytes of a whole record that has `lead` bytes before its key."""
    size = lead + _sized(key) + _sized(value) + varint_size(len(headers))
    for name, content in headers:
        name_size = len(name.encode(errors="surrogateescape"))
        size += varint_size(name_size) + name_size + _sized(content)
    return varint_size(size) + size


class ValueRecords(dict[int, int]):
    """Map a value's length to the bytes of a record that has only this value; short lengths are cached."""

    def __init__(self, lead: int) -> None:
        self._around = lead + _NULL_BYTES + _NO_HEADERS_BYTES

    def __missing__(self, length: int) -> int:
        size = self._around + varint_size(length) + length
        size += varint_size(size)
        if length < _REMEMBERED:
            self[length] = size
        return size


# Indexed by `lead_bytes`. Built at import: an object created within `send` may start a garbage collection.
VALUE_RECORDS = tuple(map(ValueRecords, range(1 + 10 + 5 + 1)))


def _sized(content: Bytes | None) -> int:
    """Return the bytes of a field with its length prefix."""
    return _NULL_BYTES if content is None else varint_size(len(content)) + len(content)


_NULL = encode_varint(-1)
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"


def encode_records(
    records: Sequence[NewRecord], base_timestamp: int, offset_deltas: Sequence[int] | None = None
) -> bytes:
    """Return the records of a v2 batch, one after the other, at offset deltas 0, 1, 2, ... or those given."""
    if speedups is not None and offset_deltas is None:
        encoded = speedups.encode_records(records, base_timestamp)
        if encoded is not None:
            return encoded
    return b"".join(encode_each(records, base_timestamp, offset_deltas))


def encode_each(
    records: Iterable[NewRecord], base_timestamp: int, offset_deltas: Iterable[int] | None = None
) -> list[Bytes]:
    """Return the bytes of `encode_records` as parts to be joined."""
    parts: list[Bytes] = []
    varint = short_varints()  # lengths and deltas are looked up in line: a call for each would double the time
    short = len(varint)
    last_timestamp: int | None = None
    last_headers: Headers = ()
    lead, tail = b"", _NO_HEADERS
    numbered = enumerate(records) if offset_deltas is None else zip(offset_deltas, records, strict=True)
    for delta, (timestamp, key, value, headers) in numbered:
        if timestamp != last_timestamp:  # many in a row often have the same, and the very same headers
            last_timestamp, lead = timestamp, _NO_ATTRIBUTES + encode_varint(timestamp - base_timestamp)
        if headers is not last_headers:
            last_headers, tail = headers, encode_headers(headers) if headers else _NO_HEADERS
        start = lead + (varint[delta] if 0 <= delta < short else encode_varint(delta))
        if key is None:
            start += _NULL
        else:
            if type(key) is not bytes:
                key = as_bytes(key)
            size = len(key)
            start += (varint[size] if size < short else encode_varint(size)) + key
        if value is None:
            start += _NULL
            value = b""
        else:
            if type(value) is not bytes:
                value = as_bytes(value)
            size = len(value)
            start += varint[size] if size < short else encode_varint(size)
        size = len(start) + len(value) + len(tail)
        parts += (varint[size] if size < short else encode_varint(size), start, value, tail)
    return parts


def encode_headers(headers: Headers) -> bytes:
    """Return the count of the headers and the headers, as they end a record of a v2 batch."""
    parts: list[Bytes] = [encode_varint(len(headers))]
    for name, value in headers:
        parts.append(_header_name(name))
        if value is None:
            parts.append(_NULL)
        else:
            content = as_bytes(value)
            parts.append(encode_varint(len(content)))
            parts.append(content)
    return b"".join(parts)


@lru_cache(maxsize=256)  # a program has few names of headers and writes them often
def _header_name(name: str) -> bytes:
    try:
        encoded = name.encode(errors="surrogateescape")
    except (AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"a header's name is text, not {name!r}") from error
    return encode_varint(len(encoded)) + encoded


# Base offset, length, leader epoch, magic, CRC. The CRC covers the rest and the records: attributes, last offset
# delta, base and max timestamp, producer id and epoch, base sequence, count.
_START = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_LENGTH_COVERS_FROM = 12

TRANSACTIONAL = 0x10  # a bit of the attributes

HEADER = struct.Struct(_START.format + _CHECKED.format.removeprefix(">"))

assert HEADER.size == BATCH_OVERHEAD_BYTES


def batch_header(
    crc32c: Callable[..., int],
    body: Bytes,
    count: int,
    last_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    attributes: int = 0,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the header of a batch whose encoded records are `body`, compressed if `attributes` say so.

    Raise EncodeError if a value does not fit its field.
    """
    try:
        checked = _CHECKED.pack(
            attributes, last_delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
        )
        crc = crc32c(body, crc32c(checked))
        length = BATCH_OVERHEAD_BYTES - _LENGTH_COVERS_FROM + len(body)
        return _START.pack(base_offset, length, partition_leader_epoch, 2, crc) + checked
    except struct.error as error:
        raise EncodeError(f"a batch's header cannot hold its values: {error}") from None


_PRODUCER_STATE_AT, _PRODUCER_STATE = 43, struct.Struct(">qhi")  # producer id, epoch, base sequence
_CRC_AT, _CHECKED_AT = 17, _START.size


def set_producer_state(
    crc32c: Callable[..., int], batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Write these fields and the new CRC into an encoded batch that another process has made."""
    _PRODUCER_STATE.pack_into(batch, _PRODUCER_STATE_AT, producer_id, producer_epoch, base_sequence)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_AT:]))
