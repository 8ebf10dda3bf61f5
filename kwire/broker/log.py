"""The log of one partition, in memory: batches, offsets, timestamps, high watermark, transactions, leader epochs.

It replaces everything that Kafka keeps in a partition's directory: segments, indexes, producer snapshots, the
leader-epoch checkpoint. Batches are whole and of format v2 (see `log_validator`), stored as Fetch sends them. Segments
are only offsets where one would begin: the last one is active, and log compaction leaves it alone. A log knows no
topic, leader or request, and has no clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from kwire.broker.diagnostics import logger
from kwire.broker.log_cleaner import clean
from kwire.broker.options import INT_MAX, Options, TopicSettings
from kwire.broker.producer_state import BatchMetadata, ProducerStateManager
from kwire.broker.segment_files import SegmentFiles
from kwire.errors import ErrorCode, broker_error
from kwire.records import Batch, assign_offsets, decode_batches, encode_control_batch

NO_TIMESTAMP = -1
NO_EPOCH = -1

_last_offset, _first_offset = attrgetter("last_offset"), attrgetter("first_offset")
_first, _second = itemgetter(0), itemgetter(1)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch in the log. `data` is the whole batch as Fetch sends it."""

    data: memoryview
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    appended_ms: int  # wall time
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    compression: int

    def batch(self) -> Batch:
        """Decode the batch. Its checksum was checked when it was produced."""
        return next(iter(decode_batches(self.data, check_crc=False)))


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 when the topic keeps the producer's timestamps
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction, from its first record to its marker (Kafka's AbortedTxn)."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """The result of a search by timestamp; timestamp -1 and offset -1 if there is no such record."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class Storage:
    """How many bytes all logs of a cluster use, and how many they may use."""

    max_bytes: int
    used_bytes: int = 0
    full_was_logged: bool = False  # until there is space again

    def check_space(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR if `size` more bytes do not fit, and log it once."""
        if self.used_bytes + size <= self.max_bytes:
            self.full_was_logged = False
            return
        reason = f"storage_bytes_max is {self.max_bytes}, {self.used_bytes} are used"
        if not self.full_was_logged:
            self.full_was_logged = True
            remedy = "raise storage_bytes_max, or let the topics' retention.bytes or retention.ms delete records"
            logger.warning("the cluster rejects records: its storage is full (%s): %s", reason, remedy)
        raise broker_error(ErrorCode.KAFKA_STORAGE_ERROR, reason)


def _stored(
    batch: Batch, data: memoryview, base_offset: int, leader_epoch: int, max_timestamp_ms: int, appended_ms: int
) -> StoredBatch:
    return StoredBatch(
        data=data,
        base_offset=base_offset,
        last_offset=base_offset + batch.last_offset - batch.base_offset,
        leader_epoch=leader_epoch,
        max_timestamp_ms=max_timestamp_ms,
        appended_ms=appended_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        first_sequence=batch.base_sequence,
        last_sequence=batch.last_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        compression=batch.compression,
    )


class PartitionLog:
    """Offsets: start <= last stable <= high watermark <= end; `end_offset` is the next record's."""

    def __init__(self, options: Options, settings: TopicSettings, storage: Storage) -> None:
        self.settings = settings
        self._storage = storage
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.size_bytes = 0
        self.producers = ProducerStateManager(
            first_sequence=options.first_sequence, max_producers=options.max_producers_per_partition
        )
        self.epochs: list[tuple[int, int]] = []  # (leader epoch, its first offset), rising
        self.aborted: list[AbortedTransaction] = []  # by last_offset
        self._unreplicated_markers: list[
            tuple[int, int]
        ] = []  # (first offset, marker) of those whose marker is not replicated yet
        self._batches: list[StoredBatch] = []
        self._base_offsets: list[int] = []  # base offsets of _batches
        self._max_timestamps: list[int] = []  # highest timestamp in _batches[:i+1]: never falls, so that bisect works
        self._is_new = True
        self.segments: list[int] = [0]  # the base offset of each; the last one is active
        self._segment_size_bytes = 0  # of the active segment
        self._segment_began: tuple[int, int] | None = None  # its first batch: largest timestamp, wall time; None: empty
        self.files: SegmentFiles | None = None  # None: in memory only
        self.first_dirty_offset = 0  # below it the log is compacted (Kafka's cleaner-offset-checkpoint)

    def __iter__(self) -> Iterator[StoredBatch]:
        return iter(tuple(self._batches))

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which every transaction has ended."""
        first_open = self.producers.first_open_offset()
        # A transaction whose marker is not replicated counts as open: the marker could be lost with the leader.
        started = [start for start, marker in self._unreplicated_markers if marker >= self.high_watermark]
        return min(self.high_watermark, *started, self.high_watermark if first_open is None else first_open)

    # Writing.

    def append(self, batches: Sequence[Batch], *, leader_epoch: int, now_ms: int) -> LogAppendInfo:
        """Append validated batches, all or none. For a duplicate, return the offsets of its first copy.

        Raises BrokerError with the error code for the producer.
        """
        assert batches
        for batch in batches:
            duplicate = self._check_producer(batch)
            if duplicate is not None:
                return LogAppendInfo(
                    duplicate.base_offset, duplicate.last_offset, duplicate.timestamp_ms, is_duplicate=True
                )
        size = sum(batch.size_bytes for batch in batches)
        if size > self.settings.segment_bytes:
            why = f"{size} bytes in one append, segments have {self.settings.segment_bytes}"
            raise broker_error(ErrorCode.RECORD_LIST_TOO_LARGE, why)
        self._storage.check_space(size)
        time_ms = now_ms if self.settings.log_append_time else NO_TIMESTAMP
        base_offset = self.end_offset
        for batch in batches:
            self._append(batch, leader_epoch, now_ms)
        return LogAppendInfo(base_offset, self.end_offset - 1, time_ms)

    def append_marker(
        self,
        kind: str,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> LogAppendInfo:
        """End a producer's transaction here with a "commit" or "abort" marker. Raises INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if a newer epoch has written here."""
        known = self.producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise broker_error(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the marker has epoch {producer_epoch}, the last seen epoch is {known.epoch}",
            )
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            seen = known.coordinator_epoch
            raise broker_error(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker has coordinator epoch {coordinator_epoch}, the last seen is {seen}",
            )
        raw = encode_control_batch(
            kind, base_offset=0, producer_id=producer_id, producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch, timestamp_ms=now_ms,
        )  # fmt: skip
        marker = next(iter(decode_batches(raw)))
        self._append(marker, leader_epoch, now_ms)
        return LogAppendInfo(self.end_offset - 1, self.end_offset - 1, NO_TIMESTAMP)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Start a new leader's epoch at the end of the log. Drop the epoch before it if nothing was written in it."""
        if self.epochs and self.epochs[-1][1] == self.end_offset:
            self.epochs.pop()
        self.epochs.append((leader_epoch, self.end_offset))
        if self.files is not None:
            self.files.write_epochs(self)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Set the high watermark, below which everything is replicated. Only `truncate` lowers it."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.end_offset))
        if self._unreplicated_markers:
            self._unreplicated_markers = [
                entry for entry in self._unreplicated_markers if entry[1] >= self.high_watermark
            ]

    def truncate(self, offset: int) -> None:
        """Remove what is at and above `offset`, which a new leader does not have."""
        keep = bisect_left(self._batches, offset, key=_last_offset)
        if keep == len(self._batches):
            return
        self._delete_batches(keep, len(self._batches))
        self.end_offset = self._batches[-1].last_offset + 1 if self._batches else self.start_offset
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start <= self.end_offset]
        self.first_dirty_offset = min(self.first_dirty_offset, self.end_offset)
        self._restore_segments()
        self._rebuild_producers()
        if self.files is not None:
            self.files.rewrite(self)

    def _check_producer(self, batch: Batch) -> BatchMetadata | None:
        if batch.producer_id < 0:
            return None
        duplicate = self.producers.check(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, log_is_new=self._is_new
        )
        if (
            duplicate is None
            and not batch.is_transactional
            and self.producers.has_open_transaction(batch.producer_id, batch.producer_epoch)
        ):
            raise broker_error(
                ErrorCode.INVALID_TXN_STATE, f"producer {batch.producer_id} writes without its open transaction"
            )
        return duplicate

    def _append(self, batch: Batch, leader_epoch: int, now_ms: int) -> None:
        data = bytearray(batch.raw)
        time_ms = now_ms if self.settings.log_append_time else None
        assign_offsets(data, self.end_offset, leader_epoch, append_time_ms=time_ms)
        timestamp_ms = batch.max_timestamp_ms if time_ms is None else time_ms
        stored = _stored(batch, memoryview(data).toreadonly(), self.end_offset, leader_epoch, timestamp_ms, now_ms)
        self._maybe_roll(stored)
        if self.files is not None:
            self.files.append(self.segments[-1], stored.data)
        self._segment_size_bytes += len(stored.data)
        if self._segment_began is None:
            self._segment_began = (stored.max_timestamp_ms, now_ms)
        self._is_new = False
        if not self.epochs or self.epochs[-1][0] < leader_epoch:
            self.epochs.append((leader_epoch, stored.base_offset))
        self._batches.append(stored)
        self._base_offsets.append(stored.base_offset)
        self._max_timestamps.append(
            max(stored.max_timestamp_ms, self._max_timestamps[-1] if self._max_timestamps else NO_TIMESTAMP)
        )
        self.size_bytes += len(stored.data)
        self._storage.used_bytes += len(stored.data)
        self.end_offset = stored.last_offset + 1
        self._update_producer(stored)

    def _update_producer(self, stored: StoredBatch) -> None:
        if stored.is_control:
            batch = stored.batch()
            if not batch.count:
                return  # log compaction removed the marker: its whole transaction is gone
            control = batch.control()
            epoch = NO_EPOCH if control.coordinator_epoch is None else control.coordinator_epoch
            start = self.producers.end_transaction(
                stored.producer_id, stored.producer_epoch, epoch, now_ms=stored.appended_ms
            )
            if start is not None and stored.last_offset >= self.high_watermark:
                self._unreplicated_markers.append((start, stored.last_offset))
            if start is not None and control.kind == "abort":
                self.aborted.append(AbortedTransaction(stored.producer_id, start, stored.last_offset))
        elif stored.producer_id >= 0:
            written = BatchMetadata(
                stored.first_sequence, stored.last_sequence, stored.base_offset, stored.last_offset,
                stored.max_timestamp_ms,
            )  # fmt: skip
            self.producers.update(
                stored.producer_id, stored.producer_epoch, written,
                transactional=stored.is_transactional, now_ms=stored.appended_ms,
            )  # fmt: skip

    def _rebuild_producers(self) -> None:
        """Rebuild the producers and transactions from the batches, as Kafka does on recovery."""
        self.producers.clear()
        self.aborted.clear()
        self._unreplicated_markers.clear()
        for stored in self._batches:
            self._update_producer(stored)

    def restore(
        self,
        segments: Iterable[tuple[int, list[Batch]]],
        *,
        start_offset: int | None,
        epochs: Sequence[tuple[int, int]],
        now_ms: int,
    ) -> None:
        """Fill a new log with segments of files, (base offset, batches) in order.

        `start_offset` is that of the checkpoint, None: where the first segment begins.
        """
        found = list(segments)
        self.segments = [base for base, _ in found] or [start_offset or 0]
        self.start_offset = self.segments[0] if start_offset is None else max(start_offset, self.segments[0])
        self.end_offset = max(self.start_offset, self.segments[-1])
        for batch in (batch for _, batches in found for batch in batches):
            appended_ms = batch.max_timestamp_ms if batch.max_timestamp_ms >= 0 else now_ms
            leader_epoch = max(batch.partition_leader_epoch, 0)
            stored = _stored(batch, batch.raw, batch.base_offset, leader_epoch, batch.max_timestamp_ms, appended_ms)
            if stored.last_offset < self.end_offset and self._batches:
                continue  # an older copy of the same offsets
            if not self.epochs or self.epochs[-1][0] < leader_epoch:
                self.epochs.append((leader_epoch, stored.base_offset))
            self._batches.append(stored)
            self.end_offset = stored.last_offset + 1
        self._is_new = not self._batches
        self.size_bytes = sum(len(stored.data) for stored in self._batches)
        self._storage.used_bytes += self.size_bytes
        known = [entry for entry in epochs if entry[1] <= self.end_offset]
        self.epochs = known if known and (not self.epochs or known[-1][0] >= self.epochs[-1][0]) else self.epochs
        self._index_batches()
        self._rebuild_producers()
        self.high_watermark = self.end_offset
        self._advance_start(self.start_offset)

    # Reading.

    def read(self, offset: int, *, max_bytes: int, upper_bound: int, at_least_one: bool = True) -> list[StoredBatch]:
        """Return batches from the one that contains `offset` on, below `upper_bound`.

        There are as many as start within `max_bytes`. The first batch ignores that limit if `at_least_one`, else it
        must fit. Raises OFFSET_OUT_OF_RANGE.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise broker_error(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in {self.start_offset}..{self.end_offset}"
            )
        found: list[StoredBatch] = []
        left_bytes = max_bytes
        for index in range(self._index_of(offset), len(self._batches)):
            stored = self._batches[index]
            fits = left_bytes > 0 if found else at_least_one or len(stored.data) <= left_bytes
            if stored.last_offset >= upper_bound or not fits:
                break
            found.append(stored)
            left_bytes -= len(stored.data)
        return found

    def bytes_between(self, offset: int, upper_bound: int) -> int:
        """Return how many bytes `read` returns without a limit, for Fetch's min_bytes."""
        first = self._index_of(offset)
        last = bisect_left(self._base_offsets, upper_bound)
        return sum(len(stored.data) for stored in self._batches[first:last])

    def aborted_between(self, first_offset: int, last_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with a record in the range, ordered by first offset, as Fetch lists them."""
        begin = bisect_left(self.aborted, first_offset, key=_last_offset)
        overlapping = [aborted for aborted in self.aborted[begin:] if aborted.first_offset <= last_offset]
        return sorted(overlapping, key=_first_offset)

    def find_time(self, timestamp_ms: int, *, upper_bound: int) -> TimestampAndOffset:
        """Return the first record below `upper_bound` whose timestamp is at or after `timestamp_ms`."""
        for index in range(bisect_left(self._max_timestamps, timestamp_ms), len(self._batches)):
            stored = self._batches[index]
            if stored.base_offset >= upper_bound:
                break
            if stored.max_timestamp_ms < timestamp_ms:
                continue
            for record in stored.batch().records():
                if record.timestamp_ms >= timestamp_ms and self.start_offset <= record.offset < upper_bound:
                    return TimestampAndOffset(record.timestamp_ms, record.offset, stored.leader_epoch)
        return TimestampAndOffset(NO_TIMESTAMP, -1, NO_EPOCH)

    def find_max_time(self) -> TimestampAndOffset:
        """Return the first record with the highest timestamp (KIP-734)."""
        best = max(self._batches, key=lambda stored: stored.max_timestamp_ms, default=None)
        if best is None or best.max_timestamp_ms < 0:
            return TimestampAndOffset(NO_TIMESTAMP, -1, NO_EPOCH)
        return self.find_time(best.max_timestamp_ms, upper_bound=self.end_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch that wrote, or would write, `offset`."""
        index = bisect_right(self.epochs, offset, key=_second) - 1
        return self.epochs[index][0] if index >= 0 else NO_EPOCH

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch up to `leader_epoch`, (-1, -1) for a future one (KIP-101)."""
        if not self.epochs or not 0 <= leader_epoch <= self.epochs[-1][0]:
            return NO_EPOCH, -1
        if leader_epoch == self.epochs[-1][0]:
            return leader_epoch, self.end_offset
        following = bisect_right(self.epochs, leader_epoch, key=_first)
        floor = self.epochs[following - 1][0] if following else leader_epoch
        return floor, self.epochs[following][1]

    def _index_of(self, offset: int) -> int:
        """Return the index of the batch that contains `offset`, or of the first one above it."""
        index = max(bisect_right(self._base_offsets, offset) - 1, 0)
        if index < len(self._batches) and self._batches[index].last_offset < offset:
            index += 1
        return index

    # Segments.

    def _maybe_roll(self, stored: StoredBatch) -> None:
        """Begin a segment with this batch if the active one is full or too old (Kafka's LogSegment.shouldRoll)."""
        if self._segment_began is None:
            return
        timestamp_ms, created_ms = self._segment_began
        if timestamp_ms >= 0:
            waited_ms = stored.max_timestamp_ms - timestamp_ms
        else:
            waited_ms = stored.appended_ms - created_ms
        is_full = self._segment_size_bytes + len(stored.data) > self.settings.segment_bytes
        if is_full or waited_ms > self.settings.segment_ms or stored.last_offset - self.segments[-1] > INT_MAX:
            self._begin_segment(stored.base_offset)

    def roll(self) -> None:
        """Begin a new segment at the end of the log, unless the active one is empty."""
        if self._segment_began is not None:
            self._begin_segment(self.end_offset)

    def _begin_segment(self, base_offset: int) -> None:
        if self.files is not None:
            self.files.close_segment(self, len(self.segments) - 1)
        self.segments.append(base_offset)
        self._segment_size_bytes = 0
        self._segment_began = None

    def _restore_segments(self) -> None:
        """Drop the segments outside the log, and look at the batches of the active one."""
        within = [base for base in self.segments if self.start_offset < base <= self.end_offset]
        first = max((base for base in self.segments if base <= self.start_offset), default=self.start_offset)
        self.segments = [first, *within]
        active = self._batches[bisect_left(self._base_offsets, self.segments[-1]) :]
        self._segment_size_bytes = sum(len(stored.data) for stored in active)
        self._segment_began = (active[0].max_timestamp_ms, active[0].appended_ms) if active else None

    def segment_batches(self, index: int) -> list[StoredBatch]:
        """Return the batches of a segment by its place in `segments`."""
        begin = bisect_left(self._base_offsets, self.segments[index])
        if index + 1 == len(self.segments):
            return self._batches[begin:]
        return self._batches[begin : bisect_left(self._base_offsets, self.segments[index + 1])]

    # Compaction.

    def maybe_clean(self, now_ms: int) -> bool:
        """Compact the log if its configs ask for it now (Kafka's LogCleanerManager). Return whether it was."""
        settings = self.settings
        if not settings.is_compacted:
            return False
        end = self._first_uncleanable(now_ms - settings.min_compaction_lag_ms)
        dirty = self.bytes_between(self.first_dirty_offset, end)
        total = self.bytes_between(self.start_offset, end)
        if not dirty:
            return False
        first_dirty = self._batches[self._index_of(self.first_dirty_offset)]
        is_late = 0 <= first_dirty.max_timestamp_ms < now_ms - settings.max_compaction_lag_ms
        if not is_late and dirty / total <= settings.min_cleanable_dirty_ratio:
            return False
        self._clean(end, now_ms)
        return True

    def compact(self, now_ms: int) -> None:
        """Compact the log up to the last stable offset now, whatever its configs say: the active segment is rolled."""
        self.roll()
        end = self._segment_start(self.last_stable_offset)
        if end > self.start_offset:
            self._clean(end, now_ms)

    def _first_uncleanable(self, lag_ms: int) -> int:
        """Return where the cleanable segments end: at the active one, at the one with the last stable offset, or at the
        first one with a record after `lag_ms`."""
        end = min(self.segments[-1], self._segment_start(self.last_stable_offset))
        if self.settings.min_compaction_lag_ms:
            for index, base in enumerate(self.segments[:-1]):
                if base >= self.first_dirty_offset and any(
                    stored.max_timestamp_ms > lag_ms for stored in self.segment_batches(index)
                ):
                    return min(end, base)
        return end

    def _segment_start(self, offset: int) -> int:
        return self.segments[max(bisect_right(self.segments, offset) - 1, 0)]

    def _clean(self, end: int, now_ms: int) -> None:
        kept_from = bisect_left(self._base_offsets, end)
        before = sum(len(stored.data) for stored in self._batches[:kept_from])
        cleaned = clean(
            self._batches[:kept_from], self.aborted, first_dirty=self.first_dirty_offset,
            producers={producer.producer_id: producer for producer in self.producers},
            now_ms=now_ms, delete_retention_ms=self.settings.delete_retention_ms,
        )  # fmt: skip
        saved = before - sum(len(stored.data) for stored in cleaned.batches)
        self._merge_segments(end)
        self._batches[:kept_from] = cleaned.batches
        self.aborted = [*cleaned.aborted, *(one for one in self.aborted if one.last_offset >= end)]
        self.size_bytes -= saved
        self._storage.used_bytes -= saved
        self.first_dirty_offset = end
        self._index_batches()
        if self.files is not None:
            self.files.rewrite(self)

    def _merge_segments(self, end: int) -> None:
        """Join segments below `end` that fit into one by their sizes before the cleaning, as Kafka does."""
        merged: list[int] = []
        size = 0
        for index, base in enumerate(self.segments):
            if base >= end:
                merged.append(base)
                continue
            added = sum(len(stored.data) for stored in self.segment_batches(index))
            if (
                merged
                and size + added <= self.settings.segment_bytes
                and self.segments[index + 1] - merged[-1] <= INT_MAX
            ):
                size += added
            else:
                merged.append(base)
                size = added
        self.segments = merged

    # Forgetting.

    def delete_before(self, offset: int) -> int:
        """Move the start forward and return the new start. Raises OFFSET_OUT_OF_RANGE above the high watermark."""
        if not 0 <= offset <= self.high_watermark:
            raise broker_error(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in 0..{self.high_watermark} (high watermark)"
            )
        self._advance_start(max(offset, self.start_offset))
        return self.start_offset

    def retain(self, now_ms: int) -> None:
        """Remove whole batches by the topic's retention time and size, never above the high watermark."""
        if not self.settings.is_deleted:
            return
        size, start = self.size_bytes, self.start_offset
        for stored in self._batches:
            too_much = self.settings.retention_bytes >= 0 and size - len(stored.data) >= self.settings.retention_bytes
            age_ms = now_ms - (stored.max_timestamp_ms if stored.max_timestamp_ms >= 0 else stored.appended_ms)
            too_old = 0 <= self.settings.retention_ms < age_ms
            if not (too_much or too_old) or stored.last_offset >= self.high_watermark:
                break
            size -= len(stored.data)
            start = stored.last_offset + 1
        self._advance_start(start)

    def clear(self) -> None:
        """Remove everything: the topic is deleted."""
        self._delete_batches(0, len(self._batches))
        if self.files is not None:
            self.files.delete()
            self.files = None

    def _advance_start(self, offset: int) -> None:
        self.start_offset = offset
        self._delete_batches(0, bisect_left(self._batches, offset, key=_last_offset))
        self.aborted = [aborted for aborted in self.aborted if aborted.last_offset >= offset]
        started = [entry for entry in self.epochs if entry[1] <= offset]
        if started:  # the epoch of the new start starts there
            self.epochs = [(started[-1][0], offset), *self.epochs[len(started) :]]
        self.first_dirty_offset = max(self.first_dirty_offset, offset)
        self._restore_segments()
        if self.files is not None:
            self.files.trim(self)

    def _delete_batches(self, first: int, last: int) -> None:
        if first >= last:
            return
        freed = sum(len(stored.data) for stored in self._batches[first:last])
        self.size_bytes -= freed
        self._storage.used_bytes -= freed
        del self._batches[first:last]
        self._index_batches()

    def _index_batches(self) -> None:
        self._base_offsets = [stored.base_offset for stored in self._batches]
        highest = NO_TIMESTAMP
        self._max_timestamps = [highest := max(highest, stored.max_timestamp_ms) for stored in self._batches]
