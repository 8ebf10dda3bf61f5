"""A record as the caller gives it, and its conversion to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kwire.arguments import is_int, wrong_type

Data = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]] | None
HeaderTuple = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """One record and its topic and partition. `Producer.send` documents the fields."""

    topic: str
    value: Data = None
    key: Data = None
    headers: Headers = None
    partition: int | None = None
    timestamp_ms: int | None = None


def check_message(message: object) -> None:
    """Raise TypeError unless `message` is a `Message`."""
    if not isinstance(message, Message):
        raise wrong_type("an item of messages", message, "a kwire.Message")


# The bounds of Kafka's int32 and int64 fields; none is negative.
PARTITION_END, TIMESTAMP_END = 1 << 31, 1 << 63


def check_partition(partition: int | None) -> None:
    """Raise TypeError or ValueError unless `partition` is a partition's index or None."""
    if partition is not None and not is_int(partition):
        raise wrong_type("partition", partition, "an int from 0 up, or None to have one chosen")
    if partition is not None and not 0 <= partition < PARTITION_END:
        raise ValueError(f"partition is {partition}: it must be from 0 to 2**31 - 1")


def check_timestamp(timestamp_ms: int) -> None:
    """Raise TypeError or ValueError unless `timestamp_ms` is a time that a record can have."""
    if not is_int(timestamp_ms):
        raise wrong_type("timestamp_ms", timestamp_ms, "milliseconds since 1970 as an int, or None for now")
    if not 0 <= timestamp_ms < TIMESTAMP_END:
        raise ValueError(f"timestamp_ms is {timestamp_ms}: it must be milliseconds since 1970")


def to_bytes(data: Data, name: str) -> bytes | None:
    """Return bytes unchanged and text as UTF-8; raises TypeError, with the argument's `name`, for other types."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)  # a copy: the caller may change its buffer before the record is sent
    raise TypeError(f"{name} is {type(data).__name__}: it must be bytes, str or None")


_HEADERS = "a mapping {name: value}, or (name, value) pairs"


def to_headers(headers: Headers) -> HeaderTuple:
    """Return the headers as (name, value) pairs with values as bytes; raises TypeError for other shapes.

    A name may hold bytes that are no UTF-8 as `surrogateescape` decodes them, as in a consumed record.
    """
    if headers is None:
        return ()
    if isinstance(headers, (str, bytes, bytearray, memoryview)) or not isinstance(headers, Iterable):
        raise wrong_type("headers", headers, _HEADERS)
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    result = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise wrong_type("an item of headers", pair, _HEADERS)
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"a header's name is {name!r}: it must be str")
        if not name.isascii():
            name.encode(errors="surrogateescape")  # raises now, before any record of the call is accepted
        result.append((name, to_bytes(value, f"header {name}")))
    return tuple(result)
