"""Which messages are in progress, by the markers of one partition, and which are due: without I/O, without a clock.

A message in progress is a slot: numbers in arrays, and the bytes of its START, which are decoded when it is due. So a
million messages cost less than 300 bytes each beside their payload. Three ways lead to a slot, as in kafka-mq-go's
redelivery tracker: by the message's place, by the offset of its START, by its deadline. STARTs come in the order of
their offsets, so that the second is a plain queue. Deadlines lie in stretches of a quarter of a second; only those of
the earliest ones are in a heap. Nothing is searched: an entry for a slot that has ended or moved is dropped when its
turn comes, and a structure is rebuilt when most of its entries are void.

The clock is the broker's. `clock_ms` is the greatest append time seen, and never runs backwards. It is compared with
`now`, the caller's monotonic seconds, for one purpose: an append time that jumps by more than `clock_jump_ms` against
it (another broker leads the partition, and its clock is wrong) is distrusted. The clock then goes on at the pace of
`now`, and later append times are read with the difference. In replay there is no pace to compare with: only a time that
is so much smaller than the last one is distrusted. Only a marker makes messages due: where none comes, the tracker
writes a TICK (`tick_due`).

Replay barrier: `begin(barrier)` has the offset of a TICK that this tracker wrote after its predecessor was fenced.
Until it is read back nothing is due: the END of a message that seems to be due may still be on its way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from uuid import UUID

from kwire.queue.markers import Headers, Identity, Marker, MarkerType, decode_marker, encode_marker

# A structure may have this many void entries, and this many entries for each message, before it is rebuilt.
_VOID_MAX = 1_000
_VOID_TIMES = 2
_PLACE_VOID_MAX = 64
_STRETCH_MS = 256
_SLOT_BITS = 32
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_LONGEST_MS = 1 << 50
_NO_SLOT = _SLOT_MASK
_FREE = -1  # the START offset of a slot that no message has
_RELEASED, _UNCOUNTED = 1, 2


@dataclass(frozen=True, slots=True)
class InProgress:
    """A message in progress. `offset` is that of its first START; `deadline_ms` is a time of the broker.

    is_released    nobody works on it: later keep-alives are void
    is_uncounted   its redelivery is no further delivery
    """

    identity: Identity
    offset: int
    deadline_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_released: bool
    is_uncounted: bool


class _Place:
    """A partition of the queue topic: the slots of its messages, sorted by offset. Its consumers read in that order."""

    __slots__ = ("_count", "_offsets", "_slots", "key")

    def __init__(self, key: tuple[UUID, int]) -> None:
        self.key = key
        self._offsets = array("q")
        self._slots = array("I")  # _NO_SLOT: the message has ended
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count)

    def find(self, offset: int) -> int | None:
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset or self._slots[at] == _NO_SLOT:
            return None
        return self._slots[at]

    def add(self, offset: int, slot: int) -> None:
        """Add a message that is not there."""
        self._count += 1
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)
            self._slots.append(slot)
            return
        at = bisect_left(self._offsets, offset)
        if self._offsets[at] == offset:
            self._slots[at] = slot
        else:
            self._offsets.insert(at, offset)
            self._slots.insert(at, slot)

    def remove(self, offset: int) -> None:
        """Remove a message that is there."""
        self._slots[bisect_left(self._offsets, offset)] = _NO_SLOT
        self._count -= 1
        if len(self._slots) > _VOID_TIMES * self._count + _PLACE_VOID_MAX:
            kept = [at for at, slot in enumerate(self._slots) if slot != _NO_SLOT]
            self._offsets = array("q", [self._offsets[at] for at in kept])
            self._slots = array("I", [self._slots[at] for at in kept])


class TrackerState:
    """The messages in progress of one partition of the markers topic."""

    def __init__(self, position: int = 0, *, clock_jump_ms: int = 60_000) -> None:
        """Begin at a committed offset, with nothing in progress."""
        self.position = position  # the offset after the last marker
        self.clock_ms = 0
        self.in_progress_bytes = 0  # of their STARTs
        self.clock_jumps = 0  # append times that were distrusted
        self._clock_jump_ms = clock_jump_ms
        self._shift_ms = 0  # what is added to append times
        self._seen_at: float | None = None  # `now` of the last marker after replay
        self._barrier: int | None = None
        self._by_place: dict[tuple[UUID, int], _Place] = {}
        self._count = 0
        self._ended: dict[Identity, int] = {}  # the offsets of ENDs that are committed and not read yet
        self._forget_slots()

    def _forget_slots(self) -> None:
        # What belongs to slot 7 is at index 7.
        self._offsets = array("q")
        self._deadlines = array("q")
        self._messages = array("q")  # offsets in the queue topic
        self._places: list[_Place] = []
        self._flags = bytearray()
        self._data: list[bytes] = []
        self._free = array("I")
        self._order = array("I")  # slots by the offset of their START
        self._order_offsets = array("q")
        self._order_at = 0  # those before have ended
        self._forget_deadlines()

    def _forget_deadlines(self) -> None:
        self._soon: list[int] = []  # a heap of deadline << 32 | slot
        self._later: dict[int, array[int]] = {}  # the slots of each other stretch
        self._stretches: list[int] = []  # a heap of these stretches
        self._deadline_count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, identity: Identity) -> bool:
        return self._slot(identity) is not None

    def entries(self) -> Iterator[InProgress]:
        """Iterate over the messages in progress, in no order."""
        return (self._entry(slot) for slot, offset in enumerate(self._offsets) if offset != _FREE)

    def _entry(self, slot: int) -> InProgress:
        marker, flags = decode_marker(self._data[slot]), self._flags[slot]
        return InProgress(
            self._identity(slot), self._offsets[slot], self._deadlines[slot], marker.key, marker.value, marker.headers,
            bool(flags & _RELEASED), bool(flags & _UNCOUNTED),
        )  # fmt: skip

    def _identity(self, slot: int) -> Identity:
        return Identity(*self._places[slot].key, self._messages[slot])

    def _slot(self, identity: Identity) -> int | None:
        place = self._by_place.get((identity.topic_id, identity.partition))
        return None if place is None else place.find(identity.offset)

    # -- replay

    def begin(self, barrier: int) -> None:
        """Let messages become due once the marker at offset `barrier` was applied."""
        self._barrier = barrier

    @property
    def is_replaying(self) -> bool:
        """Return whether markers that were written before the barrier may still come."""
        return self._barrier is None or self.position <= self._barrier

    # -- markers

    def apply(self, offset: int, timestamp_ms: int, marker: Marker | None, now: float, data: bytes = b"") -> None:
        """Apply the marker at `offset`, which the broker appended at `timestamp_ms`. None: it could not be read.

        `data` are the bytes of the marker, where the caller has them. An offset that was applied already is ignored.
        """
        if offset < self.position:
            return
        self.position = offset + 1
        appended_ms = self._advance(timestamp_ms, now)
        if marker is None:
            return
        if self._ended and offset <= self._ended.get(marker.identity, -1):
            if offset == self._ended[marker.identity]:
                del self._ended[marker.identity]
            return
        slot = self._slot(marker.identity)
        if marker.type == MarkerType.START:
            self._start(offset, self._deadline(marker, appended_ms), marker, slot, data)
        elif slot is None:
            return
        elif marker.type == MarkerType.END:
            self._remove(slot)
        elif marker.type == MarkerType.KEEP_ALIVE and not self._flags[slot] & _RELEASED:
            self._set_deadline(slot, self._deadline(marker, appended_ms))
        elif marker.type == MarkerType.RELEASE:
            self._flags[slot] = _RELEASED | (_UNCOUNTED if marker.is_uncounted else 0)
            self._set_deadline(slot, self._deadline(marker, appended_ms))

    def _deadline(self, marker: Marker, appended_ms: int) -> int:
        """Return when the marker lets its message be due.

        not_before_ms is a time of the queue topic's broker, perhaps from before the clock jumped. It cannot be later
        than its delay, which is redeliver_after_ms, from now on.
        """
        latest_ms = appended_ms + min(marker.redeliver_after_ms, _LONGEST_MS)
        if not marker.not_before_ms:
            return latest_ms
        shifted_ms = marker.not_before_ms + self._shift_ms
        for time_ms in (shifted_ms, marker.not_before_ms):
            if appended_ms <= time_ms <= latest_ms:
                return time_ms
        return min(shifted_ms, latest_ms)

    def _start(self, offset: int, deadline_ms: int, marker: Marker, slot: int | None, data: bytes) -> None:
        if slot is None:
            slot = self._take(offset, marker, data or encode_marker(marker))
            self._put_deadline(slot, deadline_ms)
        else:  # its consumer could not commit, and it was read again
            self._set_deadline(slot, deadline_ms)
        self._flags[slot] = _UNCOUNTED if marker.is_uncounted else 0

    def _take(self, offset: int, marker: Marker, data: bytes) -> int:
        """Give a message a slot."""
        topic_id, partition, message = marker.identity
        place = self._by_place.get((topic_id, partition))
        if place is None:
            place = self._by_place[topic_id, partition] = _Place((topic_id, partition))
        if self._free:
            slot = self._free.pop()
            self._offsets[slot], self._messages[slot] = offset, message
            self._places[slot], self._data[slot] = place, data
        else:
            slot = len(self._offsets)
            self._offsets.append(offset)
            self._deadlines.append(0)
            self._messages.append(message)
            self._places.append(place)
            self._flags.append(0)
            self._data.append(data)
        place.add(message, slot)
        self._order.append(slot)
        self._order_offsets.append(offset)
        self._count += 1
        self.in_progress_bytes += len(data)
        return slot

    def _remove(self, slot: int) -> None:
        place = self._places[slot]
        place.remove(self._messages[slot])
        if not place:
            del self._by_place[place.key]
        self.in_progress_bytes -= len(self._data[slot])
        self._data[slot] = b""
        self._offsets[slot] = _FREE
        self._free.append(slot)
        self._count -= 1
        if not self._count and len(self._offsets) > _VOID_MAX:
            self._forget_slots()  # what a great many messages needed
        elif len(self._order) > _VOID_TIMES * self._count + _VOID_MAX:
            self._rebuild_order()

    def end(self, identity: Identity, offset: int) -> None:
        """Remove a message whose END, at `offset`, is committed. Markers of it that stand before the END are void.

        A consumer that died may not have committed: another one reads the record again, and writes a START, while the
        redelivery is under way. Nothing happens if the END was read already.
        """
        if offset < self.position:
            return
        self._ended[identity] = offset
        slot = self._slot(identity)
        if slot is not None:
            self._remove(slot)

    def _rebuild_order(self) -> None:
        kept = [
            (self._order_offsets[at], self._order[at])
            for at in range(self._order_at, len(self._order))
            if self._offsets[self._order[at]] == self._order_offsets[at]
        ]
        self._order_offsets = array("q", [offset for offset, _ in kept])
        self._order = array("I", [slot for _, slot in kept])
        self._order_at = 0

    # -- deadlines

    def _set_deadline(self, slot: int, deadline_ms: int) -> None:
        if self._deadlines[slot] != deadline_ms:
            self._put_deadline(slot, deadline_ms)
            if self._deadline_count > _VOID_TIMES * self._count + _VOID_MAX:
                self._forget_deadlines()
                for other, offset in enumerate(self._offsets):
                    if offset != _FREE:
                        self._put_deadline(other, self._deadlines[other])

    def _put_deadline(self, slot: int, deadline_ms: int) -> None:
        self._deadlines[slot] = deadline_ms
        self._deadline_count += 1
        stretch = deadline_ms // _STRETCH_MS
        if stretch in self._later:
            self._later[stretch].append(slot)
        else:
            self._later[stretch] = array("I", [slot])
            heappush(self._stretches, stretch)

    def _next(self) -> int | None:
        """Return the first item of `_soon` that counts, once no other stretch may have an earlier one."""
        while True:
            while self._soon and not self._counts(self._soon[0]):
                heappop(self._soon)
                self._deadline_count -= 1
            first = self._soon[0] if self._soon else None
            if not self._stretches or (first is not None and (first >> _SLOT_BITS) // _STRETCH_MS < self._stretches[0]):
                return first
            stretch = heappop(self._stretches)
            slots = self._later.pop(stretch)
            items = {self._deadlines[slot] << _SLOT_BITS | slot for slot in slots}
            items = {item for item in items if (item >> _SLOT_BITS) // _STRETCH_MS == stretch and self._counts(item)}
            self._deadline_count -= len(slots) - len(items)
            for item in items:
                heappush(self._soon, item)

    def _counts(self, item: int) -> bool:
        slot = item & _SLOT_MASK
        return self._offsets[slot] != _FREE and self._deadlines[slot] == item >> _SLOT_BITS

    # -- the clock

    def _advance(self, timestamp_ms: int, now: float) -> int:
        """Advance the clock by an append time; return that time as it is trusted."""
        if self._seen_at is not None:
            expected_ms = self.clock_ms + round((now - self._seen_at) * 1000)
            if abs(timestamp_ms + self._shift_ms - expected_ms) > self._clock_jump_ms:
                self.clock_jumps += 1
                self._shift_ms = expected_ms - timestamp_ms
        elif timestamp_ms + self._shift_ms < self.clock_ms - self._clock_jump_ms:  # a log does not run backwards
            self.clock_jumps += 1
            self._shift_ms = self.clock_ms - timestamp_ms
        appended_ms = timestamp_ms + self._shift_ms
        self.clock_ms = max(self.clock_ms, appended_ms)
        if not self.is_replaying:  # a log is read faster than it was written
            self._seen_at = now
        return appended_ms

    def stalled_for(self, now: float) -> float:
        """Return how long the clock has stood still while messages are in progress."""
        return 0.0 if self._seen_at is None or not self._count else max(0.0, now - self._seen_at)

    def tick_due(self, now: float) -> float | None:
        """Return the time, on the clock of `now`, by which a marker must come: the next message is due by then.

        None while nothing is in progress, and in replay, which has its own TICK.
        """
        if self.is_replaying or self._seen_at is None:
            return None
        item = self._next()
        return None if item is None else self._seen_at + max(0, (item >> _SLOT_BITS) - self.clock_ms) / 1000

    # -- what to do

    def due(self, limit: int) -> list[InProgress]:
        """Return at most `limit` messages whose deadline has passed, the longest overdue first. They stay in progress.

        Call `end` for each once its redelivery is committed.
        """
        if self.is_replaying:
            return []
        found: dict[int, None] = {}
        while len(found) < limit:
            item = self._next()
            if item is None or item >> _SLOT_BITS > self.clock_ms:
                break
            heappop(self._soon)
            self._deadline_count -= item in found  # its deadline was moved away and back: it is there twice
            found[item] = None
        for item in found:
            heappush(self._soon, item)
        return [self._entry(item & _SLOT_MASK) for item in found]

    def postpone(self, identity: Identity, ms: int) -> None:
        """Let a message be due again only after this time."""
        slot = self._slot(identity)
        if slot is not None:
            self._set_deadline(slot, self.clock_ms + ms)

    def commit_offset(self, without: frozenset[Identity] = frozenset()) -> int:
        """Return where a successor must begin to read: the first START in progress, else the position.

        `without`: messages that end together with the commit.
        """
        skipped = {self._slot(identity) for identity in without}
        at, end = self._order_at, len(self._order)
        while at < end:
            slot, offset = self._order[at], self._order_offsets[at]
            if self._offsets[slot] == offset:
                if slot not in skipped:
                    return offset
            elif at == self._order_at:
                self._order_at += 1
            at += 1
        return self.position


__all__ = ["InProgress", "TrackerState"]
