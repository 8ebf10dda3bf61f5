"""What a record has in an uncompressed v2 batch, to the byte. It knows sizes, and neither reads nor writes a record.

That depends on what it has, and on its place: on how many bytes its timestamp's and offset's distances from the first
record's take. `record_bytes_max` (rows.py) does without the place.
"""

from __future__ import annotations

from kwire.records.rows import Headers
from kwire.wire.buffers import Bytes
from kwire.wire.varint import varint_size

_HAS_NO_HEADERS = 1
_NULL = 1
_REMEMBERED = 1 << 13  # sizes below this, which are those that come again


def lead_bytes(after: int, number: int) -> int:
    """Attributes, timestamp delta, offset delta: what stands before the key."""
    return 1 + varint_size(after) + varint_size(number)


def record_bytes(lead: int, key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
    """The whole record, of which `lead` bytes stand before the key."""
    size = lead + _sized(key) + _sized(value) + varint_size(len(headers))
    for name, content in headers:
        name_size = len(name.encode(errors="surrogateescape"))
        size += varint_size(name_size) + name_size + _sized(content)
    return varint_size(size) + size


class ValueRecords(dict[int, int]):
    """What a record has whose value has so many bytes, and which has nothing else. The small ones are remembered."""

    def __init__(self, lead: int) -> None:
        self._around = lead + _NULL + _HAS_NO_HEADERS

    def __missing__(self, length: int) -> int:
        size = self._around + varint_size(length) + length
        size += varint_size(size)
        if length < _REMEMBERED:
            self[length] = size
        return size


# By `lead_bytes`. Made beforehand, as an object made in the midst of a record may set off a garbage collection.
VALUE_RECORDS = tuple(map(ValueRecords, range(1 + 10 + 5 + 1)))


def _sized(content: Bytes | None) -> int:
    """With its length before it."""
    return _NULL if content is None else varint_size(len(content)) + len(content)
