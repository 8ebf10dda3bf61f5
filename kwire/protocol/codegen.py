"""Generate codecs and constructors from declarations, on first use, as `dataclasses` does.

Each (message, version) gets one flat Python function. Adjacent fields of fixed size, the length of the next string and
the first byte of a varint are read or written in one `struct` call. The source is registered in `linecache`, so
tracebacks and debuggers show it.

Codecs only *detect* an error: they return None or raise one of DECODE_FAILURES or ENCODE_FAILURES. `diagnose` then
finds the field in a second, slower pass, so that valid messages do not pay for error messages.

A decoder cannot read beyond the frame, although it does not check each slice. Positions only grow, because lengths are
checked for their sign. A count is checked against the remaining bytes. A short last slice leaves the position beyond
the end, which is compared when the message is complete.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from struct import Struct
from struct import error as _struct_error
from typing import Any, TypeAlias
from uuid import UUID

from kwire.protocol import primitives
from kwire.protocol.fields import REQUIRED, STRING_BYTES_MAX, Array, Field, Fixed, Sized, min_size

Decoder: TypeAlias = Callable[[bytes | memoryview, int], Any]
Encoder: TypeAlias = Callable[[Any, list[Any], list[int]], None]

DECODE_FAILURES = (IndexError, ValueError, OverflowError, _struct_error)
ENCODE_FAILURES = (
    AttributeError, BufferError, IndexError, KeyError, OverflowError, TypeError, ValueError, _struct_error
)  # fmt: skip

# The len() of the result is its size in bytes.
_AS_BYTES = "{0} = {0} if isinstance({0}, (bytes, bytearray)) else flat_view({0})"


def decoder(cls: Any, version: int) -> Decoder:
    """Return decode(data, start), which decodes the message in `data` from `start` to the end."""
    source = DecoderSource(version, is_flexible(cls, version))
    source.message(cls)
    return source.function(f"decode_{cls.__name__}_v{version}(buf, pos)")


def encoder(cls: Any, version: int) -> Encoder:
    """Return encode(message, parts, uncopied): it appends to `parts`, and to `uncopied` indexes of large records."""
    source = EncoderSource(version, is_flexible(cls, version))
    source.message(cls)
    return source.function(f"encode_{cls.__name__}_v{version}(message, parts, uncopied)")


def is_flexible(cls: Any, version: int) -> bool:
    """Return whether a version of a message has compact lengths and tagged fields (KIP-482)."""
    return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE


def constructor(cls: Any) -> Callable[..., None]:
    """Return an `__init__` with a keyword for each field."""
    source = Source()
    source.names["REQUIRED"] = REQUIRED  # the default of a parameter that was not passed
    source.names["field_error"] = partial(field_error, cls)
    parameters, values = [], []
    for field in cls.FIELDS:
        name, default = field.name, field.default
        value = name
        if default is REQUIRED or isinstance(default, list) or hasattr(default, "FIELDS"):
            parameters.append(f"{name}=REQUIRED")
            if default is not REQUIRED:
                fresh = "[]" if isinstance(default, list) else f"{source.constant(type(default))}()"
                value = f"{fresh} if {name} is REQUIRED else {name}"
        else:
            parameters.append(f"{name}={source.constant(default)}")
        values.append(f"self.{name} = {value}")
    required = [field.name for field in cls.FIELDS if field.default is REQUIRED]
    with source.block(f"if {' or '.join(['_unknown', *(f'{name} is REQUIRED' for name in required)])}:"):
        given = ", ".join(f"{name!r}: {name}" for name in required)
        source.line(f"raise field_error(_unknown, {{{given}}})")
    for line in values:
        source.line(line)
    source.line("self.unknown_tagged_fields = None")
    star = "*, " if parameters else ""
    return source.function(f"__init__(self, {star}{', '.join([*parameters, '**_unknown'])})", f"{cls.__qualname__}.")


def field_error(cls: Any, unknown: Mapping[str, object], required: Mapping[str, object]) -> TypeError:
    """Return the error for unknown keywords, with similar field names, or for missing fields."""
    names = [field.name for field in cls.FIELDS]
    missing = [name for name, value in required.items() if value is REQUIRED]
    if not unknown:
        return TypeError(f"{cls.__qualname__} needs {', '.join(missing)}")
    from kwire.option_checks import near_names  # only a wrong name pays for it

    near = [name for wrong in unknown for name in near_names(wrong, names)]
    hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(names) or 'none'}"
    return TypeError(f"{cls.__qualname__} has no field {', '.join(unknown)}: {hint}")


class Source:
    """The source of one function: its lines, and the values of its names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent the lines written inside the `with` block below `header`."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def new_name(self, prefix: str) -> str:
        """Return a name that the function does not use yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, value: Any) -> str:
        """Return an expression for a value: a literal, or a name bound to it."""
        if value is None or isinstance(value, bool | int | str | bytes | float):
            return repr(value)
        if isinstance(value, type):
            name = value.__qualname__.replace(".", "_")
        else:
            name = f"{type(value).__name__}_{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, signature: str, owner: str = "") -> Callable[..., Any]:
        """Compile `def signature` with the lines as its body. `owner` distinguishes functions of one name."""
        text = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        name = signature.partition("(")[0]
        filename = f"<kwire.protocol {owner}{name}>"
        namespace = dict(self.names)
        exec(compile(text, filename, "exec"), namespace)
        # None for the modification time: linecache.checkcache() leaves the entry alone.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        function: Callable[..., Any] = namespace[name]
        return function


class EncoderSource(Source):
    """The source of an encoder. It appends bytes to a list.

    `pending` holds values of fixed size for the next struct call: (struct letter, expression). A value that does not
    fit makes a call raise. What no call would notice (a str as a list, an object as a boolean) is checked first.
    """

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.pending: list[tuple[str, str]] = []
        self.append = "append"
        self.names.update(
            sequence=primitives.sequence,
            uvarint=primitives.uvarint,
            string_length=primitives.string_length,
            flat_view=primitives.flat_view,
            write_tagged=primitives.write_tagged,
            BOOLEAN=primitives.BOOLEAN,
        )

    def message(self, cls: Any) -> None:
        self.line("append = parts.append")
        self.struct(cls, "message")
        self.flush()

    def struct(self, cls: Any, source: str) -> None:
        tagged: list[Field] = []
        for field in cls.FIELDS:
            value = f"{source}.{field.name}"
            if not field.exists(self.version):
                if not field.ignorable:
                    with self.block(f"if {self.differs_from_default(value, field)}:"):
                        self.line("raise ValueError")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.value(value, field.type, field.is_nullable(self.version))
        if self.flexible:
            self.tags(source, tagged)
        else:
            with self.block(f"if {source}.unknown_tagged_fields:"):
                self.line("raise ValueError")

    def differs_from_default(self, value: str, field: Field) -> str:
        """Return an expression for whether a field has another value than its default."""
        default = field.default
        if isinstance(default, list):
            return f"{value} != []"
        if default is None:
            return f"{value} is not None"
        if hasattr(default, "FIELDS"):
            parts = [f"{value} is None"] if field.nullable_since <= field.nullable_until else []
            parts += [self.differs_from_default(f"{value}.{inner.name}", inner) for inner in default.FIELDS]
            return " or ".join([*parts, f"{value}.unknown_tagged_fields"])
        if isinstance(default, UUID):  # `is not` first: UUID.__eq__ is slow Python code
            return f"{value} is not {self.constant(default)} and {value} != {self.constant(default)}"
        return f"{value} != {self.constant(default)}"

    def flush(self, length: str | None = None, tail: str = "uvarint") -> None:
        """Write the pending values in one struct call, followed by `length` as a varint if it is given."""
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
        self.names[name] = Struct(f">{letters}").pack
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
            self.pending.append(("B", f"BOOLEAN[{value}]"))  # struct's "?" would accept any object
        elif wire_type.name == "uuid":
            self.pending.append(
                (wire_type.format, f"{value}.int.to_bytes(16, 'big')")
            )  # faster than UUID.bytes, a Python property
        else:
            self.pending.append((wire_type.format, value))

    def sized(self, value: str, wire_type: Sized, nullable: bool) -> None:
        n, data = self.new_name("n"), self.new_name("data")
        is_text = wire_type.name == "string"
        plus = " + 1" if self.flexible else ""
        if nullable:
            self.line(f"{data} = {value}")
            with self.block(f"if {data} is None:"):
                self.line(f"{n} = {0 if self.flexible else -1}; {data} = b''")
            with self.block("else:"):
                self.line(f"{data} = {data}.encode()" if is_text else _AS_BYTES.format(data))
                self.line(f"{n} = len({data}){plus}")
        else:
            self.line(f"{data} = {value}.encode()" if is_text else f"{data} = {value}")
            if not is_text:
                self.line(_AS_BYTES.format(data))
            self.line(f"{n} = len({data}){plus}")
        if self.flexible:
            self.flush(n, "string_length" if is_text else "uvarint")
        else:
            self.pending.append((wire_type.format, n))
            self.flush()
        if wire_type.name == "records":
            with self.block(f"if {n} >= {primitives.COPY_BYTES_MAX}:"):
                self.line("uncopied.append(len(parts))")
        self.line(f"{self.append}({data})")

    def array(self, value: str, element: Any, nullable: bool) -> None:
        items, n = self.new_name("items"), self.new_name("n")
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
            self.line(f"{items} = sequence({items})")  # a str or dict also has a length and elements
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
            self.names[name] = primitives.packers(element.format, 1 if self.flexible else 0)
            self.line(f"{self.append}({name}[{n}](*{items}))")
            return
        item = self.new_name("item")
        with self.block(f"for {item} in {items}:"):
            if isinstance(element, Fixed | Sized):
                self.value(item, element, False)
            else:
                self.struct(element, item)
            self.flush()

    def nested(self, value: str, cls: Any, nullable: bool, null: bytes = primitives.NULL_STRUCT) -> None:
        item = self.new_name("item")
        self.line(f"{item} = {value}")
        if not nullable:
            self.struct(cls, item)
            return
        self.flush()
        with self.block(f"if {item} is None:"):
            self.line(f"{self.append}({null!r})")
        with self.block("else:"):
            self.line(f"{self.append}({primitives.PRESENT_STRUCT!r})")
            self.struct(cls, item)
            self.flush()

    def tags(self, source: str, fields: list[Field]) -> None:
        unknown = f"{source}.unknown_tagged_fields"
        if not fields:
            # The zero byte for "no tagged fields" goes into the struct call of the fields before it.
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
        present, outer = self.new_name("tagged"), self.append
        self.line(f"{present} = dict({unknown}) if {unknown} else {{}}")
        for field in fields:
            value = f"{source}.{field.name}"
            with self.block(f"if {self.differs_from_default(value, field)}:"):
                inside = self.new_name("inside")
                self.append = f"{inside}.append"
                self.line(f"{inside} = []")
                self.tagged(value, field)
                self.flush()
                self.line(f"{present}[{field.tag}] = b''.join({inside})")
                self.append = outer
        self.line(f"{outer}(write_tagged({present}) if {present} else b'\\0')")

    def tagged(self, value: str, field: Field) -> None:
        if hasattr(field.type, "FIELDS"):
            self.nested(value, field.type, field.is_nullable(self.version), primitives.NULL_TAGGED_STRUCT)
        else:
            self.value(value, field.type, field.is_nullable(self.version))


class DecoderSource(Source):
    """The source of a decoder. `pending` holds reads for the next struct call: (target, struct letter, size)."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.has_records = False
        self.pending: list[tuple[str, str, int]] = []
        self.names.update(uvarint_tail=primitives.uvarint_tail, read_tagged=primitives.read_tagged)

    def message(self, cls: Any) -> None:
        # A frame with records is large, so it is not copied. Others become bytes, whose slices are fields already.
        self.has_records = any(isinstance(t, Sized) and t.name == "records" for t in _types(cls))
        if self.has_records:
            self.line("view = memoryview(buf)")
        else:
            with self.block("if type(buf) is not bytes:"):
                self.line("buf = bytes(buf)")
        self.line("end = len(buf)")
        self.struct(cls, "message")
        self.line("return message if pos == end else None")

    def struct(self, cls: Any, target: str) -> None:
        """Create an instance of `cls` in the variable `target` and fill it."""
        self.flush()
        self.line(f"{target} = {self.instance_maker(cls)}()")
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

    def instance_maker(self, cls: Any) -> str:
        """Return a name for a function that creates an empty instance: a partial is faster than calling `__new__`."""
        name = f"new_{cls.__qualname__.replace('.', '_')}"
        self.names[name] = partial(object.__new__, cls)
        return name

    def default(self, target: str, field: Field) -> None:
        if isinstance(field.default, list):
            self.line(f"{target} = []")
        elif hasattr(field.default, "FIELDS"):
            # The same as its constructor, without the cost of a call.
            item = self.new_name("item")
            self.line(f"{item} = {target} = {self.instance_maker(type(field.default))}()")
            for inner in field.default.FIELDS:
                self.default(f"{item}.{inner.name}", inner)
            self.line(f"{item}.unknown_tagged_fields = None")
        else:
            self.line(f"{target} = {self.constant(field.default)}")

    def read_fixed(self, target: str, letter: str, size: int) -> None:
        self.pending.append((target, letter, size))

    def flush(self) -> None:
        """Write the pending reads in one struct call."""
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
            self.names[name] = Struct(f">{letters}").unpack_from
            self.line(f"{targets}{',' if ',' not in targets else ''} = {name}(buf, pos)")
        self.line(f"pos += {size}")

    def length(self, format: str, maximum: int | None = None) -> str:
        """Read a length or count into a new variable. Null is -1; in flexible versions it is 0, and n is n + 1."""
        n = self.new_name("n")
        if self.flexible:
            self.uvarint(n, maximum)
        else:
            self.read_fixed(n, format, 2 if format == "h" else 4)
            self.flush()
        return n

    def uvarint(self, n: str, maximum: int | None = None) -> None:
        """Read a varint into `n`: the first byte with the pending reads, then the rest if there is any."""
        self.read_fixed(n, "B", 1)
        self.flush()
        with self.block(f"if {n} > 127:"):
            self.line(f"{n}, pos = uvarint_tail(buf, pos, {n})")
            if maximum is not None:
                with self.block(f"if {n} > {maximum}:"):
                    self.line("raise ValueError")

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
            self.read_fixed(target, wire_type.format, wire_type.size)
            return
        raw = self.new_name("raw")
        self.read_fixed(raw, wire_type.format, wire_type.size)
        self.flush()
        self.names["uuid_of"] = primitives.uuid_of
        self.line(f"{target} = uuid_of({raw})")

    def sized(self, target: str, wire_type: Sized, nullable: bool) -> None:
        is_string = wire_type.name == "string"
        # Kafka's classes reject a compact string of more than 32767 bytes; so does this decoder.
        n = self.length(wire_type.format, STRING_BYTES_MAX + 1 if is_string else None)
        size = f"{n} - 1" if self.flexible else n
        piece = f"{'view' if wire_type.name == 'records' else 'buf'}[pos:(pos := pos + {size})]"
        if is_string:
            piece = f"str({piece}, 'utf-8')" if self.has_records else f"{piece}.decode()"
        elif self.has_records and wire_type.name == "bytes":
            piece = f"bytes({piece})"
        if nullable:
            with self.block(f"if {n} == {0 if self.flexible else -1}:"):
                self.line(f"{target} = None")
            if not self.flexible:
                with self.block(f"elif {n} < -1:"):
                    self.line("raise ValueError")
            with self.block("else:"):
                self.line(f"{target} = {piece}")
        else:
            with self.block(f"if {n} == 0:" if self.flexible else f"if {n} < 0:"):
                self.line("raise ValueError")
            self.line(f"{target} = {piece}")

    def array(self, target: str, element: Any, nullable: bool) -> None:
        n = self.length("i")
        empty = 1 if self.flexible else 0
        if nullable:
            with self.block(f"if {n} == {empty - 1}:"):
                self.line(f"{target} = None")
        # Most lists are empty, and skipping the loop is faster than running it zero times.
        with self.block(f"{'elif' if nullable else 'if'} {n} == {empty}:"):
            self.line(f"{target} = []")
        with self.block("else:"):
            if isinstance(element, Fixed) and element.name != "uuid":
                self.numbers(target, element, n)
            else:
                self.elements(target, element, n)

    def elements(self, target: str, element: Any, n: str) -> None:
        if self.flexible:
            self.line(f"{n} -= 1")
        least = min_size(element, self.version, self.flexible)
        bytes_needed = f"{n} * {least}" if least > 1 else n
        with self.block(f"if not 0 <= {bytes_needed} <= end - pos:"):
            self.line("raise ValueError")
        items, item = self.new_name("items"), self.new_name("item")
        self.line(f"{items} = {target} = []")
        with self.block(f"for _ in range({n}):"):
            if isinstance(element, Fixed | Sized):
                self.value(item, element, False)
                self.flush()
            else:
                self.struct(element, item)
            self.line(f"{items}.append({item})")

    def numbers(self, target: str, element: Fixed, n: str) -> None:
        """Read all elements in one struct call, which raises for a count below 0 or beyond the end of the frame."""
        more = 1 if self.flexible else 0
        name = f"get_many_{element.name}"
        self.names[name] = primitives.unpackers(element.format, more)
        self.line(f"{target} = list({name}[{n}](buf, pos))")
        self.line(f"pos += {n} * {element.size}{f' - {element.size}' if more else ''}")

    def nested(self, target: str, cls: Any, nullable: bool, null: bytes = primitives.NULL_STRUCT) -> None:
        item = self.new_name("item")
        if not nullable:
            self.struct(cls, item)
            self.flush()
            self.line(f"{target} = {item}")
            return
        marker = self.new_name("marker")
        self.read_fixed(marker, "B", 1)
        self.flush()
        with self.block(f"if {marker} == {primitives.PRESENT_STRUCT[0]}:"):
            self.struct(cls, item)
            self.flush()
            self.line(f"{target} = {item}")
        with self.block(f"elif {marker} == {null[0]}:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.line("raise ValueError")

    def tags(self, target: str, fields: list[Field]) -> None:
        """Read the tagged fields at the end of a struct: a count, then tag, size and bytes of each."""
        count = self.new_name("tags")
        self.read_fixed(count, "B", 1)
        self.flush()
        unknown = f"{target}.unknown_tagged_fields"
        if not fields:
            with self.block(f"if {count}:"):
                self.line(f"{unknown}, pos = read_tagged(buf, pos, end, {count})")
            with self.block("else:"):
                self.line(f"{unknown} = None")
            return
        self.line(f"{unknown} = None")
        with self.block(f"if {count}:"):
            found, left = self.new_name("found"), self.new_name("left")
            # First find the bounds of all tagged fields, then read the known ones in place.
            self.line(f"{found}, pos = read_tagged(buf, pos, end, {count}, True)")
            self.line(f"{left} = pos")
            for field in fields:
                with self.block(f"if {field.tag} in {found}:"):
                    stop = self.new_name("stop")
                    self.line(f"pos, {stop} = {found}.pop({field.tag})")
                    self.tagged(f"{target}.{field.name}", field)
                    self.flush()
                    with self.block(f"if pos != {stop}:"):
                        self.line("raise ValueError")
            with self.block(f"if {found}:"):
                self.line(f"{unknown} = {{tag: bytes(buf[start:stop]) for tag, (start, stop) in {found}.items()}}")
            self.line(f"pos = {left}")

    def tagged(self, target: str, field: Field) -> None:
        if hasattr(field.type, "FIELDS"):
            self.nested(target, field.type, field.is_nullable(self.version), primitives.NULL_TAGGED_STRUCT)
        else:
            self.value(target, field.type, field.is_nullable(self.version))


def _types(cls: Any) -> Iterator[Any]:
    """Yield every wire type in a struct and in its nested structs."""
    for field in cls.FIELDS:
        element = field.type.element if isinstance(field.type, Array) else field.type
        if hasattr(element, "FIELDS"):
            yield from _types(element)
        else:
            yield element
