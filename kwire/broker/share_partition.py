"""The records of one partition that a share group works on (KIP-932; Kafka's SharePartition).

A window of offsets, from `start_offset` to `end_offset`, holds the records that were acquired and are not all done.
Each record in it is in one state:

    AVAILABLE     a fetch may acquire it
    ACQUIRED      a member holds its lock until it acknowledges it, or the lock expires
    ACKNOWLEDGED  accepted
    ARCHIVED      rejected, delivered too often, aborted or a gap

The window starts at the first record that is not done, and grows as records are acquired, up to `max_record_locks`.
Neighbours in the same state are one `InFlight` range, so a batch costs one entry until its records part.

A share partition has no clock and no timer: `now` is an argument, and `next_expiry` says when to call `expire`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf
from operator import attrgetter

from kwire.errors import ErrorCode, broker_error

NO_OFFSET = -1
_LEAST_THROTTLE_COUNT = 2

Range = tuple[int, int]  # first and last offset
_first = attrgetter("first")


class RecordState(IntEnum):
    """Values are those of Kafka's RecordState."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_done(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """What a member says about a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """How many records a fetch acquires (KIP-1206)."""

    BATCH_OPTIMIZED = 0  # whole batches, so that it may be more than the limit
    RECORD_LIMIT = 1  # never more than the limit


_DONE_STATE = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass(frozen=True, slots=True)
class InFlight:
    """Records first..last, which share a state.

    `batch` is the range with which they were first acquired. `saved_count` is the delivery count that the share
    coordinator knows: an acquisition is not saved, so it is lost when the leader moves.
    """

    first: int
    last: int
    batch: Range
    state: RecordState
    delivery_count: int = 0
    member: str = ""
    locked_until: float = inf
    saved_count: int = 0

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class AcquiredRecords:
    """Records that one fetch acquired."""

    first: int
    last: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Records in a state that is saved: every one but ACQUIRED."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One batch of acknowledgements: one type for all of first..last, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a group that bound its records."""

    lock_seconds: float = 30.0
    max_delivery_count: int = 5
    max_record_locks: int = 2000


# Called with each range of records that is archived because a member rejected it or it was delivered too often.
OnUndeliverable = Callable[[InFlight, str], None]


def _ignore(records: InFlight, cause: str) -> None:
    pass


class SharePartition:
    """The in-flight records of a group in a partition, as the partition's leader has them."""

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        *,
        limits: Callable[[], Limits] = Limits,
        on_undeliverable: OnUndeliverable = _ignore,
    ) -> None:
        """Start with what the share coordinator saved: everything it does not name is available.

        `limits` is called at each use, as the group's configs may change.
        """
        self.start_offset = start_offset
        self._limits = limits
        self._on_undeliverable = on_undeliverable
        self._records: list[InFlight] = []  # without holes, in order, from start_offset to end_offset
        for saved in sorted(batches, key=_first):
            if saved.last < self.end_offset:
                continue
            if saved.first > self.end_offset:  # acquired once, never saved
                hole = (self.end_offset, saved.first - 1)
                self._records.append(InFlight(*hole, hole, RecordState.AVAILABLE))
            first = max(saved.first, self.end_offset)
            count = saved.delivery_count
            batch = (saved.first, saved.last)
            self._records.append(InFlight(first, saved.last, batch, saved.state, count, saved_count=count))
        self._advance()

    def __repr__(self) -> str:
        return f"<SharePartition {self.start_offset}..{self.end_offset}, {len(self._records)} ranges>"

    # What it is.

    @property
    def end_offset(self) -> int:
        """Return the offset after the window."""
        return self._records[-1].last + 1 if self._records else self.start_offset

    @property
    def in_flight(self) -> Sequence[InFlight]:
        return tuple(self._records)

    @property
    def delivery_complete_count(self) -> int:
        """Return how many records of the window are done, for the lag (KIP-1226)."""
        return sum(records.size for records in self._records if records.state.is_done)

    @property
    def next_fetch_offset(self) -> int:
        """Return where the next fetch reads: at the first available record, else after the window."""
        return next((r.first for r in self._records if r.state is RecordState.AVAILABLE), self.end_offset)

    @property
    def can_acquire(self) -> bool:
        """Return whether a record of the window is available, or the window may grow."""
        if self.next_fetch_offset != self.end_offset:
            return True
        return self.end_offset - self.start_offset < self._limits().max_record_locks

    @property
    def next_expiry(self) -> float:
        """Return when the next lock expires."""
        return min((r.locked_until for r in self._records if r.state is RecordState.ACQUIRED), default=inf)

    def state_batches(self) -> list[StateBatch]:
        """Return what the share coordinator saves. Locks and acquisitions are not part of it."""
        saved = []
        for records in self._records:
            if records.state is not RecordState.ACQUIRED:
                if records.state is not RecordState.AVAILABLE or records.delivery_count:
                    saved.append(StateBatch(records.first, records.last, records.state, records.delivery_count))
            elif records.saved_count:
                saved.append(StateBatch(records.first, records.last, RecordState.AVAILABLE, records.saved_count))
        return saved

    # Acquiring.

    def acquire(
        self,
        member: str,
        fetched: Sequence[Range],
        *,
        max_records: int,
        now: float,
        batch_size: int = 0,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        aborted: Sequence[Range] = (),
    ) -> list[AcquiredRecords]:
        """Lock records for a member and return them.

        fetched      the offsets of each batch that was read from `next_fetch_offset` on
        max_records  how many; see `AcquireMode`
        batch_size   split what is new at the batches of the log, into parts of at least this many; 0 does not split
        aborted      batches of aborted transactions in read_committed: they are archived, not returned
        """
        if max_records <= 0 or not fetched or fetched[-1][1] < self.start_offset:
            return []
        limits = self._limits()
        last = fetched[-1][1]
        fetch_offset = self.next_fetch_offset
        free = limits.max_record_locks - (self.end_offset - self.start_offset)
        if free > 0:
            max_records = min(max_records, free)
        elif fetch_offset < self.end_offset:  # the window is full: only what is in it
            last = min(last, self.end_offset - 1)
            max_records = min(max_records, self.end_offset - fetch_offset)
        else:
            return []
        locked_until = now + limits.lock_seconds
        acquired, is_throttled = self._acquire_again(member, fetch_offset, last, max_records, locked_until, mode)
        left = max_records - sum(records.last - records.first + 1 for records in acquired)
        if left > 0 and not is_throttled and last >= self.end_offset:
            ends = [end for _, end in fetched if end <= last]
            starts = [start for start, _ in fetched]
            acquired += self._acquire_new(member, starts, ends, left, batch_size, locked_until, mode)
        return self._without_aborted(acquired, aborted) if aborted else acquired

    def _acquire_again(
        self, member: str, first: int, last: int, max_records: int, locked_until: float, mode: AcquireMode
    ) -> tuple[list[AcquiredRecords], bool]:
        """Acquire available records of the window. Return them, and whether to stop after them.

        Records that failed often come in ever smaller parts, and alone on the last attempt, so that one bad record does
        not take its whole batch along.
        """
        limits = self._limits()
        throttle_count = max(_LEAST_THROTTLE_COUNT, (limits.max_delivery_count + 1) // 2)
        acquired: list[AcquiredRecords] = []
        count = 0
        for batch, parts in self._available_batches(first, last):
            if count >= max_records:
                break
            is_throttled = max(part.delivery_count for part in parts) >= throttle_count
            if is_throttled and count:
                return acquired, True
            left = max_records - count if mode is AcquireMode.RECORD_LIMIT else last - first + 1
            for part in parts:
                attempts = part.delivery_count
                is_last_attempt = limits.max_delivery_count > 2 and attempts == limits.max_delivery_count - 1
                if attempts >= throttle_count:
                    size = batch[1] - batch[0] + 1
                    left = min(left, max(1, size >> (attempts - throttle_count + 1)))
                if left <= 0 or (is_last_attempt and is_throttled and acquired):
                    break
                end = part.first if is_last_attempt else min(part.last, part.first + left - 1)
                self._change(part.first, end, lambda r: _lock(r, member, locked_until))
                acquired.append(AcquiredRecords(part.first, end, attempts + 1))
                count += end - part.first + 1
                left -= end - part.first + 1
                if is_last_attempt or end < part.last:
                    break
            if is_throttled:
                return acquired, True
        return acquired, False

    def _available_batches(self, first: int, last: int) -> list[tuple[Range, list[InFlight]]]:
        """Return the available records within first..last, by the batch with which they were first acquired."""
        found: list[tuple[Range, list[InFlight]]] = []
        for records in self._records:
            if records.state is not RecordState.AVAILABLE or records.last < first or records.first > last:
                continue
            part = replace(records, first=max(records.first, first), last=min(records.last, last))
            if not found or found[-1][0] != records.batch:
                found.append((records.batch, []))
            found[-1][1].append(part)
        return found

    def _acquire_new(
        self,
        member: str,
        starts: Sequence[int],
        ends: Sequence[int],
        max_records: int,
        batch_size: int,
        locked_until: float,
        mode: AcquireMode,
    ) -> list[AcquiredRecords]:
        """Acquire records after the window, which grows by whole batches of the log."""
        first = self.end_offset
        wanted = first + max_records - 1
        last = next((end for end in ends if end >= wanted), ends[-1])
        if mode is AcquireMode.RECORD_LIMIT:
            batch = (first, last)
            locked = InFlight(first, min(wanted, last), batch, RecordState.ACQUIRED, 1, member, locked_until)
            self._records.append(locked)
            if locked.last < last:
                self._records.append(InFlight(locked.last + 1, last, batch, RecordState.AVAILABLE))
            return [AcquiredRecords(locked.first, locked.last, 1)]
        parts: list[Range] = []
        if batch_size > 0:
            for start in starts:
                if start <= last and start - first >= batch_size:
                    parts.append((first, start - 1))
                    first = start
        parts.append((first, last))
        self._records += [InFlight(*part, part, RecordState.ACQUIRED, 1, member, locked_until) for part in parts]
        return [AcquiredRecords(*part, 1) for part in parts]

    def _without_aborted(self, acquired: Sequence[AcquiredRecords], aborted: Sequence[Range]) -> list[AcquiredRecords]:
        kept: list[AcquiredRecords] = []
        for records in acquired:
            first = records.first
            for begin, end in aborted:
                if end < first or begin > records.last:
                    continue
                archived = (max(begin, first), min(end, records.last))
                self._change(*archived, lambda r: replace(r, state=RecordState.ARCHIVED, member="", locked_until=inf))
                if archived[0] > first:
                    kept.append(AcquiredRecords(first, archived[0] - 1, records.delivery_count))
                first = archived[1] + 1
            if first <= records.last:
                kept.append(AcquiredRecords(first, records.last, records.delivery_count))
        self._advance()
        return kept

    # Acknowledging.

    def acknowledge(self, member: str, batches: Sequence[Acknowledgement], now: float) -> bool:
        """Apply a member's acknowledgements, all or none. Return whether a record is not locked any more.

        Offsets before the window are ignored.

        Raises INVALID_RECORD_STATE for records that the member has not acquired, and INVALID_REQUEST for unknown types
        or offsets behind the window.
        """
        before = list(self._records)
        undeliverable: list[tuple[InFlight, str]] = []
        changed = False
        try:
            for batch in batches:
                changed |= self._acknowledge(member, batch, now, undeliverable)
        except Exception:
            self._records = before
            raise
        self._advance()
        for records, cause in undeliverable:
            self._on_undeliverable(records, cause)
        return changed

    def _acknowledge(
        self, member: str, batch: Acknowledgement, now: float, undeliverable: list[tuple[InFlight, str]]
    ) -> bool:
        runs = _runs(batch)
        if batch.last < self.start_offset:
            return False
        if not self._records:
            raise broker_error(ErrorCode.INVALID_RECORD_STATE, f"nothing of {batch.first}..{batch.last} is in flight")
        if batch.last >= self.end_offset:
            why = f"offset {batch.last} was not acquired: the last one in flight is {self.end_offset - 1}"
            raise broker_error(ErrorCode.INVALID_REQUEST, why)
        limits = self._limits()
        changed = False
        for first, last, type in runs:
            changed |= type is not AcknowledgeType.RENEW
            begin = self._split(max(first, self.start_offset))
            end = self._split(last + 1)
            for index in range(begin, end):
                records = self._records[index]
                _check_locked(records, member)
                if type is AcknowledgeType.RENEW:
                    self._records[index] = replace(records, locked_until=now + limits.lock_seconds)
                elif type is AcknowledgeType.RELEASE:
                    self._records[index] = self._release(records, limits, undeliverable)
                else:
                    if type is AcknowledgeType.REJECT:
                        undeliverable.append((records, "Offset rejected by client."))
                    self._records[index] = _unlock(records, _DONE_STATE[type])
        return changed

    def release(self, member: str) -> bool:
        """Release the records of a member whose session ended. Return whether there were any."""
        return self._release_where(lambda records: records.member == member)

    def expire(self, now: float) -> bool:
        """Release the records whose lock has expired. Return whether there were any."""
        return self._release_where(lambda records: records.locked_until <= now)

    def _release_where(self, applies: Callable[[InFlight], bool]) -> bool:
        limits = self._limits()
        undeliverable: list[tuple[InFlight, str]] = []
        found = False
        for index, records in enumerate(self._records):
            if records.state is RecordState.ACQUIRED and applies(records):
                self._records[index] = self._release(records, limits, undeliverable)
                found = True
        if found:
            self._advance()
        for released, cause in undeliverable:
            self._on_undeliverable(released, cause)
        return found

    @staticmethod
    def _release(records: InFlight, limits: Limits, undeliverable: list[tuple[InFlight, str]]) -> InFlight:
        """Return released records: available again, or archived when they were delivered often enough."""
        if records.delivery_count < limits.max_delivery_count:
            return _unlock(records, RecordState.AVAILABLE)
        undeliverable.append((records, "Offset delivery count exceeded the threshold."))
        return _unlock(records, RecordState.ARCHIVED)

    # The window.

    def advance_start(self, log_start_offset: int) -> bool:
        """Forget the records that the log deleted. Return whether the window moved."""
        if log_start_offset <= self.start_offset:
            return False
        self._split(log_start_offset)
        self._records = [records for records in self._records if records.first >= log_start_offset]
        self.start_offset = log_start_offset
        self._advance()
        return True

    def _advance(self) -> None:
        """Move the start behind the records that are done."""
        done = 0
        for records in self._records:
            if not records.state.is_done:
                break
            self.start_offset = records.last + 1
            done += 1
        del self._records[:done]

    def _change(self, first: int, last: int, change: Callable[[InFlight], InFlight]) -> None:
        """Replace the records first..last, which are in the window."""
        begin = self._split(first)
        end = self._split(last + 1)
        self._records[begin:end] = [change(records) for records in self._records[begin:end]]

    def _split(self, offset: int) -> int:
        """Make a range start at `offset`, and return its index; the number of ranges if it is behind the window."""
        index = bisect_right(self._records, offset, key=_first) - 1
        if index < 0:
            return 0
        records = self._records[index]
        if records.first == offset:
            return index
        if records.last >= offset:
            self._records[index : index + 1] = [replace(records, last=offset - 1), replace(records, first=offset)]
        return index + 1


def _check_locked(records: InFlight, member: str) -> None:
    """Raise INVALID_RECORD_STATE unless the member has the lock."""
    if records.state is not RecordState.ACQUIRED:
        why = f"{records.first}..{records.last} is {records.state.name}"
        raise broker_error(ErrorCode.INVALID_RECORD_STATE, why)
    if records.member != member:
        raise broker_error(ErrorCode.INVALID_RECORD_STATE, f"another member has {records.first}..{records.last}")


def _lock(records: InFlight, member: str, until: float) -> InFlight:
    count = records.delivery_count + 1
    return replace(records, state=RecordState.ACQUIRED, delivery_count=count, member=member, locked_until=until)


def _unlock(records: InFlight, state: RecordState) -> InFlight:
    count = records.delivery_count
    return replace(records, state=state, member="", locked_until=inf, saved_count=count)


def _runs(batch: Acknowledgement) -> list[tuple[int, int, AcknowledgeType]]:
    """Return the offsets of a batch as (first, last, type). Raises INVALID_REQUEST."""
    size = batch.last - batch.first + 1
    if size < 1 or len(batch.types) not in (1, size):
        why = f"{batch.first}..{batch.last} has {len(batch.types)} types"
        raise broker_error(ErrorCode.INVALID_REQUEST, why)
    try:
        types = [AcknowledgeType(type) for type in batch.types]
    except ValueError:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"unknown acknowledge type in {list(batch.types)}") from None
    if len(types) == 1:
        return [(batch.first, batch.last, types[0])]
    runs: list[tuple[int, int, AcknowledgeType]] = []
    for offset, type in enumerate(types, batch.first):
        if runs and runs[-1][2] is type:
            runs[-1] = (runs[-1][0], offset, type)
        else:
            runs.append((offset, offset, type))
    return runs
