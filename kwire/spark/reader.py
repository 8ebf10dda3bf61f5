"""Reading: `BatchReader` for spark.read, and `read_range`, which tasks of batch and streaming reads run alike.

Owns the loop from a range of offsets to Arrow batches, and its end: offsets in a range may have no record (compaction,
transaction markers), so it ends by the consumer's position, not by the last record's offset. No Python object is made
for a record.
"""

# pyarrow.compute makes its functions as it is imported, where pyright does not see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kwire.errors import BrokerError, ErrorCode, KwireError, RequestTimeoutError
from kwire.net import Clock, SystemClock
from kwire.spark.client_options import admin_options
from kwire.spark.clients import consumers
from kwire.spark.columns import arrow_schema, to_spark
from kwire.spark.offsets import OffsetRange, split
from kwire.spark.options import ReadOptions
from kwire.spark.planning import lost, plan_batch
from kwire.spark.values import TopicPartition
from kwire.spark.wording import in_sparks_words

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Rows in one Arrow batch, and its bytes: the JVM takes a batch in whole, outside of its heap, and makes rows of it.
ROWS_MAX = 10_000
BYTES_MAX = 16 * 1024 * 1024
# How long one poll waits, in seconds. It only bounds how late a range that ends in a gap is seen to have ended.
_POLL_TIMEOUT = 0.1


class Reads(Protocol):
    """The part of `kwire.Consumer` that a task needs."""

    def assign(
        self, partitions: Sequence[tuple[str, int, int]], *, ends: Mapping[TopicPartition, int] = ...
    ) -> None: ...
    def poll_arrow(
        self, max_records: int = ..., timeout: float = ..., *, include_headers: bool = ...
    ) -> pa.RecordBatch: ...
    def position(self, topic: str, partition: int) -> int: ...
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]: ...


class BatchReader(DataSourceReader):
    """spark.read: plans once on the driver, then one task a portion."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @in_sparks_words()
    def partitions(self) -> list[InputPartition]:
        whole = plan_batch(self._options, consumers.get(self._options.client), topic_names(self._options))
        return portions(whole, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_portion(partition, self._options, self._schema)


def topic_names(options: ReadOptions) -> Any:
    """A function that answers the names of all topics, Kafka's internal ones left out."""

    def ask() -> list[str]:
        from kwire.admin import Admin  # only a pattern needs it

        with Admin(**admin_options(options.client)) as admin:
            return [topic.name for topic in admin.metadata().topics.values() if not topic.is_internal]

    return ask


def portions(whole: list[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    cut = split(whole, at_least=options.min_partitions, records_max=options.max_records_per_partition)
    return [InputPartition(portion) for portion in cut]


def read_portion(
    partition: InputPartition | None, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """What a task does. With nothing to read, Spark gives a partition without a value, or (4.0) none at all."""
    offset_range = partition.value if partition is not None else None
    if not isinstance(offset_range, OffsetRange):
        return
    consumer = consumers.get(options.client)
    wanted = arrow_schema(schema)
    try:
        with in_sparks_words():
            for polled in read_range(consumer, offset_range, options, SystemClock(), "headers" in wanted.names):
                yield from in_pieces(_to_spark(polled, wanted, offset_range))
    except BaseException:
        # Also when Spark stops in the middle (LIMIT): nobody wants what else is fetched. A range that was read to its
        # end stays assigned, which costs nothing, so that the next task of its topic finds the metadata there.
        consumer.assign([])
        raise


def read_range(
    consumer: Reads, wanted: OffsetRange, options: ReadOptions, clock: Clock, with_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, at most ROWS_MAX at once, in the columns of `Consumer.poll_arrow`.

    Raises when the broker is silent for too long.
    """
    topic, partition, position, end = wanted
    ends = {(topic, partition): end}
    consumer.assign([(topic, partition, position)], ends=ends)
    patience = options.poll_timeout_ms / 1000
    give_up_at = clock.now() + patience
    while position < end:
        try:
            polled = consumer.poll_arrow(ROWS_MAX, _POLL_TIMEOUT, include_headers=with_headers)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise error.at(topic=topic, partition=partition) from None
            position = _after_loss(consumer, wanted, position, options)
            consumer.assign([(topic, partition, position)], ends=ends)
            continue
        except KwireError as error:
            raise error.at(topic=topic, partition=partition) from None
        inside = _before(polled, end)
        if inside.num_rows:
            yield inside
        reached = consumer.position(topic, partition)
        if reached > position:
            position = reached
            give_up_at = clock.now() + patience
        elif clock.now() >= give_up_at:
            raise _silence(wanted, position, options)


def _before(polled: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Without what lies beyond the end, which the last fetch brought as well."""
    offsets = polled.column("offset")
    if not len(offsets) or offsets[-1].as_py() < end:
        return polled
    return polled.slice(0, pc.sum(pc.less(offsets, end)).as_py())


def in_pieces(batch: pa.RecordBatch, bytes_max: int = BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """The batch, in halves while it is too large; a row that is too large stands alone. Nothing is copied."""
    if batch.nbytes <= bytes_max or batch.num_rows == 1:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from in_pieces(batch.slice(0, half), bytes_max)
        yield from in_pieces(batch.slice(half), bytes_max)


def _to_spark(polled: pa.RecordBatch, schema: pa.Schema, of: OffsetRange) -> pa.RecordBatch:
    try:
        return to_spark(polled, schema)
    except KwireError as error:
        raise error.at(topic=of.topic, partition=of.partition) from error.__cause__


def _after_loss(consumer: Reads, wanted: OffsetRange, position: int, options: ReadOptions) -> int:
    """Where to go on when `position` is not in the log: at its beginning, or, if that is beyond the range, nowhere."""
    key = wanted.topic, wanted.partition
    first = consumer.beginning_offsets([key])[key]
    what = f"offset {position} is not in the log, which begins at {first}"
    lost(options, key, what)
    # A log that ends before the position was cut or made anew: its records are not those of the range.
    return first if first > position else wanted.end


def _silence(wanted: OffsetRange, position: int, options: ReadOptions) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"nothing came from offset {position} on within {options.poll_timeout_ms} ms; the read goes to {wanted.end}",
        topic=wanted.topic,
        partition=wanted.partition,
        remedy="see the broker's log for this partition, or raise kafkaConsumer.pollTimeoutMs",
    )
