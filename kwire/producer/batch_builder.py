"""Batch builders, the futures of their records, and their delivery callbacks.

A `BatchBuilder` collects records of one topic for one batch, in order. It is open while records join it, then closed,
and resolved in one or more parts. A `RecordFuture` refers to one record: its builder and its number there.

Records are stored in columns, so that none needs its own object. An append allocates nothing that the garbage collector
counts: a collection may run a finalizer that sends a record, which would join this builder between two columns. The C
twins are batch_builder.c and delivery.c.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.records.compression import Compression, compress
from kwire.records.encoder import TRANSACTIONAL, VALUE_RECORDS, batch_header, encode_each, lead_bytes, record_bytes
from kwire.records.rows import BATCH_OVERHEAD_BYTES, Headers, NewRecord
from kwire.wire.accel import made_anew, speedups
from kwire.wire.buffers import Bytes
from kwire.wire.checksums import crc32c
from kwire.wire.varint import varint_size

T = TypeVar("T")

# Instead of a partition: a builder of records without keys, which gets its partition when it is drained; and one whose
# topic has an unknown partition count.
UNDESIGNATED, UNROUTED = -1, -2

Dispatch = Callable[..., object]
# (number in the builder, future, function, dispatch: None to call it at once)
Waiter = tuple[int, "RecordFuture", Callable[..., object], Dispatch | None]
Report = tuple[int, "RecordFuture", Callable[..., object]]
# start, end (exclusive), base offset, append time, error
Resolved = tuple[int, int, int, int, BaseException | None]
# partition, offset (-1: unknown), timestamp, error
Outcome = tuple[int, int, int, BaseException | None]
# Of records start .. end - 1 of a builder: start, end, partition, offset of the first, append time (-1: the records'
# own timestamps), error.
BatchResult = tuple[int, int, int, int, int, BaseException | None]


class BatchBuilder:
    """Collects the records of one batch.

    `size_bytes`: its size as an uncompressed v2 batch. `buffered_bytes`: the sum of its records' upper bounds, charged
    to the memory limit. It is full once its size with the last record's upper bound reaches `bytes_max`. `since`: when
    it began, set by the caller.
    """

    __slots__ = (
        "_alike_until", "_children", "_chosen", "_count", "_dropped", "_encoded", "_headers", "_keys", "_late", "_lead",
        "_lock", "_mark_times", "_marks", "_parts", "_reports", "_timestamp", "_value_records", "_values", "_whole",
        "base_timestamp", "buffered_bytes", "bytes_max", "dispatch", "has_headers", "is_closed", "max_timestamp",
        "partition", "since", "size_bytes", "terms", "topic",
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
        self.buffered_bytes = 0
        # For the next records, up to number `_alike_until`: bytes before the key, and record size by value length.
        self._lead = self._alike_until = 0
        self._value_records = VALUE_RECORDS[0]
        self.base_timestamp = self.max_timestamp = self._timestamp = -1
        self.is_closed = self.has_headers = False
        self.since: float | None = None
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []  # up to the last key that is not None
        self._headers: dict[int, Headers] = {}  # by record number; few records have headers
        self._count = self._dropped = 0
        # Records from _marks[i] on have the timestamp _mark_times[i], to the next mark.
        self._marks: list[int] = []
        self._mark_times: list[int] = []
        self._encoded: bytearray | None = None  # between `body` and `batch`
        self._parts: list[Resolved] = []
        self._whole: Resolved | None = None  # the part that covers all records
        self._reports = DeliveryCallbacks()
        self._late: list[Waiter] | None = None
        self._chosen: dict[int, int] = {}  # by number, the partition that the caller chose; of an UNROUTED builder
        self._children: list[tuple[BatchBuilder, int]] | None = None  # of a builder that was routed
        self._lock = lock or threading.RLock()

    def __len__(self) -> int:
        return self._count

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, counted: int) -> int:
        """Add a record; return its number."""
        with self._lock:
            assert not self.is_closed
            return self._append(timestamp, key, value, headers, counted)

    def _append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, counted: int) -> int:
        number = self._count
        if timestamp != self._timestamp or number == self._alike_until:
            self._mark(timestamp)
        if value is not None and key is None and not headers:
            size_bytes = self._value_records[len(value)]
        else:
            size_bytes = record_bytes(self._lead, key, value, headers)
        if self.size_bytes + counted >= self.bytes_max:
            self.is_closed = True
        if headers:
            self._headers[number] = headers
            self.has_headers = True
        if key is not None:
            while len(self._keys) < number:
                self._keys.append(None)
            self._keys.append(key)
        self._values.append(value)
        self._count = number + 1
        self.buffered_bytes += counted
        self.size_bytes += size_bytes
        return number

    def _extend(self, values: list[bytes], counted: int, size_bytes: int) -> int:
        """Add values that encode like the last record and do not fill the builder; return the first number."""
        number = self._count
        self._values += values
        self._count = number + len(values)
        self.buffered_bytes += counted
        self.size_bytes += size_bytes
        return number

    def _mark(self, timestamp: int) -> None:
        """Start a group of records with this timestamp, or with longer offset deltas."""
        count = self._count
        if not count:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:  # max() would allocate a tuple
            self.max_timestamp = timestamp
        if timestamp != self._timestamp:
            self._marks.append(count)
            self._mark_times.append(timestamp)
            self._timestamp = timestamp
        self._lead = lead_bytes(timestamp - self.base_timestamp, count)
        self._value_records = VALUE_RECORDS[self._lead]
        self._alike_until = 1 << 7 * varint_size(count) - 1

    def close(self) -> None:
        """Close the builder: no more records join it."""
        with self._lock:
            self.is_closed = True

    # -- a closed builder, until it is dropped

    def rows(self, start: int = 0, end: int | None = None) -> list[NewRecord]:
        assert self.is_closed
        return self._rows()[start:end]

    def _rows(self) -> list[NewRecord]:
        return list(self._each())

    def _each(self) -> Iterator[NewRecord]:
        counts = (after - first for first, after in pairwise([*self._marks, self._count]))
        timestamps = chain.from_iterable(map(repeat, self._mark_times, counts))
        keys = chain(self._keys, repeat(None, self._count - len(self._keys)))
        headers: Iterable[Headers] = repeat((), self._count)
        if self._headers:
            headers = [self._headers.get(number, ()) for number in range(self._count)]
        return zip(timestamps, keys, self._values, headers, strict=True)

    def body(self) -> Bytes:
        """Return the encoded records, without the batch header."""
        assert self.is_closed
        self._encoded = self._encode()
        return memoryview(self._encoded)[BATCH_OVERHEAD_BYTES:]

    def batch(self, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int) -> Bytes:
        """Return an uncompressed v2 batch of all records; callers must not change it."""
        assert self.is_closed
        whole, self._encoded = self._encoded or self._encode(), None
        whole[:BATCH_OVERHEAD_BYTES] = batch_header(
            crc32c,
            memoryview(whole)[BATCH_OVERHEAD_BYTES:],
            self._count,
            self._count - 1,
            self.base_timestamp,
            self.max_timestamp,
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return whole

    def _encode(self) -> bytearray:
        """Return the encoded records after empty space for the header."""
        return bytearray().join([bytes(BATCH_OVERHEAD_BYTES), *encode_each(self._each(), self.base_timestamp)])

    def drop(self, count: int) -> None:
        """Count `count` more records as no longer needed; free the memory once no record is needed."""
        self._dropped += count
        if self._dropped >= self._count:
            self._keys, self._values, self._headers, self._encoded = [], [], {}, None

    # -- outcomes

    def resolve(
        self, start: int, end: int, base_offset: int, append_time_ms: int, error: BaseException | None
    ) -> tuple[DeliveryCallbacks | None, list[Waiter] | None]:
        """Resolve records start .. end - 1; return their callbacks and waiters. `append_time_ms` -1: their own times.

        A waiter is either returned here or rejected by `add_waiter`, which reads the same parts under the same lock.
        """
        with self._lock:
            assert self.is_closed
            assert all(end <= part[0] or start >= part[1] for part in self._parts), "a record resolves exactly once"
            part = start, end, base_offset, append_time_ms, error
            self._parts.append(part)
            if start == 0 and end == self._count:
                self._whole = part
                reports, self._reports = self._reports, DeliveryCallbacks()
                late, self._late = self._late, None
            else:
                reports = self._reports.take(start, end)
                late = [one for one in self._late or () if start <= one[0] < end]
                self._late = [one for one in self._late or () if not start <= one[0] < end] or None
        return reports if len(reports) else None, late or None

    def done(self, number: int) -> bool:
        return self._part(number) is not None

    def _part(self, number: int) -> Resolved | None:
        """Return the part that resolved a record, in its current builder; None while it is unresolved."""
        if self._children is not None:
            builder, number = self._children[number]
            return builder._part(number)
        for part in self._parts:
            if part[0] <= number < part[1]:
                return part
        return None

    def outcome(self, number: int) -> Outcome | None:
        """Return a record's partition, offset, timestamp and error; None while it is unresolved."""
        if self._children is not None:
            builder, number = self._children[number]
            return builder.outcome(number)
        part = self._part(number)
        if part is None:
            return None
        start, _, base_offset, append_time_ms, error = part
        offset = -1 if base_offset < 0 else base_offset + number - start
        return self.partition, offset, self.timestamp(number) if append_time_ms < 0 else append_time_ms, error

    def outcomes(self, start: int, end: int) -> list[BatchResult]:
        """Return the results of the resolved records among start .. end - 1, in order."""
        if self._children is None:
            known = [
                (max(start, first), min(end, last), self.partition,
                 -1 if offset < 0 else offset + max(start - first, 0), append_time_ms, error)
                for first, last, offset, append_time_ms, error in self._parts if max(start, first) < min(end, last)
            ]  # fmt: skip
            return sorted(known, key=itemgetter(0))
        found: list[BatchResult] = []
        while start < end:
            builder, index = self._children[start]
            after = start + 1
            while after < end and self._children[after] == (builder, index + after - start):
                after += 1
            for first, last, *outcome in builder.outcomes(index, index + after - start):
                found.append((first - index + start, last - index + start, *outcome))  # type: ignore[arg-type]
            start = after
        return found

    def timestamp(self, number: int) -> int:
        return self._mark_times[bisect_right(self._marks, number) - 1]

    def report(self, number: int, future: RecordFuture, callback: Callable[..., object]) -> bool:
        """Add a callback as if it had been sent with its record; return False if that is no longer possible."""
        with self._lock:
            if self._children is not None or self.done(number) or self._reports.last() >= number:
                return False
            self._reports.add(number, future, callback)
            return True

    def add_waiter(
        self, number: int, future: RecordFuture, call: Callable[..., object], dispatch: Dispatch | None
    ) -> bool:
        """Have `call` run when the record resolves; return False if it has resolved already."""
        with self._lock:
            if self._children is not None:
                builder, number = self._children[number]
                return builder.add_waiter(number, future, call, dispatch)
            if self.done(number):
                return False
            self._late = self._late or []
            self._late.append((number, future, call, dispatch))
            return True


class RecordFuture:
    """The future of one record: its builder and its number there.

    A subclass overrides `_wait`, which blocks until the record has resolved.
    """

    __slots__ = ("_builder", "_number")

    def __init__(self, builder: BatchBuilder, number: int) -> None:
        self._builder = builder
        self._number = number

    def __eq__(self, other: object) -> bool:
        """Futures of the same record are equal: a callback may get another one than `send` returned."""
        if not isinstance(other, RecordFuture):
            return NotImplemented
        return self._builder is other._builder and self._number == other._number

    def __hash__(self) -> int:
        return hash((self._builder, self._number))

    def done(self) -> bool:
        """Return whether the record has resolved; never blocks."""
        return self._builder.done(self._number)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does; return the error instead of raising it, or None."""
        part = self._builder._whole or self._builder._part(self._number)
        if part is None:
            self._wait(timeout)
            part = self._builder._part(self._number)
            assert part is not None
        return None if part[4] is None else self._own(part[4])

    def _own(self, error: BaseException) -> BaseException:
        """Return the exception to raise for an error that records share; subclasses decide."""
        return error

    def _wait(self, timeout: float | None) -> object:
        """Return once the record has resolved. Subclasses implement waiting; this module knows no threads."""
        raise NotImplementedError


def future_class(written: type[T]) -> type[T]:
    """Decorate a subclass of RecordFuture without slots: with C, rebuild it as a C type (see docs/speed.md)."""
    return written if speedups is None else made_anew(speedups.future_class, written)


class DeliveryCallbacks:
    """The delivery callbacks of a builder's records, in the records' order."""

    __slots__ = ("_callbacks", "_futures", "_last", "_numbers")

    def __init__(self) -> None:
        self._last = -1  # of the callbacks taken out
        self._numbers: list[int] = []
        self._futures: list[RecordFuture] = []
        self._callbacks: list[Callable[..., object]] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, future: RecordFuture, callback: Callable[..., object]) -> None:
        self._numbers.append(number)
        self._futures.append(future)
        self._callbacks.append(callback)

    def last(self) -> int:
        """Return the number of the last record that has or had a callback; -1 for none."""
        return max(self._last, self._numbers[-1] if self._numbers else -1)

    def take(self, start: int, end: int) -> DeliveryCallbacks:
        """Remove and return the callbacks of records start .. end - 1."""
        self._last = self.last()
        taken, where = DeliveryCallbacks(), slice(bisect_left(self._numbers, start), bisect_left(self._numbers, end))
        for own, others in zip(self._columns(), taken._columns(), strict=True):
            others += own[where]
            del own[where]
        return taken

    def _columns(self) -> tuple[list[Any], ...]:
        return self._numbers, self._futures, self._callbacks

    def all(self) -> list[Report]:
        return list(zip(self._numbers, self._futures, self._callbacks, strict=True))

    def run(self, on_error: Callable[[Exception, Any], object]) -> None:
        """Call all callbacks; pass an exception and its future to `on_error`."""
        for future, callback in zip(self._futures, self._callbacks, strict=True):
            try:
                callback(future)
            except Exception as error:
                on_error(error, future)


def encode_builder(
    builder: BatchBuilder,
    *,
    compression: Compression,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> Bytes:
    """Return all records of a closed builder as one v2 batch; uncompressed records are not copied."""
    attributes = TRANSACTIONAL if is_transactional else 0
    if not compression:
        return builder.batch(attributes, producer_id, producer_epoch, base_sequence)
    body, count = compress(compression, builder.body(), level), len(builder)
    header = batch_header(
        crc32c,
        body,
        count,
        count - 1,
        builder.base_timestamp,
        builder.max_timestamp,
        attributes=attributes | compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return header + body


if not TYPE_CHECKING and speedups is not None:
    BatchBuilder, RecordFuture = speedups.BatchBuilder, speedups.RecordFuture
    DeliveryCallbacks = speedups.DeliveryCallbacks
