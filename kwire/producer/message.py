"""A record as the caller gives it, and its conversion to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kwire.arguments import wrong_type

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
    """Return the headers as (name, value) pairs with values as bytes; raises TypeError for other shapes."""
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
        result.append((name, to_bytes(value, f"header {name}")))
    return tuple(result)
