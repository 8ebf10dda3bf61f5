"""The source text of decoders: one flat function per (message, version). `compiler` says how they are used.

Why nothing is read beyond the frame, though slices are not checked one by one: positions only grow (lengths are checked
for their sign), a count is checked against the bytes that remain, a read beyond the end raises, and a last slice that
was short leaves the position beyond the end, with which it is compared.
"""
from collections.abc import Iterator
from functools import partial
from struct import Struct
from typing import Any

from kwire.protocol import primitives
from kwire.protocol.fields import Field, least_size
from kwire.protocol.source import Source
from kwire.protocol.types import STRING_BYTES_MAX, Array, Fixed, Sized


class DecoderSource(Source):
    """Writes a decoder. `pending` are the reads of fixed size not yet written: (where to, struct letter, size)."""

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        self.pending: list[tuple[str, str, int]] = []
        self.names.update(uvarint_tail=primitives.uvarint_tail, read_tagged=primitives.read_tagged)

    def whole(self, cls: Any) -> None:
        with self.block("if type(buf) is not bytes:"):
            self.line("buf = bytes(buf)")  # whose slices are what fields are made of
        self.line("end = len(buf)")
        if any(isinstance(t, Sized) and t.name == "records" for t in _types(cls)):
            self.line("view = memoryview(buf)")
        self.struct(cls, "message")
        self.line("return message if pos == end else None")

    def struct(self, cls: Any, target: str) -> None:
        """Make an instance of `cls` in the variable `target` and fill it."""
        self.flush()
        self.line(f"{target} = {self.maker(cls)}()")
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

    def maker(self, cls: Any) -> str:
        """A name for what makes an empty instance: a partial of object.__new__, faster than the call of it."""
        name = f"new_{cls.__qualname__.replace('.', '_')}"
        self.names[name] = partial(object.__new__, cls)
        return name

    def default(self, target: str, field: Field) -> None:
        if isinstance(field.default, list):
            self.line(f"{target} = []")
        elif hasattr(field.default, "FIELDS"):
            # As its constructor would, but without the call.
            item = self.fresh("item")
            self.line(f"{item} = {target} = {self.maker(type(field.default))}()")
            for inner in field.default.FIELDS:
                self.default(f"{item}.{inner.name}", inner)
            self.line(f"{item}.unknown_tagged_fields = None")
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
            self.names[name] = Struct(f">{letters}").unpack_from
            self.line(f"{targets}{',' if ',' not in targets else ''} = {name}(buf, pos)")
        self.line(f"pos += {size}")

    def length(self, format: str, most: int | None = None) -> str:
        """Read a length or count into a new variable: -1 is null, in flexible versions 0, and all others one more."""
        n = self.fresh("n")
        if self.flexible:
            self.uvarint(n, most)
        else:
            self.want(n, format, 2 if format == "h" else 4)
            self.flush()
        return n

    def uvarint(self, n: str, most: int | None = None) -> None:
        """Read a varint into `n`: its first byte with the pending reads, the rest where there is one."""
        self.want(n, "B", 1)
        self.flush()
        with self.block(f"if {n} > 127:"):
            self.line(f"{n}, pos = uvarint_tail(buf, pos, {n})")
            if most is not None:
                with self.block(f"if {n} > {most}:"):
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
            self.want(target, wire_type.format, wire_type.size)
            return
        raw = self.fresh("raw")
        self.want(raw, wire_type.format, wire_type.size)
        self.flush()
        self.names["uuid_of"] = primitives.uuid_of
        self.line(f"{target} = uuid_of({raw})")

    def sized(self, target: str, wire_type: Sized, nullable: bool) -> None:
        is_string = wire_type.name == "string"
        # A compact string could be longer than 32767 bytes; Kafka's classes refuse it, and so do we.
        n = self.length(wire_type.format, STRING_BYTES_MAX + 1 if is_string else None)
        size = f"{n} - 1" if self.flexible else n
        piece = f"{'view' if wire_type.name == 'records' else 'buf'}[pos:(pos := pos + {size})]"
        if is_string:
            piece += ".decode()"
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
        # Lists are empty more often than not, and a loop that does not turn still costs something.
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
        least = least_size(element, self.version, self.flexible)
        bytes_needed = f"{n} * {least}" if least > 1 else n
        with self.block(f"if not 0 <= {bytes_needed} <= end - pos:"):
            self.line("raise ValueError")
        items, item = self.fresh("items"), self.fresh("item")
        self.line(f"{items} = {target} = []")
        with self.block(f"for _ in range({n}):"):
            if isinstance(element, Fixed | Sized):
                self.value(item, element, False)
                self.flush()
            else:
                self.struct(element, item)
            self.line(f"{items}.append({item})")

    def numbers(self, target: str, element: Fixed, n: str) -> None:
        """All elements in one struct call, which itself refuses a count below 0 or beyond the end of the frame."""
        more = 1 if self.flexible else 0
        name = f"get_many_{element.name}"
        self.names[name] = primitives.unpackers(element.format, more)
        self.line(f"{target} = list({name}[{n}](buf, pos))")
        self.line(f"pos += {n} * {element.size}{f' - {element.size}' if more else ''}")

    def nested(self, target: str, cls: Any, nullable: bool, null: bytes = primitives.NULL_STRUCT) -> None:
        item = self.fresh("item")
        if not nullable:
            self.struct(cls, item)
            self.flush()
            self.line(f"{target} = {item}")
            return
        marker = self.fresh("marker")
        self.want(marker, "B", 1)
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
        """The tagged fields at the end of a struct: a count, then tag, size and bytes of each."""
        count = self.fresh("tags")
        self.want(count, "B", 1)
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
            found, left = self.fresh("found"), self.fresh("left")
            # Known fields are read out of the frame where they stand, once the whole section has been measured.
            self.line(f"{found}, pos = read_tagged(buf, pos, end, {count}, True)")
            self.line(f"{left} = pos")
            for field in fields:
                with self.block(f"if {field.tag} in {found}:"):
                    stop = self.fresh("stop")
                    self.line(f"pos, {stop} = {found}.pop({field.tag})")
                    self.tagged(f"{target}.{field.name}", field)
                    self.flush()
                    with self.block(f"if pos != {stop}:"):
                        self.line("raise ValueError")
            with self.block(f"if {found}:"):
                self.line(f"{unknown} = {{tag: buf[start:stop] for tag, (start, stop) in {found}.items()}}")
            self.line(f"pos = {left}")

    def tagged(self, target: str, field: Field) -> None:
        if hasattr(field.type, "FIELDS"):
            self.nested(target, field.type, field.is_nullable(self.version), primitives.NULL_TAGGED_STRUCT)
        else:
            self.value(target, field.type, field.is_nullable(self.version))


def _types(cls: Any) -> Iterator[Any]:
    """Every wire type in a struct, those of nested structs included."""
    for field in cls.FIELDS:
        element = field.type.element if isinstance(field.type, Array) else field.type
        if hasattr(element, "FIELDS"):
            yield from _types(element)
        else:
            yield element
