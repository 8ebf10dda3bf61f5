"""What no declaration expresses, read field by field, with the bytes and the offset of every field.

These are headers, whose client id keeps its old encoding in flexible versions, and record batches (`batch_fields`).
Reading is slow and stops at the first byte that makes no sense. `kwire.protocol.diagnose` reads declared messages in
the same way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.errors import CorruptRecordsError, DecodeError, KwireError
from kwire.wire.varint import decode_uvarint, decode_varint


class FieldRow(NamedTuple):
    """The bytes of a field, and their value. `within`: the codec, if `start` counts decompressed bytes."""

    start: int
    data: bytes
    path: str
    type: str
    value: Any
    note: str = ""
    within: str = ""

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class FieldReader:
    """A position in bytes, with the rows and problems found so far.

    `base` is the offset of `data[0]` in the input; `within` the codec of decompressed data.
    """

    def __init__(
        self, data: bytes, base: int, rows: list[FieldRow], problems: list[KwireError], within: str = ""
    ) -> None:
        self.data = data
        self.base = base
        self.rows = rows
        self.problems = problems
        self.within = within
        self.pos = 0

    def into(self, data: bytes, codec: str) -> FieldReader:
        """Return a reader of decompressed bytes."""
        return FieldReader(data, 0, self.rows, self.problems, codec)

    def fixed(self, path: str, type_name: str, format: str, note: str = "") -> Any:
        size = struct.calcsize(format)
        data = self._take(path, size)
        value = struct.unpack(">" + format, data)[0]
        self._row(path, type_name, data, value, note)
        return value

    def varint(self, path: str) -> int:
        return self._variable(path, "varint", decode_varint)

    def uvarint(self, path: str) -> int:
        return self._variable(path, "uvarint", decode_uvarint)

    def _variable(self, path: str, type_name: str, decode: Callable[[bytes, int], tuple[int, int]]) -> int:
        try:
            value, end = decode(self.data, self.pos)
        except DecodeError as error:
            raise self.error(error.message, path) from None
        data = self._take(path, end - self.pos)
        self._row(path, type_name, data, value, "")
        return value

    def error(self, message: str, path: str, back: int = 0) -> CorruptRecordsError:
        """Return an error at this position, or `back` bytes before it."""
        where = f" (in the decompressed {self.within} data)" if self.within else ""
        return CorruptRecordsError(message + where, path=path, offset=self.base + self.pos - back)

    def sized(self, path: str, size: int, type_name: str = "bytes") -> bytes | None:
        """Read `size` bytes, or null if it is -1."""
        if size < -1:
            raise self.error(f"{size} is not a length", path)
        data = self._take(path, max(size, 0))
        self._row(path, type_name, data, None if size < 0 else data, "")
        return None if size < 0 else data

    def maybe_string(self, path: str) -> str | None:
        """Read a nullable string with a two-byte length, as one row."""
        start = self.pos
        try:
            size = int.from_bytes(self._take(path, 2), "big", signed=True)
            if size < -1:
                raise self.error(f"{size} is not a length", path, back=2)
            text = self._take(path, max(size, 0))
            try:
                value = None if size < 0 else text.decode()
            except UnicodeDecodeError as error:
                raise self.error("not UTF-8", path, back=len(text) - error.start) from None
        except CorruptRecordsError:
            self.pos = start  # an incomplete field is unread
            raise
        self._row(path, "string", bytes(self.data[start : self.pos]), value, "")
        return value

    def tagged_fields(self, path: str) -> None:
        """Read a header's tagged fields; Kafka has defined none yet."""
        for index in range(self.uvarint(path)):
            self.uvarint(f"{path}[{index}].tag")
            self.sized(f"{path}[{index}].data", self.uvarint(f"{path}[{index}].size"))

    def annotate(self, index: int, note: str) -> None:
        """Add a note to a row; -1 is the newest."""
        self.rows[index] = self.rows[index]._replace(note=note)

    def _take(self, path: str, size: int) -> bytes:
        end = self.pos + size
        if end > len(self.data):
            left = len(self.data) - self.pos
            raise self.error(f"{size} bytes are needed and {left} are left", path)
        data = bytes(self.data[self.pos : end])
        self.pos = end
        return data

    def _row(self, path: str, type_name: str, data: bytes, value: Any, note: str) -> None:
        start = self.base + self.pos - len(data)
        self.rows.append(FieldRow(start, data, path, type_name, value, note, self.within))
