"""The one place that chooses between the loops in Python (`_pure`, the specification) and those in C (`_speedups`).

`KWIRE_IMPL=python` takes the former, `KWIRE_IMPL=c` the latter or fails with ImportError; unset, C is taken where it
was built. `IMPLEMENTATION` says which it is, `described` why. Everybody imports these names from here, and nobody else
looks at KWIRE_IMPL.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from kwire.wire import _pure
from kwire.wire._bulk import BytesBuffers, BytesCells, ManyColumns
from kwire.wire._cursor import BytesColumn, Columns, RecordReader, RecordSlice
from kwire.wire._door import (
    SHARE,
    UNDESIGNATED,
    UNROUTED,
    RecordAccumulator,
    RecordSpan,
    crc32_partition,
    murmur2_partition,
)
from kwire.wire._run import BatchBuilder, BatchResult, DeliveryCallbacks, Dispatch, RecordFuture, Waiter, future_class
from kwire.wire._sockets import Sock
from kwire.wire.rows import Bytes, Header, Headers, NewRecord, Row

__all__ = [
    "IMPLEMENTATION",
    "SHARE",
    "UNDESIGNATED",
    "UNROUTED",
    "BatchBuilder",
    "BatchResult",
    "BytesBuffers",
    "BytesCells",
    "BytesColumn",
    "Columns",
    "DeliveryCallbacks",
    "Dispatch",
    "Header",
    "Headers",
    "ManyColumns",
    "NewRecord",
    "Plan",
    "ReadMessage",
    "RecordAccumulator",
    "RecordFields",
    "RecordFuture",
    "RecordIterator",
    "RecordReader",
    "RecordSlice",
    "RecordSpan",
    "Row",
    "Waiter",
    "all_bytes",
    "alloc",
    "alloc_pooled",
    "can_build",
    "columns",
    "crc32_partition",
    "crc32c",
    "decode_records",
    "described",
    "encode_records",
    "future_class",
    "message_reader",
    "murmur2",
    "murmur2_partition",
    "open_batches",
    "open_cursor",
    "receive_into",
    "record_class",
    "send_pieces",
    "warn_if_slow",
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
        self._future_class, self._record_class = speedups.future_class, speedups.record_class
        self.send_pieces = getattr(speedups, "send_pieces", _pure.send_pieces)
        self.receive_into = getattr(speedups, "receive_into", _pure.receive_into)
        self.all_bytes = speedups.all_bytes
        self.alloc = speedups.alloc
        self.alloc_pooled = speedups.alloc_pooled
        self.open_batches = speedups.open_batches
        self.RecordFields = speedups.RecordFields
        self.RecordIterator = speedups.RecordIterator
        self.crc32c = speedups.crc32c
        self.RecordAccumulator, self.RecordFuture = speedups.RecordAccumulator, speedups.RecordFuture
        self.DeliveryCallbacks, self.BatchBuilder = speedups.DeliveryCallbacks, speedups.BatchBuilder
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

    def open_cursor(self, *batch: Any) -> RecordReader:
        cursor: RecordReader | None = self._open(*batch)
        return _pure.open_cursor(*batch) if cursor is None else cursor

    def future_class(self, written: type[T]) -> type[T]:
        return _made_anew(self._future_class, written)

    def record_class(self, written: type[T]) -> type[T]:
        return _made_anew(self._record_class, written)

    def columns(self, pieces: Sequence[RecordSlice], has_headers: bool) -> Columns:
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


_asked = os.environ.get("KWIRE_IMPL", "")
_chosen = choose(_asked)
IMPLEMENTATION: Literal["c", "python"] = "python" if _chosen is _pure else "c"


def described() -> str:
    """Return the implementation in words: "C accelerator", or "pure Python: " and the reason."""
    if IMPLEMENTATION == "c":
        return "C accelerator"
    if _asked == "python":
        return "pure Python: KWIRE_IMPL is python"
    if importlib.util.find_spec("kwire.wire._speedups") is not None:
        return "pure Python: the C accelerator cannot be loaded, KWIRE_IMPL=c says why"
    return "pure Python: installed without the C accelerator"


def has_headers() -> bool:
    """Return whether Python's C headers are on this machine."""
    import sysconfig  # as the other imports in functions here: for the rare case only
    from pathlib import Path

    return Path(sysconfig.get_path("include"), "Python.h").exists()


def can_build() -> bool:
    """Return whether a C compiler and Python's headers are on this machine."""
    import shutil

    return has_headers() and any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl"))


@cache  # once in a process
def warn_if_slow() -> None:
    """Log a warning where C was left out though it could be built here, unless KWIRE_IMPL asks for Python."""
    if IMPLEMENTATION == "python" and _asked != "python" and can_build():
        import logging

        logging.getLogger("kwire").warning(
            "kwire runs in pure Python, several times slower than its C accelerator, though a C compiler is here: "
            "reinstall it (pip install --force-reinstall --no-cache-dir --no-binary kwire kwire), or set "
            "KWIRE_IMPL=python to silence this"
        )


crc32c: Callable[..., int] = _chosen.crc32c
murmur2: Callable[..., int] = _chosen.murmur2
encode_records = _chosen.encode_records
decode_records = _chosen.decode_records
message_reader: Callable[[Plan], ReadMessage | None] = _chosen.message_reader
open_cursor: Callable[..., RecordReader] = _chosen.open_cursor
open_batches: Callable[..., tuple[RecordReader, int] | None] = _chosen.open_batches
columns = _chosen.columns
all_bytes: Callable[[list[Any]], bool] = _chosen.all_bytes
alloc: Callable[[int], tuple[Bytes, memoryview]] = _chosen.alloc
alloc_pooled: Callable[[int], tuple[Bytes, memoryview]] = _chosen.alloc_pooled
send_pieces: Callable[[Sock, Sequence[Any]], int] = _chosen.send_pieces
receive_into: Callable[[Sock, Any], int] = _chosen.receive_into


def record_class(written: type[T]) -> type[T]:
    """Decorate a class of records: with C it is made anew, so that C reads and writes its fields."""
    made: type[T] = _chosen.record_class(written)
    return made


if TYPE_CHECKING:
    from kwire.wire._cursor import RecordFields, RecordIterator
else:
    RecordFields = _chosen.RecordFields
    RecordIterator = _chosen.RecordIterator
    if _chosen is not _pure:
        RecordAccumulator, RecordFuture, DeliveryCallbacks, BatchBuilder = (
            _chosen.RecordAccumulator,
            _chosen.RecordFuture,
            _chosen.DeliveryCallbacks,
            _chosen.BatchBuilder,
        )
        future_class = _chosen.future_class
