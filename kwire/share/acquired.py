"""What one response acquired of one partition: its records, their locks, and what becomes of each.

An offset is in one of these places at a time:

    unread        fetched, not yet handed out
    in hand       handed out, not acknowledged, or kept by a renewal
    chosen        acknowledged by the caller, not sent; another acknowledgement may replace it
    gone          collected to be sent, or lost

The caller's threads read and acknowledge; the loop thread collects what is chosen and extends locks. One lock guards
the places. Records are decoded on the caller's thread.
"""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kwire.errors import (
    AcknowledgeError,
    CorruptRecordsError,
    KwireError,
    LockLostError,
    UnsupportedVersionError,
)
from kwire.records import decode_batches
from kwire.records.reader import open_batches
from kwire.share.acknowledgements import (
    Acknowledgements,
    AcknowledgeType,
    OnDone,
    PendingAcknowledgements,
    SharePartition,
    contiguous,
)
from kwire.share.record import ShareRecord

if TYPE_CHECKING:
    from kwire.records.reader import RecordReader

_log = logging.getLogger("kwire.share")

# Batches are opened together up to this size.
_OPENED_BYTES = 1024 * 1024
_ENVELOPE = struct.Struct(">qi")  # base offset, size of the rest
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_HEADER_BYTES = 61


class AcquiredRange(NamedTuple):
    """Consecutive acquired offsets, and how often each was delivered."""

    first: int
    last: int
    delivery_count: int


class AcquiredRecords:
    """The acquired offsets of one partition in one ShareFetch response."""

    __slots__ = (
        "_batch_start", "_chosen", "_data", "_firsts", "_handed_at", "_in_hand", "_is_lost", "_late", "_lock",
        "_lock_deadline", "_next", "_own", "_ranges", "_reader", "_renewed", "_renewed_until", "_runs", "broker",
        "can_renew", "check_crc", "error", "is_explicit", "key", "node", "now", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, key: SharePartition, node: int, broker: str, ranges: Sequence[AcquiredRange],
        data: memoryview, *, lock_deadline: float, now: Callable[[], float], is_explicit: bool, can_renew: bool,
        check_crc: bool,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.key = key
        self.node = node
        self.broker = broker
        self.now = now
        self.is_explicit = is_explicit
        self.can_renew = can_renew
        self.check_crc = check_crc
        self.error: KwireError | None = None  # of a batch that was rejected; poll raises it once
        self._ranges = sorted(ranges)
        self._firsts = [each.first for each in self._ranges]
        self._data = data
        self._batch_start = 0
        self._reader: RecordReader | None = None
        self._next = self._ranges[0].first  # the next acquired offset to hand out
        self._lock = threading.Lock()
        self._lock_deadline = lock_deadline
        self._renewed_until: dict[int, float] = {}
        self._handed_at = 0.0  # when records were first handed out
        self._in_hand: set[int] = set()  # explicit: without any acknowledgement
        self._renewed: set[int] = set()  # explicit: kept by a renewal
        self._chosen: dict[int, AcknowledgeType] = {}  # explicit
        self._runs: list[tuple[int, int]] = []  # implicit: handed out
        self._own = Acknowledgements()  # gaps and unreadable batches, and what is accepted implicitly
        self._late: list[int] = []  # settled after the lock had ended
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<AcquiredRecords {self.topic}-{self.key.partition} {self._ranges} next {self._next}>"

    @property
    def acquired_count(self) -> int:
        return sum(last - first + 1 for first, last, _ in self._ranges)

    # -- reading; the consumer's lock is held

    @property
    def is_read(self) -> bool:
        """Return whether nothing is left to hand out."""
        return self._next > self._ranges[-1].last

    def take(self, count: int) -> list[ShareRecord]:
        """Return the next acquired records, at most `count`. `hand_out` says that the caller has got them."""
        records: list[ShareRecord] = []
        while len(records) < count and not self.is_read:
            reader = self._reader
            if reader is None:
                self._advance()
                continue
            taken = reader.take(count - len(records))
            if not taken:
                self._reader = None
                self._skip_to(reader.position)
                continue
            kept = self._acquired_of(taken)
            records = records + kept if records else kept
        if self.is_read:
            self._reader, self._data = None, memoryview(b"")
        return records

    def drop_unread(self) -> int:
        """Forget what was not handed out; return how many offsets that were."""
        dropped = sum(max(0, last - max(first, self._next) + 1) for first, last, _ in self._ranges)
        self._next = self._ranges[-1].last + 1
        self._reader, self._data = None, memoryview(b"")
        return dropped

    def release_unread(self) -> None:
        """Release the records that were not handed out: no poll will return them."""
        self._acknowledge_own(self._next, self._ranges[-1].last, lambda _: AcknowledgeType.RELEASE)
        self.drop_unread()

    def _advance(self) -> None:
        """Open the next batches. What is acquired before them, or without them, has no record."""
        if self._batch_start >= len(self._data):
            self._skip_to(self._ranges[-1].last + 1)
            return
        try:
            self._open_batches()
        except KwireError as error:
            self._skip_unreadable(error)

    def _open_batches(self) -> None:
        partition = self.key.partition
        found = open_batches(
            ShareRecord, self.topic, partition, self._next, self._data, self._batch_start, self.check_crc,
            _OPENED_BYTES,
        )  # fmt: skip
        if found is not None:
            self._reader, self._batch_start = found
            return
        batch = next(decode_batches(self._data, start=self._batch_start, check_crc=self.check_crc), None)
        if batch is None:  # the last batch was cut off
            self._batch_start = len(self._data)
            return
        if not batch.is_control:
            self._reader = batch.cursor(ShareRecord, self.topic, partition, self._next)
        self._batch_start += batch.size_bytes
        if batch.is_control:
            self._skip_to(batch.next_offset)

    def _acquired_of(self, taken: list[ShareRecord]) -> list[ShareRecord]:
        """Return those of the read records that are acquired; acknowledge the gaps between them."""
        first, last = taken[0].offset, taken[-1].offset
        around = self._range_of(first)
        if around is not None and last <= around.last and last - first + 1 == len(taken):
            self._skip_to(first)
            self._next = last + 1
        else:
            kept = []
            for record in taken:
                offset = record.offset
                if self._range_of(offset) is not None:
                    self._skip_to(offset)
                    self._next = offset + 1
                    kept.append(record)
            taken = kept
            self._skip_to(last + 1)
        for record in taken:
            record._acquired = self
        return taken

    def _range_of(self, offset: int) -> AcquiredRange | None:
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or offset > self._ranges[index].last:
            return None
        return self._ranges[index]

    def _skip_to(self, offset: int) -> None:
        """Acknowledge the acquired offsets up to `offset`, without it, as gaps: they have no record."""
        if offset > self._next:
            self._acknowledge_own(self._next, offset - 1, lambda _: AcknowledgeType.GAP)
            self._next = offset

    def _acknowledge_own(self, first: int, last: int, type_of: Callable[[AcquiredRange], AcknowledgeType]) -> None:
        with self._lock:
            for each in self._ranges:
                if each.first <= last and first <= each.last:
                    self._own.set_range(max(first, each.first), min(last, each.last), type_of(each))

    def _skip_unreadable(self, cause: KwireError) -> None:
        """Release the records of a batch that cannot be read; reject them when that had been tried before.

        Another consumer may have the codec, and a damaged response is intact the next time. Only damaged data that
        comes a second time is rejected, with an error; otherwise a warning is logged.
        """
        data, start = self._data, self._batch_start
        first, end, size = self._next, self._ranges[-1].last + 1, len(data) - start
        if size >= _HEADER_BYTES:
            base_offset, rest = _ENVELOPE.unpack_from(data, start)
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, start + _LAST_OFFSET_DELTA_AT)
            whole = _ENVELOPE.size + rest
            if _HEADER_BYTES <= whole <= size and delta >= 0 and first <= base_offset + delta:
                end, size = base_offset + delta + 1, whole
        self._batch_start = start + size
        is_damaged = isinstance(cause, CorruptRecordsError)
        is_rejected = False

        def decide(each: AcquiredRange) -> AcknowledgeType:
            nonlocal is_rejected
            if not is_damaged or each.delivery_count <= 1:
                return AcknowledgeType.RELEASE
            is_rejected = True
            return AcknowledgeType.REJECT

        self._acknowledge_own(first, end - 1, decide)
        self._next = max(self._next, end)
        where = {"topic": self.topic, "partition": self.key.partition, "offset": first}
        if is_rejected:
            self.error = CorruptRecordsError(
                f"the records up to offset {end - 1} cannot be read, as before, and were rejected: {cause.message}",
                remedy="the group does not deliver them again; if another replica has an intact copy, read it from "
                "there with a kwire.Consumer",
                **where,
            )
            self.error.__cause__ = cause
        elif is_damaged:
            _log.warning(
                "%s-%d: the records from offset %d to %d cannot be read, and were released: %s",
                self.topic, self.key.partition, first, end - 1, cause,
            )  # fmt: skip
        else:
            self.error = cause.at(**where)

    # -- places

    def hand_out(self, records: Sequence[ShareRecord]) -> None:
        """Note that the caller has got these records, of one `take` or a part of it, in order."""
        first, last = records[0].offset, records[-1].offset
        is_whole = last - first + 1 == len(records)
        with self._lock:
            if not self._handed_at:
                self._handed_at = self.now()
            if self.is_explicit:
                self._in_hand.update(range(first, last + 1) if is_whole else [record.offset for record in records])
            elif is_whole:
                self._runs.append((first, last))
            else:
                self._runs += contiguous(record.offset for record in records)

    def delivery_count(self, offset: int) -> int:
        found = self._range_of(offset)
        assert found is not None
        return found.delivery_count

    def lock_deadline(self, offset: int) -> float:
        return self._renewed_until.get(offset, self._lock_deadline)

    def is_lost(self, offset: int) -> bool:
        return self._is_lost or self.now() >= self.lock_deadline(offset)

    @property
    def is_expired(self) -> bool:
        """Return whether the lock of what was not handed out has ended."""
        return self._is_lost or self.now() >= self._lock_deadline

    def acknowledge(self, offset: int, type: AcknowledgeType) -> None:
        """Choose what becomes of a record that was handed out. Raises AcknowledgeError or LockLostError."""
        self._check_can(offset, type)
        with self._lock:
            self._check_held(offset)
            if self.is_lost(offset):
                raise self.lost_error(offset)
            self._choose(offset, type)

    def settle(self, offset: int, type: AcknowledgeType) -> None:
        """Choose `type` for a record whose block ends, unless the block has chosen something final.

        Raises nothing for a lock that has ended: the block may have raised. The result reports it, as for an
        acknowledgement that the broker refuses.
        """
        if not self.is_explicit:
            return
        with self._lock:
            if offset not in self._in_hand and offset not in self._renewed:
                return
            if self.is_lost(offset):
                self._in_hand.discard(offset)
                self._renewed.discard(offset)
                self._chosen.pop(offset, None)
                self._late.append(offset)
            else:
                self._choose(offset, type)

    def acknowledge_all(self, offsets: Sequence[int], type: AcknowledgeType) -> None:
        """Choose `type` for several records: all of them or, with the error of the first that cannot, none."""
        if not offsets:
            return
        self._check_can(offsets[0], type)
        with self._lock:
            if not self._in_hand.issuperset(offsets):
                for offset in offsets:
                    self._check_held(offset)
            if self._is_lost or self._renewed_until or self.now() >= self._lock_deadline:
                for offset in offsets:
                    if self.is_lost(offset):
                        raise self.lost_error(offset)
            self._in_hand.difference_update(offsets)
            if type is AcknowledgeType.RENEW:
                self._renewed.update(offsets)
            else:
                self._renewed.difference_update(offsets)
            self._chosen.update(dict.fromkeys(offsets, type))

    def _choose(self, offset: int, type: AcknowledgeType) -> None:
        self._in_hand.discard(offset)
        if type is AcknowledgeType.RENEW:
            self._renewed.add(offset)
        else:
            self._renewed.discard(offset)
        self._chosen[offset] = type

    def _check_can(self, offset: int, type: AcknowledgeType) -> None:
        if not self.is_explicit:
            raise AcknowledgeError(
                "records are acknowledged by poll, commit and close: acknowledgement_mode is implicit",
                remedy='make the consumer with acknowledgement_mode="explicit"',
                **self._place(offset),
            )
        if type is AcknowledgeType.RENEW and not self.can_renew:
            raise UnsupportedVersionError(
                "the broker cannot renew locks",
                remedy="this needs ShareAcknowledge v2, of Kafka 4.2",
                broker=self.broker,
                api="ShareAcknowledge",
                **self._place(offset),
            )

    def _check_held(self, offset: int) -> None:
        if offset not in self._in_hand and offset not in self._renewed and offset not in self._chosen:
            raise AcknowledgeError(
                "the record was acknowledged before, and the acknowledgement was sent",
                remedy="acknowledge each record once; before the next poll or commit it may be changed",
                **self._place(offset),
            )

    def lost_error(self, offset: int) -> LockLostError:
        return LockLostError(
            "the lock of the record has ended, and the group delivers it again",
            remedy="process it in less time, set renew=True, or raise share.record.lock.duration.ms of the group",
            **self._place(offset),
        )

    def _place(self, offset: int) -> dict[str, object]:
        return {"topic": self.topic, "partition": self.key.partition, "offset": offset}

    # -- for the consumer

    def unacknowledged(self) -> list[int]:
        """Return the offsets in hand that have no acknowledgement at all and whose lock lasts."""
        if not self._in_hand:
            return []
        with self._lock:
            return sorted(offset for offset in self._in_hand if not self.is_lost(offset))

    def drop_lost(self) -> None:
        """Forget records in hand whose lock has ended: they cannot be acknowledged."""
        if self._in_hand or self._renewed:
            with self._lock:
                for place in (self._in_hand, self._renewed):
                    place.difference_update([offset for offset in place if self.is_lost(offset)])

    def accept_handed_out(self) -> None:
        """Accept what was handed out: the implicit mode."""
        with self._lock:
            for first, last in self._runs:
                self._own.set_range(first, last, AcknowledgeType.ACCEPT)
            self._runs = []

    def release_in_hand(self) -> None:
        """Release what was handed out and not acknowledged: the consumer closes."""
        with self._lock:
            for first, last in self._runs:
                self._own.set_range(first, last, AcknowledgeType.RELEASE)
            self._chosen.update(dict.fromkeys(self._in_hand | self._renewed, AcknowledgeType.RELEASE))
            self._runs = []
            self._in_hand.clear()
            self._renewed.clear()

    def holds(self, offset: int) -> bool:
        """Return whether the record is in hand or its acknowledgement may still be replaced."""
        return offset in self._in_hand or offset in self._renewed or offset in self._chosen

    @property
    def in_hand_count(self) -> int:
        return len(self._in_hand) + len(self._renewed) + sum(last - first + 1 for first, last in self._runs)

    def collect(self) -> Acknowledgements | None:
        """Take what can be sent; None if there is nothing."""
        if not self._chosen and not self._own:
            return None
        with self._lock:
            collected, self._own = self._own, Acknowledgements()
            if self._chosen:
                chosen, self._chosen = self._chosen, {}
                if collected:
                    collected.update(Acknowledgements(chosen))
                else:
                    collected = Acknowledgements(chosen)
        return collected if collected else None

    def collect_late(self) -> list[int]:
        """Take the offsets that were settled after their lock had ended."""
        if not self._late:
            return []
        with self._lock:
            late, self._late = self._late, []
        return late

    @property
    def is_done(self) -> bool:
        """Return whether nothing is unread, in hand or chosen any more."""
        return self.is_read and not (self._in_hand or self._renewed or self._chosen or self._runs or self._own)

    # -- for the loop thread

    def to_renew(self, until: float, max_processing: float) -> list[int]:
        """Return the offsets in hand whose lock ends before `until`, unless they take longer than `max_processing`."""
        with self._lock:
            if self.now() >= self._handed_at + max_processing or self._is_lost:
                return []
            held = self._in_hand | self._renewed
            for first, last in self._runs:
                held.update(range(first, last + 1))
            return sorted(offset for offset in held if self.now() < self.lock_deadline(offset) <= until)

    def renewed(self, offsets: Iterable[int], until: float) -> None:
        """Note that the broker has extended these locks."""
        with self._lock:
            self._renewed_until.update(dict.fromkeys(offsets, until))

    def lose_to(self, later: AcquiredRecords) -> None:
        """Lose the locks of records in hand that the broker has delivered again, as `later`, to this consumer too.

        A response that came late lets a lock seem to last longer than the broker keeps it.
        """
        with self._lock:
            in_hand = self._in_hand | self._renewed
        self.lose([offset for offset in in_hand if later._range_of(offset)])

    def lose(self, offsets: Collection[int] | None = None) -> None:
        """Note that the broker has taken these locks away (None: all)."""
        with self._lock:
            if offsets is None:
                self._is_lost = True
            else:
                self._renewed_until.update(dict.fromkeys(offsets, float("-inf")))


def collect_all(held: Iterable[AcquiredRecords], on_done: OnDone, deadline: float) -> list[PendingAcknowledgements]:
    """Take what can be sent of each."""
    return [
        PendingAcknowledgements(acquired.topic, acquired.key, acquired.node, collected, deadline, on_done)
        for acquired in held
        if (collected := acquired.collect()) is not None
    ]
