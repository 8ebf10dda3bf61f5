"""Reads: `BatchReader` for spark.read, `StreamReader` for spark.readStream, and `read_range`, the task of both.

A task turns a range of offsets into Arrow batches, without a Python object per record. Compaction and transaction
markers leave offsets without a record, so a range ends at the consumer's position, not at the last record's offset.

One `StreamReader` lives on the driver as long as the query and plans its micro-batches; pickled copies run `read` in
tasks. Spark 4.2 added admission control (start offsets and a limit in each call) and Trigger.AvailableNow. With
earlier versions, options that need them raise a ConfigurationError.
"""

# pyarrow.compute creates its functions at import, so pyright cannot see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from kwire.errors import BrokerError, ConfigurationError, ErrorCode, KwireError, RequestTimeoutError, TopicError
from kwire.net import Clock, SystemClock
from kwire.spark.client_options import admin_options
from kwire.spark.clients import admins, consumers
from kwire.spark.columns import arrow_schema, polled_columns, to_spark
from kwire.spark.error_messages import with_option_names
from kwire.spark.filters import PushedFilters
from kwire.spark.monitoring import ProgressPublisher
from kwire.spark.offsets import (
    Checkpoint,
    OffsetRange,
    OffsetReader,
    byte_limit,
    check_start,
    from_checkpoint,
    is_given,
    lag,
    partitions_of,
    plan_batch,
    plan_micro_batch,
    rate_limit,
    report_data_loss,
    resolve,
    split,
    to_checkpoint,
)
from kwire.spark.option_parsers import TopicPartition
from kwire.spark.options import ReadOptions, Subscription
from kwire.spark.record_sizes import SAMPLE_BYTES, PolledConsumer, RecordSizes

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("kwire.spark")

Offsets = Mapping[TopicPartition, int]

# Limits of one Arrow batch: the JVM holds a whole batch outside its heap and turns it into rows.
ROWS_MAX = 10_000
BYTES_MAX = 16 * 1024 * 1024
# Seconds that one poll waits. It bounds how late the end of a range that has no record there is noticed.
_POLL_TIMEOUT = 0.1


class BatchReader(DataSourceReader):
    """spark.read: plans once on the driver, then runs one task per split."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @with_option_names()
    def partitions(self) -> list[InputPartition]:
        return input_partitions(self._ranges(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)

    def _ranges(self) -> list[OffsetRange]:
        return plan_batch(self._options, consumers.get(self._options.client), topic_names(self._options))


class FilteringReader(BatchReader):
    """With the option pushFilters. Spark refuses a reader with this method where the filters are not to be pushed."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filters: list[Any] = []

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        self._filters = filters
        return filters  # Spark checks the rows itself

    @with_option_names()
    def partitions(self) -> list[InputPartition]:
        ranges = PushedFilters.of(self._filters).narrow(self._ranges(), consumers.get(self._options.client))
        return input_partitions(ranges, self._options)


def batch_reader(options: ReadOptions, schema: StructType) -> BatchReader:
    if not options.pushes_filters:
        return BatchReader(options, schema)
    if not hasattr(DataSourceReader, "pushFilters"):
        raise ConfigurationError("option pushFilters needs Spark 4.1 or later", remedy="remove it")
    return FilteringReader(options, schema)


def topic_names(options: ReadOptions) -> Any:
    """Return a function that returns the names of all topics but Kafka's internal ones."""

    def fetch() -> list[str]:
        from kwire.admin import Admin  # imported here because only a pattern needs it

        with Admin(**admin_options(options.client)) as admin:
            return [topic.name for topic in admin.metadata().topics.values() if not topic.is_internal]

    return fetch


def input_partitions(ranges: list[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    splits = split(ranges, min_splits=options.min_partitions, max_records=options.max_records_per_partition)
    return [InputPartition(offset_range) for offset_range in splits]


def read_partition(
    partition: InputPartition | None, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Run a task. If there is nothing to read, Spark passes a partition without a value, or None (Spark 4.0)."""
    offset_range = partition.value if partition is not None else None
    if not isinstance(offset_range, OffsetRange):
        return
    consumer = consumers.get(options.client)
    names, convert = _conversion(options, schema, offset_range)
    try:
        with with_option_names():
            for polled in read_range(consumer, offset_range, options, SystemClock(), names):
                converted = convert(polled)
                if converted.num_rows:
                    yield from split_by_size(converted)
    except BaseException:
        # Also when Spark stops early (LIMIT): stop fetching. A range that was read to its end stays assigned, so that
        # the consumer keeps the topic's metadata for the next task.
        consumer.assign([])
        raise


def _conversion(
    options: ReadOptions, schema: StructType, of: OffsetRange
) -> tuple[Collection[str], Callable[[pa.RecordBatch], pa.RecordBatch]]:
    """Return the columns to poll, and the function that makes Spark's columns of them."""
    if options.table is not None:
        from kwire.spark.queue_read import POLLED  # only a read of such a table needs it

        return POLLED, partial(options.table.rows, names=schema.names)
    wanted = arrow_schema(schema)
    return polled_columns(wanted), partial(_to_spark, schema=wanted, of=of)


def read_range(
    consumer: PolledConsumer, wanted: OffsetRange, options: ReadOptions, clock: Clock, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in order, in batches of at most ROWS_MAX, with these columns of `poll_arrow`.

    One of the columns is the offset.

    Raises RequestTimeoutError if the position does not advance within kafkaConsumer.pollTimeoutMs.
    """
    topic, partition, position, end = wanted
    ends = {(topic, partition): end}
    consumer.assign([(topic, partition, position)], ends=ends)
    timeout = options.poll_timeout_ms / 1000
    deadline = clock.now() + timeout
    while position < end:
        try:
            polled = consumer.poll_arrow(ROWS_MAX, _POLL_TIMEOUT, columns=columns)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise error.at(topic=topic, partition=partition) from None
            position = _position_after_loss(consumer, wanted, position, options)
            consumer.assign([(topic, partition, position)], ends=ends)
            continue
        except KwireError as error:
            raise error.at(topic=topic, partition=partition) from None
        batch = _truncate(polled, end)
        if batch.num_rows:
            yield batch
        new_position = consumer.position(topic, partition)
        if new_position > position:
            position = new_position
            deadline = clock.now() + timeout
        elif clock.now() >= deadline:
            raise _no_progress_error(wanted, position, options)


def _truncate(polled: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """Return the batch without records at or after `end`, which the last fetch may have returned."""
    offsets = polled.column("offset")
    if not len(offsets) or offsets[-1].as_py() < end:
        return polled
    return polled.slice(0, pc.sum(pc.less(offsets, end)).as_py())


def split_by_size(batch: pa.RecordBatch, bytes_max: int = BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """Yield the batch, halved until each part fits in `bytes_max` or is a single row. Nothing is copied."""
    if batch.nbytes <= bytes_max or batch.num_rows == 1:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from split_by_size(batch.slice(0, half), bytes_max)
        yield from split_by_size(batch.slice(half), bytes_max)


def _to_spark(polled: pa.RecordBatch, schema: pa.Schema, of: OffsetRange) -> pa.RecordBatch:
    try:
        return to_spark(polled, schema)
    except KwireError as error:
        raise error.at(topic=of.topic, partition=of.partition) from error.__cause__


def _position_after_loss(consumer: PolledConsumer, wanted: OffsetRange, position: int, options: ReadOptions) -> int:
    """Return where to continue when `position` is not in the log: at the log's beginning or the end of the range."""
    key = wanted.topic, wanted.partition
    first = consumer.beginning_offsets([key])[key]
    report_data_loss(options, key, f"offset {position} is not in the log, which begins at {first}")
    # A log that ends before `position` was truncated or created again: its records are not those of the range.
    return first if first > position else wanted.end


def _no_progress_error(wanted: OffsetRange, position: int, options: ReadOptions) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"no record from offset {position} on within {options.poll_timeout_ms} ms; the read ends at {wanted.end}",
        topic=wanted.topic,
        partition=wanted.partition,
        remedy="check the broker's log file for this partition, or raise kafkaConsumer.pollTimeoutMs",
    )


class MicroBatchPlanner:
    """Decides where each micro-batch ends, from offsets, the clock and the options. Independent of Spark."""

    def __init__(self, options: ReadOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._last_at: float | None = None  # when the last micro-batch with data was planned
        self.available_now_end: Offsets | None = None  # the end of the query under Trigger.AvailableNow

    def next_end(
        self,
        start: Offsets,
        end: Offsets,
        *,
        rows_max: int | None,
        rows_min: int | None,
        bytes_max: int | None = None,
        sizes: Callable[[Offsets, Offsets], Mapping[TopicPartition, float]] | None = None,
    ) -> Offsets:
        """Return the end of the next micro-batch, or `start` while there are too few rows and the delay is not over.

        `sizes` returns the bytes that an offset stands for in each partition: only `bytes_max` needs it.
        """
        now = self._clock.now()
        if self.available_now_end is not None:
            end = {
                key: min(offset, self.available_now_end[key])
                for key, offset in end.items()
                if key in self.available_now_end
            }
        # As in Spark's connector, the first micro-batch after a start does not wait.
        elif (
            rows_min is not None
            and lag(start, end) < rows_min
            and self._last_at is not None
            and now < self._last_at + self._options.max_trigger_delay_ms / 1000
        ):
            return start
        self._last_at = now
        if rows_max is not None:
            end = rate_limit(start, end, rows_max)
        if bytes_max is not None:
            assert sizes is not None
            end = byte_limit(start, end, bytes_max, sizes(start, end))
        return end


class _BaseStreamReader(DataSourceStreamReader):
    """The part that is common to all versions of Spark."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: MicroBatchPlanner | None = None
        self._publisher: ProgressPublisher | None = None
        self._sizes: RecordSizes | None = None
        self._newest: Offsets | None = None  # where the partitions ended when a micro-batch was last planned

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need none of these, and a clock cannot be pickled.
        return {**self.__dict__, "_planner": None, "_publisher": None, "_sizes": None}

    @with_option_names()
    def initialOffset(self) -> Checkpoint:  # noqa: N802
        options = self._options
        partitions = partitions_of(options.subscription, self._offset_reader, topic_names(options))
        start = resolve(options.starting, partitions, self._offset_reader, is_strict_on_time=options.is_strict_on_time)
        given = [key for key in partitions if is_given(options.starting, key)]
        if given:
            check_start(options, {key: start[key] for key in given}, self._offset_reader.end_offsets(given))
        return to_checkpoint(start)

    @with_option_names()
    def partitions(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        ranges = plan_micro_batch(from_checkpoint(start), from_checkpoint(end), self._options, self._offset_reader)
        return input_partitions(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._schema)

    def stop(self) -> None:
        consumers.discard(self._options.client)
        if self._options.max_bytes_per_trigger is not None:
            consumers.discard(self._sampling_options)
        if self._options.monitoring_group is not None:
            admins.discard(admin_options(self._options.client))

    def _publish(self, progress: Checkpoint) -> None:
        """Commit the progress of the query to its group: all micro-batches before `progress` are complete."""
        group = self._options.monitoring_group
        if group is not None:
            if self._publisher is None:
                self._publisher = ProgressPublisher(group, SystemClock())
            self._publisher.publish(from_checkpoint(progress), admins.get(admin_options(self._options.client)).groups)

    @property
    def _offset_reader(self) -> OffsetReader:
        return consumers.get(self._options.client)

    @property
    def _sampling_options(self) -> dict[str, Any]:
        return {**self._options.client, "partition_max_bytes": SAMPLE_BYTES}

    def _record_sizes(self, start: Offsets, end: Offsets) -> Mapping[TopicPartition, float]:
        if self._sizes is None:
            self._sizes = RecordSizes(SystemClock())
        return self._sizes.of(start, end, consumers.get(self._sampling_options))

    def _get_planner(self) -> MicroBatchPlanner:
        if self._planner is None:
            self._planner = MicroBatchPlanner(self._options, SystemClock())
        return self._planner

    def _partitions(self) -> list[TopicPartition]:
        """Return the subscribed partitions. With failOnDataLoss, a topic that was deleted since the start is an error.

        Without, the others are read on: `plan_micro_batch` warns of what is lost.
        """
        subscription, names = self._options.subscription, topic_names(self._options)
        if self._options.fail_on_data_loss or subscription.pattern is not None:
            return partitions_of(subscription, self._offset_reader, names)
        found: list[TopicPartition] = []
        for topic in sorted({*subscription.topics, *(topic for topic, _ in subscription.partitions)}):
            assigned = tuple(key for key in subscription.partitions if key[0] == topic)
            own = Subscription(partitions=assigned) if assigned else Subscription(topics=(topic,))
            try:
                found += partitions_of(own, self._offset_reader, names)
            except TopicError as error:
                _log.warning("data may be lost: %s; the read continues without it", error)
        return sorted(found)

    def _end_offsets(self) -> Offsets:
        partitions = self._partitions()
        return self._offset_reader.end_offsets(partitions) if partitions else {}

    def _with_new_partitions(self, start: Offsets, end: Offsets) -> Offsets:
        """Return `start` with the first offsets of partitions created since, so that their records count as lag."""
        new = sorted(end.keys() - start.keys())
        return {**start, **self._offset_reader.beginning_offsets(new)} if new else start


if HAS_ADMISSION_CONTROL:

    class StreamReader(_BaseStreamReader, SupportsTriggerAvailableNow):  # pyright: ignore[reportRedeclaration]
        """For Spark 4.2 and later."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # A limit carries one of several options, and latestOffset applies the others.
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.max_bytes_per_trigger is not None:
                return ReadMaxBytes(self._options.max_bytes_per_trigger)
            if self._options.min_offsets_per_trigger is not None:
                return ReadMinRows(self._options.min_offsets_per_trigger)
            return ReadAllAvailable()

        @with_option_names()
        def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:  # noqa: N802
            # `start` is where the last completed micro-batch ended, as Spark asks after it has noted that.
            self._publish(start)
            # Spark passes ReadAllAvailable, whatever the default limit, when a trigger must read everything.
            reads_all = isinstance(limit, ReadAllAvailable)
            self._newest = end = self._end_offsets()
            end = self._get_planner().next_end(
                self._with_new_partitions(from_checkpoint(start), end),
                end,
                rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,  # pyright: ignore
                rows_min=None if reads_all else self._options.min_offsets_per_trigger,
                bytes_max=None if reads_all else self._options.max_bytes_per_trigger,
                sizes=self._record_sizes,
            )
            return to_checkpoint(end)

        @with_option_names()
        def reportLatestOffset(self) -> Checkpoint:  # noqa: N802
            # Spark asks in each trigger, right after latestOffset: as its own connector, do not ask the brokers again.
            return to_checkpoint(self._end_offsets() if self._newest is None else self._newest)

        @with_option_names()
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._get_planner().available_now_end = self._end_offsets()

else:

    class StreamReader(_BaseStreamReader):  # type: ignore[no-redef]
        """For Spark 4.0 and 4.1, which pass neither the start of a micro-batch nor its limit."""

        def __init__(self, options: ReadOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            if options.max_offsets_per_trigger or options.min_offsets_per_trigger or options.max_bytes_per_trigger:
                raise ConfigurationError(
                    "options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger need Spark 4.2 or later",
                    remedy="leave them out, or bound a batch read with endingOffsets",
                )

        @with_option_names()
        def latestOffset(self) -> Checkpoint:  # type: ignore[override]  # noqa: N802
            return to_checkpoint(self._end_offsets())

        def commit(self, end: Checkpoint) -> None:
            # Spark calls it when the next micro-batch begins: the group is one behind.
            self._publish(end)
