"""Many records in one call: the columns that `send_many` accepts, and the future of their results.

`slice_of` and `lines_of` convert the caller's arguments to columns; they raise for invalid ones before any record is
sent. `Bulk` appends the records to the accumulator. `BulkResponse` is the future of the call: the offset or the error
of each record.

A response keeps stretches of consecutive records of a batch builder, not an object for each record. The batch builder
has the results; columns are built from them only when the caller reads them.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast, overload

from kwire.arguments import wrong_type
from kwire.errors import ConfigurationError, ErrorCode, KwireError, RecordTooLargeError, RequestTimeoutError
from kwire.producer.accumulator import ManyColumns, RecordAccumulator, all_bytes, count_of, split_lines
from kwire.producer.batch_builder import BatchBuilder, BatchResult, Dispatch, RecordFuture
from kwire.producer.futures import Failure, Failures, RecordMetadata, awaiting, check_callback, wait_for
from kwire.producer.message import Data, Headers, to_bytes, to_headers

if TYPE_CHECKING:
    from kwire.records.rows import Headers as HeadersOfOne
    from kwire.wire.buffers import Bytes

Values = Iterable[Data]
Keys = Iterable[Data] | None
ManyHeaders = Mapping[str, Data] | Iterable[Headers] | None
Timestamps = int | Iterable[int | None] | None
Partitions = int | Iterable[int | None] | None

C = TypeVar("C", bound=Sized)


def slice_of(
    values: Values,
    keys: Keys,
    headers: ManyHeaders,
    timestamps_ms: Timestamps,
    partitions: Partitions,
    now_ms: int,
) -> Slice:
    """Return the records as columns. Raises TypeError or ValueError for arguments that no record can have."""
    own_values = _data(values, "values")
    count = len(own_values)
    columns = ManyColumns(
        own_values,
        None if keys is None else _as_many(_data(keys, "keys"), count, "keys"),
        _headers(headers, count),
        now_ms if timestamps_ms is None else _numbers(timestamps_ms, count, "timestamps_ms", "q", now_ms),
        None if partitions is None else _numbers(partitions, count, "partitions", "i", -1),
    )
    return Slice(columns, count)


def lines_of(data: Bytes, delimiter: bytes, now_ms: int) -> Slice:
    """Return the records of `send_lines` as columns. Raises TypeError or ValueError for what has no lines."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise wrong_type("data", data, "bytes, a bytearray or a memoryview, with all lines in it")
    if not isinstance(delimiter, bytes):
        raise wrong_type("delimiter", delimiter, 'bytes, as b"\\n" is')
    if not delimiter:
        raise ValueError("delimiter is empty: it is what ends a line")
    if isinstance(data, memoryview):
        data = data.cast("B") if data.c_contiguous else data.tobytes()
    if len(data) > _LINES_BYTES_MAX:
        raise ValueError(f"data has {len(data)} bytes, and one call takes 2 GiB: send it in parts")
    cells = split_lines(data, delimiter)
    return Slice(ManyColumns(cells, None, None, now_ms, None), count_of(cells))


def pyarrow_is_missing() -> ConfigurationError:
    """Return the error of `send_arrow` without pyarrow."""
    return ConfigurationError("pyarrow is not installed", remedy="install kwire[arrow], or use send_many")


def check_column(items: object, name: str) -> None:
    """Raise TypeError for one record's data where a column is expected."""
    if isinstance(items, (str, bytes, bytearray, memoryview)) or not isinstance(items, Iterable):
        raise TypeError(f"{name} is {type(items).__name__}: it must be a sequence with an item for each record")


def _data(items: Iterable[Data], name: str) -> list[bytes | None]:
    check_column(items, name)
    own = list(items)
    if all_bytes(own):
        return own  # type: ignore[return-value]
    return [to_bytes(item, f"item {index} of {name}") for index, item in enumerate(own)]


def _headers(headers: ManyHeaders, count: int) -> list[HeadersOfOne] | None:
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        for_all: list[HeadersOfOne] = []
        for_all.append(to_headers(headers))  # pyright: ignore[reportArgumentType]
        return for_all * count
    check_column(headers, "headers")
    own = list(headers)
    if own and isinstance(own[0], tuple) and own[0] and isinstance(own[0][0], str):
        raise TypeError("headers are the pairs of one record: give a mapping for all, or an item for each record")
    found: list[HeadersOfOne] = [to_headers(one) for one in own]
    return _as_many(found, count, "headers")


def _numbers(given: int | Iterable[int | None], count: int, name: str, typecode: str, absent: int) -> int | array[int]:
    """Return one number for all records, or a column of one for each; `absent` replaces None."""
    bits = array(typecode).itemsize * 8 - 1
    what = "must be milliseconds since 1970" if typecode == "q" else f"must be from 0 to 2**{bits} - 1"
    if isinstance(given, int):
        if isinstance(given, bool) or not 0 <= given < 1 << bits:
            raise ValueError(f"{name} is {given}: it {what}")
        return given
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise wrong_type(name, given, f"one int for all records, or an item for each: it {what}")
    own = list(given)
    column: array[int]
    try:
        column = array(typecode, cast("list[int]", own))  # None is a TypeError
        is_fine = min(column, default=0) >= 0
    except (TypeError, OverflowError):
        is_fine = False
    if not is_fine:
        for index, number in enumerate(own):
            if number is not None and not isinstance(number, int):
                raise TypeError(f"item {index} of {name} is {type(number).__name__}: it {what}, or None")
            if number is not None and not 0 <= number < 1 << bits:
                raise ValueError(f"item {index} of {name} is {number}: it {what}")
        column = array(typecode, [absent if number is None else number for number in own])
    return _as_many(column, count, name)


def _as_many(column: C, count: int, name: str) -> C:
    if len(column) != count:
        raise ValueError(f"{name} has {len(column)} items for {count} values")
    return column


T = TypeVar("T")

_log = logging.getLogger("kwire.callbacks")

BulkCallback = Callable[["BulkResponse"], object]
OnRefused = Callable[[KwireError, int], object]

_LINES_BYTES_MAX = (1 << 31) - 1

# How many records are offered at once; after them other senders get a turn, and the loop begins to send. While memory
# is short, these are twice as many as there was room for last: `append_many` reads the headers of all.
_AT_ONCE_MIN, _AT_ONCE_MAX = 64, 16_384
# How many records `_Stretch.pending` checks at once: results are in pieces where a batch was split.
_LOOKED_AT = 16_384


class _Stretch(NamedTuple):
    """Consecutive records of a batch builder, or (`builder` is None) refused records with their `error`."""

    builder: BatchBuilder | None
    first: int
    length: int
    error: Failure | None = None

    def pending(self, at: int) -> int | None:
        """Return the number of the first record from `at` on that has no result; None if all have."""
        end = self.first + self.length
        while self.builder is not None and at < end:
            upto = min(at + _LOOKED_AT, end)
            for start, after, *_ in self.builder.outcomes(at, upto):
                if start != at:
                    return at
                at = after
            if at < upto:
                return at
        return None

    def parts(self) -> list[BatchResult]:
        """Return the results of the whole stretch in order; records without one are parts of -1 and None."""
        end = self.first + self.length
        if self.builder is None:
            return [(self.first, end, -1, -1, -1, self.error)]
        found: list[BatchResult] = []
        at = self.first
        for part in self.builder.outcomes(self.first, end):
            if at < part[0]:
                found.append((at, part[0], -1, -1, -1, None))
            found.append(part)
            at = part[1]
        if at < end:
            found.append((at, end, -1, -1, -1, None))
        return found

    def partitions(self) -> Iterable[int]:
        return chain.from_iterable(repeat(part[2], part[1] - part[0]) for part in self.parts())

    def offsets(self) -> Iterable[int]:
        for start, end, _, base_offset, _, error in self.parts():
            if base_offset < 0 or error is not None:
                yield from repeat(-1, end - start)
            else:
                yield from range(base_offset, base_offset + end - start)

    def timestamps(self) -> Iterable[int]:
        for start, end, _, _, append_time_ms, _ in self.parts():
            if append_time_ms >= 0 or self.builder is None:
                yield from repeat(append_time_ms, end - start)
            else:
                outcomes = map(self.builder.outcome, range(start, end))
                yield from (-1 if outcome is None else outcome[2] for outcome in outcomes)

    def errors(self) -> Iterable[BaseException | None]:
        return chain.from_iterable(repeat(part[5], part[1] - part[0]) for part in self.parts())


class _Group(NamedTuple):
    """Records appended at once. `order`: the stretch of each as uint32s; None: the stretches follow each other."""

    stretches: list[_Stretch]
    order: bytes | None

    def column(self, of: Callable[[_Stretch], Iterable[T]]) -> Iterator[T]:
        if self.order is None:
            yield from chain.from_iterable(map(of, self.stretches))
        else:
            columns = [iter(of(stretch)) for stretch in self.stretches]
            for at in memoryview(self.order).cast("I"):
                yield next(columns[at])


class BulkResult(Sequence[RecordMetadata]):
    """The offsets and errors of a call's records, in its order; a `RecordMetadata` is created when it is read.

    partitions      array of "i"; -1 for a record that failed before it had one
    offsets         array of "q"; -1 for a record that failed, and with acks=0, where the broker sends no response
    timestamps_ms   array of "q"
    errors          (index, error) of each record that failed; those that failed together share an error
    """

    __slots__ = ("_columns", "_count", "_groups", "topic")

    def __init__(self, topic: str, count: int, groups: Sequence[_Group]) -> None:
        self.topic = topic
        self._count = count
        self._groups = groups
        self._columns: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> RecordMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordMetadata]: ...
    def __getitem__(self, index: int | slice) -> RecordMetadata | list[RecordMetadata]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._count))]
        return RecordMetadata(self.topic, self.partitions[index], self.offsets[index], self.timestamps_ms[index])

    def __repr__(self) -> str:
        return f"<BulkResult of {self._count} records of {self.topic}>"

    @property
    def partitions(self) -> array[int]:
        return self._column("i", _Stretch.partitions)

    @property
    def offsets(self) -> array[int]:
        return self._column("q", _Stretch.offsets)

    @property
    def timestamps_ms(self) -> array[int]:
        return self._column("q", _Stretch.timestamps)

    @property
    def errors(self) -> list[tuple[int, KwireError]]:
        if not self.failures:
            return []
        column = chain.from_iterable(group.column(_Stretch.errors) for group in self._groups)
        own: dict[BaseException, KwireError] = {}  # shared within this list only
        found: list[tuple[int, KwireError]] = []
        for index, failure in enumerate(column):
            if isinstance(failure, Failure):
                error = own.get(failure) or own.setdefault(failure, failure.own())
                found.append((index, error))
        return found

    @property
    def failures(self) -> int:
        """Return the number of records that failed."""
        parts = (part for group in self._groups for stretch in group.stretches for part in stretch.parts())
        return sum(end - start for start, end, *_, error in parts if error is not None)

    def _column(self, typecode: str, of: Callable[[_Stretch], Iterable[int]]) -> array[int]:
        column = self._columns.get(of.__name__)
        if column is None:
            column = array(typecode, chain.from_iterable(group.column(of) for group in self._groups))
            self._columns[of.__name__] = column
        return column


class BulkResponse:
    """The future of the records of one call. It resolves when every record has a result."""

    __slots__ = (
        "_actions", "_at", "_count", "_dispatch", "_failures", "_groups", "_is_done", "_lock", "_on_refused", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, dispatch: Dispatch, failures: Failures | None = None, on_refused: OnRefused | None = None
    ) -> None:
        self.topic = topic
        self._on_refused = on_refused
        self._failures = failures
        self._count = 0
        self._groups: list[_Group] = []
        self._dispatch = dispatch
        self._lock = threading.Lock()
        self._at = 0, 0, 0  # group, stretch and record number before which all have a result
        self._is_done = False
        self._actions: list[Callable[[], object]] = []  # to call when it resolves

    def __len__(self) -> int:
        return self._count

    def done(self) -> bool:
        """Return whether every record has a result; never blocks."""
        return self._is_done or self._pending() is None

    def result(self, timeout: float | None = None) -> BulkResult:
        """Wait for all results, at most `timeout` seconds; raises the error of the first record that failed.

        A note on the error says how many failed; `settled` and `errors` have each of them. Raises RequestTimeoutError
        when the wait was too short: the records are still being sent.
        """
        return self._checked(self.settled(timeout))

    def settled(self, timeout: float | None = None) -> BulkResult:
        """Wait as `result` does, but do not raise the errors of records: they are in the result's `errors`."""
        if not self.done() and not wait_for(self._when_done, timeout):
            raise RequestTimeoutError(
                f"not all {self._count} records are delivered after {timeout} s; they are being sent",
                remedy="wait longer, lower delivery_timeout_ms, or see producer.explain(topic) for the reason",
                topic=self.topic,
            )
        return self._result()

    def exception(self, timeout: float | None = None) -> KwireError | None:
        """Wait as `result` does; return the error of the first record that failed, or None, instead of raising it."""
        errors = self.settled(timeout).errors
        return errors[0][1] if errors else None

    @property
    def errors(self) -> list[tuple[int, KwireError]]:
        """(index, error) of each record that has failed so far, in the call's order."""
        return self._result().errors

    def add_done_callback(self, callback: BulkCallback) -> None:
        """Call `callback(response)` on the callback thread when all records have a result, in the order added."""
        check_callback(callback)

        def call() -> None:
            self._see_failures()
            self._dispatch(_run_callback, callback, self)

        if not self._when_done(call):
            call()

    def __await__(self) -> Generator[object, None, BulkResult]:
        """Await the `result` in any asyncio loop."""
        yield from awaiting(self._when_done)
        return self._checked(self._result())

    def __repr__(self) -> str:
        return f"<BulkResponse of {self._count} records of {self.topic}, {'done' if self.done() else 'pending'}>"

    # -- for `Bulk`, before the caller has the response

    def placed(self, count: int, stretches: Iterable[tuple[BatchBuilder, int, int]], order: bytes | None) -> None:
        """Add records that the accumulator accepted."""
        self._groups.append(_Group([_Stretch(*stretch) for stretch in stretches], order))
        self._count += count

    def refused(self, count: int, error: KwireError) -> None:
        """Add records that were not accepted; they have failed."""
        failure = Failure(error, self.topic, count, self._failures)
        self._groups.append(_Group([_Stretch(None, 0, count, failure)], None))
        self._count += count
        if self._on_refused is not None:
            self._on_refused(error, count)

    # -- resolving

    def _when_done(self, action: Callable[[], object]) -> bool:
        """Have `action` called on the thread that resolves the last record; return False when all are resolved."""
        with self._lock:
            if self._is_done:
                return False
            self._actions.append(action)
            if len(self._actions) > 1:
                return True  # `_look` waits already
        self._look()
        return True

    def _look(self) -> None:
        """Wait for the first record without a result, then the next; most batches resolve all their records at once."""
        while (pending := self._pending()) is not None:
            builder, number = pending
            if builder.add_waiter(number, RecordFuture(builder, number), self._look, None):
                return
        with self._lock:
            self._is_done = True
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def _pending(self) -> tuple[BatchBuilder, int] | None:
        """Return the first record that has no result yet."""
        group_at, at, number = self._at
        for group in self._groups[group_at:]:
            for stretch in group.stretches[at:]:
                found = stretch.pending(max(number, stretch.first))
                if found is not None:
                    self._at = group_at, at, found
                    assert stretch.builder is not None
                    return stretch.builder, found
                at, number = at + 1, 0
            group_at, at = group_at + 1, 0
        return None

    def _result(self) -> BulkResult:
        self._see_failures()
        return BulkResult(self.topic, self._count, self._groups)

    def _see_failures(self) -> None:
        """Mark the failures known so far as seen by the caller."""
        for group in self._groups:
            for stretch in group.stretches:
                for start, end, *_, failure in stretch.parts():
                    if isinstance(failure, Failure):
                        failure.see(stretch.builder, start, end)

    def _checked(self, result: BulkResult) -> BulkResult:
        if not result.failures:
            return result
        errors = result.errors
        index, error = errors[0]
        error.add_note(f"{len(errors)} of {self._count} records failed, record {index} as the first")
        raise error


def _run_callback(callback: BulkCallback, response: BulkResponse) -> None:
    try:
        callback(response)
    except Exception as error:
        _log.error("a callback raised for %d records of topic %s", len(response), response.topic, exc_info=error)


class Slice(NamedTuple):
    """Columns of `length` records."""

    columns: ManyColumns
    length: int

    def timestamp_of(self, number: int) -> int:
        """Return the timestamp of a record, in milliseconds since 1970."""
        timestamps = self.columns.timestamps
        return timestamps if isinstance(timestamps, int) else timestamps[number]


class Bulk:
    """The records of a call that are not in the accumulator yet: `left` counts them."""

    def __init__(
        self,
        topic: str,
        slices: Iterable[Slice],
        dispatch: Dispatch,
        failures: Failures | None = None,
        on_refused: OnRefused | None = None,
    ) -> None:
        """`on_refused(error, count)` is called for records that are not accepted, if others of the call are."""
        self.topic = topic
        self.response = BulkResponse(topic, dispatch, failures, on_refused)
        self._slices = [one for one in slices if one.length]
        self._slices.reverse()
        self._next = 0  # index of the next record in the last slice
        self._at_once = _AT_ONCE_MAX
        self.left = sum(one.length for one in self._slices)
        self.has_begun = False

    def append_to(self, accumulator: RecordAccumulator) -> BulkResponse | None:
        """Append as many records as there is room for. Return the response once all are appended or refused."""
        while self._slices:
            columns, length = self._slices[-1]
            end = min(self._next + self._at_once, length)
            after, size_bytes, stretches, order = accumulator.append_many(self.topic, columns, self._next, end)
            self._at_once = min(max(_AT_ONCE_MIN, 2 * (after - self._next)), _AT_ONCE_MAX)
            if after > self._next:
                self.response.placed(after - self._next, stretches, order)
                self.has_begun = True
            if size_bytes:
                self.response.refused(1, self._too_large(len(self.response), size_bytes))
            self.left -= after - self._next + bool(size_bytes)
            self._next = after + bool(size_bytes)
            if after < end and not size_bytes:
                return None
            if self._next == length:
                self._slices.pop()
                self._next = 0
        return self.response

    def refuse(self, error: KwireError) -> BulkResponse:
        """Refuse the records that are left with `error`, and return the response."""
        self.response.refused(self.left, error)
        self.left, self._slices = 0, []
        return self.response

    def _too_large(self, index: int, size_bytes: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"record {index} of the call has {size_bytes} bytes: more than max_request_bytes allows",
            code=ErrorCode.MESSAGE_TOO_LARGE,
            remedy="raise max_request_bytes, and the topic's max.message.bytes on the brokers, or send it in parts",
            topic=self.topic,
        )
