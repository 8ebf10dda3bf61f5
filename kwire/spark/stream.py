"""Streaming reads: `StreamReader` for spark.readStream.

One instance lives in a driver process for as long as the query runs and plans its micro-batches; others, made anew, run
`read` in tasks. Owns how much a micro-batch takes. Spark 4.2 and later tell the last offsets and a limit on each call
(admission control) and have Trigger.AvailableNow; for earlier versions the class lacks both, and options that need
them are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kwire.errors import ConfigurationError
from kwire.net import Clock, SystemClock
from kwire.spark.clients import consumers
from kwire.spark.offsets import Checkpoint, from_checkpoint, lag, limited, to_checkpoint
from kwire.spark.options import ReadOptions
from kwire.spark.planning import Log, partitions_of, plan_micro_batch, resolve
from kwire.spark.reader import portions, read_portion, topic_names
from kwire.spark.values import TopicPartition
from kwire.spark.wording import in_sparks_words

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # Spark 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Found = Mapping[TopicPartition, int]


class MicroBatches:
    """Decides where each micro-batch ends. Knows numbers and the clock, not Spark."""

    def __init__(self, options: ReadOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._last_at: float | None = None  # when a micro-batch with data was last decided on
        self.frozen: Found | None = None  # under Trigger.AvailableNow: read no further than this

    def next_end(self, start: Found, end: Found, *, rows_max: int | None, rows_min: int | None) -> Found:
        """The end of the next micro-batch; `start` itself while there is too little to be worth one."""
        now = self._clock.now()
        if self._last_at is None:
            self._last_at = now
        if self.frozen is not None:
            end = {key: min(offset, self.frozen[key]) for key, offset in end.items() if key in self.frozen}
        elif rows_min is not None and lag(start, end) < rows_min:
            is_due = now >= self._last_at + self._options.max_trigger_delay_ms / 1000
            if not is_due:
                return start
        self._last_at = now
        return end if rows_max is None else limited(start, end, rows_max)


class _StreamReader(DataSourceStreamReader):
    """What is common to all versions of Spark."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._micro_batches: MicroBatches | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_micro_batches": None}  # tasks need none, and clocks do not travel

    @in_sparks_words()
    def initialOffset(self) -> Checkpoint:  # noqa: N802
        options = self._options
        partitions = self._partitions()
        return to_checkpoint(
            resolve(options.starting, partitions, self._log, is_strict_on_time=options.is_strict_on_time)
        )

    @in_sparks_words()
    def partitions(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        whole = plan_micro_batch(from_checkpoint(start), from_checkpoint(end), self._options, self._log)
        return portions(whole, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_portion(partition, self._options, self._schema)

    def stop(self) -> None:
        consumers.discard(self._options.client)

    @property
    def _log(self) -> Log:
        return consumers.get(self._options.client)

    @property
    def _pace(self) -> MicroBatches:
        if self._micro_batches is None:
            self._micro_batches = MicroBatches(self._options, SystemClock())
        return self._micro_batches

    def _partitions(self) -> list[TopicPartition]:
        return partitions_of(self._options.subscription, self._log, topic_names(self._options))

    def _ends(self) -> Found:
        partitions = self._partitions()
        return self._log.end_offsets(partitions) if partitions else {}

    def _with_new(self, start: Found, end: Found) -> Found:
        """`start`, and the beginnings of partitions that came into being since: what they hold counts as lag."""
        new = sorted(end.keys() - start.keys())
        return {**start, **self._log.beginning_offsets(new)} if new else start


if HAS_ADMISSION_CONTROL:

    class StreamReader(_StreamReader, SupportsTriggerAvailableNow):  # pyright: ignore[reportRedeclaration]
        """For Spark 4.2 and later."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # With both a maximum and a minimum the limit says the maximum, and latestOffset minds the minimum.
            if self._options.max_offsets_per_trigger is not None:
                return ReadMaxRows(self._options.max_offsets_per_trigger)
            if self._options.min_offsets_per_trigger is not None:
                return ReadMinRows(self._options.min_offsets_per_trigger)
            return ReadAllAvailable()

        @in_sparks_words()
        def latestOffset(self, start: Checkpoint, limit: ReadLimit) -> Checkpoint:  # noqa: N802
            # Spark says ReadAllAvailable, whatever the default limit, when a trigger must take everything at once.
            is_everything = isinstance(limit, ReadAllAvailable)
            end = self._ends()
            end = self._pace.next_end(
                self._with_new(from_checkpoint(start), end),
                end,
                rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,  # pyright: ignore
                rows_min=None if is_everything else self._options.min_offsets_per_trigger,
            )
            return to_checkpoint(end)

        @in_sparks_words()
        def reportLatestOffset(self) -> Checkpoint:  # noqa: N802
            return to_checkpoint(self._ends())

        @in_sparks_words()
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._pace.frozen = self._ends()

else:

    class StreamReader(_StreamReader):  # type: ignore[no-redef]
        """For Spark 4.0 and 4.1, which say neither where a micro-batch starts nor how much it may take."""

        def __init__(self, options: ReadOptions, schema: StructType) -> None:
            super().__init__(options, schema)
            if options.max_offsets_per_trigger or options.min_offsets_per_trigger:
                raise ConfigurationError(
                    "options maxOffsetsPerTrigger and minOffsetsPerTrigger need Spark 4.2 or later",
                    remedy="leave them out, or bound a batch read with endingOffsets",
                )

        @in_sparks_words()
        def latestOffset(self) -> Checkpoint:  # type: ignore[override]  # noqa: N802
            return to_checkpoint(self._ends())
