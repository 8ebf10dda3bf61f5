"""Functions that generated codecs call: varints, tagged fields, lists, and whatever is not worth generating inline.

They raise `codegen.DECODE_FAILURES` and `codegen.ENCODE_FAILURES`, not kwire's errors.
"""

from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import Any
from uuid import UUID

from kwire.protocol.fields import STRING_BYTES_MAX

# Records of at least this size are not copied. Smaller ones are joined with their neighbours, because a socket call
# accepts a limited number of buffers.
COPY_BYTES_MAX = 4096

NULL_ARRAY = b"\xff\xff\xff\xff"
NULL_COMPACT = b"\x00"
# KIP-893: the byte before a nullable struct. In a tagged field, Kafka's classes write another byte for null.
NULL_STRUCT = b"\xff"
NULL_TAGGED_STRUCT = b"\x00"
PRESENT_STRUCT = b"\x01"

BOOLEAN: Mapping[Any, int] = {False: 0, True: 1}


def uvarint_tail(buf: bytes | memoryview, pos: int, first: int) -> tuple[int, int]:
    """Return (value, position after it) of an unsigned 32-bit varint whose `first` byte, above 127, is already read."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value >> 32:
                break
            return value, pos
    raise ValueError("a varint of more than 32 bits")


def uvarint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_uvarint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    first = buf[pos]
    return uvarint_tail(buf, pos + 1, first) if first > 127 else (first, pos + 1)


def string_length(n: int) -> bytes:
    """Return the prefix of a compact string, given its length + 1."""
    if n > STRING_BYTES_MAX + 1:
        raise ValueError("a string of more than 32767 bytes")
    return uvarint(n)


def read_tagged(buf: bytes | memoryview, pos: int, end: int, count: int, spans: bool = False) -> tuple[Any, int]:
    """Return a struct's tagged fields as {tag: bytes} or None, and the position after them.

    `count` is the first byte of their number. With `spans`, the fields are {tag: (start, stop)}.
    """
    found: dict[int, Any] = {}
    if count > 127:
        count, pos = uvarint_tail(buf, pos, count)
    if count * 2 > end - pos:
        raise ValueError("more tagged fields than bytes")
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        stop = pos + size
        if stop > end or tag in found:
            raise ValueError("a tagged field beyond the end, or twice")
        found[tag] = (pos, stop) if spans else bytes(buf[pos:stop])
        pos = stop
    return found if spans else found or None, pos  # a count of 0 can also be written in two bytes


def write_tagged(fields: Mapping[int, bytes]) -> bytes:
    """Encode tagged fields, in the order of their tags."""
    parts: list[bytes | memoryview] = [uvarint(len(fields))]
    for tag in sorted(fields):
        if not 0 <= tag < 1 << 32:
            raise ValueError("tag out of range")
        content = fields[tag] if isinstance(fields[tag], bytes) else flat_view(fields[tag])
        parts += (uvarint(tag), uvarint(len(content)), content)
    return b"".join(parts)


class _Uuids(dict[bytes, UUID]):
    """A cache of UUIDs by their 16 bytes: creating one takes microseconds, and topic ids repeat."""

    MOST = 1 << 15  # enough for the topics of a large cluster; about 8 MB

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= self.MOST:
            self.clear()
        made = self[raw] = UUID(bytes=raw)
        return made


UUIDS = _Uuids()
uuid_of: Callable[[bytes], UUID] = UUIDS.__getitem__


def sequence(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    raise TypeError("neither a list nor a tuple")


def flat_view(value: Any) -> memoryview:
    """Return a view whose len() is its size in bytes."""
    return memoryview(value).cast("B")


class _ByCount(dict[int, Callable[..., Any]]):
    """Struct functions for n - `more` values of one type, created on demand and cached for small n.

    A negative or impossibly large count raises struct.error.
    """

    def __init__(self, letter: str, method: str, more: int) -> None:
        self._letter = letter
        self._method = method
        self._more = more

    def __missing__(self, n: int) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(Struct(f">{n - self._more}{self._letter}"), self._method)
        if n <= 64:
            self[n] = function
        return function


@cache
def unpackers(letter: str, more: int) -> Mapping[int, Callable[..., Any]]:
    """unpackers("i", 0)[3](buf, pos) reads three int32; `more` is 1 for the counts of flexible versions."""
    return _ByCount(letter, "unpack_from", more)


@cache
def packers(letter: str, more: int) -> Mapping[int, Callable[..., bytes]]:
    """packers("i", 0)[3](1, 2, 3) packs three int32."""
    return _ByCount(letter, "pack", more)
