"""Markers: what consumers of queues log about a message, so that the tracker knows which are in progress.

A marker is a Protocol Buffers message, written here by hand. Fields 1 to 6 are those of splunk/kafka-mq-go, in which
"kafka-mq-v1" ends. "kwire-1" adds fields that the Go implementation skips:

    1  version                0: kafka-mq-v1; 1: kwire-1
    2  type                   0 START, 1 END, 2 KEEP_ALIVE; kwire-1 only: 3 RELEASE, 4 TICK
    3  message_id             {1: partition, 2: offset}
    4  redeliver_after_ms     from the marker's timestamp on
    5  key                    the record's key: the queue
    6  value                  the record's value
    16 topic_id               16 bytes: a topic that was created again has other messages
    17 headers                {1: name, 2: value or absent}, repeated
    18 is_uncounted           what follows is no delivery: the message was delayed, or nobody has got it yet
    19 not_before_ms          the deadline itself, as a time of the broker; redeliver_after_ms is the whole delay then

As in proto3 a field with its default value is absent. Unknown fields are skipped; so are unknown types, by the tracker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple
from uuid import UUID

from kwire.errors import DecodeError

MarkerFormat = Literal["kwire-1", "kafka-mq-v1"]
Headers = tuple[tuple[str, bytes | None], ...]

NO_TOPIC_ID: Final = UUID(int=0)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INT64 = 1 << 64
_INT64_MAX = (1 << 63) - 1


class MarkerType(IntEnum):
    START = 0
    END = 1
    KEEP_ALIVE = 2
    RELEASE = 3
    TICK = 4


class Identity(NamedTuple):
    """Which message: its place in the queue topic, and which topic of that name. The id is zero where it is unknown."""

    topic_id: UUID
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker. Fields that its type or its format lacks have their defaults."""

    type: int
    identity: Identity
    redeliver_after_ms: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    is_uncounted: bool = False
    not_before_ms: int = 0


def encode_marker(marker: Marker, format: MarkerFormat = "kwire-1") -> bytes:
    """Return the bytes of a marker.

    In "kafka-mq-v1" a RELEASE is a KEEP_ALIVE with its delay, and a TICK a KEEP_ALIVE of the message -1, which nobody
    has; what only kwire-1 has is left out.
    """
    is_own = format == "kwire-1"
    kind, identity = marker.type, marker.identity
    if not is_own and kind in (MarkerType.RELEASE, MarkerType.TICK):
        kind = MarkerType.KEEP_ALIVE
    out = bytearray()
    _put_int(out, 1, 1 if is_own else 0)
    _put_int(out, 2, kind)
    place = bytearray()
    _put_int(place, 1, identity.partition)
    _put_int(place, 2, identity.offset)
    _put_bytes(out, 3, place)
    _put_int(out, 4, marker.redeliver_after_ms)
    _put_data(out, 5, marker.key)
    if is_own and marker.value is not None:
        _put_bytes(out, 6, marker.value)  # also an empty one, which is not None
    else:
        _put_data(out, 6, marker.value)
    if is_own:
        if identity.topic_id.int:
            _put_bytes(out, 16, identity.topic_id.bytes)
        for name, value in marker.headers:
            pair = bytearray()
            _put_data(pair, 1, name.encode())
            if value is not None:
                _put_bytes(pair, 2, value)
            _put_bytes(out, 17, pair)
        _put_int(out, 18, marker.is_uncounted)
        _put_int(out, 19, marker.not_before_ms)
    return bytes(out)


def decode_marker(data: bytes) -> Marker:
    """Return the marker in these bytes, of either format. Raises DecodeError."""
    fields = _Fields(data)
    kind = after = not_before = 0
    partition = offset = 0
    key = value = None
    topic_id, headers, is_uncounted = NO_TOPIC_ID, [], False
    for number, content in fields:
        if number == 2:
            kind = _whole(content, "type")
        elif number == 3:
            for inner, one in _Fields(_data(content, "message_id")):
                if inner == 1:
                    partition = _signed(_whole(one, "partition"))
                elif inner == 2:
                    offset = _signed(_whole(one, "offset"))
        elif number == 4:
            after = min(_whole(content, "redeliver_after_ms"), _INT64_MAX)
        elif number == 5:
            key = _data(content, "key")
        elif number == 6:
            value = _data(content, "value")
        elif number == 16:
            raw = _data(content, "topic_id")
            if len(raw) != 16:
                raise DecodeError(f"a topic id of {len(raw)} bytes instead of 16", path="topic_id")
            topic_id = UUID(bytes=raw)
        elif number == 17:
            headers.append(_header(_data(content, "headers")))
        elif number == 18:
            is_uncounted = bool(_whole(content, "is_uncounted"))
        elif number == 19:
            not_before = min(_whole(content, "not_before_ms"), _INT64_MAX)
    identity = Identity(topic_id, partition, offset)
    return Marker(kind, identity, after, key, value, tuple(headers), is_uncounted, not_before)


def overhead(headers: Headers = ()) -> int:
    """Return how many bytes a START has at most beside key and value."""
    return 80 + sum(len(name.encode()) + len(value or b"") + 12 for name, value in headers)


def _header(data: bytes) -> tuple[str, bytes | None]:
    name, value = "", None
    for number, content in _Fields(data):
        if number == 1:
            try:
                name = _data(content, "headers.name").decode()
            except UnicodeDecodeError as error:
                raise DecodeError("a header's name is not UTF-8", path="headers.name") from error
        elif number == 2:
            value = _data(content, "headers.value")
    return name, value


# -- Protocol Buffers


def _put_varint(out: bytearray, number: int) -> None:
    number %= _INT64  # a negative number has all 64 bits
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_int(out: bytearray, field: int, number: int) -> None:
    if number:
        _put_varint(out, field << 3 | _VARINT)
        _put_varint(out, number)


def _put_bytes(out: bytearray, field: int, data: bytes | bytearray) -> None:
    _put_varint(out, field << 3 | _BYTES)
    _put_varint(out, len(data))
    out += data


def _put_data(out: bytearray, field: int, data: bytes | None) -> None:
    if data:  # proto3 has no null: what is empty is absent, too
        _put_bytes(out, field, data)


def _whole(content: int | bytes, path: str) -> int:
    if not isinstance(content, int):
        raise DecodeError("bytes where a marker has a number", path=path)
    return content


def _data(content: int | bytes, path: str) -> bytes:
    if isinstance(content, int):
        raise DecodeError("a number where a marker has bytes", path=path)
    return content


def _signed(number: int) -> int:
    return number - _INT64 if number > _INT64_MAX else number


class _Fields:
    """Iterates over (field number, int or bytes). Raises DecodeError with the offset of what is wrong."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __iter__(self) -> _Fields:
        return self

    def __next__(self) -> tuple[int, int | bytes]:
        if self._at >= len(self._data):
            raise StopIteration
        tag = self._varint()
        kind = tag & 7
        if not tag >> 3:
            raise DecodeError("field 0 in a marker", offset=self._at)
        if kind == _VARINT:
            return tag >> 3, self._varint()
        if kind == _BYTES:
            return tag >> 3, self._take(self._varint())
        if kind in (_FIXED32, _FIXED64):
            return tag >> 3, self._take(4 if kind == _FIXED32 else 8)
        raise DecodeError(f"wire type {kind} in a marker", offset=self._at)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise DecodeError("a varint of a marker does not end", offset=self._at)
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number % _INT64
            shift += 7

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise DecodeError("a field of a marker is cut off", offset=self._at)
        self._at += count
        return self._data[self._at - count : self._at]


__all__ = [
    "NO_TOPIC_ID",
    "Headers",
    "Identity",
    "Marker",
    "MarkerFormat",
    "MarkerType",
    "decode_marker",
    "encode_marker",
    "overhead",
]
