"""Which bytes are which field, and what is wrong with bytes or values that are no message.

A message read field by field: which bytes are which field, and what is wrong with bytes that are no message.

The compiled decoders are fast and say only that something failed; this interpretive walk over the same declarations
says where. It is also the reference that tests compare them with. It checks everything before it takes it: whatever
the bytes, it ends with a message or a DecodeError, having held no more than the frame.

Why a message cannot be encoded: the first field, in the order of the wire, whose value does not fit.

Asked only after a compiled encoder failed, so it may be slow; it knows the same rules, and a test holds the two to it.
"""

from __future__ import annotations

import operator
from struct import unpack_from
from typing import Any, NamedTuple
from uuid import UUID

from kwire.errors import DecodeError, EncodeError
from kwire.protocol import primitives
from kwire.protocol.codegen import is_flexible
from kwire.protocol.fields import STRING_BYTES_MAX, Array, Field, Fixed, Sized, default_of, least_size, type_name


class FieldBytes(NamedTuple):
    """The bytes data[start:end] and the field that they are. The lengths of strings belong to them; an array's count
    and a struct's count of tagged fields stand alone. `value` is what was read: a DecodeError where nothing could be.
    """

    path: str
    type_name: str
    start: int
    end: int
    value: Any


def annotate(cls: Any, data: bytes, version: int, start: int = 0) -> list[FieldBytes]:
    """Every field of a message in the order of its bytes. The last one has a DecodeError as its value if that is where
    the message stops making sense."""
    found: list[FieldBytes] = []
    walk = _Walk(bytes(data), start, cls.supported(version), version, found)
    try:
        walk.whole()
    except DecodeError as error:
        found.append(FieldBytes(walk.where(), "?", walk.pos, len(data), error))
    return found


def decode(cls: Any, data: bytes | memoryview, version: int, start: int = 0) -> Any:
    """The message, read the slow way."""
    return _Walk(bytes(data), start, cls.supported(version), version).whole()


def decode_prefix(cls: Any, data: bytes, version: int, start: int = 0) -> Any:
    """The message at the start of the bytes, whatever follows it."""
    return decode_front(cls, data, version, start)[0]


def decode_front(cls: Any, data: bytes | memoryview, version: int, start: int = 0) -> tuple[Any, int]:
    """Return the message at `start`, and where it ends: what follows is the caller's to judge. Raises DecodeError."""
    walk = _Walk(bytes(data), start, cls.supported(version), version)
    return walk.struct(cls), walk.pos


def decode_error(cls: Any, data: bytes | memoryview, start: int, version: int) -> DecodeError:
    """Why the bytes are no message of this class and version."""
    try:
        decode(cls, data, version, start)
    except DecodeError as error:
        return error
    raise AssertionError(f"{cls.__name__} v{version}: the compiled decoder refuses what the walk accepts")


class _Walk:
    """A position in the bytes and a path in the message, and what was found so far, for those who want it.

    A step is taken from the path when what it leads to was read; where an error leaves, the path still says where.
    """

    def __init__(self, buf: bytes, pos: int, cls: Any, version: int, found: list[FieldBytes] | None = None) -> None:
        self.buf = buf
        self.pos = pos
        self.cls = cls
        self.version = version
        self.flexible = is_flexible(cls, version)
        self.path: list[str] = []
        self.found = found

    def whole(self) -> Any:
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
        """Step over `size` bytes, if they are there: the position of the first."""
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
        """A length or count; -1 is null."""
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
        """Read the tagged fields into `fields`; answers the unknown ones."""
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
                raise self.error(f"tag {tag} is there twice", start)
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
                    raise self.error(f"the tagged field takes {self.pos - stop + size} bytes and says {size}")
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
        least = least_size(wire_type.element, self.version, self.flexible)
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
    """The error for a message that its compiled encoder refused."""
    name = type(message).__name__
    for path, reason in _faults(message, type(message), version, ""):
        return EncodeError(reason, api=name, version=version, path=path)
    raise AssertionError(f"{name} v{version}: the compiled encoder refuses what validate accepts")


def _faults(struct: Any, cls: Any, version: int, path: str) -> Any:
    """(path, reason) of everything that does not fit, in order."""
    if not isinstance(struct, cls):
        yield path, f"{_shown(struct)} is no {cls.__qualname__}"
        return
    for field in cls.FIELDS:
        here = f"{path}.{field.name}".lstrip(".")
        try:
            value = getattr(struct, field.name)
        except AttributeError:
            yield here, "not set"
            continue
        if field.exists(version):
            yield from _value_faults(value, field.type, field.is_nullable(version), version, here)
        elif not field.lossy and value != field.default:
            yield here, f"version {version} has no such field and would lose the value {_shown(value)}"
    for tag, content in (struct.unknown_tagged_fields or {}).items():
        if not (isinstance(tag, int) and 0 <= tag < 1 << 32 and isinstance(content, bytes)):
            yield f"{path}.unknown_tagged_fields".lstrip("."), f"{_shown(tag)}: not a tag and its bytes"


def _value_faults(value: Any, wire_type: Any, nullable: bool, version: int, path: str) -> Any:
    if value is None and nullable:
        return
    if value is None:
        yield path, f"None, but {type_name(wire_type)} is not nullable in version {version}"
    elif isinstance(wire_type, Array):
        if not isinstance(value, list | tuple):
            yield path, f"{_shown(value)} is no list"
            return
        for index, item in enumerate(value):
            yield from _value_faults(item, wire_type.element, False, version, f"{path}[{index}]")
    elif isinstance(wire_type, Fixed | Sized):
        reason = _fixed_fault(value, wire_type) if isinstance(wire_type, Fixed) else _sized_fault(value, wire_type)
        if reason:
            yield path, reason
    else:
        yield from _faults(value, wire_type, version, path)


def _fixed_fault(value: Any, wire_type: Fixed) -> str | None:
    match wire_type.name:
        case "boolean":
            fits = isinstance(value, int) and value in (0, 1)
        case "float64":
            fits = isinstance(value, int | float)
        case "uuid":
            fits = isinstance(value, UUID)
        case _:
            fits = hasattr(value, "__index__")  # what struct asks for: numpy's integers are welcome
            if fits and not wire_type.minimum <= operator.index(value) <= wire_type.maximum:
                return f"{value} is outside of {wire_type.name}"
    return None if fits else f"{_shown(value)} is no {wire_type.name}"


def _sized_fault(value: Any, wire_type: Sized) -> str | None:
    if wire_type.name != "string":
        try:
            memoryview(value).cast("B")
        except (TypeError, ValueError, BufferError):
            return f"{_shown(value)} is not bytes-like"
        return None
    if not isinstance(value, str):
        return f"{_shown(value)} is no string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"a string that UTF-8 cannot carry: {error.reason} at {error.start}"
    return f"a string of {size} bytes, above Kafka's {STRING_BYTES_MAX}" if size > STRING_BYTES_MAX else None


def _shown(value: Any) -> str:
    """A value for an error message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
