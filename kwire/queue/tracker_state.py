"""Which messages are in progress, by the markers of one partition, and which are due: without I/O, without a clock.

Three structures, as in kafka-mq-go's redelivery tracker: entries by identity, a heap by marker offset, a heap by
deadline. Nothing is searched in a heap: an item whose entry has ended or moved is dropped when it comes to the top, and
a heap that is mostly such items is rebuilt.

The clock is the broker's. `clock_ms` is the greatest append time seen, and never runs backwards. It is compared with
`now`, the caller's monotonic seconds, for one purpose: an append time that jumps by more than `clock_jump_ms` against
it (another broker leads the partition, and its clock is wrong) is distrusted. The clock then goes on at the pace of
`now`, and later append times are read with the difference. In replay there is no pace to compare with: there, only a
time that is so much smaller than the one before is distrusted. Nothing becomes due but by a marker: where none comes,
the tracker writes a TICK (`tick_due`).

Replay barrier: `begin(barrier)` has the offset of a TICK that this tracker wrote after its predecessor was fenced.
Until it is read back nothing is due: the END of a message that seems to be due may still be on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from kwire.queue.markers import Headers, Identity, Marker, MarkerType

# Heaps may have this many void items, and as many again as there are entries.
_VOID_MAX = 1_000


@dataclass(slots=True)
class InProgress:
    """A message in progress. `offset` is that of its first START; `deadline_ms` is a time of the broker."""

    identity: Identity
    offset: int
    deadline_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    is_released: bool = False  # nobody works on it: later keep-alives are void
    is_uncounted: bool = False  # its redelivery is no further delivery

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return len(self.key or b"") + len(self.value or b"") + sum(len(n) + len(v or b"") for n, v in self.headers)


class TrackerState:
    """The messages in progress of one partition of the markers topic."""

    def __init__(self, position: int = 0, *, clock_jump_ms: int = 60_000) -> None:
        """Begin at a committed offset, with nothing in progress."""
        self.position = position  # the offset after the last marker
        self.clock_ms = 0
        self.in_progress_bytes = 0
        self.clock_jumps = 0  # append times that were distrusted
        self._clock_jump_ms = clock_jump_ms
        self._shift_ms = 0  # what is added to append times
        self._seen_at: float | None = None  # `now` of the last marker after replay
        self._barrier: int | None = None
        self._entries: dict[Identity, InProgress] = {}
        self._by_offset: list[tuple[int, Identity]] = []
        self._by_deadline: list[tuple[int, Identity]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._entries

    def entries(self) -> Iterator[InProgress]:
        """Iterate over the messages in progress, in no order."""
        return iter(self._entries.values())

    # -- replay

    def begin(self, barrier: int) -> None:
        """Let messages become due once the marker at offset `barrier` was applied."""
        self._barrier = barrier

    @property
    def is_replaying(self) -> bool:
        """Whether markers that were written before the barrier may still come."""
        return self._barrier is None or self.position <= self._barrier

    # -- markers

    def apply(self, offset: int, timestamp_ms: int, marker: Marker | None, now: float) -> None:
        """Apply the marker at `offset`, which the broker appended at `timestamp_ms`. None: it could not be read.

        An offset that was applied already is ignored.
        """
        if offset < self.position:
            return
        self.position = offset + 1
        appended_ms = self._advance(timestamp_ms, now)
        if marker is None:
            return
        entry = self._entries.get(marker.identity)
        deadline_ms = self._deadline(marker, appended_ms)
        if marker.type == MarkerType.START:
            self._start(offset, deadline_ms, marker, entry)
        elif entry is None:
            return
        elif marker.type == MarkerType.END:
            self._remove(entry)
        elif marker.type == MarkerType.KEEP_ALIVE and not entry.is_released:
            self._set_deadline(entry, deadline_ms)
        elif marker.type == MarkerType.RELEASE:
            entry.is_released, entry.is_uncounted = True, marker.is_uncounted
            self._set_deadline(entry, deadline_ms)

    def _deadline(self, marker: Marker, appended_ms: int) -> int:
        """Return when the marker lets its message be due.

        not_before_ms is a time of the queue topic's broker, perhaps from before the clock jumped. It cannot be later
        than its delay, which is redeliver_after_ms, from now on.
        """
        latest_ms = appended_ms + marker.redeliver_after_ms
        if not marker.not_before_ms:
            return latest_ms
        shifted_ms = marker.not_before_ms + self._shift_ms
        for time_ms in (shifted_ms, marker.not_before_ms):
            if appended_ms <= time_ms <= latest_ms:
                return time_ms
        return min(shifted_ms, latest_ms)

    def _start(self, offset: int, deadline_ms: int, marker: Marker, entry: InProgress | None) -> None:
        if entry is None:
            entry = InProgress(marker.identity, offset, deadline_ms, marker.key, marker.value, marker.headers)
            self._entries[marker.identity] = entry
            self.in_progress_bytes += entry.size
            heappush(self._by_offset, (offset, marker.identity))
            heappush(self._by_deadline, (deadline_ms, marker.identity))
        else:  # its consumer could not commit, and it was read again
            self._set_deadline(entry, deadline_ms)
        entry.is_released, entry.is_uncounted = False, marker.is_uncounted

    def _set_deadline(self, entry: InProgress, deadline_ms: int) -> None:
        if entry.deadline_ms != deadline_ms:
            entry.deadline_ms = deadline_ms
            heappush(self._by_deadline, (deadline_ms, entry.identity))
            if len(self._by_deadline) > 2 * len(self._entries) + _VOID_MAX:
                self._by_deadline = [(one.deadline_ms, one.identity) for one in self._entries.values()]
                heapify(self._by_deadline)

    def _remove(self, entry: InProgress) -> None:
        del self._entries[entry.identity]
        self.in_progress_bytes -= entry.size
        if len(self._by_offset) > 2 * len(self._entries) + _VOID_MAX:
            self._by_offset = [(one.offset, one.identity) for one in self._entries.values()]
            heapify(self._by_offset)

    def end(self, identity: Identity) -> None:
        """Remove a message whose END is committed. Nothing happens if it has ended already."""
        entry = self._entries.get(identity)
        if entry is not None:
            self._remove(entry)

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

    def tick_due(self, now: float) -> float | None:
        """Return the time, on the clock of `now`, by which a marker must come: the next message is due by then.

        None while nothing is in progress, and in replay, which has its own TICK.
        """
        if self.is_replaying or self._seen_at is None:
            return None
        deadline_ms = self._next_deadline_ms()
        return None if deadline_ms is None else self._seen_at + max(0, deadline_ms - self.clock_ms) / 1000

    def _next_deadline_ms(self) -> int | None:
        heap = self._by_deadline
        while heap:
            deadline_ms, identity = heap[0]
            entry = self._entries.get(identity)
            if entry is not None and entry.deadline_ms == deadline_ms:
                return deadline_ms
            heappop(heap)
        return None

    # -- what to do

    def due(self, limit: int) -> list[InProgress]:
        """Return at most `limit` messages whose deadline has passed, the longest overdue first. They stay in progress.

        Call `end` for each once its redelivery is committed.
        """
        if self.is_replaying:
            return []
        found: dict[Identity, InProgress] = {}
        while len(found) < limit:
            deadline_ms = self._next_deadline_ms()
            if deadline_ms is None or deadline_ms > self.clock_ms:
                break
            identity = self._by_deadline[0][1]
            heappop(self._by_deadline)
            if identity not in found:  # its deadline was moved away and back: it is in the heap twice
                found[identity] = self._entries[identity]
        for entry in found.values():
            heappush(self._by_deadline, (entry.deadline_ms, entry.identity))
        return list(found.values())

    def postpone(self, identity: Identity, ms: int) -> None:
        """Let a message be due again only after this time."""
        entry = self._entries.get(identity)
        if entry is not None:
            self._set_deadline(entry, self.clock_ms + ms)

    def commit_offset(self, without: frozenset[Identity] = frozenset()) -> int:
        """Return where a successor must begin to read: the first START in progress, else the position.

        `without`: messages that end together with the commit.
        """
        heap, held = self._by_offset, []
        offset = self.position
        while heap:
            entry = self._entries.get(heap[0][1])
            if entry is None or entry.offset != heap[0][0]:
                heappop(heap)
            elif entry.identity in without:
                held.append(heappop(heap))
            else:
                offset = heap[0][0]
                break
        for item in held:
            heappush(heap, item)
        return offset


__all__ = ["InProgress", "TrackerState"]
