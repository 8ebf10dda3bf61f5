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

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol
from uuid import UUID

from kwire.errors import DecodeError
from kwire.wire.accel import speedups

MarkerFormat = Literal["kwire-1", "kafka-mq-v1"]
Headers = tuple[tuple[str, bytes | None], ...]

NO_TOPIC_ID: Final = UUID(int=0)

# What begins the names of a message's own headers, and those that a START says more of; see `envelope`.
PREFIX = "kwire-mq-"
ID = "kwire-mq-id"
FIRST_AT = "kwire-mq-first-at"

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


class Marker(NamedTuple):
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
    has; fields that only kwire-1 has are left out.
    """
    is_own = format == "kwire-1"
    kind, (topic_id, partition, offset), after_ms, key, value, headers, is_uncounted, not_before_ms = marker
    if not is_own and kind in (MarkerType.RELEASE, MarkerType.TICK):
        kind = MarkerType.KEEP_ALIVE
    place = (b"\x08" + _varint(partition) if partition else b"") + (b"\x10" + _varint(offset) if offset else b"")
    parts = [_HEADS[is_own, kind] if kind < _HEADS_MAX else _head(is_own, kind), _SMALL[len(place)], place]
    if after_ms:
        parts += b"\x20", _varint(after_ms)
    if key:  # proto3 has no null: what is empty is absent, too
        parts += b"\x2a", _varint(len(key)), key
    if value or (value is not None and is_own):  # kwire-1 tells an empty one from None
        parts += b"\x32", _varint(len(value)), value
    if is_own:
        if topic_id.int:
            parts += b"\x82\x01\x10", topic_id.bytes
        for name, data in headers:
            start = _name(name)
            if data is None:
                parts += b"\x8a\x01", _varint(len(start)), start
            else:
                size = _varint(len(data))
                parts += b"\x8a\x01", _varint(len(start) + 1 + len(size) + len(data)), start, b"\x12", size, data
        if is_uncounted:
            parts.append(b"\x90\x01\x01")
        if not_before_ms:
            parts += b"\x98\x01", _varint(not_before_ms)
    return b"".join(parts)


def decode_marker(data: bytes) -> Marker:
    """Return the marker in these bytes, of either format. Raises DecodeError."""
    kind = after = not_before = partition = offset = 0
    key = value = None
    topic_id, headers, is_uncounted = NO_TOPIC_ID, [], False
    for number, content in _fields(data):
        if number == 2:
            kind = _whole(content, "type")
        elif number == 3:
            for inner, one in _fields(_data(content, "message_id")):
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
            topic_id = _topic_id(_data(content, "topic_id"))
        elif number == 17:
            headers.append(_header(_data(content, "headers")))
        elif number == 18:
            is_uncounted = bool(_whole(content, "is_uncounted"))
        elif number == 19:
            not_before = min(_whole(content, "not_before_ms"), _INT64_MAX)
    return Marker(
        kind, Identity(topic_id, partition, offset), after, key, value, tuple(headers), is_uncounted, not_before
    )


def skim_marker(data: bytes) -> Marker:
    """Return the marker without key, value and headers, as a tracker needs it at first. Raises DecodeError."""
    found = None if speedups is None else speedups.skim_marker(data)
    if found is None:
        marker = decode_marker(data)
        return marker._replace(key=None, value=None, headers=())
    kind, topic_id, partition, offset, after, is_uncounted, not_before = found
    identity = Identity(_topic_id(topic_id) if topic_id else NO_TOPIC_ID, partition, offset)
    return Marker(kind, identity, after, None, None, (), is_uncounted, not_before)


def overhead(headers: Headers = ()) -> int:
    """Return how many bytes a START has at most beside key and value."""
    return 80 + sum(len(name.encode("utf-8", "surrogateescape")) + len(value or b"") + 12 for name, value in headers)


# -- by the batch


class MarkedRecord(Protocol):
    """What these functions read of a record of the queue topic."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


def encode_starts(
    records: Sequence[MarkedRecord], queue: bytes, topic_id: bytes, after_ms: int, bytes_max: int
) -> list[bytes | None]:
    """Return the START of each record whose headers say nothing, or an id only, in kwire-1: this is its first delivery.

    None for other records, and for one that has more than `bytes_max` bytes with its `overhead` and its queue.
    `topic_id` are 16 bytes, or none.
    """
    return [
        encode_marker(
            Marker(
                MarkerType.START,
                Identity(UUID(bytes=topic_id) if topic_id else NO_TOPIC_ID, record.partition, record.offset),
                after_ms,
                queue,
                record.value,
                (*record.headers, (FIRST_AT, b"%d" % record.timestamp_ms), *_made_id(record)),
            )
        )
        if _is_plain(record) and len(record.value or b"") + overhead(record.headers) + len(queue) <= bytes_max
        else None
        for record in records
    ]


def _is_plain(record: MarkedRecord) -> bool:
    own = [(name, value) for name, value in record.headers if name.startswith(PREFIX)]
    return (not own or (len(own) == 1 and own[0][0] == ID and bool(own[0][1]))) and record.timestamp_ms > 0


def _made_id(record: MarkedRecord) -> Headers:
    """Return the header with the id of a message of another program; `record_envelope` names it likewise."""
    if any(name == ID for name, _ in record.headers):
        return ()
    return ((ID, f"{record.topic}-{record.partition}-{record.offset}".encode()),)


def encode_ends(records: Sequence[MarkedRecord], topic_id: bytes) -> list[bytes]:
    """Return the END of each record of a topic, in kwire-1."""
    topic = UUID(bytes=topic_id) if topic_id else NO_TOPIC_ID
    return [
        encode_marker(Marker(MarkerType.END, Identity(topic, record.partition, record.offset))) for record in records
    ]


if not TYPE_CHECKING and speedups is not None:
    encode_starts, encode_ends = speedups.encode_starts, speedups.encode_ends


@lru_cache(maxsize=64)
def _topic_id(data: bytes) -> UUID:
    if len(data) != 16:
        raise DecodeError(f"a topic id of {len(data)} bytes instead of 16", path="topic_id")
    return UUID(bytes=data)


def _header(data: bytes) -> tuple[str, bytes | None]:
    name, value = "", None
    for number, content in _fields(data):
        if number == 1:
            name = _data(content, "headers.name").decode("utf-8", "surrogateescape")
        elif number == 2:
            value = _data(content, "headers.value")
    return name, value


# -- Protocol Buffers


_SMALL = [bytes([number]) for number in range(0x80)]
_MORE = [bytes([number | 0x80]) for number in range(0x80)]


def _varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return _SMALL[number]
    if number < 0:
        number += _INT64  # a negative number has all 64 bits
    return _MORE[number & 0x7F] + _rest(number >> 7)


@lru_cache(maxsize=1024)
def _rest(number: int) -> bytes:
    """Return the bytes of a varint after its first one: neighbouring numbers share them."""
    return _varint(number)


def _head(is_own: bool, kind: int) -> bytes:
    """Return the first bytes of a marker, up to the tag of its identity."""
    return (b"\x08\x01" if is_own else b"") + (b"\x10" + _varint(kind) if kind else b"") + b"\x1a"


_HEADS_MAX = 8
_HEADS = {(is_own, kind): _head(is_own, kind) for is_own in (False, True) for kind in range(_HEADS_MAX)}


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    data = name.encode("utf-8", "surrogateescape")  # as records have names that are no UTF-8
    return b"\x0a" + _varint(len(data)) + data if data else b""


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


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Return (field number, int or bytes) of each field. Raises DecodeError with the offset of what is wrong."""
    found: list[tuple[int, int | bytes]] = []
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = _read_varint(data, at - 1)
        kind = tag & 7
        if tag < 8:
            raise DecodeError("field 0 in a marker", offset=at)
        if kind in (_VARINT, _BYTES):
            if at < end and data[at] < 0x80:
                size = data[at]
                at += 1
            else:
                size, at = _read_varint(data, at)
            if kind == _VARINT:
                found.append((tag >> 3, size))
                continue
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise DecodeError(f"wire type {kind} in a marker", offset=at)
        if size > end - at:
            raise DecodeError("a field of a marker is cut off", offset=at)
        found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError("a varint of a marker does not end", offset=at)
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number % _INT64, at
        shift += 7


__all__ = [
    "FIRST_AT",
    "ID",
    "NO_TOPIC_ID",
    "PREFIX",
    "Headers",
    "Identity",
    "MarkedRecord",
    "Marker",
    "MarkerFormat",
    "MarkerType",
    "decode_marker",
    "encode_ends",
    "encode_marker",
    "encode_starts",
    "overhead",
    "skim_marker",
]
