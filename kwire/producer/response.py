"""What `send` answers: a `ProduceResponse`, which will know where the record went or why it did not.

The producer-API proposal's ProduceResponse in Python's manners: wait with `result`, ask with `done`, or give a
callback, or `await` it. It is light, because there is one per record: the outcome is that of its batch, and an event
or a list of callbacks exists only for who asks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from kwire.cluster.dispatcher import run_guarded
from kwire.cluster.mailbox import mailbox_of
from kwire.errors import KwireError, RequestTimeoutError

if TYPE_CHECKING:
    from kwire.producer.batch import Batch

Callback = Callable[["ProduceResponse"], object]

# Guards the hand-over between "not yet resolved, note my callback" (any thread) and "resolved, give me the callbacks"
# (the loop's thread, once per batch). One lock for all: it is held for a few list operations.
_lock = threading.Lock()


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 where the broker does not tell it: acks=0, or a duplicate it had already.

    `timestamp_ms` is the broker's append time where the topic uses that, else the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ProduceResponse:
    """The future of one record. Resolves exactly once; in order within a partition."""

    __slots__ = ("_batch", "_callbacks", "_dispatch", "_error", "_index", "_inline")

    def __init__(self, dispatch: Callable[..., None]) -> None:
        self._dispatch = dispatch
        self._batch: Batch | None = None  # set when resolved
        self._index = -1
        self._error: KwireError | None = None
        self._callbacks: list[Callback] | None = None  # user code: run on the callback thread
        self._inline: list[Callable[[], object]] | None = None  # ours: run where the response is resolved

    def done(self) -> bool:
        """Whether the outcome is known; never blocks."""
        return self._batch is not None or self._error is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome, at most `timeout` seconds.

        Raises the BrokerError or DeliveryError that the record met, or RequestTimeoutError when the wait was too short:
        the record is then still on its way.
        """
        if not self.done():
            event = threading.Event()
            if self._add_inline(event.set) and not event.wait(timeout):
                raise RequestTimeoutError(
                    f"the record is not delivered after {timeout} s; it is still being sent",
                    remedy="wait longer, lower delivery_timeout_ms, or ask producer.explain(topic) what holds it back",
                )
        return self._outcome()

    def exception(self, timeout: float | None = None) -> KwireError | None:
        """Wait as `result` does; answer the error instead of raising it, or None."""
        try:
            self.result(timeout)
        except KwireError as error:
            if error is not self._error:
                raise
            return error
        return None

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(response)` on the callback thread when resolved; any number, in the order given."""
        with _lock:
            if not self.done():
                self._callbacks = self._callbacks or []
                self._callbacks.append(callback)
                return
        self._dispatch(callback, self)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Await in any asyncio loop, however many."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        mailbox = mailbox_of(loop)

        def resolve() -> None:
            if not future.done():  # the awaiting task may have been cancelled
                future.set_result(None)

        if self._add_inline(lambda: mailbox.post(resolve)):
            yield from future
        return self._outcome()

    def __repr__(self) -> str:
        if not self.done():
            return "<ProduceResponse pending>"
        return f"<ProduceResponse {self._error!r}>" if self._error else f"<ProduceResponse {self._outcome()!r}>"

    def _add_inline(self, action: Callable[[], object]) -> bool:
        """False when the outcome is there already."""
        with _lock:
            if self.done():
                return False
            self._inline = self._inline or []
            self._inline.append(action)
            return True

    def _outcome(self) -> RecordMetadata:
        if self._error is not None:
            raise self._error
        assert self._batch is not None
        return self._batch.metadata(self._index)


def resolve_all(responses: list[ProduceResponse], batch: Batch | None, error: KwireError | None) -> None:
    """Resolve the responses of one batch, in order, with their batch or with an error. On the loop's thread."""
    waiting: list[ProduceResponse] = []
    with _lock:
        for index, response in enumerate(responses):
            assert not response.done(), "a response resolves exactly once"
            response._index = index
            response._batch = batch
            response._error = error
            if response._callbacks is not None or response._inline is not None:
                waiting.append(response)
    calls: dict[Callable[..., None], list[tuple[Callback, ProduceResponse]]] = {}  # by where they are to run
    for response in waiting:
        for action in response._inline or ():
            action()
        if response._callbacks is not None:
            to_run = calls.setdefault(response._dispatch, [])
            to_run += [(callback, response) for callback in response._callbacks]
        response._inline = response._callbacks = None
    for dispatch, to_run in calls.items():
        dispatch(_run_callbacks, to_run)


def _run_callbacks(calls: list[tuple[Callback, ProduceResponse]]) -> None:
    """All of a batch's callbacks in one visit of the callback thread; each one's exception is its own."""
    for callback, response in calls:
        run_guarded(callback, response)
