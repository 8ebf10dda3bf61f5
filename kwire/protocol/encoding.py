"""The source text of encoders: one flat function per (message, version). `compiler` says how they are used.

An encoder appends bytes to a list. Where a value does not fit, whatever it calls raises; what would take a wrong value
silently (a list that is a str, a boolean that is an object, bytes that are an array of something larger) is asked
first.
"""
from struct import Struct
from typing import Any
from uuid import UUID

from kwire.protocol import primitives
from kwire.protocol.fields import Field
from kwire.protocol.source import Source
from kwire.protocol.types import Array, Fixed, Sized


class EncoderSource(Source):
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
            return f"{value} != []"
        if default is None:
            return f"{value} is not None"
        if hasattr(default, "FIELDS"):
            parts = [f"{value} is None"] if field.nullable_since <= field.nullable_until else []
            parts += [self.differs(f"{value}.{inner.name}", inner) for inner in default.FIELDS]
            return " or ".join([*parts, f"{value}.unknown_tagged_fields"])
        if isinstance(default, UUID):  # its `__eq__` is written in Python
            return f"{value} is not {self.constant(default)} and {value} != {self.constant(default)}"
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
            self.pending.append(("B", f"BOOLEAN[{value}]"))  # struct's "?" would take anything
        elif wire_type.name == "uuid":
            self.pending.append((wire_type.format, f"{value}.int.to_bytes(16, 'big')"))  # `bytes` is a call of Python
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
            self.names[name] = primitives.packers(element.format, 1 if self.flexible else 0)
            self.line(f"{self.append}({name}[{n}](*{items}))")
            return
        item = self.fresh("item")
        with self.block(f"for {item} in {items}:"):
            if isinstance(element, Fixed | Sized):
                self.value(item, element, False)
            else:
                self.struct(element, item)
            self.flush()

    def nested(self, value: str, cls: Any, nullable: bool, null: bytes = primitives.NULL_STRUCT) -> None:
        item = self.fresh("item")
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
