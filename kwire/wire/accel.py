"""The one place that chooses between the loops in Python (`_pure`, the specification) and those in C (`_speedups`).

`KWIRE_IMPL=python` takes the former, `KWIRE_IMPL=c` the latter or fails with ImportError; unset, C is taken where it
was built. `IMPLEMENTATION` says which it is. Everybody imports these names from here, and nobody else looks at
KWIRE_IMPL.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kwire.wire import _pure
from kwire.wire._bulk import BytesBuffers, BytesCells, ManyColumns
from kwire.wire._cursor import BytesColumn, Columns, Cursor, Piece
from kwire.wire._door import SHARE, UNDESIGNATED, UNROUTED, Door, Stretch, crc32_partition, murmur2_partition
from kwire.wire._run import Dispatch, Late, Part, Place, Reports, Run, place_class
from kwire.wire._sockets import Sock
from kwire.wire.rows import Bytes, Header, Headers, NewRecord, Row

__all__ = [
    "IMPLEMENTATION",
    "SHARE",
    "UNDESIGNATED",
    "UNROUTED",
    "BytesBuffers",
    "BytesCells",
    "BytesColumn",
    "Columns",
    "Cursor",
    "Dispatch",
    "Door",
    "Header",
    "Headers",
    "Late",
    "ManyColumns",
    "NewRecord",
    "Part",
    "Piece",
    "Place",
    "Plan",
    "ReadMessage",
    "RecordFields",
    "RecordStream",
    "Reports",
    "Row",
    "Run",
    "Stretch",
    "all_bytes",
    "blank",
    "columns",
    "crc32_partition",
    "crc32c",
    "decode_records",
    "encode_records",
    "message_reader",
    "murmur2",
    "murmur2_partition",
    "open_batches",
    "open_cursor",
    "place_class",
    "receive_into",
    "record_class",
    "room",
    "send_pieces",
]

# How a message is read, as tuples (`_plan.h` has the grammar), and what reads it: (data, start) -> the message that
# is `data` from `start` to its end, or None if there is none.
Plan: TypeAlias = tuple[Any, ...]
ReadMessage: TypeAlias = Callable[[Bytes, int], Any]
T = TypeVar("T")


class Accelerated:
    """The specification's functions with C in front of those that it speeds up.

    C answers None for what is out of the ordinary, and the specification is asked then: it knows all errors.
    """

    def __init__(self, speedups: ModuleType) -> None:
        self._encode = speedups.encode_records
        self._decode = speedups.decode_records
        self._reader = speedups.MessageReader
        self._open = speedups.open_cursor
        self._columns = speedups.columns
        self._place_class, self._record_class = speedups.place_class, speedups.record_class
        self.send_pieces = getattr(speedups, "send_pieces", _pure.send_pieces)
        self.receive_into = getattr(speedups, "receive_into", _pure.receive_into)
        self.all_bytes = speedups.all_bytes
        self.blank = speedups.blank
        self.room = speedups.room
        self.open_batches = speedups.open_batches
        self.RecordFields = speedups.RecordFields
        self.RecordStream = speedups.RecordStream
        self.crc32c = speedups.crc32c
        self.Door, self.Place = speedups.Door, speedups.Place
        self.Reports, self.Run = speedups.Reports, speedups.Run
        self.murmur2 = speedups.murmur2

    def encode_records(
        self, records: Sequence[NewRecord], base_timestamp: int, offset_deltas: Sequence[int] | None = None
    ) -> bytes:
        encoded: bytes | None = self._encode(records, base_timestamp) if offset_deltas is None else None
        if encoded is None:
            return _pure.encode_records(records, base_timestamp, offset_deltas)
        return encoded

    def decode_records(
        self,
        data: Bytes,
        pos: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        last_delta: int,
        timestamp: int | None,
    ) -> list[Row]:
        data = bytes(data)
        where = pos, count, base_offset, base_timestamp, last_delta, timestamp
        rows: list[Row] | None = self._decode(data, *where)
        return _pure.decode_records(data, *where) if rows is None else rows

    def message_reader(self, plan: Plan) -> ReadMessage | None:
        try:
            read: ReadMessage = self._reader(plan).read
        except ValueError:  # a Python that keeps slots where C does not find them
            return None
        return read

    def open_cursor(self, *batch: Any) -> Cursor:
        cursor: Cursor | None = self._open(*batch)
        return _pure.open_cursor(*batch) if cursor is None else cursor

    def place_class(self, written: type[T]) -> type[T]:
        return _made_anew(self._place_class, written)

    def record_class(self, written: type[T]) -> type[T]:
        return _made_anew(self._record_class, written)

    def columns(self, pieces: Sequence[Piece], has_headers: bool) -> Columns:
        found: Columns | None = self._columns(pieces, has_headers)
        return _pure.columns(pieces, has_headers) if found is None else found


def _made_anew(make: Callable[[str], type[T]], written: type[T]) -> type[T]:
    made = make(f"{written.__module__}.{written.__qualname__}")
    for name, value in vars(written).items():
        setattr(made, name, value)
    return made


def choose(asked: str) -> ModuleType | Accelerated:
    """`asked` is KWIRE_IMPL, "" if unset."""
    if asked not in ("", "python", "c"):
        raise ImportError(f"KWIRE_IMPL is {asked!r}: it can be 'python' or 'c'")
    if asked != "python":
        try:
            return Accelerated(importlib.import_module("kwire.wire._speedups"))
        except ImportError as error:
            if asked == "c":
                raise ImportError(
                    "KWIRE_IMPL=c, but kwire was installed without its C accelerator: install it where a C compiler "
                    "is, or unset KWIRE_IMPL"
                ) from error
    return _pure


_chosen = choose(os.environ.get("KWIRE_IMPL", ""))
IMPLEMENTATION = "python" if _chosen is _pure else "c"
crc32c: Callable[..., int] = _chosen.crc32c
murmur2: Callable[..., int] = _chosen.murmur2
encode_records = _chosen.encode_records
decode_records = _chosen.decode_records
message_reader: Callable[[Plan], ReadMessage | None] = _chosen.message_reader
open_cursor: Callable[..., Cursor] = _chosen.open_cursor
open_batches: Callable[..., tuple[Cursor, int] | None] = _chosen.open_batches
columns = _chosen.columns
all_bytes: Callable[[list[Any]], bool] = _chosen.all_bytes
record_class: Callable[[type[T]], type[T]] = _chosen.record_class
blank: Callable[[int], tuple[Bytes, memoryview]] = _chosen.blank
room: Callable[[int], tuple[Bytes, memoryview]] = _chosen.room
send_pieces: Callable[[Sock, Sequence[Any]], int] = _chosen.send_pieces
receive_into: Callable[[Sock, Any], int] = _chosen.receive_into

if TYPE_CHECKING:
    from kwire.wire._cursor import RecordFields, RecordStream
else:
    RecordFields = _chosen.RecordFields
    RecordStream = _chosen.RecordStream
    if _chosen is not _pure:
        Door, Place, Reports, Run = _chosen.Door, _chosen.Place, _chosen.Reports, _chosen.Run
        place_class = _chosen.place_class
