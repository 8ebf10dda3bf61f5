"""What a caller may give for a record, and its conversion to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kwire.arguments import wrong_type

Data = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]] | None
HeaderTuple = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """One record and where it is to go. What each field may be: see `Producer.send`."""

    topic: str
    value: Data = None
    key: Data = None
    headers: Headers = None
    partition: int | None = None
    timestamp_ms: int | None = None


def check_message(message: object) -> None:
    """Raise TypeError for what is no `Message`."""
    if not isinstance(message, Message):
        raise wrong_type("an item of messages", message, "a kwire.Message")


def to_bytes(data: Data, name: str) -> bytes | None:
    """Bytes as they are, text as UTF-8; TypeError, with the argument's name, for anything else."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)  # a copy: the caller may change his buffer before it is sent
    raise TypeError(f"{name} is {type(data).__name__}: it must be bytes, str or None")


_HEADERS = "a mapping {name: value}, or (name, value) pairs"


def to_headers(headers: Headers) -> HeaderTuple:
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
