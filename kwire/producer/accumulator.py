"""The record accumulator: records of all threads are appended to open batch builders, within bounded memory.

The accumulator wakes the event loop for new builders and for full ones, not for single records. It knows nothing of
brokers, errors and time.

    partition >= 0   records that have that partition, or got it by their key
    UNDESIGNATED     without a key: given a partition as a whole, when drained
    UNROUTED         without a partition, in the order in which they came, while the topic's partitions are not known;
                     `route` moves each of them into a builder of the other kinds

All topics share one memory bound. A topic may hold at most SHARE times what is free at the moment (the dynamic
threshold of shared-memory switches: Choudhury and Hahne, 1998), so one topic alone gets SHARE of SHARE + 1 parts.
What remains free is for the others, so that a topic without a leader cannot stop them. The first record of a topic
that holds nothing only has to fit. While a sender waits for more memory than is free, `is_short` is set: a topic then
gets a SHAREth of what is free, so that released memory adds up.

In C the GIL guards all of it (accumulator.c, send.c, bulk.c), here a lock. The lock is re-entrant, because an
allocation can trigger the garbage collector, and a finalizer may call `send()`. Therefore: allocate first, then read
state, then mutate.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from operator import le
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zlib import crc32

from kwire.producer.batch_builder import BatchBuilder, DeliveryCallbacks, Dispatch, RecordFuture
from kwire.records.rows import RECORD_OVERHEAD_BYTES_MAX, Headers, record_bytes_max
from kwire.wire.accel import speedups
from kwire.wire.buffers import Bytes
from kwire.wire.checksums import murmur2

UNDESIGNATED, UNROUTED = -1, -2

# How many times what is free a topic may hold.
SHARE = 16

# Records that follow each other in a run: the number of the first, and how many.
RecordSpan = tuple[BatchBuilder, int, int]
# Which is the first that is not in, its size if it is too large to be ever let in, else 0; where the others are; and
# the stretch of each as uint32s: None where they come one after the other.
AppendResult = tuple[int, int, list[RecordSpan], bytes | None]

# Bytes; the partitions of no longer keys are remembered.
_SHORT_KEY = 64

# Makes an object without `__init__`, which would take longer than the rest.
_blank = object.__new__


# validity | None, ends, data, whether ends have 64 bits (else 32), and the place of the first item in all of them.
BytesBuffers = tuple[Bytes | None, Bytes, Bytes, bool, int]
BytesCells = list[bytes | None] | BytesBuffers | None

# timestamp, key, value, headers, partition | None
ManyRow = tuple[int, bytes | None, bytes | None, Headers, int | None]

_PLAIN = frozenset((bytes, type(None)))


class ManyColumns(NamedTuple):
    """Records of one topic, all columns of one length.

    A column that is None has None everywhere; one that is a number has that. -1 for a partition: it is to be chosen.
    """

    values: BytesCells
    keys: BytesCells
    headers: list[Headers] | None
    timestamps: int | array[int]
    partitions: int | array[int] | None

    def rows(self, start: int, end: int) -> Iterator[ManyRow]:
        """Records start .. end - 1."""
        headers: Iterable[Headers] = repeat(()) if self.headers is None else self.headers[start:end]
        timestamps = repeat(self.timestamps) if isinstance(self.timestamps, int) else self.timestamps[start:end]
        partitions: Iterable[int | None] = repeat(self.partitions)  # type: ignore[arg-type]  # no array, then
        if isinstance(self.partitions, array):
            partitions = [None if index < 0 else index for index in self.partitions[start:end]]
        cells = _cells(self.keys, start, end), _cells(self.values, start, end)
        row: Any = zip(range(start, end), timestamps, *cells, headers, partitions, strict=False)
        for _, *fields in row:
            yield tuple(fields)

    def values_alone(self, start: int, end: int) -> list[bytes] | None:
        """The values of records start .. end - 1; None unless all are there, of one time, without keys and headers."""
        if self.keys is not None or self.headers is not None or not isinstance(self.timestamps, int):
            return None
        values = _cells(self.values, start, end)
        return cast("list[bytes]", values) if isinstance(values, list) and None not in values else None


def all_bytes(items: list[Any]) -> bool:
    """Return whether all items are bytes or None."""
    return _PLAIN.issuperset(map(type, items))


def _cells(column: BytesCells, start: int, end: int) -> Iterable[bytes | None]:
    if column is None:
        return repeat(None)
    return column[start:end] if isinstance(column, list) else _buffered(column, start, end)


def _buffered(column: BytesBuffers, start: int, end: int) -> list[bytes | None]:
    validity, ends, data, is_wide, first = column
    bounds = memoryview(ends).cast("B").cast("q" if is_wide else "i")[first + start : first + end + 1].tolist()
    content = memoryview(data).cast("B")
    is_there: list[int] | None = None
    if validity is not None:
        bits = memoryview(validity).cast("B")
        is_there = [bits[at >> 3] >> (at & 7) & 1 for at in range(first + start, first + end)]
    if all(map(le, bounds, bounds[1:])) and bounds[0] >= 0 and bounds[-1] <= len(content):
        origin, end_of_all = bounds[0], bounds[-1]
    else:  # fine where that is nothing's bound
        origin, end_of_all = 0, len(content)
        for number, (begin, stop) in enumerate(pairwise(bounds)):
            if (is_there is None or is_there[number]) and not 0 <= begin <= stop <= len(content):
                raise ValueError(f"item {start + number} of the column ends outside of its bytes")
    copy = bytes(content[origin:end_of_all])
    cells: list[bytes | None] = [copy[begin - origin : stop - origin] for begin, stop in pairwise(bounds)]
    return cells if is_there is None else [cell if there else None for cell, there in zip(cells, is_there, strict=True)]


class _Topic:
    """What the accumulator knows of a topic. `ring` is the partitions that take turns, where there is no hash.

    `keyless`: where records go that have neither a key nor a partition; None where they take turns. `joined`: the
    builder that such a record without terms has joined last. `used_bytes`: its part of the memory. `is_awaited`:
    senders wait for memory for it, and are served before those that come later.
    """

    __slots__ = ("bytes_max", "count", "is_awaited", "joined", "keyless", "next", "open", "ring", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.is_awaited = False
        self.count = 0  # of partitions; 0: not known
        self.keyless: int | None = UNROUTED
        self.joined: BatchBuilder | None = None
        self.ring: tuple[int, ...] = ()
        self.next = 0
        self.open: dict[int, BatchBuilder] = {}


class RecordAccumulator:
    """Appends records. `refer` is the slow path: `send` calls it with its own arguments for whatever is unusual.

    That includes every record while `is_open` is not set: nothing was started yet, or all is over. `key_hash` is
    "murmur2", "crc32", "" where keys count for nothing, or None where records take turns; `may_share(terms of a
    builder, terms of a record)` is called where one has terms. `time_ms` tells the time; `by_system`: it is the
    system's, which C asks by itself. `sums`: batches are sent as they are, so that C makes their CRC of what goes
    in, while the processor has it at hand.
    """

    def __init__(
        self,
        *,
        place: type[RecordFuture],
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
        sums: bool,
    ) -> None:
        self.is_open = self.is_short = False
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._place = place
        self._dispatch = dispatch
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._hash = {"murmur2": _murmur2_partition, "crc32": crc32_partition, "": _no_partition, None: None}[key_hash]
        self._may_share = may_share
        self._time_ms = time_ms
        self._wakeup = wakeup
        self._refer = refer
        self._lock = threading.RLock()
        self._topics: dict[str, _Topic] = {}
        self._new: list[BatchBuilder] = []
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
        """Append a record at once and return its future: what a producer's `send` does for nearly all records.

        Nearly all have a value of bytes and nothing else, and join a builder that they neither begin nor fill. Their
        path is written out here, because each call would take a tenth of the time.
        """
        if not (
            type(value) is bytes and type(topic) is str
            and key is None and not headers and partition is None and timestamp_ms is None
            and (on_delivery is None or callable(on_delivery))
        ):  # fmt: skip
            return self._send_any(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        size = RECORD_OVERHEAD_BYTES_MAX + len(value)
        now = self._time_ms()
        place: RecordFuture = _blank(self._place)
        # Taken and given back by hand it would cost half as much, and be kept where Ctrl-C comes before the `try`.
        with self._lock:
            state = self._topics.get(topic)
            run = None if state is None else state.joined
            used_bytes = self.used_bytes + size
            if (
                state is None or run is None or run.is_closed or run.size_bytes + size >= run.bytes_max
                or not self.is_open or self.is_short or state.is_awaited or size > self._record_bytes_max
                or state.used_bytes + size > SHARE * (self.bytes_max - used_bytes)
            ):  # fmt: skip
                run = None
            else:
                number = run._count
                if now != run._timestamp or number == run._alike_until:
                    run._mark(now)
                run.size_bytes += run._value_records[len(value)]
                run._values.append(value)
                run._count = number + 1
                run.buffered_bytes += size
                self.used_bytes = used_bytes
                state.used_bytes += size
                place._run, place._number = run, number
                if on_delivery is not None:
                    run._reports.add(number, place, on_delivery)
        return self._send_any(topic, value, None, None, None, None, on_delivery) if run is None else place

    def _send_any(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: Callable[..., object] | None,
    ) -> Any:
        """`send` for any record."""
        size = RECORD_OVERHEAD_BYTES_MAX
        if value is not None:
            if type(value) is str:
                value = value.encode()
            size += len(value) if type(value) is bytes else 1 << 62
        if key is not None:
            if type(key) is str:
                key = key.encode()
            size += len(key) if type(key) is bytes else 1 << 62
        now = self._time_ms() if timestamp_ms is None else timestamp_ms
        state = self._topics.get(topic) if type(topic) is str else None
        if (
            state is not None and size <= self._record_bytes_max and not headers and _is_from_0(now, 1 << 63)
            and (partition is None or _is_from_0(partition, 1 << 31))
            and (on_delivery is None or callable(on_delivery))
        ):  # fmt: skip
            place: RecordFuture = _blank(self._place)
            with self._lock:
                is_known = self._topics.get(topic) is state  # it may have been forgotten since
                has_room = self.is_open and is_known and not state.is_awaited and self._has_room(state, size)
                if has_room:
                    run, number, must_wake = self._admit(topic, state, partition, now, key, value, (), size, None)
                    place._run, place._number = run, number
                    if on_delivery is not None:
                        run._reports.add(number, place, on_delivery)
            if has_room:
                if must_wake:
                    self._wake()
                return place
        return self._refer(topic, value, key, headers, partition, timestamp_ms, on_delivery)

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
    ) -> tuple[BatchBuilder, int] | None:
        """Append a record, even if others wait for memory; return (builder, number), or None if there is no memory."""
        with self._lock:
            state = self._topic(topic)
            if not self._has_room(state, size_bytes):
                return None
            run, number, must_wake = self._admit(
                topic, state, partition, timestamp_ms, key, value, headers, size_bytes, terms
            )
        if must_wake:
            self._wake()
        return run, number

    def append_many(self, topic: str, columns: ManyColumns, start: int, end: int) -> AppendResult:
        """Append records start .. end - 1 of the columns, as far as there is memory."""
        with self._lock:
            state = self._topic(topic)
            slot = state.keyless if columns.partitions is None else columns.partitions
            values = columns.values_alone(start, end)
            if values is None or not isinstance(slot, int):
                placed, must_wake = self._append_each(topic, state, columns, start, end)
            else:
                timestamp = cast("int", columns.timestamps)
                placed, must_wake = self._append_values(topic, state, slot, timestamp, values, start)
        if must_wake:
            self._wake()
        return placed

    def _append_each(
        self, topic: str, state: _Topic, columns: ManyColumns, start: int, end: int
    ) -> tuple[AppendResult, bool]:
        """`append_many` for any records."""
        stretches: list[RecordSpan] = []
        by_run: dict[BatchBuilder, int] = {}
        order, is_mixed, too_large, must_wake = array("I"), False, 0, False
        for timestamp, key, value, headers, partition in columns.rows(start, end):
            size = record_bytes_max(key, value, headers)
            if size > self._record_bytes_max:
                too_large = size
                break
            if not self._has_room(state, size):
                break
            run, number, wakes = self._admit(topic, state, partition, timestamp, key, value, headers, size, None)
            must_wake |= wakes
            at = by_run.get(run, -1)
            if at >= 0 and number == stretches[at][1] + stretches[at][2]:
                stretches[at] = run, stretches[at][1], stretches[at][2] + 1
            else:
                at = by_run[run] = len(stretches)
                stretches.append((run, number, 1))
            order.append(at)
            is_mixed |= at != len(stretches) - 1
        return (start + len(order), too_large, stretches, order.tobytes() if is_mixed else None), must_wake

    def _append_values(
        self, topic: str, state: _Topic, slot: int, timestamp: int, values: list[bytes], start: int
    ) -> tuple[AppendResult, bool]:
        """`append_many` for values alone that go to one slot: as many at once as a run takes without being full."""
        sizes = [RECORD_OVERHEAD_BYTES_MAX + size for size in map(len, values)]
        totals = list(accumulate(sizes, initial=0))  # what the records before each count as
        end, largest = len(values), max(sizes, default=0)
        if largest > self._record_bytes_max:
            end = next(number for number, size in enumerate(sizes) if size > self._record_bytes_max)
        stretches: list[RecordSpan] = []
        at, must_wake = 0, False
        while at < end:
            run = state.open.get(slot)
            size_bytes = 0 if run is None else run.size_bytes
            fits = run is not None and run.terms is None and run._timestamp == timestamp
            count, part_bytes = (0, 0)
            if run is not None and fits:
                count, part_bytes = self._fitting(run, values, totals, at, end, self._room(state))
            part = values[at : at + count]
            if run is not None and count:
                if run.is_closed or run.size_bytes != size_bytes:
                    continue  # a finalizer has sent a record since it was looked at
                number = run._extend(part, totals[at + count] - totals[at], part_bytes)
                self._use(state, totals[at + count] - totals[at])
            elif not self._has_room(state, sizes[at]):
                break
            else:
                run, number, wakes = self._admit(topic, state, slot, timestamp, None, values[at], (), sizes[at], None)
                count, must_wake = 1, must_wake or wakes
            if stretches and stretches[-1][0] is run and number == stretches[-1][1] + stretches[-1][2]:
                _, number, before = stretches.pop()
                stretches.append((run, number, before + count))
            else:
                stretches.append((run, number, count))
            at += count
        too_large = sizes[end] if at == end < len(values) else 0
        return (start + at, too_large, stretches, None), must_wake

    def _fitting(
        self, run: BatchBuilder, values: list[bytes], totals: list[int], at: int, end: int, room: int
    ) -> tuple[int, int]:
        """How many values from `at` on fit into `capacity`, and into the run like its last, so that it is not full
        yet; and
        what they have there. The last few that fit may be left out."""
        left = run.bytes_max - run.size_bytes - RECORD_OVERHEAD_BYTES_MAX
        if run.is_closed or left <= 0:
            return 0, 0
        in_memory = bisect_right(totals, totals[at] + room, at) - 1
        alike = at + run._alike_until - run._count
        lengths = map(len, values[at : min(end, in_memory, alike, at + left)] if in_memory > at else ())
        ends = list(accumulate(map(run._value_records.__getitem__, lengths), initial=0))
        count = bisect_left(ends, left) - 1
        return count, ends[count]

    # -- for the event loop

    def take(self) -> list[BatchBuilder]:
        """Return the builders that are new since the last call; the next new one wakes the loop again."""
        with self._lock:
            taken, self._new = self._new, []
            self._is_woken = self._gathers = False
        return taken

    def untaken(self) -> int:
        """Return how many records are in builders that were not taken yet."""
        return sum(map(len, self._new))

    def gather(self) -> None:
        """Until the next `take`, wake the loop for a full builder only, not for a new one."""
        self._gathers = True

    def release(self, topic: str, size_bytes: int) -> None:
        """Give back memory of a topic's records that are resolved."""
        with self._lock:
            state = self._topics[topic]
            assert state.used_bytes >= size_bytes
            self._use(state, -size_bytes)

    def held(self, topic: str) -> int:
        """Return how much of the memory a topic holds, in bytes."""
        state = self._topics.get(topic)
        return 0 if state is None else state.used_bytes

    def largest(self) -> tuple[str, int]:
        """Return the topic that holds most, and its bytes; ("", 0) if there is none."""
        with self._lock:
            return max(((name, state.used_bytes) for name, state in self._topics.items()), key=_bytes, default=("", 0))

    def set_awaited(self, topic: str, is_awaited: bool) -> None:
        """Say whether senders wait for memory for the topic: then `send` leaves later records to the slow path."""
        with self._lock:
            self._topic(topic).is_awaited = is_awaited

    def limit(self, topic: str, bytes_max: int) -> None:
        """Let the topic's next builders be full at this size."""
        with self._lock:
            self._topic(topic).bytes_max = bytes_max

    def forget(self, topic: str) -> bool:
        """Drop a topic until its next record. Return False if it holds memory or senders wait for it."""
        with self._lock:
            state = self._topics.get(topic)
            if state is not None and (state.used_bytes or state.is_awaited):
                return False
            self._topics.pop(topic, None)
            return True

    def route(self, topic: str, count: int, ring: Iterable[int], waiting: Iterable[BatchBuilder], apart: bool) -> None:
        """The topic has `count` partitions, and records without a hash take turns on those of the `ring`.

        The records that wait for that, in `waiting` and in runs that are not taken yet, are put where they belong,
        ahead of all that come later. `apart`: no others join those of `waiting` in new runs, which have a `since`.
        """
        with self._lock:
            state = self._topic(topic)
            state.count, state.ring = count, tuple(ring)
            keyless = UNROUTED if not count else 0 if count == 1 else UNDESIGNATED if self._hash else None
            if keyless != state.keyless:
                state.keyless, state.joined = keyless, None
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

    def _room(self, state: _Topic) -> int:
        """Return how many bytes a topic may still get, by its share of what is free then."""
        unused, held = self.bytes_max - self.used_bytes, state.used_bytes
        return max(0, unused - SHARE * held if self.is_short else SHARE * unused - held) // (SHARE + 1)

    def _has_room(self, state: _Topic, size_bytes: int) -> bool:
        """The first record of a topic needs only to fit; one larger than the whole bound is let in alone."""
        if size_bytes <= self._room(state) or not self.used_bytes:
            return True
        return not (state.used_bytes or self.is_short) and size_bytes <= self.bytes_max - self.used_bytes

    def _use(self, state: _Topic, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        state.used_bytes += size_bytes

    def _topic(self, name: str) -> _Topic:
        state = self._topics.get(name)
        if state is None:
            state = self._topics[name] = _Topic(self._batch_bytes)
        return state

    def _admit(
        self, topic: str, state: _Topic, slot: int | None, timestamp: int, key: bytes | None, value: bytes | None,
        headers: Headers, size: int, terms: Any,
    ) -> tuple[BatchBuilder, int, bool]:  # fmt: skip
        """Take a record in, for which there is room; where it is, and whether whoever drains is to be woken."""
        self._use(state, size)
        if slot is None:
            slot = self._slot(state, key)
        run = state.open.get(slot)
        if (
            run is not None and not run.is_closed and run.size_bytes + size < run.bytes_max
            and terms is None and run.terms is None
        ):  # fmt: skip
            return run, run._append(timestamp, key, value, headers, size), False  # neither begun nor filled
        is_due = False
        if not self._is_joined(run, size, terms):
            is_due = self._begin(topic, state, slot, terms) or not self._gathers
        run = state.open[slot]
        if slot == state.keyless and run.terms is None:
            state.joined = run
        number = run._append(timestamp, key, value, headers, size)
        must_wake = not self._is_woken and (is_due or run.is_closed)
        if must_wake:
            self._is_woken = True
        return run, number, must_wake

    def _wake(self) -> None:
        try:
            self._wakeup()
        except BaseException:  # an interrupt, perhaps before the bell was rung; nobody else rings for this record
            self._wakeup()
            raise

    def _is_joined(self, run: BatchBuilder | None, size: int, terms: Any) -> bool:
        """Whether a record can join the run; asked of the terms first, where anything may happen meanwhile."""
        if run is None or ((terms is not None or run.terms is not None) and not self._may_share(run.terms, terms)):
            return False
        return not run.is_closed and run.size_bytes + size <= run.bytes_max

    def _begin(self, topic: str, state: _Topic, slot: int, terms: Any) -> bool:
        """Begin a builder; return whether that closes an open one."""
        run = BatchBuilder(topic, slot, state.bytes_max, terms, self._dispatch, self._lock)
        before = state.open.get(slot)
        ends = before is not None and not before.is_closed
        if before is not None:
            before.is_closed = True
        state.open[slot] = run
        self._new.append(run)
        return ends

    def _slot(self, state: _Topic, key: bytes | None) -> int:
        if key is None and state.keyless is not None:
            return state.keyless
        if state.count < 2:
            return state.count - 1 if state.count else UNROUTED
        if self._hash is not None:
            assert key is not None
            return self._hash(key, state.count)
        at = bisect_left(state.ring, state.next)
        chosen = state.ring[at if at < len(state.ring) else 0]
        state.next = chosen + 1
        return chosen

    def _route(self, state: _Topic, run: BatchBuilder) -> None:
        run.is_closed = True
        children: list[tuple[BatchBuilder, int]] = []
        left = run.buffered_bytes
        for timestamp, key, value, headers in run._rows():
            size, slot = record_bytes_max(key, value, headers), self._slot(state, key)
            if not self._is_joined(state.open.get(slot), size, run.terms):
                self._begin(run.topic, state, slot, run.terms)
                state.open[slot].since = run.since
            child = state.open[slot]
            children.append((child, child._append(timestamp, key, value, headers, size)))
            left -= size
        if children:
            children[-1][0].buffered_bytes += left  # what came in is what is given back, whatever it was counted as
        for number, place, callback in run._reports.all():
            child, index = children[number]
            child._reports.add(index, place, callback)
        for number, place, call, dispatch in run._late or ():
            child, index = children[number]
            child._late = child._late or []
            child._late.append((index, place, call, dispatch))
        run._children, run._late, run._reports = children, None, DeliveryCallbacks()
        run.drop(len(run))


def _bytes(held: tuple[str, int]) -> int:
    return held[1]


def _no_partition(key: bytes, count: int) -> int:
    return UNDESIGNATED


def _is_from_0(number: Any, end: int) -> bool:
    return type(number) is int and 0 <= number < end


@lru_cache(maxsize=8_192)  # keys come again; the hash takes as long as all else of a record
def _short_murmur2_partition(key: bytes, count: int) -> int:
    return murmur2_partition(key, count)


def _murmur2_partition(key: bytes, count: int) -> int:
    return _short_murmur2_partition(key, count) if len(key) <= _SHORT_KEY else murmur2_partition(key, count)


def murmur2_partition(key: bytes, count: int) -> int:
    """Return the partition that Kafka's Java client chooses (its class BuiltInPartitioner)."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def crc32_partition(key: bytes, count: int) -> int:
    """Return the partition that librdkafka's default chooses: its `consistent_random` for records with a key."""
    return crc32(key) % count


if not TYPE_CHECKING and speedups is not None:
    RecordAccumulator, all_bytes = speedups.RecordAccumulator, speedups.all_bytes
