"""How many bytes of rows an offset stands for, by partition: what maxBytesPerTrigger needs to turn bytes into offsets.

Offsets say nothing about bytes, so the driver reads a few records where the next micro-batch begins, now and then. An
offset without a record (compaction, markers of transactions) counts, too: a partition of nothing else has size 0.
"""

# pyarrow.compute creates its functions at import, so pyright cannot see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kwire.errors import BrokerError, ErrorCode
from kwire.net import Clock
from kwire.spark.option_parsers import TopicPartition

# The size of a sample of one partition: hundreds of records of the usual size, enough for a mean of any others.
SAMPLE_BYTES = 64 * 1024
# Seconds after which a sample is taken again. A topic's records rarely change their size for good.
_FRESH_S = 30.0
# Seconds that sampling may take. Partitions that did not answer count as the mean of the others.
_SAMPLING_S = 5.0
_POLL_TIMEOUT = 0.1
_RECORDS_MAX = 10_000
_UNKNOWN_SIZE = 1_024.0
_COLUMNS = ("topic", "partition", "offset", "key", "value")

Offsets = Mapping[TopicPartition, int]
Ranges = Mapping[TopicPartition, tuple[int, int]]


class PolledConsumer(Protocol):
    """The part of `kwire.Consumer` that sampling, and a task, needs."""

    def assign(
        self, partitions: Sequence[tuple[str, int, int]], *, ends: Mapping[TopicPartition, int] = ...
    ) -> None: ...
    def poll_arrow(
        self, max_records: int = ..., timeout: float = ..., *, columns: Collection[str] | None = ...
    ) -> pa.RecordBatch: ...
    def position(self, topic: str, partition: int) -> int: ...
    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class RecordSizes:
    """The mean bytes of key and value, by partition, for one streaming query."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sizes: dict[TopicPartition, float] = {}
        self._sampled_at: dict[TopicPartition, float] = {}

    def of(self, start: Offsets, end: Offsets, consumer: PolledConsumer) -> dict[TopicPartition, float]:
        """Return the bytes that an offset stands for in each partition that has any from `start` to `end`.

        Reads samples with `consumer` where there is none, or only an old one.
        """
        wanted = [key for key in sorted(end) if key in start and start[key] < end[key]]
        oldest = self._clock.now() - _FRESH_S
        stale = [key for key in wanted if self._sampled_at.get(key, oldest) <= oldest]
        if stale:
            self._sample({key: (start[key], end[key]) for key in stale}, consumer)
        known = [self._sizes[key] for key in wanted if key in self._sizes]
        mean = sum(known) / len(known) if known else _UNKNOWN_SIZE
        return {key: self._sizes.get(key, mean) for key in wanted}

    def _sample(self, ranges: Ranges, consumer: PolledConsumer) -> None:
        _assign(ranges, consumer)
        found = dict.fromkeys(ranges, 0)
        missing = set(ranges)
        deadline = self._clock.now() + _SAMPLING_S
        try:
            while missing and self._clock.now() < deadline:
                try:
                    polled = consumer.poll_arrow(_RECORDS_MAX, _POLL_TIMEOUT, columns=_COLUMNS)
                except BrokerError as error:
                    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                    # Retention has deleted where a range starts. The task that reads the range reports the loss.
                    ranges = _without_deleted(ranges, consumer)
                    _assign(ranges, consumer)
                    found, missing = dict.fromkeys(ranges, 0), set(ranges)
                    continue
                for key, size in _bytes_of(polled):
                    found[key] += size
                missing = {key for key in missing if consumer.position(*key) <= ranges[key][0]}
            for key in ranges.keys() - missing:
                self._sizes[key] = found[key] / (consumer.position(*key) - ranges[key][0])
                self._sampled_at[key] = self._clock.now()
        finally:
            consumer.assign([])  # stop fetching


def _assign(ranges: Ranges, consumer: PolledConsumer) -> None:
    consumer.assign(
        [(*key, first) for key, (first, _) in ranges.items()], ends={key: last for key, (_, last) in ranges.items()}
    )


def _without_deleted(ranges: Ranges, consumer: PolledConsumer) -> Ranges:
    """Return the ranges, from where their logs begin by now, without those that are deleted as a whole."""
    begin = consumer.beginning_offsets(list(ranges))
    return {key: (max(first, begin[key]), last) for key, (first, last) in ranges.items() if begin[key] < last}


def _bytes_of(polled: pa.RecordBatch) -> list[tuple[TopicPartition, int]]:
    """Return the bytes of keys and values by partition."""
    if not polled.num_rows:
        return []
    lengths = [pc.fill_null(pc.binary_length(polled.column(name)), 0).cast(pa.int64()) for name in ("key", "value")]
    table = pa.table(
        {"topic": polled.column("topic"), "partition": polled.column("partition"), "bytes": pc.add(*lengths)}
    )
    rows = table.group_by(["topic", "partition"]).aggregate([("bytes", "sum")]).to_pylist()
    return [((row["topic"], row["partition"]), row["bytes_sum"]) for row in rows]
