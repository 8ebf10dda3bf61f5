"""The consumer of a queue, for both faces and over any backend: the buffer, what is in progress, the end.

`receive` hands out what the buffer has. When it is empty one caller fetches, and the others wait for it. What was
fetched and is not settled counts against max_in_progress, whether it was handed out or not: beyond that nothing is
fetched, while the member of the group stays alive.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from kwire.arguments import check_timeout, is_int, wrong_type
from kwire.cluster.waiting import BLOCKING, Signal, Waiter, blocking, run_blocking
from kwire.errors import ClosedError, KwireError, LeaseLostError, SettledError
from kwire.queue.backend import Backend, Delivery
from kwire.queue.message import Message, MessageClient
from kwire.queue.metrics import ConsumerCounters

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

_log = logging.getLogger("kwire.queue")

# How often `handle` looks whether it was stopped.
_HANDLE_SECONDS = 0.5


class QueueConsumerClient:
    """What both faces of the consumer share. No broker is contacted before the first `receive`."""

    _waiter: ClassVar[Waiter]
    _message: ClassVar[type[MessageClient]]

    def __init__(self, service: ServiceClient, queue: str) -> None:
        self.queue = queue
        self._service = service
        self._options = service.options
        self._counters = ConsumerCounters()
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._buffer: deque[Delivery] = deque()
        self._in_progress: set[Delivery] = set()
        self._is_fetching = False
        self._is_closed = False
        self._is_stopped = False
        self._signals: list[Signal] = []  # of callers that wait for a message, or for room

    def now(self) -> float:
        """Return the time of the leases' clock, in seconds."""
        return 0.0 if self._backend is None else self._backend.now()

    # -- receiving

    async def _receive_one(self, timeout: float | None) -> MessageClient | None:
        check_timeout(timeout)
        clock = self._service.clock
        deadline = inf if timeout is None else clock.now() + max(0.0, timeout)
        while True:
            with self._lock:
                self._check_open()
                while self._buffer:
                    delivery = self._buffer.popleft()
                    if delivery.deadline < self.now():  # it waited too long, since no keep-alive went through
                        delivery.is_settled = True
                        self._in_progress.discard(delivery)
                        continue
                    delivery.handed_out_at = self.now()
                    self._counters.received += 1
                    return self._message(self, delivery)
                room = min(
                    self._options.consumer_receive_buffer_capacity,
                    self._options.max_in_progress - len(self._in_progress),
                )
                signal = None
                if self._is_fetching or room <= 0:
                    signal = self._waiter.signal()
                    self._signals.append(signal)
                else:
                    self._is_fetching = True
            remaining = max(0.0, deadline - clock.now())
            if signal is not None:
                wait_max = self._options.consumer_next_message_timeout_ms / 1000
                await signal.wait(min(remaining, wait_max))
                self._let_go_overdue()
            else:
                await self._fetch(room, remaining)
            if clock.now() >= deadline and not self._buffer:
                return None

    async def _fetch(self, room: int, remaining: float) -> None:
        fetched: list[Delivery] = []
        try:
            if self._backend is None:
                self._backend = await self._service.new_backend(self.queue, self._counters)
            seconds = min(remaining, self._options.consumer_next_message_timeout_ms / 1000)
            fetched = list(await self._backend.fetch(room, seconds))
        finally:
            with self._lock:
                self._is_fetching = False
                self._buffer.extend(fetched)
                self._in_progress.update(fetched)
            self._wake()

    def _let_go_overdue(self) -> None:
        """Count no more what was handed out and lost: a handler that hangs does not stop the queue for good."""
        with self._lock:
            now = self.now()
            self._in_progress = {one for one in self._in_progress if one.deadline >= now and not one.is_settled}

    def _wake(self) -> None:
        with self._lock:
            signals, self._signals = self._signals, []
        for signal in signals:
            signal.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the consumer of queue {self.queue} is closed")

    # -- settling

    async def settle(
        self, message: MessageClient, how: Literal["ack", "nack", "release"], *, reason: str = "",
        delay_ms: int | None = 0,
    ) -> None:  # fmt: skip
        """Settle a message, once."""
        delivery, backend = message._delivery, self._backend
        assert backend is not None
        self._check_unsettled(delivery)
        try:
            if how == "ack":
                await backend.ack(delivery)
            elif how == "nack":
                await backend.dead_letter(delivery, reason)
                self._counters.nacked += 1
            else:
                wait_ms = self._options.backoff(message.deliveries) if delay_ms is None else delay_ms
                await backend.release(delivery, wait_ms, is_counted=True)
        finally:
            if delivery.is_settled:
                with self._lock:
                    self._in_progress.discard(delivery)
                self._wake()

    async def extend(self, message: MessageClient, timeout_ms: int | None) -> None:
        """Extend the lease of a message."""
        assert self._backend is not None
        self._check_unsettled(message._delivery)
        await self._backend.extend(message._delivery, timeout_ms or message._delivery.timeout_ms)

    def _check_unsettled(self, delivery: Delivery) -> None:
        if delivery.is_settled:
            raise SettledError(
                f"message {delivery.envelope.id} is settled already",
                remedy="acknowledge, refuse or release a message once; the consumer releases all in close()",
            )

    # -- the rest

    async def _flush(self, timeout: float | None = 30.0) -> None:
        """Wait until the acknowledgements that were made are stored."""
        check_timeout(timeout)
        if self._backend is not None:
            await self._backend.flush(timeout)

    def metrics(self) -> ConsumerCounters:
        """Return what was counted: a copy of now."""
        with self._lock:
            counters = self._counters
            return replace(
                counters, markers_sent=dict(counters.markers_sent), in_progress=len(self._in_progress),
                buffered=len(self._buffer),
            )  # fmt: skip

    def stop(self) -> None:
        """Let `handle`, and iteration, end after the messages that are being processed. From any thread."""
        self._is_stopped = True
        self._wake()

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Give back what is in progress, wait until that is stored, and leave the group.

        Messages that nobody has got do not count as delivered. A second call does nothing.
        """
        check_timeout(timeout)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            in_progress, self._in_progress = self._in_progress, set()
            self._buffer.clear()
        self._wake()
        self._service.forget(self)
        if self._backend is None:
            return
        for delivery in sorted(in_progress, key=lambda one: one.identity):
            if delivery.is_settled:
                continue
            try:
                await self._backend.release(delivery, 0, is_counted=delivery.handed_out_at is not None)
            except LeaseLostError:
                continue
            except KwireError as error:
                _log.warning("queue %s: a message is not given back, and comes after its lease: %s", self.queue, error)
        await self._backend.close(timeout)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"in progress: {len(self._in_progress)}"
        return f"<{type(self).__name__} of queue {self.queue!r}, {state}>"


class Consumer(QueueConsumerClient):
    """Receives the messages of a queue. Safe to use from many threads, which share its messages.

    >>> with queue.consumer() as consumer:         # doctest: +SKIP
    ...     for message in consumer:
    ...         with message:                      # leaves normally: ack; raises: release
    ...             send_mail(message.payload)
    """

    _waiter = BLOCKING
    _message = Message

    def receive(self, timeout: float | None = 1.0) -> Message | None:
        """Return the next message, or None after `timeout` seconds (None: no limit).

        Raises the KwireError that kept a message from being marked as in progress: nothing is lost, call it again.
        """
        message = run_blocking(self._receive_one(timeout))
        assert message is None or isinstance(message, Message)
        return message

    flush = blocking(QueueConsumerClient._flush)
    close = blocking(QueueConsumerClient._close)

    def handle(self, function: Callable[[Message], Any], workers: int = 1) -> None:
        """Call `function(message)` for each message, on so many threads, until `stop`.

        A message whose call returns is acknowledged, unless the function settled it. One whose call raises is given
        back after the back-off, and the exception is logged; after max_deliveries it is a dead letter.
        """
        if not callable(function):
            raise wrong_type("function", function, "a function of a message")
        if not is_int(workers) or workers < 1:
            raise wrong_type("workers", workers, "how many threads, from 1 on")
        self._is_stopped = False
        with ThreadPoolExecutor(workers, thread_name_prefix=f"kwire queue {self.queue}") as pool:
            try:
                wait([pool.submit(self._work, function) for _ in range(workers)])
            finally:
                self.stop()  # also after Ctrl-C: the threads end with the messages that they have

    def _work(self, function: Callable[[Message], Any]) -> None:
        while not self._is_stopped:
            try:
                message = self.receive(_HANDLE_SECONDS)
                if message is None:
                    continue
                with message:
                    function(message)
            except ClosedError:
                return
            except LeaseLostError as error:
                _log.warning("queue %s: %s", self.queue, error)
            except Exception:
                _log.exception("queue %s: a message could not be processed", self.queue)

    def __iter__(self) -> Iterator[Message]:
        while not self._is_stopped:
            message = self.receive(_HANDLE_SECONDS)
            if message is not None:
                yield message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
