"""What `send` answers: a `ProduceResponse`, which will know where the record went or why it did not.

The producer-API proposal's ProduceResponse in Python's manners: wait with `result`, ask with `done`, or give a
callback, or `await` it. It is light, because there is one per record: a place in a run of records. The outcome is the
run's, and so are the callbacks, which are told all at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from kwire.cluster.dispatcher import run_guarded
from kwire.errors import KwireError, RequestTimeoutError
from kwire.producer.waiting import awaiting, wait_for
from kwire.wire.accel import UNDESIGNATED, Dispatch, Late, Place, Reports, Run, place_class

Callback = Callable[["ProduceResponse"], object]

_log = logging.getLogger("kwire.callbacks")


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 where the broker does not tell it: acks=0, or a duplicate it had already.

    `timestamp_ms` is the broker's append time where the topic uses that, else the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@place_class
class ProduceResponse(Place):
    """The future of one record. Resolves exactly once; in order within a partition.

    No outcome is missed between "it is not known" and "tell me then": `Run.tell_late` looks and notes in one step, and
    `Run.resolve` writes the outcome and takes the notes in one, under the same lock, the interpreter's own where C does
    it. So whoever asks first is in the notes that are taken, and whoever asks later sees the outcome.
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most `timeout` seconds.

        Raises the BrokerError or DeliveryError that the record met, or RequestTimeoutError when the wait was too short:
        the record is then still on its way.
        """
        if not self.done():
            self._wait(timeout)
        return self._outcome()

    if TYPE_CHECKING:  # a report asks it of every record: it is the place's own, where nothing else is looked at

        def exception(self, timeout: float | None = None) -> KwireError | None:
            """Wait as `result` does; answer the error instead of raising it, or None."""

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(response)` on the callback thread when resolved; any number, in the order given."""
        if not self._run.tell_late(self._number, self, callback, self._dispatch):
            self._dispatch(run_guarded, callback, self)

    def on_delivery(self, callback: Callback) -> None:
        """`add_done_callback` for the callback that came with the record, right after it was taken in."""
        if not self._run.report(self._number, self, callback):
            self.add_done_callback(callback)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Await in any asyncio loop, however many."""
        if not self.done():
            yield from awaiting(self._at_once)
        return self._outcome()

    def __repr__(self) -> str:
        if not self.done():
            return "<ProduceResponse pending>"
        error = self.exception()
        return f"<ProduceResponse {error!r}>" if error else f"<ProduceResponse {self._outcome()!r}>"

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
        """Have ours run where the response is resolved; False when the outcome is there already."""
        return self._run.tell_late(self._number, self, action, None)

    def _outcome(self) -> RecordMetadata:
        outcome = self._run.outcome(self._number)
        assert outcome is not None
        partition, offset, timestamp_ms, error = outcome
        if error is not None:
            raise error
        return RecordMetadata(self._run.topic, partition, offset, timestamp_ms)


class HomedResponse(ProduceResponse):
    """One whose callbacks run where its sender is at home, and not on the callback thread: asyncio's."""

    __slots__ = ("_home",)

    def __init__(self, run: Run, number: int, home: Dispatch) -> None:
        super().__init__(run, number)
        self._home = home

    @property
    def _dispatch(self) -> Dispatch:
        return self._home


MakeResponse = Callable[[Run, int], ProduceResponse]


def refused(topic: str, error: KwireError, make: MakeResponse, dispatch: Dispatch) -> ProduceResponse:
    """The response of a record that was not taken in."""
    run = Run(topic, UNDESIGNATED, 1, None, dispatch)
    response = make(run, run.append(0, None, None, (), 1))
    run.close()
    run.resolve(0, 1, -1, -1, error)
    run.drop(1)
    return response


def resolve(
    run: Run, start: int, end: int, base_offset: int = -1, append_time_ms: int = -1, error: KwireError | None = None
) -> None:
    """Tell the outcome of a part of a run to everybody who asked, in the records' order. On the loop's thread."""
    reports, late = run.resolve(start, end, base_offset, append_time_ms, error)
    if late is not None:
        _tell(reports, late, run.dispatch)
    elif reports is not None:
        assert run.dispatch is not None
        run.dispatch(reports.tell, _failed)


def _tell(reports: Reports | None, late: list[Late], dispatch: Dispatch | None) -> None:
    """Where callbacks came after their records: each where it belongs, sorted by record, then as they were given."""
    calls: list[Late] = [] if reports is None else [(*report, dispatch) for report in reports.all()]
    calls = sorted(calls + late, key=itemgetter(0))
    by_home: dict[Dispatch, list[tuple[Place, Callable[..., object]]]] = {}
    for _, place, call, home in calls:
        if home is None:
            call()
        else:
            by_home.setdefault(home, []).append((place, call))
    for home, to_run in by_home.items():
        home(_run_callbacks, to_run)


def _run_callbacks(calls: list[tuple[Place, Callable[..., object]]]) -> None:
    for place, callback in calls:
        run_guarded(callback, place)


def _failed(error: Exception) -> None:
    _log.error("a callback raised", exc_info=error)
