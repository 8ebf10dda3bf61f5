"""The future of one record, and how callers wait for it.

`Producer.send` returns a `ProduceResponse`: wait with `result`, check `done`, add a callback, or `await` it. There is
one per record, so it is light: a builder and a number. The builder holds the outcome and runs the callbacks, all at
once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.arguments import check_timeout
from kwire.cluster.callbacks import asyncio_bridge
from kwire.errors import KwireError, RequestTimeoutError
from kwire.producer.batch_builder import (
    UNDESIGNATED,
    BatchBuilder,
    DeliveryCallbacks,
    Dispatch,
    RecordFuture,
    Waiter,
    future_class,
)
from kwire.producer.callbacks import Callbacks
from kwire.producer.failures import Failure

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


def wait_for(start: StartWaiting, timeout: float | None) -> bool:
    """Wait until the action of `start(action)` is called, at most `timeout` seconds; False when it took longer."""
    check_timeout(timeout)
    if timeout is not None and timeout > _LONG:
        warn_of_milliseconds(timeout)
    # A lock that is released once is an event without a lock of its own. An interrupt at the wrong moment could leave
    # that lock held for good, and the loop thread, which sets the event, would wait for it.
    done = threading.Lock()
    done.acquire()
    return not start(done.release) or done.acquire(timeout=-1 if timeout is None else max(0, timeout))


def awaiting(start: StartWaiting) -> Generator[object, None, None]:
    """For `__await__`: wait in the asyncio loop that runs, whichever it is."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    mailbox = asyncio_bridge(loop)

    def resolve() -> None:
        if not future.done():  # the awaiting task may have been cancelled
            future.set_result(None)

    if start(lambda: mailbox.post(resolve)):
        yield from future


Callback = Callable[["ProduceResponse"], object]

_log = logging.getLogger("kwire.callbacks")


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

        Raises the BrokerError or DeliveryError that the record met, each time as a new object, or RequestTimeoutError
        when the wait was too short: the record is then still on its way.
        """
        if not self.done():
            self._wait(timeout)
        return self._outcome()

    # RecordFuture has it: a delivery callback calls it for each record, and an override would cost a Python call.
    if TYPE_CHECKING:

        def exception(self, timeout: float | None = None) -> KwireError | None:
            """Wait as `result` does; return the error instead of raising it, a new object each time, or None."""

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(response)` on the callback thread when resolved; any number, in the order given."""
        check_callback(callback)
        if not self._run.add_waiter(self._number, self, callback, self._dispatch):
            self._see()
            self._dispatch(_run_callback, callback, self)

    def on_delivery(self, callback: Callback) -> None:
        """`add_done_callback` for the callback that came with the record, right after it was appended."""
        if not self._run.report(self._number, self, callback):
            self.add_done_callback(callback)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Await in any asyncio loop, however many."""
        if not self.done():
            yield from awaiting(self._at_once)
        return self._outcome()

    def __repr__(self) -> str:
        """Where the record is, or what it met; printing it does not count as a look at a failure."""
        outcome = self._run.outcome(self._number)
        if outcome is None:
            return f"<ProduceResponse of {self._run.topic}: pending>"
        partition, offset, _, error = outcome
        place = self._run.topic if partition < 0 else f"{self._run.topic}-{partition}"
        if isinstance(error, Failure):
            return f"<ProduceResponse of {place}: failed with {error.error!r}>"
        return f"<ProduceResponse of {place}: delivered" + (f" at offset {offset}>" if offset >= 0 else ">")

    @property
    def _dispatch(self) -> Dispatch:
        dispatch = self._run.dispatch
        assert dispatch is not None
        return dispatch

    def _wait(self, timeout: float | None) -> None:
        if not wait_for(self._at_once, timeout):
            raise RequestTimeoutError(
                f"the record is not delivered after {timeout} s; it is still being sent",
                remedy="wait longer, lower delivery_timeout_ms, or ask producer.explain(topic) what holds it back",
            )

    def _at_once(self, action: Callable[[], object]) -> bool:
        """Have `action` called when the response is resolved; False when it is resolved already."""
        return self._run.add_waiter(self._number, self, action, None)

    def _outcome(self) -> RecordMetadata:
        outcome = self._run.outcome(self._number)
        assert outcome is not None
        partition, offset, timestamp_ms, error = outcome
        if error is not None:
            raise self._own(error)
        return RecordMetadata(self._run.topic, partition, offset, timestamp_ms)

    def _own(self, error: BaseException) -> BaseException:
        """Return a copy of the error to raise, and count the failure as looked at."""
        assert isinstance(error, Failure)
        error.see(self._run, self._number, self._number + 1)
        return error.own()

    def _see(self) -> None:
        """Count a failure as looked at."""
        outcome = self._run.outcome(self._number)
        if outcome is not None and isinstance(outcome[3], Failure):
            outcome[3].see(self._run, self._number, self._number + 1)


class HomedResponse(ProduceResponse):
    """A response whose callbacks run in the event loop of its sender, and not on the callback thread: asyncio's."""

    __slots__ = ("_home",)

    def __init__(self, run: BatchBuilder, number: int, home: Dispatch) -> None:
        super().__init__(run, number)
        self._home = home

    @property
    def _dispatch(self) -> Dispatch:
        return self._home


MakeResponse = Callable[[BatchBuilder, int], ProduceResponse]


def refused(topic: str, error: KwireError, make: MakeResponse, dispatch: Dispatch) -> ProduceResponse:
    """Return the failed response of a record that was not accepted."""
    run = BatchBuilder(topic, UNDESIGNATED, 1, None, dispatch)
    response = make(run, run.append(0, None, None, (), 0))
    run.close()
    resolve(run, 0, 1, error=error)
    run.drop(1)
    return response


def check_callback(callback: object) -> None:
    """Raise TypeError for what cannot be called."""
    if not callable(callback):
        raise TypeError(f"the callback is {callback!r}: it must be a function of the response")


def resolve(
    run: BatchBuilder,
    start: int,
    end: int,
    base_offset: int = -1,
    append_time_ms: int = -1,
    error: KwireError | None = None,
) -> None:
    """Resolve the futures of a part of a batch, in the records' order. On the loop thread."""
    dispatch = run.dispatch
    failure = None
    if error is not None:
        failures = dispatch.failures if isinstance(dispatch, Callbacks) else None
        failure = Failure(error, run.topic, end - start, failures)
    reports, late = run.resolve(start, end, base_offset, append_time_ms, failure)
    if reports is None and late is None:
        return
    if failure is not None:
        _see(failure, () if reports is None else (place for _, place, _ in reports.all()))
        _see(failure, (place for _, place, *_ in late or ()))
    run_callbacks: Dispatch | None = dispatch
    if isinstance(dispatch, Callbacks):
        run_callbacks = partial(dispatch.run, run.topic, run.buffered_bytes * (end - start) // len(run))
    if late is not None:
        _tell(reports, late, dispatch, run_callbacks)
    elif reports is not None:
        assert run_callbacks is not None
        run_callbacks(reports.tell, _log_raised)


def _see(failure: Failure, places: Iterable[RecordFuture]) -> None:
    """Count records with a callback or a waiter as looked at."""
    for place in places:
        if isinstance(place, ProduceResponse):
            failure.see(place._run, place._number, place._number + 1)


def _tell(
    reports: DeliveryCallbacks | None, late: list[Waiter], own: Dispatch | None, run_own: Dispatch | None
) -> None:
    """Run callbacks, some of which were added after their records, each on its dispatcher, sorted by record.

    Those of `own` run by `run_own`.
    """
    calls: list[Waiter] = [] if reports is None else [(*report, own) for report in reports.all()]
    calls = sorted(calls + late, key=itemgetter(0))
    by_home: dict[Dispatch, list[tuple[RecordFuture, Callable[..., object]]]] = {}
    for _, place, call, home in calls:
        if home is None:
            call()
        else:
            by_home.setdefault(home, []).append((place, call))
    for home, to_run in by_home.items():
        run = run_own if home is own and run_own is not None else home
        run(_run_all, to_run)


def _run_all(calls: list[tuple[RecordFuture, Callable[..., object]]]) -> None:
    for place, callback in calls:
        _run_callback(callback, place)


def _run_callback(callback: Callable[..., object], place: RecordFuture) -> None:
    """Call user code; log what it raises."""
    try:
        callback(place)
    except Exception as error:
        _log_raised(error, place)


def _log_raised(error: Exception, place: Any) -> None:
    outcome = place._run.outcome(place._number)
    partition, offset, _, failure = (-1, -1, -1, None) if outcome is None else outcome
    what = "no offset" if offset < 0 else f"offset {offset}"
    if isinstance(failure, Failure):
        what = f"not delivered: {failure.error.message}"
    _log.error(
        "a callback raised for the record of topic %s, partition %s, %s", place._run.topic, partition, what,
        exc_info=error,
    )  # fmt: skip
