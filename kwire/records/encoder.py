"""Encoding of the records of a v2 batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from kwire.errors import EncodeError
from kwire.records.rows import Headers, NewRecord
from kwire.wire.accel import speedups
from kwire.wire.buffers import Bytes
from kwire.wire.varint import SHORT_UVARINTS, encode_varint

# Zig-zag varints of 0 .. 8191, which take one or two bytes: lengths, offset deltas and most timestamp deltas.
_SHORT = 1 << 13
_VARINT = SHORT_UVARINTS[::2]
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
    varint = _VARINT  # short numbers are looked up in line: a call for each would double the time
    last_timestamp: int | None = None
    last_headers: Headers = ()
    lead, tail = b"", _NO_HEADERS
    numbered = enumerate(records) if offset_deltas is None else zip(offset_deltas, records, strict=True)
    for delta, (timestamp, key, value, headers) in numbered:
        if timestamp != last_timestamp:  # many in a row often have the same, and the very same headers
            last_timestamp, lead = timestamp, _NO_ATTRIBUTES + encode_varint(timestamp - base_timestamp)
        if headers is not last_headers:
            last_headers, tail = headers, encode_headers(headers) if headers else _NO_HEADERS
        start = lead + (varint[delta] if 0 <= delta < _SHORT else encode_varint(delta))
        if key is None:
            start += _NULL
        else:
            size = len(key)
            start += (varint[size] if size < _SHORT else encode_varint(size)) + key
        if value is None:
            start += _NULL
            value = b""
        else:
            size = len(value)
            start += varint[size] if size < _SHORT else encode_varint(size)
        size = len(start) + len(value) + len(tail)
        parts += (varint[size] if size < _SHORT else encode_varint(size), start, value, tail)
    return parts


def encode_headers(headers: Headers) -> bytes:
    """Return the count of the headers and the headers, as they end a record of a v2 batch."""
    parts: list[Bytes] = [encode_varint(len(headers))]
    for name, value in headers:
        parts.append(_header_name(name))
        if value is None:
            parts.append(_NULL)
        else:
            size = len(value)
            parts.append(_VARINT[size] if size < _SHORT else encode_varint(size))
            parts.append(value)
    return b"".join(parts)


@lru_cache(maxsize=256)  # a program has few names of headers and writes them often
def _header_name(name: str) -> bytes:
    try:
        encoded = name.encode(errors="surrogateescape")
    except (AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"a header's name is text, not {name!r}") from error
    return encode_varint(len(encoded)) + encoded
