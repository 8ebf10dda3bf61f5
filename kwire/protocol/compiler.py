"""One flat Python function per (message, version), written as source text and compiled on first use.

The way of `dataclasses` and `namedtuple`: the source is registered in `linecache`, so that tracebacks and debuggers show
it. Adjacent fields of fixed size, the length of the string that follows and the first byte of a varint are read or
written in one `struct` call. The functions only *detect* that something is wrong, by any exception of UNDECODABLE or
UNENCODABLE; which field it was is found by a second, interpretive pass (`annotate`, `validate`), so that good
messages do not pay for the error messages of bad ones.

Why nothing is read beyond the frame, though slices are not checked one by one: positions only grow (lengths are checked
for their sign), a count is checked against the bytes that remain, a read beyond the end raises, and a last slice that
was short leaves the position beyond the end, which the caller compares.
"""
import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as _Packer
from struct import error as StructError  # noqa: N812  it is an exception class with a lower-case name
from typing import Any, TypeAlias

from kwire.protocol import primitives
from kwire.protocol.fields import REQUIRED, Field
from kwire.protocol.types import STRING_BYTES_MAX, Array, Fixed, Sized

Decoder: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, list[Any], list[int]], None]

UNDECODABLE = (IndexError, ValueError, OverflowError, StructError)
UNENCODABLE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, StructError)


def decoder(cls: Any, version: int) -> Decoder:
    """decode(data, start) -> (message, end)."""
    source = _DecoderSource(version, cls.FLEXIBLE is not None and version >= cls.FLEXIBLE)
    source.whole(cls)
    return source.function(f"decode_{cls.__name__}_v{version}(buf, pos)")


def encoder(cls: Any, version: int) -> Encoder:
    """encode(message, parts, alone): append to `parts`, and to `alone` the indexes of parts that are not to be copied."""
    source = _EncoderSource(version, cls.FLEXIBLE is not None and version >= cls.FLEXIBLE)
    source.whole(cls)
    return source.function(f"encode_{cls.__name__}_v{version}(message, parts, alone)")


def constructor(cls: Any) -> Callable[..., None]:
    """`__init__` with one keyword for each field."""
    source = _Source()
    parameters = []
    for field in cls.FIELDS:
        name = field.name
        if field.default is REQUIRED:
            parameters.append(name)
            source.line(f"self.{name} = {name}")
        elif isinstance(field.default, list) or hasattr(field.default, "FIELDS"):
            parameters.append(f"{name}=REQUIRED")  # here: not given
            fresh = "[]" if isinstance(field.default, list) else f"{source.constant(type(field.default))}()"
            source.line(f"self.{name} = {fresh} if {name} is REQUIRED else {name}")
        else:
            parameters.append(f"{name}={source.constant(field.default)}")
            source.line(f"self.{name} = {name}")
    source.line("self.unknown_tagged_fields = None")
    source.names["REQUIRED"] = REQUIRED
    star = "*, " if parameters else ""
    return source.function(f"__init__(self, {star}{', '.join(parameters)})", cls.__qualname__)


class _Source:
    """The lines of one function, and the values that its names stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, Any] = {}
        self.counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str) -> str:
        """A name that the function does not use yet."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def constant(self, value: Any) -> str:
        """An expression for a value: a literal, or a name bound to it."""
        if value is None or isinstance(value, bool | int | str | bytes | float):
            return repr(value)
        name = value.__qualname__.replace(".", "_") if isinstance(value, type) else f"{type(value).__name__}_{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, signature: str, module: str = "") -> Any:
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        name = signature.partition("(")[0]
        filename = f"<kwire.protocol {module}{'.' if module else ''}{name}>"
        namespace = dict(self.names)
        exec(compile(text, filename, "exec"), namespace)
        # None for the modification time: checkcache() leaves the entry alone.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        return namespace[name]


class _DecoderSource(_Source):
    """Writes a decoder. `pending` are the reads of fixed size not yet written: (where to, struct letter, size)."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.pending: list[tuple[str, str, int]] = []
        self.names.update(new=object.__new__, uvarint_tail=primitives.uvarint_tail, read_tagged=primitives.read_tagged)

    def whole(self, cls: Any) -> None:
        self.line("end = len(buf)")
        if any(isinstance(t, Sized) and t.name == "records" for t in _types(cls)):
            self.line("view = memoryview(buf)")
        self.struct(cls, "message")
        self.line("return message, pos")

    def struct(self, cls: Any, target: str) -> None:
        """Make an instance of `cls` in the variable `target` and fill it."""
        self.flush()
        self.line(f"{target} = new({self.constant(cls)})")
        tagged: list[Field] = []
        for field in cls.FIELDS:
            if not field.exists(self.version):
                self.default(f"{target}.{field.name}", field)
            elif field.tag is not None:
                self.default(f"{target}.{field.name}", field)
                tagged.append(field)
            else:
                self.value(f"{target}.{field.name}", field.type, field.is_nullable(self.version))
        if self.flexible:
            self.tags(target, tagged)
        else:
            self.flush()
            self.line(f"{target}.unknown_tagged_fields = None")

    def default(self, target: str, field: Field) -> None:
        if isinstance(field.default, list):
            self.line(f"{target} = []")
        elif hasattr(field.default, "FIELDS"):
            self.line(f"{target} = {self.constant(type(field.default))}()")
        else:
            self.line(f"{target} = {self.constant(field.default)}")

    def want(self, target: str, letter: str, size: int) -> None:
        self.pending.append((target, letter, size))

    def flush(self) -> None:
        """Write the pending reads as one struct call."""
        if not self.pending:
            return
        targets = ", ".join(target for target, _, _ in self.pending)
        letters = "".join(letter for _, letter, _ in self.pending)
        size = sum(size for _, _, size in self.pending)
        self.pending.clear()
        if letters == "B":
            self.line(f"{targets} = buf[pos]")
        else:
            name = f"get_{letters.replace('?', 't')}"
            self.names[name] = _Packer(f">{letters}").unpack_from
            self.line(f"{targets}{',' if ',' not in targets else ''} = {name}(buf, pos)")
        self.line(f"pos += {size}")

    def length(self, format: str) -> str:
        """Read a length or count into a new variable: -1 is null."""
        n = self.fresh("n")
        if not self.flexible:
            self.want(n, format, 2 if format == "h" else 4)
            self.flush()
            return n
        self.uvarint(n)
        return n

    def uvarint(self, n: str) -> None:
        self.want(n, "B", 1)
        self.flush()
        with self.block(f"if {n} > 127:"):
            self.line(f"{n}, pos = uvarint_tail(buf, pos, {n})")

    def value(self, target: str, wire_type: Any, nullable: bool) -> None:
        if isinstance(wire_type, Fixed):
            self.fixed(target, wire_type)
        elif isinstance(wire_type, Sized):
            self.sized(target, wire_type, nullable)
        elif isinstance(wire_type, Array):
            self.array(target, wire_type.element, nullable)
        else:
            self.nested(target, wire_type, nullable)

    def fixed(self, target: str, wire_type: Fixed) -> None:
        if wire_type.name != "uuid":
            self.want(target, wire_type.format, wire_type.size)
            return
        raw = self.fresh("raw")
        self.want(raw, wire_type.format, wire_type.size)
        self.flush()
        self.names["uuid_of"] = primitives.uuid_of
        self.line(f"{target} = uuid_of({raw})")

    def sized(self, target: str, wire_type: Sized, nullable: bool) -> None:
        n = self.length(wire_type.format)
        null = 0 if self.flexible else -1
        size = f"{n} - 1" if self.flexible else n
        piece = f"buf[pos:(pos := pos + {size})]"
        if wire_type.name == "string":
            piece += ".decode()"
        elif wire_type.name == "records":
            piece = f"view[pos:(pos := pos + {size})]"
        # A compact string could be longer than 32767 bytes; Kafka's classes refuse it, and so do we.
        too_long = f" or {n} > {STRING_BYTES_MAX + 1}" if self.flexible and wire_type.name == "string" else ""
        if nullable:
            with self.block(f"if {n} == {null}:"):
                self.line(f"{target} = None")
            if not self.flexible or too_long:
                condition = f"{n} < -1" if not self.flexible else too_long.removeprefix(" or ")
                with self.block(f"elif {condition}:"):
                    self.line("raise ValueError")
            with self.block("else:"):
                self.line(f"{target} = {piece}")
        else:
            condition = f"{n} < 0" if not self.flexible else f"{n} == 0{too_long}"
            with self.block(f"if {condition}:"):
                self.line("raise ValueError")
            self.line(f"{target} = {piece}")

    def array(self, target: str, element: Any, nullable: bool) -> None:
        n = self.length("i")
        if self.flexible:
            self.line(f"{n} -= 1")
        if nullable:
            with self.block(f"if {n} == -1:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.elements(target, element, n)
        else:
            self.elements(target, element, n)

    def elements(self, target: str, element: Any, n: str) -> None:
        least = least_size(element, self.version, self.flexible)
        bytes_needed = f"{n} * {least}" if least > 1 else n
        with self.block(f"if not 0 <= {bytes_needed} <= end - pos:"):
            self.line("raise ValueError")
        if isinstance(element, Fixed) and element.name != "uuid":
            name = f"get_many_{element.name}"
            self.names[name] = primitives.unpackers(element.format)
            self.line(f"{target} = list({name}[{n}](buf, pos))")
            self.line(f"pos += {n} * {element.size}" if element.size > 1 else f"pos += {n}")
            return
        items, item = self.fresh("items"), self.fresh("item")
        self.line(f"{items} = {target} = []")
        with self.block(f"for _ in range({n}):"):
            if isinstance(element, Fixed | Sized):
                self.value(item, element, False)
                self.flush()
            else:
                self.struct(element, item)
            self.line(f"{items}.append({item})")

    def nested(self, target: str, cls: Any, nullable: bool) -> None:
        item = self.fresh("item")
        if not nullable:
            self.struct(cls, item)
            self.flush()
            self.line(f"{target} = {item}")
            return
        marker = self.fresh("marker")  # KIP-893: a byte, 1 or -1 for null
        self.want(marker, "b", 1)
        self.flush()
        with self.block(f"if {marker} == 1:"):
            self.struct(cls, item)
            self.flush()
            self.line(f"{target} = {item}")
        with self.block(f"elif {marker} == -1:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.line("raise ValueError")

    def tags(self, target: str, fields: list[Field]) -> None:
        """The tagged fields at the end of a struct: a count, then tag, size and bytes of each."""
        count = self.fresh("tags")
        self.uvarint(count)
        unknown = f"{target}.unknown_tagged_fields"
        if not fields:
            with self.block(f"if {count}:"):
                self.line(f"{unknown}, pos = read_tagged(buf, pos, end, {count})")
            with self.block("else:"):
                self.line(f"{unknown} = None")
            return
        self.line(f"{unknown} = None")
        with self.block(f"if {count}:"):
            found, left = self.fresh("found"), self.fresh("left")
            # Known fields are read out of the frame where they stand, once the whole section has been measured.
            self.line(f"{found}, pos = read_tagged(buf, pos, end, {count}, True)")
            self.line(f"{left} = pos")
            for field in fields:
                with self.block(f"if {field.tag} in {found}:"):
                    stop = self.fresh("stop")
                    self.line(f"pos, {stop} = {found}.pop({field.tag})")
                    self.value(f"{target}.{field.name}", field.type, field.is_nullable(self.version))
                    self.flush()
                    with self.block(f"if pos != {stop}:"):
                        self.line("raise ValueError")
            with self.block(f"if {found}:"):
                self.line(f"{unknown} = {{tag: buf[start:stop] for tag, (start, stop) in {found}.items()}}")
            self.line(f"pos = {left}")


class _EncoderSource(_Source):
    """Writes an encoder. `pending` are the writes of fixed size not yet written: (struct letter, expression)."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.pending: list[tuple[str, str]] = []
        self.append = "append"
        self.names.update(
            sequence=primitives.sequence, uvarint=primitives.uvarint, string_length=primitives.string_length,
            bytes_like=primitives.bytes_like, write_tagged=primitives.write_tagged, BOOLEAN=primitives.BOOLEAN,
        )

    def whole(self, cls: Any) -> None:
        self.line("append = parts.append")
        self.struct(cls, "message")
        self.flush()

    def struct(self, cls: Any, source: str) -> None:
        tagged: list[Field] = []
        for field in cls.FIELDS:
            value = f"{source}.{field.name}"
            if not field.exists(self.version):
                if not field.lossy:
                    with self.block(f"if {self.differs(value, field)}:"):
                        self.line("raise ValueError")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.value(value, field.type, field.is_nullable(self.version))
        if self.flexible:
            self.tags(source, tagged)

    def differs(self, value: str, field: Field) -> str:
        """An expression that tells whether a field has another value than its default."""
        default = field.default
        if isinstance(default, list):
            return f"{value} or {value} is None"
        if default is None:
            return f"{value} is not None"
        if hasattr(default, "FIELDS"):
            parts = [self.differs(f"{value}.{inner.name}", inner) for inner in default.FIELDS]
            return " or ".join([*parts, f"{value}.unknown_tagged_fields"])
        return f"{value} != {self.constant(default)}"

    def flush(self, length: str | None = None, tail: str = "uvarint") -> None:
        """Write the pending values as one struct call, and after them `length` as a varint if one is given."""
        letters = "".join(letter for letter, _ in self.pending)
        values = [value for _, value in self.pending]
        self.pending.clear()
        if length is None:
            if letters:
                self.line(f"{self.append}({self.pack(letters)}({', '.join(values)}))")
            return
        short = f"{self.pack(letters + 'B')}({', '.join([*values, length])})"
        long = f"{self.pack(letters)}({', '.join(values)}) + {tail}({length})" if letters else f"{tail}({length})"
        self.line(f"{self.append}({short} if {length} < 128 else {long})")

    def pack(self, letters: str) -> str:
        name = f"put_{letters}"
        self.names[name] = _Packer(f">{letters}").pack
        return name

    def value(self, value: str, wire_type: Any, nullable: bool) -> None:
        if isinstance(wire_type, Fixed):
            self.fixed(value, wire_type)
        elif isinstance(wire_type, Sized):
            self.sized(value, wire_type, nullable)
        elif isinstance(wire_type, Array):
            self.array(value, wire_type.element, nullable)
        else:
            self.nested(value, wire_type, nullable)

    def fixed(self, value: str, wire_type: Fixed) -> None:
        if wire_type.name == "boolean":
            self.pending.append(("B", f"BOOLEAN[{value}]"))  # struct's "?" would take anything
        elif wire_type.name == "uuid":
            self.pending.append((wire_type.format, f"{value}.bytes"))
        else:
            self.pending.append((wire_type.format, value))

    def sized(self, value: str, wire_type: Sized, nullable: bool) -> None:
        n, data = self.fresh("n"), self.fresh("data")
        is_text = wire_type.name == "string"
        plus = " + 1" if self.flexible else ""
        if nullable:
            self.line(f"{data} = {value}")
            with self.block(f"if {data} is None:"):
                self.line(f"{n} = {0 if self.flexible else -1}; {data} = b''")
            with self.block("else:"):
                self.line(f"{data} = {data}.encode()" if is_text else f"{data} = bytes_like({data})")
                self.line(f"{n} = len({data}){plus}")
        else:
            self.line(f"{data} = {value}.encode()" if is_text else f"{data} = bytes_like({value})")
            self.line(f"{n} = len({data}){plus}")
        if self.flexible:
            self.flush(n, "string_length" if is_text else "uvarint")
        else:
            self.pending.append((wire_type.format, n))
            self.flush()
        if wire_type.name == "records":
            with self.block(f"if {n} >= {primitives.COPY_BYTES_MAX}:"):
                self.line("alone.append(len(parts))")
        self.line(f"{self.append}({data})")

    def array(self, value: str, element: Any, nullable: bool) -> None:
        items, n = self.fresh("items"), self.fresh("n")
        self.line(f"{items} = {value}")
        if not nullable:
            self.sequence(items, n)
            self.count(n)
            self.elements(items, n, element)
            return
        self.flush()
        with self.block(f"if {items} is None:"):
            self.line(f"{self.append}({(primitives.NULL_COMPACT if self.flexible else primitives.NULL_ARRAY)!r})")
        with self.block("else:"):
            self.sequence(items, n)
            self.count(n)
            self.elements(items, n, element)

    def sequence(self, items: str, n: str) -> None:
        with self.block(f"if type({items}) is not list:"):
            self.line(f"{items} = sequence({items})")  # a str or dict has a length and elements too
        self.line(f"{n} = len({items}){' + 1' if self.flexible else ''}")

    def count(self, n: str) -> None:
        if self.flexible:
            self.flush(n)
        else:
            self.pending.append(("i", n))
            self.flush()

    def elements(self, items: str, n: str, element: Any) -> None:
        if isinstance(element, Fixed) and element.name not in ("uuid", "boolean"):
            name = f"put_many_{element.name}"
            self.names[name] = primitives.packers(element.format)
            self.line(f"{self.append}({name}[{n}{' - 1' if self.flexible else ''}](*{items}))")
            return
        item = self.fresh("item")
        with self.block(f"for {item} in {items}:"):
            if isinstance(element, Fixed | Sized):
                self.value(item, element, False)
            else:
                self.struct(element, item)
            self.flush()

    def nested(self, value: str, cls: Any, nullable: bool) -> None:
        item = self.fresh("item")
        self.line(f"{item} = {value}")
        if not nullable:
            self.struct(cls, item)
            return
        self.flush()
        with self.block(f"if {item} is None:"):
            self.line(f"{self.append}({primitives.NULL_STRUCT!r})")
        with self.block("else:"):
            self.line(f"{self.append}({primitives.PRESENT_STRUCT!r})")
            self.struct(cls, item)
            self.flush()

    def tags(self, source: str, fields: list[Field]) -> None:
        unknown = f"{source}.unknown_tagged_fields"
        if not fields:
            # The one zero byte of "no tags" joins the struct call of the fields before it.
            self.pending.append(("B", "0"))
            zero = self.pending[:]
            self.pending.clear()
            with self.block(f"if {unknown}:"):
                self.pending = zero[:-1]
                self.flush()
                self.line(f"{self.append}(write_tagged({unknown}))")
            with self.block("else:"):
                self.pending = zero
                self.flush()
            return
        self.flush()
        present, outer = self.fresh("tagged"), self.append
        self.line(f"{present} = dict({unknown}) if {unknown} else {{}}")
        for field in fields:
            value = f"{source}.{field.name}"
            with self.block(f"if {self.differs(value, field)}:"):
                inside = self.fresh("inside")
                self.append = f"{inside}.append"
                self.line(f"{inside} = []")
                self.value(value, field.type, field.is_nullable(self.version))
                self.flush()
                self.line(f"{present}[{field.tag}] = b''.join({inside})")
                self.append = outer
        self.line(f"{outer}(write_tagged({present}))")


def _types(cls: Any) -> Iterator[Any]:
    """Every wire type in a struct, those of nested structs included."""
    for field in cls.FIELDS:
        element = field.type.element if isinstance(field.type, Array) else field.type
        if hasattr(element, "FIELDS"):
            yield from _types(element)
        else:
            yield element


def least_size(wire_type: Any, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of a type takes; 1 for an empty struct, so that counts stay bounded by the frame."""
    if isinstance(wire_type, Fixed):
        return wire_type.size
    if isinstance(wire_type, Sized):
        return 1 if flexible or wire_type.format == "b" else _Packer(f">{wire_type.format}").size
    if isinstance(wire_type, Array):
        return 1 if flexible else 4
    size = 1 if flexible else 0
    for field in wire_type.FIELDS:
        if field.exists(version) and field.tag is None:
            is_null_struct = hasattr(field.type, "FIELDS") and field.is_nullable(version)
            size += 1 if is_null_struct else least_size(field.type, version, flexible)
    return max(size, 1)
