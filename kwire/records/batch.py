"""Record and Batch: records as read from a log or a response, in any format, decoded on demand.

A v2 batch is one Batch. In the older formats each message is a Batch: a plain message holds one record, a compressed
message the records of its inner message set. In bulk, a record is a plain tuple (`kwire.records.rows.Row`), which costs
half as much as a Record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kwire.errors import CorruptRecordsError
from kwire.records.compression import Compression
from kwire.records.control import ControlRecord, decode_control
from kwire.records.reader import RecordReader
from kwire.records.rows import Row

Header = tuple[str, bytes | None]

CREATE_TIME = 0
LOG_APPEND_TIME = 1
NO_TIMESTAMP_TYPE = -1
NO_TIMESTAMP = -1


class Record(NamedTuple):
    """A decoded record; `timestamp_ms` is milliseconds since 1970, or -1 for none (message format v0).

    A header name that is not valid UTF-8 is decoded with `surrogateescape`, so it can be encoded again.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

_as_record = partial(tuple.__new__, Record)


class Batch:
    """A batch's header fields, and methods to decode its records; `raw` is a view of the whole batch.

    `count` is the number of records present; in a compacted log it is less than `last_offset - base_offset + 1`.
    """

    __slots__ = (
        "_open_reader",
        "_rows",
        "base_offset",
        "base_sequence",
        "compression",
        "count",
        "is_control",
        "is_transactional",
        "last_offset",
        "magic",
        "max_timestamp_ms",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "raw",
        "timestamp_type",
    )

    def __init__(
        self,
        raw: memoryview,
        rows: Callable[[], list[Row]],
        open_reader: Callable[..., RecordReader],
        *,
        magic: int,
        base_offset: int,
        last_offset: int,
        count: int,
        max_timestamp_ms: int,
        compression: Compression = Compression.NONE,
        timestamp_type: int = CREATE_TIME,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        self.raw = raw
        self._rows = rows
        self._open_reader = open_reader
        self.magic = magic
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.count = count
        self.max_timestamp_ms = max_timestamp_ms
        self.compression = compression
        self.timestamp_type = timestamp_type
        self.partition_leader_epoch = partition_leader_epoch
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        self.is_control = is_control

    def __repr__(self) -> str:
        return (
            f"<Batch v{self.magic} offsets {self.base_offset} to {self.last_offset}, {self.count} records, "
            f"{self.size_bytes} bytes, {self.compression.name.lower()}>"
        )

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def size_bytes(self) -> int:
        return len(self.raw)

    @property
    def last_sequence(self) -> int:
        """Return the last record's sequence, which wraps from 2147483647 to 0; NO_SEQUENCE if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF

    def rows(self) -> list[Row]:
        """Decompress and decode the records; return tuples (offset, timestamp_ms, key, value, headers).

        Raise CorruptRecordsError if they do not match the header.
        """
        return self._rows()

    def cursor(self, kind: type[Any], topic: str, partition: int, position: int) -> RecordReader:
        """Return a reader of the records from `position` on, which creates each as a `kind` when it returns it.

        Check all records now and raise CorruptRecordsError as `rows` does. The C reader keeps a reference to `raw`, or
        to the decompressed data. It copies data that the owner of the memory may write to, such as a bytearray behind a
        read-only view; whatever writes to memory that its owner calls constant can crash the process.
        """
        next_offset = max(self.next_offset, position)
        return self._open_reader(kind, topic, partition, self.timestamp_type, position, next_offset)

    def records(self) -> list[Record]:
        """Return `rows()` as Records."""
        return list(map(_as_record, self._rows()))

    def control(self) -> ControlRecord:
        """Return the control record; raise CorruptRecordsError if the batch is not a control batch or is empty."""
        rows = self._rows() if self.is_control else []
        if not rows:
            raise CorruptRecordsError("not a control batch, or one without its record")
        _, _, key, value, _ = rows[0]
        return decode_control(key, value)
