"""The record accumulator: records of all threads are appended to open batch builders, within bounded memory.

The accumulator wakes the event loop for new builders and for full ones, not for single records. It knows nothing of
brokers, errors and time.

    partition >= 0   records for that partition, chosen by the caller or by the key
    UNDESIGNATED     records without a key: the whole builder gets a partition when it is drained
    UNROUTED         all records, in order, while the topic's partition count is unknown, also those whose partition the
                     caller chose; `route` moves each of them into a builder of the other kinds

All topics share one memory bound. A topic may hold at most SHARE times what is free at the moment (the dynamic
threshold of shared-memory switches: Choudhury and Hahne, 1998), so one topic alone gets SHARE of SHARE + 1 parts.
The rest stays free for other topics, so that a topic without a leader cannot block them. The first record of a topic
that holds nothing only has to fit. While a sender waits for more memory than is free, `is_short` is set: a topic then
gets a SHAREth of what is free, so that released memory adds up.

`BufferPool` has the callers that wait for memory. A caller that finds none blocks or gets an error (`append_or_wait`),
or leaves its record in a queue and is notified (`append_nowait`, for asyncio).

In C the GIL guards all of the accumulator (accumulator.c, send.c, bulk.c), here a lock. The lock is re-entrant, because
an allocation can trigger the garbage collector, and a finalizer may call `send()`. Therefore: allocate first, then read
state, then mutate.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from operator import le
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast
from zlib import crc32

from kwire.errors import BufferFullError, KwireError
from kwire.producer.batch_builder import UNDESIGNATED, UNROUTED, BatchBuilder, DeliveryCallbacks, Dispatch, RecordFuture
from kwire.producer.futures import MakeResponse, ProduceResponse, own_copy
from kwire.producer.message import PARTITION_END, TIMESTAMP_END
from kwire.records.rows import RECORD_OVERHEAD_BYTES_MAX, Headers, record_bytes_max
from kwire.wire.accel import speedups
from kwire.wire.buffers import Bytes
from kwire.wire.checksums import murmur2

if TYPE_CHECKING:
    from kwire.producer.options import WhenFull
    from kwire.producer.producer_request import DeliveryOptions

# A topic may hold at most this many times the free memory.
SHARE = 16

# Consecutive records of a builder: the builder, the number of the first record, and the count.
RecordSpan = tuple[BatchBuilder, int, int]
# The first record not appended; its size if it exceeds the limit, else 0; the spans of the appended records; and the
# span index of each record as uint32s, or None if the spans are in order.
AppendResult = tuple[int, int, list[RecordSpan], bytes | None]

# In bytes; only keys up to this length have their partition cached.
_SHORT_KEY = 64

# Creates an object without `__init__`, which would take longer than the rest of `send`.
_blank = object.__new__


# validity | None, ends, data, whether the ends have 64 bits (else 32), and the index of the first item.
BytesBuffers = tuple[Bytes | None, Bytes, Bytes, bool, int]
BytesCells = list[bytes | None] | BytesBuffers | None

# timestamp, key, value, headers, partition | None
ManyRow = tuple[int, bytes | None, bytes | None, Headers, int | None]

_PLAIN = frozenset((bytes, type(None)))


class ManyColumns(NamedTuple):
    """Records of one topic, all columns of one length.

    A column that is None is None for all records; a number applies to all records. Partition -1 means unassigned.
    """

    values: BytesCells
    keys: BytesCells
    headers: list[Headers] | None
    timestamps: int | array[int]
    partitions: int | array[int] | None

    def rows(self, start: int, end: int) -> Iterator[ManyRow]:
        """Yield records start .. end - 1."""
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
        """Return the values of records start .. end - 1, or None unless all are values alone of one time."""
        if self.keys is not None or self.headers is not None or not isinstance(self.timestamps, int):
            return None
        values = _cells(self.values, start, end)
        return cast("list[bytes]", values) if isinstance(values, list) and None not in values else None


def all_bytes(items: list[Any]) -> bool:
    """Return whether all items are bytes or None."""
    return _PLAIN.issuperset(map(type, items))


def split_lines(data: Bytes, delimiter: bytes) -> list[bytes | None] | BytesBuffers:
    """Return a column of the parts between delimiters. One at the end adds no empty part.

    Raises ValueError for an empty delimiter, and with the C accelerator for more than 2 GiB.

    >>> split_lines(b"a,,b,", b",") in ([b"a", b"", b"b"], (None, array("i", [0, 1, 1, 2]).tobytes(), b"ab", False, 0))
    True
    """
    parts: list[bytes | None] = [*bytes(data).split(delimiter)]
    if not parts[-1]:
        parts.pop()
    return parts


def count_of(cells: list[bytes | None] | BytesBuffers) -> int:
    """Return how many items a column of `split_lines` has."""
    return len(cells) if isinstance(cells, list) else len(memoryview(cells[1]).cast("B").cast("i")) - 1


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
    else:  # valid if only null items have invalid bounds
        origin, end_of_all = 0, len(content)
        for number, (begin, stop) in enumerate(pairwise(bounds)):
            if (is_there is None or is_there[number]) and not 0 <= begin <= stop <= len(content):
                raise ValueError(f"item {start + number} of the column ends outside of its bytes")
    copy = bytes(content[origin:end_of_all])
    cells: list[bytes | None] = [copy[begin - origin : stop - origin] for begin, stop in pairwise(bounds)]
    return cells if is_there is None else [cell if there else None for cell, there in zip(cells, is_there, strict=True)]


class _Topic:
    """A topic's state. `ring`: the partitions used in turn if there is no hash.

    `keyless`: the slot of records without key and partition, None for round robin. `joined`: the builder that such a
    record without terms joined last. `used_bytes`: the topic's memory. `is_awaited`: senders wait for memory for the
    topic, and later senders queue behind them.
    """

    __slots__ = ("bytes_max", "count", "is_awaited", "joined", "keyless", "next", "open", "ring", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.is_awaited = False
        self.count = 0  # of partitions; 0: unknown
        self.keyless: int | None = UNROUTED
        self.joined: BatchBuilder | None = None
        self.ring: tuple[int, ...] = ()
        self.next = 0
        self.open: dict[int, BatchBuilder] = {}


class RecordAccumulator:
    """Appends records to batch builders within bounded memory.

    `slow_path` is called by `send` with its own arguments for unusual records, and for all records while
    `is_open` is false. `key_hash` is "murmur2", "crc32", "" to ignore keys, or None for round robin. `may_share(terms
    of a builder, terms of a record)` is called if either has terms. `time_ms` returns the time; `by_system` means that
    it is the system time, which C reads directly. `sums`: batches are sent uncompressed, so C computes the CRC of
    records while they are in the processor's cache.
    """

    def __init__(
        self,
        *,
        future_class: type[RecordFuture],
        dispatch: Dispatch | None,
        batch_bytes: int,
        bytes_max: int,
        record_bytes_max: int,
        key_hash: str | None,
        may_share: Callable[[Any, Any], bool],
        time_ms: Callable[[], int],
        wakeup: Callable[[], object],
        slow_path: Callable[..., Any],
        by_system: bool,
        sums: bool,
    ) -> None:
        self.is_open = self.is_short = False
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._future_class = future_class
        self._dispatch = dispatch
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._hash = {"murmur2": _murmur2_partition, "crc32": crc32_partition, "": _no_partition, None: None}[key_hash]
        self._may_share = may_share
        self._time_ms = time_ms
        self._wakeup = wakeup
        self._slow_path = slow_path
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

        Nearly all have only a value of bytes, and join a builder that they neither begin nor fill. Their path is
        inlined here, because each function call would take a tenth of the time.
        """
        if not (
            type(value) is bytes and type(topic) is str
            and key is None and headers is None and partition is None and timestamp_ms is None
            and (on_delivery is None or callable(on_delivery))
        ):  # fmt: skip
            return self._send_any(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        size = RECORD_OVERHEAD_BYTES_MAX + len(value)
        now = self._time_ms()
        future: RecordFuture = _blank(self._future_class)
        # acquire() and release() would cost half as much, but Ctrl-C before the `try` would leave the lock held.
        with self._lock:
            state = self._topics.get(topic)
            builder = None if state is None else state.joined
            used_bytes = self.used_bytes + size
            if (
                state is None or builder is None or builder.is_closed or builder.size_bytes + size >= builder.bytes_max
                or not self.is_open or self.is_short or state.is_awaited or size > self._record_bytes_max
                or state.used_bytes + size > SHARE * (self.bytes_max - used_bytes)
            ):  # fmt: skip
                builder = None
            else:
                number = builder._count
                if now != builder._timestamp or number == builder._alike_until:
                    builder._mark(now)
                builder.size_bytes += builder._value_records[len(value)]
                builder._values.append(value)
                builder._count = number + 1
                builder.buffered_bytes += size
                self.used_bytes = used_bytes
                state.used_bytes += size
                future._builder, future._number = builder, number
                if on_delivery is not None:
                    builder._reports.add(number, future, on_delivery)
        return self._send_any(topic, value, None, None, None, None, on_delivery) if builder is None else future

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
        """Append any record at once, or pass it to the slow path."""
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
            state is not None and size <= self._record_bytes_max and headers is None and _is_below(now, TIMESTAMP_END)
            and (partition is None or _is_below(partition, PARTITION_END))
            and (on_delivery is None or callable(on_delivery))
        ):  # fmt: skip
            future: RecordFuture = _blank(self._future_class)
            with self._lock:
                is_known = self._topics.get(topic) is state  # it may have been forgotten since
                has_room = self.is_open and is_known and not state.is_awaited and self._has_room(state, size)
                if has_room:
                    builder, number, must_wake = self._admit(topic, state, partition, now, key, value, (), size, None)
                    future._builder, future._number = builder, number
                    if on_delivery is not None:
                        builder._reports.add(number, future, on_delivery)
            if has_room:
                if must_wake:
                    self._wake()
                return future
        return self._slow_path(topic, value, key, headers, partition, timestamp_ms, on_delivery)

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
            builder, number, must_wake = self._admit(
                topic, state, partition, timestamp_ms, key, value, headers, size_bytes, terms
            )
        if must_wake:
            self._wake()
        return builder, number

    def append_many(self, topic: str, columns: ManyColumns, start: int, end: int) -> AppendResult:
        """Append records start .. end - 1 of the columns, as far as there is memory."""
        with self._lock:
            state = self._topic(topic)
            slot = state.keyless if columns.partitions is None else columns.partitions
            values = columns.values_alone(start, end)
            if values is None or not isinstance(slot, int) or (slot >= 0 and not state.count):
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
        """Append records start .. end - 1 of any kind; return the result and whether to wake the loop."""
        stretches: list[RecordSpan] = []
        by_builder: dict[BatchBuilder, int] = {}
        order, is_mixed, too_large, must_wake = array("I"), False, 0, False
        for timestamp, key, value, headers, partition in columns.rows(start, end):
            size = record_bytes_max(key, value, headers)
            if size > self._record_bytes_max:
                too_large = size
                break
            if not self._has_room(state, size):
                break
            builder, number, wakes = self._admit(topic, state, partition, timestamp, key, value, headers, size, None)
            must_wake |= wakes
            at = by_builder.get(builder, -1)
            if at >= 0 and number == stretches[at][1] + stretches[at][2]:
                stretches[at] = builder, stretches[at][1], stretches[at][2] + 1
            else:
                at = by_builder[builder] = len(stretches)
                stretches.append((builder, number, 1))
            order.append(at)
            is_mixed |= at != len(stretches) - 1
        return (start + len(order), too_large, stretches, order.tobytes() if is_mixed else None), must_wake

    def _append_values(
        self, topic: str, state: _Topic, slot: int, timestamp: int, values: list[bytes], start: int
    ) -> tuple[AppendResult, bool]:
        """Append records of only a value that go to one slot, in parts that do not fill the builder."""
        sizes = [RECORD_OVERHEAD_BYTES_MAX + size for size in map(len, values)]
        totals = list(accumulate(sizes, initial=0))  # the counted bytes of the records before each one
        end, largest = len(values), max(sizes, default=0)
        if largest > self._record_bytes_max:
            end = next(number for number, size in enumerate(sizes) if size > self._record_bytes_max)
        stretches: list[RecordSpan] = []
        at, must_wake = 0, False
        while at < end:
            builder = state.open.get(slot)
            size_bytes = 0 if builder is None else builder.size_bytes
            fits = builder is not None and builder.terms is None and builder._timestamp == timestamp
            count, part_bytes = (0, 0)
            if builder is not None and fits:
                count, part_bytes = self._fitting(builder, values, totals, at, end, self._room(state))
            part = values[at : at + count]
            if builder is not None and count:
                if builder.is_closed or builder.size_bytes != size_bytes:
                    continue  # a finalizer has sent a record since the check
                number = builder._extend(part, totals[at + count] - totals[at], part_bytes)
                self._use(state, totals[at + count] - totals[at])
            elif not self._has_room(state, sizes[at]):
                break
            else:
                builder, number, wakes = self._admit(
                    topic, state, slot, timestamp, None, values[at], (), sizes[at], None
                )
                count, must_wake = 1, must_wake or wakes
            if stretches and stretches[-1][0] is builder and number == stretches[-1][1] + stretches[-1][2]:
                _, number, before = stretches.pop()
                stretches.append((builder, number, before + count))
            else:
                stretches.append((builder, number, count))
            at += count
        too_large = sizes[end] if at == end < len(values) else 0
        return (start + at, too_large, stretches, None), must_wake

    def _fitting(
        self, builder: BatchBuilder, values: list[bytes], totals: list[int], at: int, end: int, room: int
    ) -> tuple[int, int]:
        """Return how many values from `at` on fit into the memory and the builder without filling it, and their bytes.

        They must encode like the builder's last record. The last few that fit may be left out.
        """
        left = builder.bytes_max - builder.size_bytes - RECORD_OVERHEAD_BYTES_MAX
        if builder.is_closed or left <= 0:
            return 0, 0
        in_memory = bisect_right(totals, totals[at] + room, at) - 1
        alike = at + builder._alike_until - builder._count
        lengths = map(len, values[at : min(end, in_memory, alike, at + left)] if in_memory > at else ())
        ends = list(accumulate(map(builder._value_records.__getitem__, lengths), initial=0))
        count = bisect_left(ends, left) - 1
        return count, ends[count]

    # -- for the event loop

    def take(self) -> list[BatchBuilder]:
        """Return the builders created since the last call; the next new one wakes the loop again."""
        with self._lock:
            taken, self._new = self._new, []
            self._is_woken = self._gathers = False
        return taken

    def untaken(self) -> int:
        """Return the number of records in builders that `take` has not returned yet."""
        return sum(map(len, self._new))

    def gather(self) -> None:
        """Wake the loop only for a full builder, not for a new one, until the next `take`."""
        self._gathers = True

    def release(self, topic: str, size_bytes: int) -> None:
        """Release the memory of a topic's resolved records."""
        with self._lock:
            state = self._topics[topic]
            assert state.used_bytes >= size_bytes
            self._use(state, -size_bytes)

    def held(self, topic: str) -> int:
        """Return the bytes of memory that a topic holds."""
        state = self._topics.get(topic)
        return 0 if state is None else state.used_bytes

    def largest(self) -> tuple[str, int]:
        """Return the topic that holds the most memory, and its bytes; ("", 0) if there is none."""
        with self._lock:
            return max(((name, state.used_bytes) for name, state in self._topics.items()), key=_bytes, default=("", 0))

    def set_awaited(self, topic: str, is_awaited: bool) -> None:
        """Set whether senders wait for memory for the topic; if so, `send` passes later records to the slow path."""
        with self._lock:
            self._topic(topic).is_awaited = is_awaited

    def limit(self, topic: str, bytes_max: int) -> None:
        """Set the size at which the topic's next builders are full."""
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

    def drop_builders(self) -> None:
        """Drop the builders that records join: the sender has ended.

        A builder leads to its producer. In C the garbage collector does not look into it, and would find no cycle.
        """
        with self._lock:
            for state in self._topics.values():
                state.joined = None
                state.open.clear()

    def route(self, topic: str, count: int, ring: Iterable[int], waiting: Iterable[BatchBuilder], apart: bool) -> None:
        """Set a topic's partition count, and the `ring` of partitions used in turn where there is no hash.

        Move the records that came before, in `waiting` and in builders not taken yet, to their partitions' builders,
        in their order and ahead of later records. `apart`: no other records join the builders of `waiting`, which keep
        their `since`.
        """
        with self._lock:
            state = self._topic(topic)
            state.count, state.ring = count, tuple(ring)
            keyless = UNROUTED if not count else 0 if count == 1 else UNDESIGNATED if self._hash else None
            if keyless != state.keyless:
                state.keyless, state.joined = keyless, None
            if not count:
                return
            untaken = [builder for builder in self._new if builder.topic == topic and builder.partition == UNROUTED]
            self._new = [builder for builder in self._new if builder.topic != topic or builder.partition != UNROUTED]
            state.open.pop(UNROUTED, None)
            for builder in waiting:
                self._route(state, builder)
            if apart:
                for builder in state.open.values():
                    builder.is_closed = True
            for builder in untaken:
                self._route(state, builder)

    # -- under the lock

    def _room(self, state: _Topic) -> int:
        """Return how many bytes a topic may still get by its share of the free memory."""
        unused, held = self.bytes_max - self.used_bytes, state.used_bytes
        return max(0, unused - SHARE * held if self.is_short else SHARE * unused - held) // (SHARE + 1)

    def _has_room(self, state: _Topic, size_bytes: int) -> bool:
        """Return whether a record may be appended.

        A topic's first record only has to fit; a record above the whole limit is appended if nothing else is held.
        """
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
        """Append a record for which there is memory; return its builder, its number and whether to wake the loop."""
        self._use(state, size)
        chosen = None
        if slot is None:
            slot = self._slot(state, key)
        elif slot >= 0 and not state.count:
            chosen, slot = slot, UNROUTED
        builder = state.open.get(slot)
        if (
            builder is not None and not builder.is_closed and builder.size_bytes + size < builder.bytes_max
            and terms is None and builder.terms is None and chosen is None
        ):  # fmt: skip
            return (
                builder,
                builder._append(timestamp, key, value, headers, size),
                False,
            )  # neither a new batch nor a full one
        is_due = False
        if not self._is_joined(builder, size, terms):
            is_due = self._begin(topic, state, slot, terms) or not self._gathers
        builder = state.open[slot]
        if slot == state.keyless and builder.terms is None:
            state.joined = builder
        number = builder._append(timestamp, key, value, headers, size)
        if chosen is not None:
            builder._chosen[number] = chosen
        must_wake = not self._is_woken and (is_due or builder.is_closed)
        if must_wake:
            self._is_woken = True
        return builder, number, must_wake

    def _wake(self) -> None:
        try:
            self._wakeup()
        except BaseException:  # an interrupt, perhaps before the loop was woken; nothing else wakes it for this record
            self._wakeup()
            raise

    def _is_joined(self, builder: BatchBuilder | None, size: int, terms: Any) -> bool:
        """Return whether a record can join the builder; check the terms first, since that may run other code."""
        if builder is None or (
            (terms is not None or builder.terms is not None) and not self._may_share(builder.terms, terms)
        ):
            return False
        return not builder.is_closed and builder.size_bytes + size <= builder.bytes_max

    def _begin(self, topic: str, state: _Topic, slot: int, terms: Any) -> bool:
        """Begin a builder; return whether that closes an open one."""
        builder = BatchBuilder(topic, slot, state.bytes_max, terms, self._dispatch, self._lock)
        before = state.open.get(slot)
        ends = before is not None and not before.is_closed
        if before is not None:
            before.is_closed = True
        state.open[slot] = builder
        self._new.append(builder)
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

    def _route(self, state: _Topic, builder: BatchBuilder) -> None:
        builder.is_closed = True
        children: list[tuple[BatchBuilder, int]] = []
        left = builder.buffered_bytes
        for number, (timestamp, key, value, headers) in enumerate(builder._rows()):
            size, slot = record_bytes_max(key, value, headers), builder._chosen.get(number)
            if slot is None:
                slot = self._slot(state, key)
            if not self._is_joined(state.open.get(slot), size, builder.terms):
                self._begin(builder.topic, state, slot, builder.terms)
                state.open[slot].since = builder.since
            child = state.open[slot]
            children.append((child, child._append(timestamp, key, value, headers, size)))
            left -= size
        if children:
            children[-1][0].buffered_bytes += left  # the sum stays the same, whatever each record counts as
        for number, future, callback in builder._reports.all():
            child, index = children[number]
            child._reports.add(index, future, callback)
        for number, future, call, dispatch in builder._late or ():
            child, index = children[number]
            child._late = child._late or []
            child._late.append((index, future, call, dispatch))
        builder._children, builder._late, builder._reports = children, None, DeliveryCallbacks()
        builder.drop(len(builder))


def _bytes(held: tuple[str, int]) -> int:
    return held[1]


def _no_partition(key: bytes, count: int) -> int:
    return UNDESIGNATED


def _is_below(number: Any, end: int) -> bool:
    """Return whether `number` is a plain int from 0 to end - 1. `send` leaves any other to its slow path."""
    return type(number) is int and 0 <= number < end


@lru_cache(maxsize=8_192)  # keys recur; the hash takes as long as the rest of a record
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
    split_lines = speedups.split_lines


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Append(Protocol[R_co]):
    """Records that a caller wants to append: one, or many of one call."""

    @property
    def topic(self) -> str:
        """Return the topic of the records."""
        ...

    @property
    def left(self) -> int:
        """Return the number of records that are not appended yet."""
        ...

    def append_to(self, accumulator: RecordAccumulator) -> R_co | None:
        """Append as many records as there is memory for; return the response when all are appended, else None."""


class PendingRecord(NamedTuple):
    """A record to append. `partition` None: the producer chooses."""

    topic: str
    partition: int | None
    record: tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
    size_bytes: int
    terms: DeliveryOptions | None = None
    make: MakeResponse = ProduceResponse

    @property
    def left(self) -> int:
        return 1

    def append_to(self, accumulator: RecordAccumulator) -> ProduceResponse | None:
        future = accumulator.append(self.topic, self.partition, *self.record, self.size_bytes, self.terms)
        return None if future is None else self.make(*future)


class BlockedAppend(Generic[R]):
    """An append that waits for memory. `notify(error)` is called once, by the thread that ends the wait; None: done."""

    __slots__ = ("append", "error", "notify", "response")

    def __init__(self, append: Append[R], notify: Callable[[Exception | None], object]) -> None:
        self.append = append
        self.notify = notify
        self.response: R | None = None  # once it is appended
        self.error: Exception | None = None  # why it could not be appended


class BufferPool:
    """The memory of one producer. The accumulator bounds it, and each topic's share of it.

    Senders that find no memory wait in one queue, threads and tasks alike. Senders of the same topic are served in
    order, and before every later `send` for that topic. A topic that has used up its share does not block other topics.
    If a topic that holds little finds no memory, all topics get a small share until it is served
    (`RecordAccumulator.is_short`): so small records do not overtake a large one for ever.
    """

    def __init__(
        self, accumulator: RecordAccumulator, when_full: WhenFull, block_s_max: float, wakeup: Callable[[], object]
    ) -> None:
        self.accumulator = accumulator
        self._when_full = when_full
        self._block_s_max = block_s_max
        self._wakeup = wakeup
        self._lock = threading.Lock()
        # Waiting senders, in order. A sender enters this queue and then tries once more to append; `release` frees
        # memory and then reads this queue. So no sender misses a release.
        self._queue: dict[BlockedAppend[Any], None] = {}
        self._awaited: dict[str, int] = {}  # topic -> number of senders that wait for it
        self._closed: KwireError | None = None

    @property
    def used_bytes(self) -> int:
        return self.accumulator.used_bytes

    @property
    def bytes_max(self) -> int:
        return self.accumulator.bytes_max

    @property
    def is_full(self) -> bool:
        """Return whether a sender waits for memory: batches must then be sent without linger."""
        return bool(self._queue)

    @property
    def waiting(self) -> int:
        """Return the number of senders that wait for memory."""
        return len(self._queue)

    def waiting_for(self, topic: str) -> int:
        """Return the number of senders that wait for memory for a topic."""
        return self._awaited.get(topic, 0)

    def append_or_wait(self, append: Append[R], block_s_max: float | None = None) -> R:
        """Append; block, or raise BufferFullError, if there is no memory. Some of many records may be appended then."""
        if append.topic not in self._awaited:
            response = self._append(append)
            if response is not None:
                return response
        admitted = threading.Lock()
        admitted.acquire()
        refused: list[Exception] = []

        def notify(error: Exception | None) -> None:
            if error is not None:
                refused.append(error)
            admitted.release()

        blocked = self.append_nowait(append, notify)
        if not isinstance(blocked, BlockedAppend):
            return blocked
        limit = self._block_s_max if block_s_max is None else min(block_s_max, self._block_s_max)
        left = append.left
        try:
            while not admitted.acquire(timeout=limit):
                if left != append.left:
                    left = append.left  # some of many records were appended: wait again
                elif self.cancel(blocked):
                    raise self.full_error(append.topic)
                else:
                    admitted.acquire()  # it has just been appended
                    break
        except BaseException:
            self.cancel(blocked)
            raise
        if refused:
            raise refused[0]
        assert blocked.response is not None
        return blocked.response

    def append_nowait(self, append: Append[R], notify: Callable[[Exception | None], object]) -> R | BlockedAppend[R]:
        """Append without blocking; return the append's place in the queue if there is no memory.

        Earlier appends of its topic stay before it, whatever their sizes. The thread that releases the memory, or that
        closes, calls `notify`, which must not raise. Raises BufferFullError if when_full is "raise".
        """
        if append.topic not in self._awaited:
            response = self._append(append)
            if response is not None:
                return response
        with self._lock:
            if self._closed is not None:
                raise own_copy(self._closed)
            if self._when_full == "raise":
                raise self.full_error(append.topic)
            blocked = BlockedAppend(append, notify)
            self._queue[blocked] = None
            self._awaited[append.topic] = self._awaited.get(append.topic, 0) + 1
            self.accumulator.set_awaited(append.topic, True)
            entered = self._append_waiting()  # memory may have been released since the first attempt
        if blocked.response is None:
            self._wakeup()  # batches must not linger now
        _notify(one for one in entered if one is not blocked)
        if blocked.error is not None:
            raise blocked.error
        return blocked if blocked.response is None else blocked.response

    def cancel(self, blocked: BlockedAppend[Any]) -> bool:
        """Cancel a waiting append. Return False if it is too late: `notify` was called, or is about to be."""
        with self._lock:
            was_waiting = blocked in self._queue
            if was_waiting:
                self._remove(blocked)
            entered = self._append_waiting()  # the cancelled append may have blocked the others
        _notify(entered)
        return was_waiting

    def release(self, sizes: Mapping[str, int]) -> None:
        """Release memory, in bytes by topic."""
        for topic, size_bytes in sizes.items():
            self.accumulator.release(topic, size_bytes)
        if self._queue:
            with self._lock:
                entered = self._append_waiting()
            _notify(entered)

    def close(self, error: KwireError) -> None:
        """Make every append from now on, and those that wait, raise `error`."""
        self.accumulator.is_open = False
        with self._lock:
            self._closed = error
            refused, self._queue = list(self._queue), {}
            self._awaited.clear()
        for blocked in refused:
            blocked.notify(own_copy(error))

    def full_error(self, topic: str) -> BufferFullError:
        """Return the error for a topic without memory. It names the topic that holds most."""
        largest, held = self.accumulator.largest()
        whose = f", {held} of them for topic {largest}" if held else ""
        what = f"{self.used_bytes} of {self.bytes_max} buffered bytes are waiting to be delivered{whose}"
        if self.used_bytes < self.bytes_max and topic == largest:
            what += f", which has its share: it may hold at most {SHARE} times what is free"
        return BufferFullError(
            what,
            remedy="send more slowly, raise max_buffered_bytes, or see "
            f"producer.explain({largest or topic!r}) for the reason",
            topic=topic,
        )

    def _append(self, append: Append[R]) -> R | None:
        """Append a record if there is memory; return None if there is not."""
        if self._closed is not None:
            raise own_copy(self._closed)
        return append.append_to(self.accumulator)

    def _remove(self, blocked: BlockedAppend[Any]) -> None:
        """Remove an append from the queue. Under the lock."""
        topic = blocked.append.topic
        del self._queue[blocked]
        self._awaited[topic] -= 1
        if not self._awaited[topic]:
            del self._awaited[topic]
            self.accumulator.set_awaited(topic, False)

    def _append_waiting(self) -> list[BlockedAppend[Any]]:
        """Append the waiting records that fit now, each topic in order. Under the lock."""
        accumulator = self.accumulator
        accumulator.is_short = False
        entered: list[BlockedAppend[Any]] = []
        stopped: set[str] = set()
        for blocked in self._queue:
            topic = blocked.append.topic
            if topic in stopped:
                continue
            try:
                blocked.response = self._append(blocked.append)
            except Exception as error:  # raised in the sender, not in this thread
                blocked.error = error
            if blocked.response is not None or blocked.error is not None:
                entered.append(blocked)
                continue
            stopped.add(topic)
            if accumulator.held(topic) <= accumulator.bytes_max - accumulator.used_bytes:
                accumulator.is_short = True  # the pool is full, not only this topic's share
            if len(stopped) == len(self._awaited):
                break
        for blocked in entered:
            self._remove(blocked)
        return entered


def _notify(entered: Iterable[BlockedAppend[Any]]) -> None:
    for blocked in entered:
        blocked.notify(blocked.error)
