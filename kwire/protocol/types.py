"""The wire types of the declarations: to a type checker an int, a str, ...; to the compiler how it is laid out.

`int32` is `Annotated[int, Fixed(...)]`, so that `node_id: int32` is an int everywhere but in the compiler. Names that
would collide with builtins or with field names that Kafka uses end with an underscore (`bytes_`, `records_`).
What a type means on the wire follows Kafka's own protocol guide; there is no varint among the types of fields (varints
are only lengths, counts and tags of the flexible versions, see `compiler`).
"""
from typing import Annotated, Any, NamedTuple, TypeAlias
from uuid import UUID

NO_ID = UUID(int=0)


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
