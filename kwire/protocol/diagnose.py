"""Read messages field by field, and find the field that cannot be decoded or encoded.

Generated codecs are fast and only report that something failed. The functions here interpret the same declarations,
slowly, and raise errors with path and offset. Reading checks every length and count before it uses it, so any bytes
end in a message or a DecodeError, with no more memory than the frame. Tests compare both ways.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from struct import unpack_from
from typing import Any, NamedTuple
from uuid import UUID

from kwire.errors import DecodeError, EncodeError
from kwire.protocol import primitives
from kwire.protocol.codegen import is_flexible
from kwire.protocol.fields import STRING_BYTES_MAX, Array, Field, Fixed, Sized, default_of, min_size, type_name

# The bytes of a tagged field, which has a length before them as others have.
_TAG_CONTENT = Sized("bytes", "i")


class FieldBytes(NamedTuple):
    """A field and its bytes, data[start:end].

    The bytes of a string include its length. The count of an array, and that of tagged fields, is a field of its own.
    `value` is the decoded value, or a DecodeError.
    """

    path: str
    type_name: str
    start: int
    end: int
    value: Any


def annotate(cls: Any, data: bytes, version: int, start: int = 0) -> list[FieldBytes]:
    """Return every field of a message in byte order. If the message is invalid, the last one has a DecodeError."""
    found: list[FieldBytes] = []
    reader = _FieldReader(bytes(data), start, cls.supported(version), version, found)
    try:
        reader.read_message()
    except DecodeError as error:
        found.append(FieldBytes(reader.where(), "?", reader.pos, len(data), error))
    return found


def decode(cls: Any, data: bytes | memoryview, version: int, start: int = 0) -> Any:
    """Decode a message field by field. Raises DecodeError with path and offset."""
    return _FieldReader(bytes(data), start, cls.supported(version), version).read_message()


def decode_prefix(cls: Any, data: bytes | memoryview, version: int, start: int = 0) -> tuple[Any, int]:
    """Return the message at `start` and its end position; bytes after it are allowed. Raises DecodeError."""
    reader = _FieldReader(bytes(data), start, cls.supported(version), version)
    return reader.struct(cls), reader.pos


def decode_error(cls: Any, data: bytes | memoryview, start: int, version: int) -> DecodeError:
    """Return why the bytes are not a message of this class and version."""
    try:
        decode(cls, data, version, start)
    except DecodeError as error:
        return error
    raise AssertionError(f"{cls.__name__} v{version}: the generated decoder rejects what `decode` accepts")


class _FieldReader:
    """A position in the bytes, a path in the message, and the fields read so far if `found` is a list.

    A step leaves the path when its field has been read, so after an error the path names the invalid field.
    """

    def __init__(self, buf: bytes, pos: int, cls: Any, version: int, found: list[FieldBytes] | None = None) -> None:
        self.buf = buf
        self.pos = pos
        self.cls = cls
        self.version = version
        self.flexible = is_flexible(cls, version)
        self.path: list[str] = []
        self.found = found

    def read_message(self) -> Any:
        message = self.struct(self.cls)
        left = len(self.buf) - self.pos
        if left:
            raise self.error(f"{left} bytes are left over after the last field")
        return message

    def where(self) -> str:
        return "".join(self.path).lstrip(".")

    def error(self, reason: str, pos: int | None = None) -> DecodeError:
        offset = self.pos if pos is None else pos
        return DecodeError(
            reason, api=self.cls.__name__, version=self.version, path=self.where() or None, offset=offset
        )

    def note(self, name: str, start: int, value: Any) -> Any:
        if self.found is not None:
            self.found.append(FieldBytes(self.where(), name, start, self.pos, value))
        return value

    def take(self, size: int) -> int:
        """Advance by `size` bytes. Return the position of the first. Raises DecodeError if they are missing."""
        start, left = self.pos, len(self.buf) - self.pos
        if size > left:
            raise self.error(f"{size} bytes are needed and {left} are left")
        self.pos += size
        return start

    def uvarint(self) -> int:
        start = self.pos
        value = shift = 0
        while True:
            byte = self.buf[self.take(1)]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 128 and value < 1 << 32:
                return value
            if byte < 128 or shift == 35:
                raise self.error("a varint of more than 32 bits", start)

    def length(self, format: str, what: str) -> int:
        """Read a length or count. Null is -1."""
        start = self.pos
        if self.flexible:
            return self.uvarint() - 1
        length: int = unpack_from(f">{format}", self.buf, self.take(2 if format == "h" else 4))[0]
        if length < -1:
            raise self.error(f"{what} of {length}", start)
        return length

    def struct(self, cls: Any) -> Any:
        fields: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in cls.FIELDS:
            if not field.exists(self.version):
                fields[field.name] = default_of(field)
            elif field.tag is not None:
                fields[field.name] = default_of(field)
                tagged[field.tag] = field
            else:
                self.path.append(f".{field.name}")
                fields[field.name] = self.value(field.type, field.is_nullable(self.version))
                self.path.pop()
        unknown = self.tags(tagged, fields) if self.flexible else None
        struct = cls(**fields)
        struct.unknown_tagged_fields = unknown
        return struct

    def tags(self, tagged: dict[int, Field], fields: dict[str, Any]) -> dict[int, bytes] | None:
        """Read the tagged fields into `fields`. Return the unknown ones."""
        unknown: dict[int, bytes] = {}
        seen: set[int] = set()
        self.path.append(".tagged_fields")
        start = self.pos
        count = self.uvarint()
        if count * 2 > len(self.buf) - self.pos:
            raise self.error(f"a count of {count} with {len(self.buf) - self.pos} bytes left", start)
        self.note("count", start, count)
        for _ in range(count):
            start = self.pos
            tag, size = self.uvarint(), self.uvarint()
            if tag in seen:
                raise self.error(f"tag {tag} occurs twice", start)
            seen.add(tag)
            stop = self.take(size) + size
            self.pos = stop - size
            field = tagged.get(tag)
            self.path[-1] = f".{field.name}" if field else f".tag{tag}"
            self.note("tag, size", start, (tag, size))
            if field is None:
                body = self.take(size)
                unknown[tag] = self.note("unknown", body, self.buf[body:stop])
            else:
                fields[field.name] = self.tagged(field)
                if self.pos != stop:
                    raise self.error(f"the tagged field has {self.pos - stop + size} bytes, but its size is {size}")
            self.path[-1] = ".tagged_fields"
        self.path.pop()
        return unknown or None

    def value(self, wire_type: Any, nullable: bool) -> Any:
        if isinstance(wire_type, Fixed):
            start = self.take(wire_type.size)
            value = unpack_from(f">{wire_type.format}", self.buf, start)[0]
            return self.note(wire_type.name, start, primitives.uuid_of(value) if wire_type.name == "uuid" else value)
        if isinstance(wire_type, Sized):
            return self.sized(wire_type, nullable)
        if isinstance(wire_type, Array):
            return self.array(wire_type, nullable)
        return self.nested(wire_type, nullable, primitives.NULL_STRUCT)

    def nested(self, cls: Any, nullable: bool, null: bytes) -> Any:
        if not nullable:
            return self.struct(cls)
        start = self.take(1)
        marker = self.buf[start : self.pos]
        is_present = marker == primitives.PRESENT_STRUCT
        if not is_present and marker != null:
            raise self.error(f"a null marker of {marker.hex()}, neither 01 nor {null.hex()}", start)
        self.note("null marker", start, is_present)
        return self.struct(cls) if is_present else None

    def tagged(self, field: Field) -> Any:
        if hasattr(field.type, "FIELDS"):
            return self.nested(field.type, field.is_nullable(self.version), primitives.NULL_TAGGED_STRUCT)
        return self.value(field.type, field.is_nullable(self.version))

    def sized(self, wire_type: Sized, nullable: bool) -> Any:
        start = self.pos
        length = self.length(wire_type.format, "a length")
        if length < 0:
            if not nullable:
                raise self.error(f"null, but {wire_type.name} is not nullable here", start)
            return self.note(wire_type.name, start, None)
        if wire_type.name == "string" and length > STRING_BYTES_MAX:
            raise self.error(f"a string of {length} bytes, above Kafka's {STRING_BYTES_MAX}", start)
        begin = self.take(length)
        if wire_type.name == "records":
            return self.note("records", start, memoryview(self.buf)[begin : self.pos])
        piece = self.buf[begin : self.pos]
        if wire_type.name != "string":
            return self.note(wire_type.name, start, piece)
        try:
            return self.note("string", start, piece.decode())
        except UnicodeDecodeError as error:
            raise self.error(f"not UTF-8: {error.reason}", begin + error.start) from None

    def array(self, wire_type: Array, nullable: bool) -> Any:
        start = self.pos
        count = self.length("i", "a count")
        if count < 0:
            if not nullable:
                raise self.error("null, but the array is not nullable here", start)
            return self.note(type_name(wire_type), start, None)
        least = min_size(wire_type.element, self.version, self.flexible)
        left = len(self.buf) - self.pos
        if count * least > left:
            raise self.error(f"{count} elements of at least {least} bytes, with {left} bytes left", start)
        self.note(type_name(wire_type), start, count)
        items = []
        for index in range(count):
            self.path.append(f"[{index}]")
            items.append(self.value(wire_type.element, False))
            self.path.pop()
        return items


def encode_error(message: Any, version: int) -> EncodeError:
    """Return the error for a message that its generated encoder rejected."""
    name = type(message).__name__
    flexible = is_flexible(type(message), version)
    for path, reason in _problems(message, type(message), version, flexible, ""):
        return EncodeError(reason, api=name, version=version, path=path)
    raise AssertionError(f"{name} v{version}: the generated encoder rejects a valid message")


def _problems(struct: Any, cls: Any, version: int, flexible: bool, path: str) -> Any:
    """Yield (path, reason) for every value that cannot be encoded, in wire order."""
    if not isinstance(struct, cls):
        yield path, f"{_short_repr(struct)} is not a {cls.__qualname__}"
        return
    for field in cls.FIELDS:
        here = f"{path}.{field.name}".lstrip(".")
        try:
            value = getattr(struct, field.name)
        except AttributeError:
            yield here, "not set"
            continue
        if field.exists(version):
            yield from _value_problems(value, field.type, field.is_nullable(version), version, flexible, here)
        elif not field.ignorable and value != field.default:
            yield here, f"version {version} has no such field and would lose the value {_short_repr(value)}"
    here = f"{path}.unknown_tagged_fields".lstrip(".")
    yield from _tag_problems(struct.unknown_tagged_fields, version, flexible, here)


def _tag_problems(tags: Any, version: int, flexible: bool, path: str) -> Any:
    if not tags:
        return
    if not isinstance(tags, Mapping):
        yield path, f"{_short_repr(tags)} is not a dict of tags and their bytes"
        return
    if not flexible:
        yield path, f"version {version} has no tagged fields and would lose those of tag {', '.join(map(repr, tags))}"
    for tag, content in tags.items():
        if not (isinstance(tag, int) and 0 <= tag < 1 << 32) or _sized_problem(content, _TAG_CONTENT) is not None:
            yield path, f"{_short_repr(tag)}: not a tag and its bytes"


def _value_problems(value: Any, wire_type: Any, nullable: bool, version: int, flexible: bool, path: str) -> Any:
    if value is None and nullable:
        return
    if value is None:
        yield path, f"None, but {type_name(wire_type)} is not nullable in version {version}"
    elif isinstance(wire_type, Array):
        if not isinstance(value, list | tuple):
            yield path, f"{_short_repr(value)} is not a list"
            return
        for index, item in enumerate(value):
            yield from _value_problems(item, wire_type.element, False, version, flexible, f"{path}[{index}]")
    elif isinstance(wire_type, Fixed | Sized):
        reason = _fixed_problem(value, wire_type) if isinstance(wire_type, Fixed) else _sized_problem(value, wire_type)
        if reason:
            yield path, reason
    else:
        yield from _problems(value, wire_type, version, flexible, path)


def _fixed_problem(value: Any, wire_type: Fixed) -> str | None:
    match wire_type.name:
        case "boolean":
            fits = isinstance(value, int) and value in (0, 1)
        case "float64":
            fits = isinstance(value, int | float)
        case "uuid":
            fits = isinstance(value, UUID)
        case _:
            fits = hasattr(value, "__index__")  # as the struct module does, so numpy's integers are valid
            if fits and not wire_type.minimum <= operator.index(value) <= wire_type.maximum:
                return f"{_short_repr(value)} is outside of {wire_type.name}"
    return None if fits else f"{_short_repr(value)} is not a valid {wire_type.name}"


def _sized_problem(value: Any, wire_type: Sized) -> str | None:
    if wire_type.name != "string":
        try:
            memoryview(value).cast("B")
        except (TypeError, ValueError, BufferError):
            return f"{_short_repr(value)} is not bytes-like"
        return None
    if not isinstance(value, str):
        return f"{_short_repr(value)} is not a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"a string that is not valid UTF-8: {error.reason} at {error.start}"
    return f"a string of {size} bytes, above Kafka's {STRING_BYTES_MAX}" if size > STRING_BYTES_MAX else None


def _short_repr(value: Any) -> str:
    """Return a value for an error message, at most 60 characters long."""
    try:
        text = repr(value)
    except ValueError:  # of an int of more than 4300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."
