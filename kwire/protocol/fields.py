"""Wire types, and the fields of a declaration.

A wire type such as `int32` is `Annotated[int, Fixed(...)]`: an int to a type checker, a layout to `codegen`. Names that
would collide with builtins or with Kafka's field names end with an underscore (`bytes_`, `records_`). The types follow
Kafka's protocol guide. Varints occur only as lengths, counts and tags of flexible versions, so no field has that type.

A class body declares its fields in wire order:

    name: type                      in every version of the struct, required
    name: type = default            in every version, with a default
    since(v, until=, default=, nullable_since=, nullable_until=, ignorable=)
    tagged(tag, since=, default=)   a tagged field of the flexible versions (KIP-482)

`type | None` is nullable in every version that has the field, or from `nullable_since` on. `until` is the last version
that has the field. A field that some versions lack needs a default, which those versions decode to. Encoding raises if
a version would lose a value other than the default, unless the field is `ignorable`, as in Kafka's own schemas.
"""

from __future__ import annotations

from struct import calcsize
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeAlias, Union, get_args, get_origin
from uuid import UUID

NO_ID: UUID = UUID(int=0)


class Fixed(NamedTuple):
    """A type of fixed size. `format` is its letter in the `struct` module; integers have bounds."""

    name: str
    format: str
    size: int
    minimum: int = 0
    maximum: int = 0


class Sized(NamedTuple):
    """A type with a length prefix: `format` in inflexible versions, a varint of length + 1 in flexible ones."""

    name: str
    format: str


class Array(NamedTuple):
    """A list: a count (int32, or a varint of count + 1), then elements. `element` is a wire type or a Struct class."""

    element: Any


def _integer(name: str, format: str, size: int, signed: bool = True) -> Fixed:
    bits = 8 * size
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return Fixed(name, format, size, low, high)


# The longest string in bytes. Kafka's classes reject longer ones in every version, although compact strings could
# hold them.
STRING_BYTES_MAX = 32767

boolean: TypeAlias = Annotated[bool, Fixed("boolean", "?", 1)]
int8: TypeAlias = Annotated[int, _integer("int8", "b", 1)]
int16: TypeAlias = Annotated[int, _integer("int16", "h", 2)]
int32: TypeAlias = Annotated[int, _integer("int32", "i", 4)]
int64: TypeAlias = Annotated[int, _integer("int64", "q", 8)]
uint16: TypeAlias = Annotated[int, _integer("uint16", "H", 2, signed=False)]
uint32: TypeAlias = Annotated[int, _integer("uint32", "I", 4, signed=False)]
float64: TypeAlias = Annotated[float, Fixed("float64", "d", 8)]
uuid: TypeAlias = Annotated[UUID, Fixed("uuid", "16s", 16)]
string: TypeAlias = Annotated[str, Sized("string", "h")]
bytes_: TypeAlias = Annotated[bytes, Sized("bytes", "i")]
# Record batches, which this room does not decode: a memoryview into the frame. Encoding accepts any bytes-like object.
records_: TypeAlias = Annotated[bytes | bytearray | memoryview, Sized("records", "i")]


LAST = 2**15 - 1
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED", "__slots__": ()})()


class Field:
    """One field of a struct. `type` is a Fixed, Sized or Array, or the class of a nested struct.

    Versions `since` to `until` have the field; in `nullable_since` to `nullable_until` it may be None ((1, 0) means
    never). `default` is REQUIRED, or the value in versions that lack the field; a list or struct is copied.
    """

    __slots__ = ("default", "ignorable", "name", "nullable_since", "nullable_until", "since", "tag", "type", "until")

    name: str
    type: Any
    nullable_until: int

    def __init__(
        self,
        since: int,
        until: int,
        default: Any,
        nullable_since: int,
        nullable_until: int,
        ignorable: bool,
        tag: int | None,
    ) -> None:
        self.since = since
        self.until = until
        self.default = default
        self.nullable_since = nullable_since
        self.nullable_until = nullable_until
        self.ignorable = ignorable
        self.tag = tag

    def __repr__(self) -> str:
        until = "+" if self.until == LAST else f"-{self.until}"
        tag = "" if self.tag is None else f" tag {self.tag}"
        return f"<{self.name}: {type_name(self.type)} v{self.since}{until}{tag}>"

    def exists(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable(self, version: int) -> bool:
        return self.nullable_since <= version <= self.nullable_until


def since(
    version: int,
    *,
    until: int = LAST,
    default: Any = REQUIRED,
    nullable_since: int = -1,
    nullable_until: int = LAST,
    ignorable: bool = False,
) -> Any:
    """Declare a field of versions `version` to `until`, inclusive. The module's docstring has the rest."""
    return Field(version, until, default, nullable_since, nullable_until, ignorable, None)


def tagged(tag: int, *, since: int, default: Any, until: int = LAST, ignorable: bool = False) -> Any:
    """Declare a tagged field. It is omitted from a message when it has its default."""
    return Field(since, until, default, -1, LAST, ignorable, tag)


def field_of(owner: str, name: str, annotation: Any, value: Any) -> Field:
    """Return the Field of one line of a class body. `value` is its right-hand side, or REQUIRED."""
    field = value if isinstance(value, Field) else Field(0, LAST, value, -1, LAST, False, None)
    field.name = name
    field.type, nullable = _wire_type(owner, name, annotation)
    if not nullable:
        if field.nullable_since >= 0:
            raise TypeError(f"{owner}.{name}: nullable_since without `| None`")
        field.nullable_since, field.nullable_until = 1, 0
    elif field.nullable_since < 0:
        field.nullable_since = field.since
    if field.default is REQUIRED and (field.since > 0 or field.until < LAST):
        raise TypeError(f"{owner}.{name}: some versions lack it, so it needs a default")
    return field


def _wire_type(owner: str, name: str, annotation: Any) -> tuple[Any, bool]:
    """Return (wire type, nullable) of an annotation such as `list[int32] | None`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return annotation.__metadata__[0], False
    if origin is Union or origin is UnionType:
        inner = [part for part in get_args(annotation) if part is not NoneType]
        if len(inner) == 1:
            return _wire_type(owner, name, inner[0])[0], True
    elif origin is list:
        return Array(_wire_type(owner, name, get_args(annotation)[0])[0]), False
    elif isinstance(annotation, type) and hasattr(annotation, "FIELDS"):
        return annotation, False
    raise TypeError(f"{owner}.{name}: {annotation!r} is not a wire type")


def type_name(wire_type: Any) -> str:
    """Return the readable name of a wire type: int32, string, []Topic."""
    if isinstance(wire_type, Array):
        return f"[]{type_name(wire_type.element)}"
    if isinstance(wire_type, Fixed | Sized):
        return wire_type.name
    return str(wire_type.__name__)


def default_of(field: Field) -> Any:
    """Return the default of a field, a new object if it is a list or a struct."""
    default = field.default
    if isinstance(default, list):
        return list(default)
    if hasattr(default, "FIELDS"):
        return type(default)()
    return default


def min_size(wire_type: Any, version: int, flexible: bool) -> int:
    """Return the fewest bytes of a value of this type, at least 1, so that the frame size bounds every count."""
    if isinstance(wire_type, Fixed):
        return wire_type.size
    if isinstance(wire_type, Sized):
        return 1 if flexible else calcsize(f">{wire_type.format}")
    if isinstance(wire_type, Array):
        return 1 if flexible else 4
    size = 1 if flexible else 0
    for field in wire_type.FIELDS:
        if field.exists(version) and field.tag is None:
            is_null_struct = hasattr(field.type, "FIELDS") and field.is_nullable(version)
            size += 1 if is_null_struct else min_size(field.type, version, flexible)
    return max(size, 1)
