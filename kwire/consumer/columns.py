"""Polled records as columns: buffers, Arrow arrays, or records when they are iterated.

Nothing is decoded here: a `RecordSlice` is a range of a validated batch. pyarrow is an extra, imported on first use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload

from kwire.cluster.waiting import blocking
from kwire.consumer.record import ConsumerRecord
from kwire.errors import ConfigurationError
from kwire.option_checks import did_you_mean
from kwire.records.reader import COLUMN_BITS, columns, some_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from kwire.consumer.buffer import PartitionBuffer
    from kwire.records.reader import BytesColumn, Columns, RecordSlice


def check_pyarrow() -> None:
    if find_spec("pyarrow") is None:
        raise ConfigurationError(
            "pyarrow is not installed", remedy="install kwire[arrow], or iterate over poll() or poll_batch()"
        )


def check_columns(names: Collection[str] | None) -> None:
    """Raise ConfigurationError for a name that is no column, or no name at all."""
    known = (*COLUMN_BITS, "headers")
    if isinstance(names, str):
        raise ConfigurationError(f"columns is the text {names!r}", remedy=f'give a list of names, such as ["{names}"]')
    for name in names or ():
        if name not in known:
            raise ConfigurationError(f"there is no column {name!r}", remedy=did_you_mean(str(name), known))
    if names is not None and not names:
        raise ConfigurationError("columns is empty", remedy=f"give some of {', '.join(known)}")


class BytesView(Sequence[bytes | None]):
    """A column of byte strings as a sequence of bytes or None, each made when it is read.

    `data` holds all bytes in a row; item n is `data[ends[n]:ends[n + 1]]`. `validity` has a bit per item, lowest
    bit first, which is 0 where the item is None. It is None if no item is.
    """

    __slots__ = ("data", "ends", "validity")

    def __init__(self, column: BytesColumn) -> None:
        validity, ends, data = column
        self.validity = None if validity is None else memoryview(validity)
        self.ends = memoryview(ends).cast("i")
        self.data = memoryview(data)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes | None]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return bytes(self.data[self.ends[index] : self.ends[index + 1]])


class PartitionColumns:
    """The records of one partition in log order, as columns of the same length.

    offsets, timestamps_ms   memoryviews of int64
    timestamp_types          memoryview of int32, with the values of `ConsumerRecord.timestamp_type`
    keys, values             `BytesView`
    """

    __slots__ = ("keys", "offsets", "partition", "timestamp_types", "timestamps_ms", "topic", "values")

    def __init__(self, topic: str, partition: int, columns: Columns) -> None:
        _, _, _, offsets, timestamps, types, keys, values, _ = columns
        self.topic = topic
        self.partition = partition
        self.offsets = memoryview(offsets).cast("q")
        self.timestamps_ms = memoryview(timestamps).cast("q")
        self.timestamp_types = memoryview(types).cast("i")
        self.keys = BytesView(keys)
        self.values = BytesView(values)

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.topic}-{self.partition}>"


class BatchSpan(NamedTuple):
    """What a batch has of one partition: offsets from `first`, and `end`, the offset of the next record."""

    topic: str
    partition: int
    first: int
    end: int
    leader_epoch: int | None
    buffer: PartitionBuffer


class Committer(Protocol):
    """A consumer that commits batches."""

    async def _commit(self, what: PolledBatch | None = None, *, timeout: float | None = None) -> None: ...

    def owns(self, spans: Iterable[BatchSpan]) -> bool: ...

    def rewind(self, spans: Iterable[BatchSpan]) -> None: ...


class PolledBatch:
    """The records of one `poll_batch`, in the order in which `poll` would have returned them.

    It keeps the decompressed batches in memory, and so do the records of its iteration. Columns and Arrow arrays
    are copies.
    """

    __slots__ = ("_owner", "_slices", "spans")

    def __init__(
        self,
        slices: Sequence[RecordSlice],
        taken_from: Iterable[tuple[PartitionBuffer, int, int | None]] = (),
        owner: Committer | None = None,
    ) -> None:
        """`taken_from` has the buffers of the slices, with the position before, and the leader epoch."""
        self._slices = list(slices)
        self._owner = owner
        spans: dict[PartitionBuffer, BatchSpan] = {}
        for buffer, first, epoch in taken_from:
            begin = spans[buffer].first if buffer in spans else first
            end = first if buffer.position is None else buffer.position
            spans[buffer] = BatchSpan(buffer.topic, buffer.partition, begin, end, epoch, buffer)
        self.spans = tuple(spans.values())

    async def _commit(self, timeout: float | None = None) -> None:
        """Commit what is in this batch, to its last record: see `Consumer.commit`.

        Raises CommitFailedError, and commits nothing, if one of its partitions was taken away since it was polled.
        """
        if self._owner is None:
            raise ConfigurationError("this batch is of no consumer that could commit it")
        if self.spans:
            await self._owner._commit(self, timeout=timeout)

    commit = blocking(_commit)

    # -- for a transaction: `kwire.producer.consumed.ConsumedBatch`

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return the offset of the record after the batch, by (topic, partition)."""
        return {(span.topic, span.partition): span.end for span in self.spans}

    def is_owned(self) -> bool:
        """Return whether the consumer still has all partitions of the batch."""
        return self._owner is not None and self._owner.owns(self.spans)

    def rewind(self) -> None:
        """Have the consumer return the records of the batch again, of the partitions that it still has."""
        if self._owner is not None:
            self._owner.rewind(self.spans)

    def __len__(self) -> int:
        return sum(map(len, self._slices))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        for records in self._slices:
            yield from records.records()

    def __repr__(self) -> str:
        return f"<{len(self)} records of {len(self._by_partition())} partitions>"

    def partitions(self) -> list[PartitionColumns]:
        """Return the records as columns, per partition."""
        return [
            PartitionColumns(topic, partition, columns(slices, False))
            for (topic, partition), slices in self._by_partition().items()
        ]

    def to_arrow(self, *, include_headers: bool = False, columns: Collection[str] | None = None) -> pa.RecordBatch:
        """Return all records as one pyarrow.RecordBatch; with `columns`, only the columns of these names.

        topic string, partition int32, offset int64, timestamp timestamp[ms, UTC] (-1 ms where a record has none),
        timestamp_type int32, key binary, value binary; with `include_headers` headers
        list<struct<key: string, value: binary>>, null where a record has none. A column that is not asked for is
        neither decoded nor copied. Raises ConfigurationError for a name that is no column.
        """
        check_pyarrow()
        check_columns(columns)
        from kwire.consumer import arrow  # importing pyarrow takes longer than all of kwire

        names = COLUMN_BITS if columns is None else columns
        return arrow.record_batch(some_columns(self._slices, {*names, "headers"} if include_headers else names))

    def _by_partition(self) -> dict[tuple[str, int], list[RecordSlice]]:
        found: dict[tuple[str, int], list[RecordSlice]] = {}
        for records in self._slices:
            found.setdefault((records.cursor.topic, records.cursor.partition), []).append(records)
        return found
