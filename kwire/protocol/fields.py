"""The wire types and the grammar of a declaration.

The wire types of the declarations: to a type checker an int, a str, ...; to the compiler how it is laid out.

`int32` is `Annotated[int, Fixed(...)]`, so that `node_id: int32` is an int everywhere but in the compiler. Names that
would collide with builtins or with field names that Kafka uses end with an underscore (`bytes_`, `records_`).
What a type means on the wire follows Kafka's own protocol guide; there is no varint among the types of fields (varints
are only lengths, counts and tags of the flexible versions, see `compiler`).

The grammar of a declaration: what a class body may say about a field, and the `Field` that comes of it.

    name: type                      in every version of the struct, required
    name: type = default            in every version, with a default
    since(v, until=, default=, nullable_since=, nullable_until=, lossy=)
    tagged(tag, since=, default=)   a tagged field of the flexible versions (KIP-482)

`type | None` is nullable in every version that has the field, unless `nullable_since` says from which. `until` is the
last version that has it. A field that some versions lack has a default, which is what those versions decode to. When
a version would lose a value other than the default, encoding raises, unless the field is `lossy` (Kafka: ignorable).
"""

from __future__ import annotations

from struct import calcsize
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeAlias, Union, get_args, get_origin
from uuid import UUID

NO_ID: UUID = UUID(int=0)


class Fixed(NamedTuple):
    """A type of fixed size, `format` being the `struct` module's letter for it, and for integers the bounds."""

    name: str
    format: str
    size: int
    minimum: int = 0
    maximum: int = 0


class Sized(NamedTuple):
    """A type led by its length, `format` in the old versions, a varint of the length + 1 in the flexible ones."""

    name: str
    format: str


class Array(NamedTuple):
    """A list: a count (int32, or a varint of count + 1) and the elements. `element` is a type, or a Struct's class."""

    element: Any


def _integer(name: str, format: str, size: int, signed: bool = True) -> Fixed:
    bits = 8 * size
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return Fixed(name, format, size, low, high)


# A string is at most this long in bytes, in every version: Kafka's classes refuse longer ones even where a compact
# string could hold them.
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
# Record batches, not read here: decodes to a memoryview into the frame (no copy), encodes any bytes-like.
records_: TypeAlias = Annotated[bytes | bytearray | memoryview, Sized("records", "i")]


LAST = 2**15 - 1
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED", "__slots__": ()})()


class Field:
    """One field of a struct. `type` is a Fixed, Sized or Array, or the class of a nested struct.

    `since`..`until` are the versions that have it, `nullable_since`..`nullable_until` those in which None is allowed
    (none of them: (1, 0)). `default` is REQUIRED or the value of the versions that lack it; a list or a struct stands
    for a fresh copy of it.
    """

    __slots__ = ("default", "lossy", "name", "nullable_since", "nullable_until", "since", "tag", "type", "until")

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
        lossy: bool,
        tag: int | None,
    ) -> None:
        self.since = since
        self.until = until
        self.default = default
        self.nullable_since = nullable_since
        self.nullable_until = nullable_until
        self.lossy = lossy
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
    lossy: bool = False,
) -> Any:
    """A field of the versions `version`..`until` (inclusive). See the module's docstring for the rest."""
    return Field(version, until, default, nullable_since, nullable_until, lossy, None)


def tagged(tag: int, *, since: int, default: Any, until: int = LAST, lossy: bool = False) -> Any:
    """A tagged field: left out of the message where it has its default. Never required."""
    return Field(since, until, default, -1, LAST, lossy, tag)


def field_of(owner: str, name: str, annotation: Any, value: Any) -> Field:
    """The Field for one line of a class body; `value` is its right-hand side or REQUIRED."""
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
    """(wire type, nullable) of an annotation such as `list[int32] | None`."""
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
    raise TypeError(f"{owner}.{name}: {annotation!r} is no wire type")


def type_name(wire_type: Any) -> str:
    """How a wire type is shown to people: int32, string, []Topic."""
    if isinstance(wire_type, Array):
        return f"[]{type_name(wire_type.element)}"
    if isinstance(wire_type, Fixed | Sized):
        return wire_type.name
    return str(wire_type.__name__)


def default_of(field: Field) -> Any:
    """A fresh value for a field that the constructor was not given, or that a version lacks."""
    default = field.default
    if isinstance(default, list):
        return list(default)
    if hasattr(default, "FIELDS"):
        return type(default)()
    return default


def least_size(wire_type: Any, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of a type takes; at least 1, so that the frame bounds every count."""
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
            size += 1 if is_null_struct else least_size(field.type, version, flexible)
    return max(size, 1)
