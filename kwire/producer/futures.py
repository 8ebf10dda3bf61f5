"""The future of one record, how callers wait for it, its callbacks, and its failure.

`Producer.send` returns a `ProduceResponse`: wait with `result`, check `done`, add a callback, or `await` it. There is
one per record, so it is light: a builder and a number. The builder holds the outcome and runs the callbacks, all at
once.

`Callbacks` runs them, by default on the callback thread, one at a time. Records whose callbacks wait use memory, which
a callback that blocks would let grow without bound. So the first max_buffered_bytes of such records are free; the bytes
above them count against max_buffered_bytes, and `send` blocks or raises BufferFullError when that is reached.

Records that fail together share one `Failure`; each caller gets its own copy of the error. `Failures` counts those that
no caller has seen by calling `result` or `exception`, by awaiting the response, or by adding a callback; for many
records, by doing so with their `BulkResponse`. A caller who gave up before the outcome has not seen it. Records that
are delivered cost nothing there.
"""

from __future__ import annotations

import copy
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.arguments import check_timeout
from kwire.cluster.callbacks import asyncio_bridge
from kwire.errors import DeliveryError, KwireError, RequestTimeoutError, UndeliveredError
from kwire.producer.batch_builder import (
    UNDESIGNATED,
    BatchBuilder,
    DeliveryCallbacks,
    Dispatch,
    RecordFuture,
    Waiter,
    future_class,
)

_log = logging.getLogger("kwire.callbacks")

# Seconds. A longer timeout may have been meant in milliseconds, as in Java's and librdkafka's clients.
_LONG = 3_600.0

# `start(action)` has `action` called at the outcome, or returns False if there is one already.
StartWaiting = Callable[[Callable[[], object]], bool]


def warn_of_milliseconds(timeout: float) -> None:
    """Warn the caller of kwire, however deep in it this is."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("kwire."):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"a timeout of {timeout!r}: these are seconds, not milliseconds", stacklevel=level)


def check_wait(timeout: float | None) -> None:
    """Raise TypeError unless a timeout is a number of seconds or None; warn if it looks like milliseconds."""
    check_timeout(timeout)
    if timeout is not None and timeout > _LONG:
        warn_of_milliseconds(timeout)


class Awaited:
    """The action that ends a caller's wait."""

    __slots__ = ("_action", "has_given_up")

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.has_given_up = False  # the caller: its time was over, or its task was cancelled

    def __call__(self) -> None:
        self._action()


def wait_for(start: StartWaiting, timeout: float | None) -> bool:
    """Wait until the action of `start(action)` is called, at most `timeout` seconds; False when it took longer."""
    check_wait(timeout)
    # A lock that is released once is an event without a lock of its own. An interrupt at the wrong moment could leave
    # that lock held for good, and the loop thread, which sets the event, would wait for it.
    done = threading.Lock()
    done.acquire()
    action = Awaited(done.release)
    has_ended = False
    try:
        has_ended = not start(action) or done.acquire(timeout=-1 if timeout is None else max(0, timeout))
    finally:
        action.has_given_up = not has_ended
    return has_ended


def awaiting(start: StartWaiting) -> Generator[object, None, None]:
    """For `__await__`: wait in the asyncio loop that runs, whichever it is."""
    import asyncio  # which a program of threads need not load

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    mailbox = asyncio_bridge(loop)

    def resolve() -> None:
        if not future.done():  # the awaiting task may have been cancelled
            future.set_result(None)

    action = Awaited(lambda: mailbox.post(resolve))
    if start(action):
        try:
            yield from future
        except BaseException:
            action.has_given_up = True
            raise


Callback = Callable[["ProduceResponse"], object]


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 where the broker does not return it: acks=0, or a duplicate it had already.

    `timestamp_ms` is the broker's append time where the topic uses that, else the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@future_class
class ProduceResponse(RecordFuture):
    """The future of one record. Resolves exactly once; in order within a partition.

    No wake-up is lost: `BatchBuilder.add_waiter` checks for the outcome and adds the waiter in one step, and
    `BatchBuilder.resolve` writes the outcome and removes the waiters in one, under the same lock (C: under the GIL).
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most `timeout` seconds.

        Raises the record's BrokerError or DeliveryError, a new object each time. Raises RequestTimeoutError when the
        wait was too short: the record is then still being sent.
        """
        if not self.done():
            self._wait(timeout)
        return self._outcome()

    # RecordFuture has it: a delivery callback calls it for each record, and an override would cost a Python call.
    if TYPE_CHECKING:

        def exception(self, timeout: float | None = None) -> KwireError | None:
            """Wait as `result` does; return the error instead of raising it, a new object each time, or None."""

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(response)` on the callback thread when the record resolves, in the order added."""
        check_callback(callback)
        if not self._builder.add_waiter(self._number, self, callback, self._dispatch):
            self._see()
            self._dispatch(_run_callback, callback, self)

    def on_delivery(self, callback: Callback) -> None:
        """Add the callback that was given to `send`, right after the record was appended."""
        if not self._builder.report(self._number, self, callback):
            self.add_done_callback(callback)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Await the record in any asyncio loop; several loops may do so."""
        if not self.done():
            yield from awaiting(self._at_once)
        return self._outcome()

    def __repr__(self) -> str:
        """Return the place of the record, its error, or "pending". This does not mark a failure as seen."""
        outcome = self._builder.outcome(self._number)
        if outcome is None:
            return f"<ProduceResponse of {self._builder.topic}: pending>"
        partition, offset, _, error = outcome
        where = self._builder.topic if partition < 0 else f"{self._builder.topic}-{partition}"
        if isinstance(error, Failure):
            return f"<ProduceResponse of {where}: failed with {error.error!r}>"
        return f"<ProduceResponse of {where}: delivered" + (f" at offset {offset}>" if offset >= 0 else ">")

    @property
    def _dispatch(self) -> Dispatch:
        dispatch = self._builder.dispatch
        assert dispatch is not None
        return dispatch

    def _wait(self, timeout: float | None) -> None:
        # If the outcome came just now, `resolve` may have counted it as seen already.
        if not wait_for(self._at_once, timeout) and not self.done():
            raise RequestTimeoutError(
                f"the record is not delivered after {timeout} s; it is still being sent",
                remedy="wait longer, lower delivery_timeout_ms, or see producer.explain(topic) for what holds it back",
            )

    def _at_once(self, action: Callable[[], object]) -> bool:
        """Have `action` called when the response is resolved; False when it is resolved already."""
        return self._builder.add_waiter(self._number, self, action, None)

    def _outcome(self) -> RecordMetadata:
        outcome = self._builder.outcome(self._number)
        assert outcome is not None
        partition, offset, timestamp_ms, error = outcome
        if error is not None:
            raise self._own(error)
        return RecordMetadata(self._builder.topic, partition, offset, timestamp_ms)

    def _own(self, error: BaseException) -> BaseException:
        """Return a copy of the error to raise, and count the failure as seen."""
        assert isinstance(error, Failure)
        error.see(self._builder, self._number, self._number + 1)
        return error.own()

    def _see(self) -> None:
        """Count a failure as seen."""
        outcome = self._builder.outcome(self._number)
        if outcome is not None and isinstance(outcome[3], Failure):
            outcome[3].see(self._builder, self._number, self._number + 1)


class HomedResponse(ProduceResponse):
    """The response of the asyncio producer: callbacks run in the sender's asyncio loop, not on the callback thread."""

    __slots__ = ("_home",)

    def __init__(self, builder: BatchBuilder, number: int, home: Dispatch) -> None:
        super().__init__(builder, number)
        self._home = home

    @property
    def _dispatch(self) -> Dispatch:
        return self._home


MakeResponse = Callable[[BatchBuilder, int], ProduceResponse]


def refused(topic: str, error: KwireError, make: MakeResponse, dispatch: Dispatch) -> ProduceResponse:
    """Return the failed response of a record that was not accepted."""
    builder = BatchBuilder(topic, UNDESIGNATED, 1, None, dispatch)
    response = make(builder, builder.append(0, None, None, (), 0))
    builder.close()
    resolve(builder, 0, 1, error=error)
    builder.drop(1)
    return response


def check_callback(callback: object) -> None:
    """Raise TypeError for what cannot be called."""
    if not callable(callback):
        raise TypeError(f"the callback is {callback!r}: it must be a function of the response")


def resolve(
    builder: BatchBuilder,
    start: int,
    end: int,
    base_offset: int = -1,
    append_time_ms: int = -1,
    error: KwireError | None = None,
) -> None:
    """Resolve the futures of a part of a batch, in the records' order. On the loop thread."""
    dispatch = builder.dispatch
    failure = None
    if error is not None:
        failures = dispatch.failures if isinstance(dispatch, Callbacks) else None
        failure = Failure(error, builder.topic, end - start, failures)
    reports, late = builder.resolve(start, end, base_offset, append_time_ms, failure)
    if isinstance(dispatch, Callbacks) and dispatch.on_resolved is not None:
        # Callbacks of the same records follow on the same thread: one of the two counts as memory in use.
        own_bytes = 0 if reports is not None else builder.buffered_bytes * (end - start) // len(builder)
        dispatch.run(builder.topic, own_bytes, dispatch.on_resolved, builder, start, end, error)
    if reports is None and late is None:
        return
    if failure is not None:
        _see(failure, () if reports is None else (future for _, future, _ in reports.all()))
        _see(failure, (future for _, future, call, _ in late or () if not _has_given_up(call)))
    run_callbacks: Dispatch | None = dispatch
    if isinstance(dispatch, Callbacks):
        run_callbacks = partial(dispatch.run, builder.topic, builder.buffered_bytes * (end - start) // len(builder))
    if late is not None:
        _run_sorted(reports, late, dispatch, run_callbacks)
    elif reports is not None:
        assert run_callbacks is not None
        run_callbacks(reports.run, _log_raised)


def _has_given_up(call: Callable[..., object]) -> bool:
    return isinstance(call, Awaited) and call.has_given_up


def _see(failure: Failure, futures: Iterable[RecordFuture]) -> None:
    """Count records with a callback or a waiter as seen."""
    for future in futures:
        if isinstance(future, ProduceResponse):
            failure.see(future._builder, future._number, future._number + 1)


def _run_sorted(
    reports: DeliveryCallbacks | None, late: list[Waiter], own: Dispatch | None, run_own: Dispatch | None
) -> None:
    """Run callbacks, some of which were added after their records, each on its dispatcher, sorted by record.

    Those of `own` run by `run_own`.
    """
    calls: list[Waiter] = [] if reports is None else [(*report, own) for report in reports.all()]
    calls = sorted(calls + late, key=itemgetter(0))
    by_home: dict[Dispatch, list[tuple[RecordFuture, Callable[..., object]]]] = {}
    for _, future, call, home in calls:
        if home is None:
            call()
        else:
            by_home.setdefault(home, []).append((future, call))
    for home, to_run in by_home.items():
        dispatch = run_own if home is own and run_own is not None else home
        dispatch(_run_all, to_run)


def _run_all(calls: list[tuple[RecordFuture, Callable[..., object]]]) -> None:
    for future, callback in calls:
        _run_callback(callback, future)


def _run_callback(callback: Callable[..., object], future: RecordFuture) -> None:
    """Call user code; log what it raises."""
    try:
        callback(future)
    except Exception as error:
        _log_raised(error, future)


def _log_raised(error: Exception, future: Any) -> None:
    outcome = future._builder.outcome(future._number)
    partition, offset, _, failure = (-1, -1, -1, None) if outcome is None else outcome
    what = "no offset" if offset < 0 else f"offset {offset}"
    if isinstance(failure, Failure):
        what = f"not delivered: {failure.error.message}"
    _log.error(
        "a callback raised for the record of topic %s, partition %s, %s", future._builder.topic, partition, what,
        exc_info=error,
    )  # fmt: skip


CallbackExecutor = Executor | Callable[[Callable[[], object]], object]
# Gets the builder, the first record, the end (exclusive) and the error.
OnResolved = Callable[[BatchBuilder, int, int, KwireError | None], object]


class _Here(threading.local):
    is_running = False  # whether this thread is running callbacks of the producer


class _Job:
    """Dispatched callbacks that have not run yet, and the topic and size of their records."""

    __slots__ = ("is_charged", "size_bytes", "topic")

    def __init__(self, topic: str, size_bytes: int) -> None:
        self.topic = topic
        self.size_bytes = size_bytes
        self.is_charged = False  # whether it counts against max_buffered_bytes


class Callbacks:
    """The callbacks of one producer: the `dispatch` of its batches. All methods may be called from any thread."""

    def __init__(
        self, dispatch: Dispatch, bytes_max: int | None = None, executor: CallbackExecutor | None = None
    ) -> None:
        """`dispatch` passes a call to the callback thread, or to asyncio; `bytes_max` None: no bound.

        An `executor` gets the calls from that thread, so an executor that blocks does not block the loop.
        """
        self.failures = Failures()
        # Called for each part of a batch that resolves, before the callbacks of its records; for interceptors.
        self.on_resolved: OnResolved | None = None
        self._dispatch = dispatch
        self._bytes_max = bytes_max
        self._executor = executor
        self._release: Callable[[Mapping[str, int]], object] | None = None
        self._lock = threading.RLock()  # reentrant: a finalizer may run here and call `send`
        self._here = _Here()
        self._jobs: dict[_Job, None] = {}
        self._free_bytes = 0  # of jobs that are not charged
        self._sending = 0  # callbacks that are in `send`: they must not wait for their own memory

    def bind(self, release: Callable[[Mapping[str, int]], object]) -> None:
        """Set `release`, which returns memory to the pool, in bytes by topic; negative numbers reserve it."""
        self._release = release

    def __call__(self, function: Callable[..., object], *args: Any) -> None:
        """Dispatch `function(*args)`, which must not raise."""
        self.run("", 0, function, *args)

    def run(self, topic: str, size_bytes: int, function: Callable[..., object], *args: Any) -> None:
        """Dispatch callbacks of records of that topic and size; `function` must not raise."""
        if self._bytes_max is None:
            self._dispatch(function, *args)
            return
        job = _Job(topic, size_bytes)
        self._add(job)
        if self._executor is None:
            self._dispatch(self._run_job, job, function, *args)
        else:
            self._dispatch(self._hand_on, job, partial(self._run_job, job, function, *args))

    @property
    def is_running_here(self) -> bool:
        """Return whether this thread is running callbacks of this producer."""
        return self._here.is_running

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Charge no waiting callbacks while a callback is in `send`, which may block until there is memory."""
        with self._lock:
            self._sending += 1
            for job in self._jobs:
                if job.is_charged:
                    self._charge(job, is_charged=False)
        try:
            yield
        finally:
            with self._lock:
                self._sending -= 1
                for job in reversed(self._jobs):
                    self._settle(job)

    def _run_job(self, job: _Job, function: Callable[..., object], *args: Any) -> None:
        self._here.is_running = True
        try:
            function(*args)
        finally:
            self._here.is_running = False
            self._remove(job)

    def _hand_on(self, job: _Job, call: Callable[[], object]) -> None:
        """Submit callbacks to the caller's executor; run them here if it refuses them."""
        assert self._executor is not None
        try:
            if isinstance(self._executor, Executor):
                self._executor.submit(call).add_done_callback(partial(self._handed_on, job))
            else:
                self._executor(call)
        except Exception as error:  # "cannot schedule new futures after shutdown", "Event loop is closed"
            _log.error("callback_executor refused callbacks, which run on the callback thread instead: %s", error)
            call()

    def _handed_on(self, job: _Job, future: Future[Any]) -> None:
        if future.cancelled():
            _log.error("callback_executor cancelled callbacks of topic %s: they do not run", job.topic)
            self._remove(job)

    def _add(self, job: _Job) -> None:
        with self._lock:
            self._jobs[job] = None
            self._free_bytes += job.size_bytes
            self._settle(job)

    def _remove(self, job: _Job) -> None:
        with self._lock:
            if job.is_charged:
                self._charge(job, is_charged=False)
            del self._jobs[job]
            self._free_bytes -= job.size_bytes

    def _settle(self, job: _Job) -> None:
        """Charge a job if the free bytes exceed their bound."""
        is_over = self._bytes_max is not None and self._free_bytes > self._bytes_max
        if is_over and job.size_bytes and not (job.is_charged or self._sending):
            self._charge(job, is_charged=True)

    def _charge(self, job: _Job, *, is_charged: bool) -> None:
        """Charge or free a job. The lock is held, so that no memory is released before it was reserved."""
        size_bytes = -job.size_bytes if is_charged else job.size_bytes
        job.is_charged = is_charged
        self._free_bytes += size_bytes
        if self._release is not None:
            self._release({job.topic: size_bytes})


# How many unseen failures are kept, so that `take` can name the cause of one.
_CAUSES_MAX = 16


class Failure(Exception):  # noqa: N818  # a holder of an error, not an error
    """The error of records that failed together, and which of them a caller has seen.

    Never raised. It is an exception because a batch builder stores one as the result of its records.
    """

    def __init__(self, error: KwireError, topic: str, count: int, failures: Failures | None) -> None:
        super().__init__(error)
        self.error = error
        self.topic = topic
        self.unseen = count
        self.seen: dict[int, set[int]] = {}  # record numbers, by the id of their batch builder
        self.epoch = 0
        self._failures = failures
        if failures is not None:
            failures.add(self)

    def own(self) -> KwireError:
        """Return a copy of the error, which a caller may raise or change."""
        return own_copy(self.error)

    def see(self, builder: object, start: int, end: int) -> None:
        """Mark the records start .. end - 1 of `builder` as seen."""
        if self._failures is not None:
            self._failures.see(self, id(builder), start, end)


class Failures:
    """The failed records of one producer that no caller has seen. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a finalizer may run here and read a response
        self._epoch = 0  # failures of an earlier epoch no longer count
        self._by_topic: dict[str, int] = {}
        self._causes: dict[Failure, None] = {}  # the first unseen failures, in order
        self._is_unsure = False

    def add(self, failure: Failure) -> None:
        """Count the records of a failure."""
        with self._lock:
            failure.epoch = self._epoch
            self._by_topic[failure.topic] = self._by_topic.get(failure.topic, 0) + failure.unseen
            self._is_unsure |= isinstance(failure.error, DeliveryError) and failure.error.possibly_persisted
            if len(self._causes) < _CAUSES_MAX:
                self._causes[failure] = None

    def see(self, failure: Failure, run_id: int, start: int, end: int) -> None:
        """Subtract those records of a failure from the count, each once."""
        with self._lock:
            if failure.epoch != self._epoch or not failure.unseen:
                return
            numbers = failure.seen.setdefault(run_id, set())
            before = len(numbers)
            numbers.update(range(start, end))
            newly = min(len(numbers) - before, failure.unseen)
            failure.unseen -= newly
            self._by_topic[failure.topic] -= newly
            if not self._by_topic[failure.topic]:
                del self._by_topic[failure.topic]
            if not failure.unseen:
                failure.seen.clear()
                self._causes.pop(failure, None)

    def clear(self) -> None:
        """Forget all failures so far: the caller got an error about them."""
        with self._lock:
            self._epoch += 1
            self._by_topic, self._causes, self._is_unsure = {}, {}, False

    def take(self, why_late: KwireError | None) -> UndeliveredError | None:
        """Return an error about the failed records that no caller has seen, and forget them; None if there are none.

        `why_late` is the cause why records were not delivered in time, if one is known.
        """
        with self._lock:
            by_topic, unsure = dict(self._by_topic), self._is_unsure
            cause = why_late or next((own_copy(failure.error) for failure in self._causes), None)
            self.clear()
        if not by_topic:
            return None
        count = sum(by_topic.values())
        topics = ", ".join(f"{number:,} of {topic}" for topic, number in by_topic.items())
        error = UndeliveredError(
            f"{count:,} record{'s were' if count > 1 else ' was'} not delivered, and nobody looked at the "
            f"response{'s' if count > 1 else ''}: {topics}" + (f"; the first cause: {cause}" if cause else ""),
            records=by_topic,
            possibly_persisted=unsure,
            remedy="look at each response (`result`, `exception`, await or a callback) before the producer is closed, "
            "and see to the cause",
        )
        error.__cause__ = cause
        return error


def own_copy(error: KwireError) -> KwireError:
    """Return a copy without a traceback: an object raised repeatedly would extend it and keep its frames alive."""
    copied = copy.copy(error)
    if error.__cause__ is not None:
        copied.__cause__ = error.__cause__
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        copied.__notes__ = list(notes)
    return copied
