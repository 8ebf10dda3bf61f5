"""Fake clients without a broker, which return what a test puts into their tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kwire.consumer import ConsumerRecord, PolledBatch
from kwire.errors import ErrorCode, KwireError, broker_error
from kwire.producer import arrow, bulk
from kwire.records import decode_batches, encode_batch
from kwire.spark.options import ReadOptions, read_options

if TYPE_CHECKING:
    import pyarrow as pa

    from kwire.producer.bulk import Keys, ManyHeaders, Partitions, Slice, Timestamps, Values
    from kwire.records.reader import RecordSlice

TopicPartition = tuple[str, int]


def options(own: Mapping[str, str] | None = None, *, is_stream: bool = False, **more: str) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", **(own or {}), **more}
    if "assign" in given or "subscribePattern" in given:
        del given["subscribe"]
    return read_options(given, is_stream=is_stream)


@dataclass
class FakeOffsetReader:
    """Partitions with their first and next offset, and the offset found for a time, if any."""

    extents: dict[TopicPartition, tuple[int, int]]
    at_times: dict[tuple[str, int, int], int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def partitions(self, topic: str) -> Collection[int]:
        found = [index for name, index in self.extents if name == topic]
        if not found:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
        return found

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.requests.append("beginnings")
        return {key: self.extents[key][0] for key in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.requests.append("ends")
        return {key: self.extents[key][1] for key in partitions}

    def offsets_at(self, times: Sequence[tuple[str, int, int]]) -> Mapping[TopicPartition, int | None]:
        self.requests.append("times")
        return {(topic, index): self.at_times.get((topic, index, ms)) for topic, index, ms in times}


class FakeConsumer:
    """A consumer of one partition, t-0, with real batches.

    `script` has a step for each poll: offsets or slices to return, a new position, or an error.
    """

    def __init__(self, script: Sequence[list[int] | list[RecordSlice] | int | KwireError], *, first: int = 0) -> None:
        self.script: list[Any] = list(script)
        self._first = first
        self._position = -1
        self.assigned: list[Any] = []
        self.ends: list[Mapping[TopicPartition, int]] = []
        self.on_poll: Callable[[], object] = lambda: None

    def assign(
        self, partitions: Sequence[tuple[str, int, int]], *, ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self.assigned.append(list(partitions))
        self.ends.append(ends or {})
        if partitions:
            self._position = partitions[0][2]

    def poll(self, max_records: int = 500, timeout: float = 1.0) -> list[ConsumerRecord]:
        return list(self.poll_batch(max_records, timeout))

    def poll_batch(self, max_records: int = 100_000, timeout: float = 1.0) -> PolledBatch:
        self.on_poll()
        step = self.script.pop(0) if self.script else []
        if isinstance(step, KwireError):
            raise step
        if isinstance(step, int):
            self._position = step
            return PolledBatch([])
        pieces = [piece(one, (0, None, b"%d" % one, ())) if isinstance(one, int) else one for one in step]
        assert sum(map(len, pieces)) <= max_records
        if pieces:
            self._position = pieces[-1].records()[-1].offset + 1
        return PolledBatch(pieces)

    def poll_arrow(
        self, max_records: int = 100_000, timeout: float = 1.0, *, columns: Collection[str] | None = None
    ) -> pa.RecordBatch:
        return self.poll_batch(max_records, timeout).to_arrow(columns=columns)

    def position(self, topic: str, partition: int) -> int:
        return self._position

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._first)


def piece(
    base_offset: int,
    *records: tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]],
    timestamp_type: int = 0,
    magic: int = 2,
    partition: int = 0,
) -> RecordSlice:
    """Return records (timestamp_ms, key, value, headers) as a slice of a batch. Magic 0 has no timestamps."""
    encoded = encode_batch(records, base_offset=base_offset, timestamp_type=timestamp_type, magic=magic)
    batches = decode_batches(encoded)
    cursors = [batch.cursor(ConsumerRecord, "t", partition, base_offset) for batch in batches]
    assert len(cursors) == 1
    return cursors[0].cut(len(records))


class FakeBulkResponse:
    """Done at once, or, with `is_slow`, after a call of `settled`."""

    def __init__(self, errors: list[tuple[int, KwireError]], *, is_slow: bool = False) -> None:
        self.errors = errors
        self._is_done = not is_slow

    def done(self) -> bool:
        return self._is_done

    def settled(self, timeout: float | None = None) -> object:
        self._is_done = True
        return self


# The timestamp of a record that is sent without one.
NOW = 1_800_000_000_000


class FakeProducer:
    """Stores each record as a tuple: topic, value, key, headers, partition, timestamp_ms.

    `failures` are results by row number, in send order; an exception in `refusals` is raised by the call with that row.
    """

    def __init__(
        self,
        failures: Mapping[int, KwireError] | None = None,
        refusals: Mapping[int, Exception] | None = None,
        *,
        is_slow: bool = False,
    ) -> None:
        self._failures = failures or {}
        self._refusals = refusals or {}
        self._is_slow = is_slow
        self.responses: list[FakeBulkResponse] = []
        self.sent: list[tuple[object, ...]] = []
        self.flushes = 0

    def send_many(
        self,
        topic: str,
        values: Values,
        keys: Keys = None,
        headers: ManyHeaders = None,
        timestamps_ms: Timestamps = None,
        partitions: Partitions = None,
    ) -> FakeBulkResponse:
        return self._send(topic, [bulk.slice_of(values, keys, headers, timestamps_ms, partitions, NOW)])

    def send_arrow(self, topic: str, table: Any) -> FakeBulkResponse:
        return self._send(topic, arrow.slices_of(table, NOW))

    def _send(self, topic: str, slices: Sequence[Slice]) -> FakeBulkResponse:
        first = len(self.sent)
        for many, length in slices:
            for timestamp_ms, key, value, headers, partition in many.rows(0, length):
                self.sent.append((topic, value, key, headers, partition, timestamp_ms))
        numbers = range(first, len(self.sent))
        for number in self._refusals.keys() & numbers:
            del self.sent[first:]
            raise self._refusals[number]
        failed = sorted(self._failures.keys() & numbers)
        errors = [(number - first, self._failures[number]) for number in failed]
        self.responses.append(FakeBulkResponse(errors, is_slow=self._is_slow))
        return self.responses[-1]

    def flush(self) -> None:
        self.flushes += 1
