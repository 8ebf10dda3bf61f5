"""How records of any thread come together in batches: runs, the places in them, and the door. In Python.

A `Run` is records of one topic that are to travel together, in the order in which they came; the final form of a v2
batch but for its header. It is open while records join it, then closed for good, and resolved in one part or several. A
`Place` is where a record is: its run and its number there; all that there is for a record. The `Door` has the open
runs, appends what threads send, bounds the memory, and tells who drains it of new runs and of full ones: nobody hears
of single records. It refuses to know about brokers, errors and time.

    partition >= 0   records that have that partition, or got it by their key
    UNDESIGNATED     without a key: given a partition as a whole, when drained
    UNROUTED         without a partition, in the order in which they came, while the topic's partitions are not known;
                     `route` moves each of them into a run of the other kinds

This is the specification of `_door.c` and `_run.c`. Here a lock guards all of it, there the interpreter's. It is
re-entrant: making an object may collect garbage, which may run a finalizer that sends a record, in the midst of a
`send`. So a run is made before anything is looked at, and only then put where it belongs.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, TypeVar
from zlib import crc32

from kwire.wire._bulk import ManyColumns
from kwire.wire._encode import encode_records
from kwire.wire._pure import murmur2
from kwire.wire.rows import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES_MAX, Bytes, Headers, NewRecord, record_bytes_max

UNDESIGNATED, UNROUTED = -1, -2

T = TypeVar("T")

Dispatch = Callable[..., object]
# (number in the run, place, what to call, where: None for at once)
Late = tuple[int, "Place", Callable[..., object], Dispatch | None]
Report = tuple[int, "Place", Callable[..., object]]
# from which record to before which, base offset, append time, error
Resolved = tuple[int, int, int, int, BaseException | None]
# partition, offset, timestamp, error; -1 for an offset that is not known
Outcome = tuple[int, int, int, BaseException | None]
# The same of records start .. end - 1 of a run: start, end, partition, offset of the first, append time (-1: they have
# their own timestamps), error.
Part = tuple[int, int, int, int, int, BaseException | None]
# Records that follow each other in a run: the number of the first, and how many.
Stretch = tuple["Run", int, int]


class Run:
    """`size_bytes`: what its records were counted as, and the header. `since`: when it began, for who keeps time."""

    __slots__ = (
        "_children", "_count", "_dropped", "_late", "_lock", "_marks", "_parts", "_reports", "_rows", "base_timestamp",
        "bytes_max", "dispatch", "has_headers", "is_closed", "max_timestamp", "partition", "since", "size_bytes",
        "terms", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        bytes_max: int,
        terms: Any = None,
        dispatch: Dispatch | None = None,
        lock: Any = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.bytes_max = bytes_max
        self.terms = terms
        self.dispatch = dispatch
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.base_timestamp = self.max_timestamp = -1
        self.is_closed = self.has_headers = False
        self.since: float | None = None
        self._rows: list[NewRecord] = []
        self._count = self._dropped = 0
        self._marks: list[tuple[int, int]] = []  # (from which record on, timestamp)
        self._parts: list[Resolved] = []
        self._reports: list[Report] = []
        self._late: list[Late] | None = None
        self._children: list[tuple[Run, int]] | None = None  # of a run that was routed
        self._lock = lock or threading.RLock()

    def __len__(self) -> int:
        return self._count

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, size_bytes: int) -> int:
        """Add a record; answers its number."""
        with self._lock:
            assert not self.is_closed
            return self._append((timestamp, key, value, headers), size_bytes)

    def _append(self, row: NewRecord, size_bytes: int) -> int:
        number, timestamp = self._count, row[0]
        if not number:
            self.base_timestamp = self.max_timestamp = timestamp
            self._marks.append((0, timestamp))
        elif timestamp != self._marks[-1][1]:
            self._marks.append((number, timestamp))
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
        if row[3]:
            self.has_headers = True
        self._rows.append(row)
        self._count = number + 1
        self.size_bytes += size_bytes
        if self.size_bytes >= self.bytes_max:
            self.is_closed = True
        return number

    def close(self) -> None:
        """No record joins it from now on."""
        with self._lock:
            self.is_closed = True

    # -- a closed run, until it is dropped

    def rows(self, start: int = 0, end: int | None = None) -> list[NewRecord]:
        assert self.is_closed
        return self._rows[start:end]

    def body(self) -> Bytes:
        """Its records as they stand in an uncompressed v2 batch."""
        assert self.is_closed
        return encode_records(self._rows, self.base_timestamp)

    def headed(self, header: bytes) -> Bytes:
        """The header and the body in one."""
        return header + self.body()

    def drop(self, count: int) -> None:
        """So many more of its records will not be asked for again; when that is all, their memory is given back."""
        self._dropped += count
        if self._dropped >= self._count:
            self._rows = []

    # -- outcomes

    def resolve(
        self, start: int, end: int, base_offset: int, append_time_ms: int, error: BaseException | None
    ) -> tuple[Reports | None, list[Late] | None]:
        """The outcome of records start .. end - 1; answers who wants to know. `append_time_ms` -1: their own times.

        Whoever asks a place is told either here or by `tell_late`, which looks at the same parts under the same lock.
        """
        with self._lock:
            assert self.is_closed
            assert all(end <= part[0] or start >= part[1] for part in self._parts), "a record resolves exactly once"
            self._parts.append((start, end, base_offset, append_time_ms, error))
            if not self._reports and self._late is None:
                return None, None
            if start == 0 and end == self._count:
                reports, self._reports = self._reports, []
                late, self._late = self._late, None
            else:
                reports = [one for one in self._reports if start <= one[0] < end]
                self._reports = [one for one in self._reports if not start <= one[0] < end]
                late = [one for one in self._late or () if start <= one[0] < end]
                self._late = [one for one in self._late or () if not start <= one[0] < end] or None
        return Reports(reports) if reports else None, late or None

    def done(self, number: int) -> bool:
        return self._part(number) is not None

    def _part(self, number: int) -> Resolved | None:
        """What has a record's outcome, in the run where the record is now."""
        if self._children is not None:
            run, number = self._children[number]
            return run._part(number)
        for part in self._parts:
            if part[0] <= number < part[1]:
                return part
        return None

    def outcome(self, number: int) -> Outcome | None:
        """Where a record is or what it met; None while that is not known."""
        if self._children is not None:
            run, number = self._children[number]
            return run.outcome(number)
        part = self._part(number)
        if part is None:
            return None
        start, _, base_offset, append_time_ms, error = part
        offset = -1 if base_offset < 0 else base_offset + number - start
        return self.partition, offset, self.timestamp(number) if append_time_ms < 0 else append_time_ms, error

    def outcomes(self, start: int, end: int) -> list[Part]:
        """What is known of the outcomes of records start .. end - 1, in their order."""
        if self._children is None:
            known = [
                (max(start, first), min(end, last), self.partition,
                 -1 if offset < 0 else offset + max(start - first, 0), append_time_ms, error)
                for first, last, offset, append_time_ms, error in self._parts if max(start, first) < min(end, last)
            ]  # fmt: skip
            return sorted(known, key=itemgetter(0))
        found: list[Part] = []
        while start < end:
            run, index = self._children[start]
            after = start + 1
            while after < end and self._children[after] == (run, index + after - start):
                after += 1
            for first, last, *outcome in run.outcomes(index, index + after - start):
                found.append((first - index + start, last - index + start, *outcome))  # type: ignore[arg-type]
            start = after
        return found

    def timestamp(self, number: int) -> int:
        return self._marks[bisect_right(self._marks, number, key=itemgetter(0)) - 1][1]

    def report(self, number: int, place: Place, callback: Callable[..., object]) -> bool:
        """Have a callback come with the reports, as one that came with its record; False where it is too late."""
        with self._lock:
            if self._children is not None or self.done(number) or (self._reports and self._reports[-1][0] >= number):
                return False
            self._reports.append((number, place, callback))
            return True

    def tell_late(self, number: int, place: Place, call: Callable[..., object], dispatch: Dispatch | None) -> bool:
        """Have `call` come with the record's outcome; False when that is there already."""
        with self._lock:
            if self._children is not None:
                run, number = self._children[number]
                return run.tell_late(number, place, call, dispatch)
            if self.done(number):
                return False
            self._late = self._late or []
            self._late.append((number, place, call, dispatch))
            return True


class Place:
    """Where a record is: all that there is for one.

    A kind of it that is asked for its `exception` before that is known has a `_wait`, which blocks until it is.
    """

    __slots__ = ("_number", "_run")

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._number = number

    def done(self) -> bool:
        """Whether the outcome is known; never blocks."""
        return self._run.done(self._number)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; answer the error instead of raising it, or None."""
        part = self._run._part(self._number)
        if part is None:
            self._wait(timeout)
            part = self._run._part(self._number)
            assert part is not None
        return part[4]

    def _wait(self, timeout: float | None) -> object:
        """Return once the outcome is known. How to wait is for the heir to say: here are no threads and no errors."""
        raise NotImplementedError


def place_class(written: type[T]) -> type[T]:
    """For a class derived from Place that adds no slots: what to make places of. C has its own."""
    return written


class Reports:
    """The callbacks that came with records of a run, in the records' order."""

    __slots__ = ("_reports",)

    def __init__(self, reports: list[Report]) -> None:
        self._reports = reports

    def all(self) -> list[Report]:
        return self._reports

    def tell(self, on_error: Callable[[Exception], object]) -> None:
        """Call them all; what one raises is its own."""
        for _, place, callback in self._reports:
            try:
                callback(place)
            except Exception as error:
                on_error(error)


class _Topic:
    """What the door knows of a topic. `ring` is the partitions that take turns, where there is no hash."""

    __slots__ = ("bytes_max", "count", "next", "open", "ring")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.count = 0  # of partitions; 0: not known
        self.ring: tuple[int, ...] = ()
        self.next = 0
        self.open: dict[int, Run] = {}


class Door:
    """`refer` is asked for all that `send` finds out of the ordinary, with the same arguments.

    That is while `is_open` is not set: nothing was started yet, or all is over. `key_hash` is "murmur2", "crc32", or
    None where records take turns; `may_share(terms of a run, terms of a record)` is asked where one has terms.
    `time_ms` tells the time; `by_system`: it is the system's, which C asks by itself.
    """

    def __init__(
        self,
        *,
        place: type[Place],
        dispatch: Dispatch | None,
        batch_bytes: int,
        bytes_max: int,
        record_bytes_max: int,
        key_hash: str | None,
        may_share: Callable[[Any, Any], bool],
        time_ms: Callable[[], int],
        wakeup: Callable[[], object],
        refer: Callable[..., Any],
        by_system: bool,
    ) -> None:
        self.is_open = False
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._place = place
        self._dispatch = dispatch
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._hash = {"murmur2": murmur2_partition, "crc32": crc32_partition, None: None}[key_hash]
        self._may_share = may_share
        self._time_ms = time_ms
        self._wakeup = wakeup
        self._refer = refer
        self._lock = threading.RLock()
        self._topics: dict[str, _Topic] = {}
        self._new: list[Run] = []
        self._is_woken = False
        self._gathers = False

    # -- for senders

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[..., object] | None = None,
    ) -> Any:
        """Take a record in at once, and answer its place: what a producer's `send` does for nearly all records."""
        size = RECORD_OVERHEAD_BYTES_MAX
        if type(value) is str:
            value = value.encode()
        if type(key) is str:
            key = key.encode()
        if type(value) is bytes:
            size += len(value)
        elif value is not None:
            size = 1 << 62
        if type(key) is bytes:
            size += len(key)
        elif key is not None:
            size = 1 << 62
        now = self._time_ms() if timestamp_ms is None else timestamp_ms
        state = self._topics.get(topic) if type(topic) is str else None
        if (
            state is None
            or size > self._record_bytes_max
            or headers
            or type(now) is not int
            or not 0 <= now < 1 << 63
            or (partition is not None and (type(partition) is not int or not 0 <= partition < 1 << 31))
        ):
            return self._refer(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        row = now, key, value, ()
        with self._lock:
            if not self.is_open or (self.used_bytes + size > self.bytes_max and self.used_bytes):
                place = None
            else:
                run, must_wake = self._admit(topic, state, partition, row, size, None)
                number = run._count - 1
                place = self._place(run, number)
                if on_delivery is not None:
                    run._reports.append((number, place, on_delivery))
        if place is None:
            return self._refer(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if must_wake:
            self._wakeup()
        return place

    def append(
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size_bytes: int,
        terms: Any,
    ) -> tuple[Run, int] | None:
        """Take a record in; None where there is no room. A record larger than the whole bound is let in alone."""
        with self._lock:
            if self.used_bytes + size_bytes > self.bytes_max and self.used_bytes:
                return None
            row = timestamp_ms, key, value, headers
            run, must_wake = self._admit(topic, self._topic(topic), partition, row, size_bytes, terms)
            number = len(run) - 1
        if must_wake:
            self._wakeup()
        return run, number

    def append_many(
        self, topic: str, columns: ManyColumns, start: int, end: int
    ) -> tuple[int, int, list[Stretch], bytes | None]:
        """Take in records start .. end - 1 of the columns, as far as there is room.

        Answers the first that is not in, and its size if it is too large to be ever let in, else 0; then where the
        others are, in stretches of a run, and the stretch of each as uint32s: None where they come one after the other.
        """
        placed: list[tuple[Run, int, int]] = []
        by_run: dict[Run, int] = {}
        order, is_mixed, too_large, must_wake = array("I"), False, 0, False
        with self._lock:
            state = self._topic(topic)
            for timestamp, key, value, headers, partition in columns.rows(start, end):
                size = record_bytes_max(key, value, headers)
                if size > self._record_bytes_max:
                    too_large = size
                    break
                if self.used_bytes + size > self.bytes_max and self.used_bytes:
                    break
                run, wakes = self._admit(topic, state, partition, (timestamp, key, value, headers), size, None)
                number = len(run) - 1
                must_wake |= wakes
                at = by_run.get(run, -1)
                if at >= 0 and number == placed[at][1] + placed[at][2]:
                    placed[at] = run, placed[at][1], placed[at][2] + 1
                else:
                    at = by_run[run] = len(placed)
                    placed.append((run, number, 1))
                order.append(at)
                is_mixed |= at != len(placed) - 1
        if must_wake:
            self._wakeup()
        return start + len(order), too_large, placed, order.tobytes() if is_mixed else None

    # -- for who drains

    def take(self) -> list[Run]:
        """The runs that are new since the last time; from now on one more wakes."""
        with self._lock:
            taken, self._new = self._new, []
            self._is_woken = self._gathers = False
        return taken

    def untaken(self) -> int:
        """How many records are in runs that were not taken yet."""
        return sum(map(len, self._new))

    def gather(self) -> None:
        """Until the next `take`, a new run does not wake, only a full one; a wake-up that is on its way stays."""
        self._gathers = True

    def release(self, size_bytes: int) -> None:
        """Give back memory of records that are resolved."""
        with self._lock:
            self.used_bytes -= size_bytes
            assert self.used_bytes >= 0

    def limit(self, topic: str, bytes_max: int) -> None:
        """The topic's next runs are full at this size."""
        with self._lock:
            self._topic(topic).bytes_max = bytes_max

    def route(self, topic: str, count: int, ring: Iterable[int], waiting: Iterable[Run], apart: bool) -> None:
        """The topic has `count` partitions, and records without a hash take turns on those of the `ring`.

        The records that wait for that, in `waiting` and in runs that are not taken yet, are put where they belong,
        ahead of all that come later. `apart`: no others join those of `waiting` in new runs, which have a `since`.
        """
        with self._lock:
            state = self._topic(topic)
            state.count, state.ring = count, tuple(ring)
            if not count:
                return
            untaken = [run for run in self._new if run.topic == topic and run.partition == UNROUTED]
            self._new = [run for run in self._new if run.topic != topic or run.partition != UNROUTED]
            state.open.pop(UNROUTED, None)
            for run in waiting:
                self._route(state, run)
            if apart:
                for run in state.open.values():
                    run.is_closed = True
            for run in untaken:
                self._route(state, run)

    # -- under the lock

    def _topic(self, name: str) -> _Topic:
        state = self._topics.get(name)
        if state is None:
            state = self._topics[name] = _Topic(self._batch_bytes)
        return state

    def _admit(
        self, topic: str, state: _Topic, partition: int | None, row: NewRecord, size: int, terms: Any
    ) -> tuple[Run, bool]:
        """Take a record in, for which there is room; True when whoever drains is to be woken."""
        self.used_bytes += size
        if partition is None:
            partition = self._slot(state, row[1])
        run, is_new, is_full = self._joined(topic, state, partition, row, size, terms, None)
        must_wake = not self._is_woken and (is_full or (is_new and not self._gathers))
        if must_wake:
            self._is_woken = True
        return run, must_wake

    def _joined(
        self, topic: str, state: _Topic, slot: int, row: NewRecord, size: int, terms: Any, since: float | None
    ) -> tuple[Run, bool, bool]:
        """The run that the record has joined, whether it is new, and whether it or its predecessor is full now."""
        run = state.open.get(slot)
        is_new = is_full = False
        if (
            run is None
            or run.is_closed
            or run.size_bytes + size > run.bytes_max
            or ((terms is not None or run.terms is not None) and not self._may_share(run.terms, terms))
        ):
            if run is not None and not run.is_closed:
                run.is_closed = is_full = True
            run = Run(topic, slot, state.bytes_max, terms, self._dispatch, self._lock)
            run.since = since
            state.open[slot] = run
            self._new.append(run)
            is_new = True
        run._append(row, size)
        return run, is_new, is_full or run.is_closed

    def _slot(self, state: _Topic, key: bytes | None) -> int:
        if state.count < 2:
            return state.count - 1 if state.count else UNROUTED
        if self._hash is not None:
            return UNDESIGNATED if key is None else self._hash(key, state.count)
        at = bisect_left(state.ring, state.next)
        chosen = state.ring[at if at < len(state.ring) else 0]
        state.next = chosen + 1
        return chosen

    def _route(self, state: _Topic, run: Run) -> None:
        run.is_closed = True
        children: list[tuple[Run, int]] = []
        left = run.size_bytes - BATCH_OVERHEAD_BYTES
        for row in run._rows:
            size = record_bytes_max(row[1], row[2], row[3])
            child, _, _ = self._joined(run.topic, state, self._slot(state, row[1]), row, size, run.terms, run.since)
            children.append((child, len(child) - 1))
            left -= size
        if children:
            children[-1][0].size_bytes += left  # what came in is what is given back, whatever it was counted as
        for number, place, callback in run._reports:
            child, index = children[number]
            child._reports.append((index, place, callback))
        for number, place, call, dispatch in run._late or ():
            child, index = children[number]
            child._late = child._late or []
            child._late.append((index, place, call, dispatch))
        run._children, run._rows, run._reports, run._late = children, [], [], None


def murmur2_partition(key: bytes, count: int) -> int:
    """As Kafka's Java client does (org.apache.kafka.clients.producer.internals.BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def crc32_partition(key: bytes, count: int) -> int:
    """As librdkafka's default does: its `consistent_random` for records with a key."""
    return crc32(key) % count
