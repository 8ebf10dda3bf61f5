"""The consumer of a queue, for both faces and over any backend: the buffer, what is in progress, the end.

`receive` hands out what the buffer has. When it is empty one caller fetches, and the others wait for it. What was
fetched and is not settled counts against max_in_progress, whether it was handed out or not: beyond that nothing is
fetched, while the member of the group stays alive.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from kwire.arguments import check_timeout, is_int, wrong_type
from kwire.cluster.waiting import BLOCKING, BlockingContext, Signal, Waiter, blocking, run_blocking
from kwire.consumer.signals import consumers
from kwire.errors import ClosedError, KwireError, LeaseLostError, SettledError
from kwire.queue.backend import Backend, Delivery
from kwire.queue.message import Message, MessageClient
from kwire.queue.metrics import ConsumerCounters

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

M = TypeVar("M", bound=MessageClient)
_Handler = Callable[[Any], Any]

_log = logging.getLogger("kwire.queue")

# How often `handle` and iterations look whether they were stopped.
LOOK_SECONDS = 0.5
# How long `handle` waits after an error that passes.
_PAUSE_SECONDS = 0.5
# Further counts of deliveries are one in the metrics.
_DELIVERIES_MAX = 10


class QueueConsumerClient(Generic[M]):
    """What both faces of the consumer share. No broker is contacted before the first `receive`."""

    _waiter: ClassVar[Waiter]
    _message: type[M]

    def __init__(self, service: ServiceClient[Any, Any], queue: str) -> None:
        self.queue = queue
        self._service = service
        self._counters = ConsumerCounters()
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._buffer: deque[Delivery] = deque()
        self._in_progress: set[Delivery] = set()
        self._is_fetching = False
        self._is_closed = False
        self._is_stopped = False
        self._signals: list[Signal] = []  # of callers that wait for a message, or for room
        self._failure: KwireError | None = None  # what ends `handle`
        consumers.add(self)

    def now(self) -> float:
        """Return the time of the leases' clock, in seconds."""
        return 0.0 if self._backend is None else self._backend.now()

    # -- receiving

    async def _receive(self, timeout: float | None = 1.0) -> M | None:
        """Return the next message, or None after `timeout` seconds (None: no limit).

        Raises the KwireError that kept a message from being marked as in progress: nothing is lost, call it again.
        """
        check_timeout(timeout)
        self._service.check_usable()
        message = self._take()
        if message is not None:
            return message
        clock = self._service.clock
        deadline = inf if timeout is None else clock.now() + max(0.0, timeout)
        while True:
            options = self._service.options
            signal = None
            with self._lock:
                room = min(options.consumer_receive_buffer_capacity, options.max_in_progress - len(self._in_progress))
                if self._is_fetching or room <= 0:
                    signal = self._waiter.signal()
                    self._signals.append(signal)
                else:
                    self._is_fetching = True
            remaining = max(0.0, deadline - clock.now())
            if signal is not None:
                wait_max = options.consumer_next_message_timeout_ms / 1000
                await signal.wait(min(remaining, wait_max))
                self._let_go_overdue()
            else:
                await self._fetch(room, remaining)
            message = self._take()
            if message is not None or clock.now() >= deadline or self._is_stopped:
                return message

    def _take(self) -> M | None:
        """Return the next message of the buffer."""
        with self._lock:
            self._check_open()
            while self._buffer:
                delivery, now = self._buffer.popleft(), self.now()
                if delivery.lasts_until >= now:
                    self._hand_out(delivery, now)
                    return self._message(self, delivery)
                delivery.is_settled = True  # it waited too long, since no keep-alive went through
                self._in_progress.discard(delivery)
        return None

    def _hand_out(self, delivery: Delivery, now: float) -> None:
        delivery.handed_out_at = now
        counters = self._counters
        counters.received += 1
        counters.wait_time.observe(delivery.waited_ms / 1000)
        count = delivery.envelope.deliveries + 1
        name = str(count) if count < _DELIVERIES_MAX else f"{_DELIVERIES_MAX}+"
        counters.deliveries[name] = counters.deliveries.get(name, 0) + 1

    async def _fetch(self, room: int, remaining: float) -> None:
        fetched: list[Delivery] = []
        try:
            if self._backend is None:
                self._backend = await self._service.new_backend(self.queue, self._counters)
            seconds = min(remaining, self._service.options.consumer_next_message_timeout_ms / 1000)
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
            self._in_progress = {one for one in self._in_progress if one.lasts_until >= now and not one.is_settled}

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
        self, message: MessageClient, how: Literal["nack", "release"], *, reason: str = "",
        delay_ms: int | None = 0,
    ) -> None:  # fmt: skip
        """Refuse a message, or give it back, once."""
        self._service.check_usable()
        delivery, backend = message._delivery, self._backend
        assert backend is not None
        self._check_unsettled(delivery)
        try:
            if how == "nack":
                await backend.dead_letter(delivery, reason)
                self._counters.nacked += 1
            else:
                if delay_ms is None:
                    delay_ms = self._service.options.backoff(message.deliveries) if backend.has_delay else 0
                await backend.release(delivery, delay_ms, is_counted=True)
        finally:
            self._let_go(delivery)

    def acknowledge(self, delivery: Delivery) -> None:
        """Take a message off its queue, once."""
        self._service.check_usable()
        assert self._backend is not None
        self._check_unsettled(delivery)
        try:
            self._backend.ack(delivery)
            self._counters.total_time.observe(delivery.waited_ms / 1000 + max(0.0, self.now() - delivery.leased_at))
        finally:
            self._let_go(delivery)

    def _let_go(self, delivery: Delivery) -> None:
        """Count a message that is settled no more as in progress."""
        if not delivery.is_settled:
            return
        with self._lock:
            self._in_progress.discard(delivery)
            if delivery.handed_out_at is not None:
                self._counters.processing_time.observe(max(0.0, self.now() - delivery.handed_out_at))
        if self._signals:
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
            counters = self._counters.copy()
            counters.in_progress, counters.buffered = len(self._in_progress), len(self._buffer)
            handed_out = [one.handed_out_at for one in self._in_progress if one.handed_out_at is not None]
            counters.oldest_in_progress_seconds = self.now() - min(handed_out) if handed_out else 0.0
            return counters

    def stop(self, is_stopping: bool = True) -> None:
        """Let `handle` and iteration end after the messages that are being processed, and `receive` return at once.

        From any thread or signal handler. False ends that; the end of `handle` does, too.
        """
        self._is_stopped = is_stopping  # no lock here: the thread that a signal interrupts may have it

    # -- handling

    def _begin_handling(self, function: _Handler, workers: int, timeout: float | None) -> None:
        """Check the arguments of `handle`."""
        if not callable(function):
            raise wrong_type("function", function, "a function of a message")
        if not is_int(workers) or workers < 1:
            raise wrong_type("workers", workers, "how many threads or tasks, from 1 on")
        check_timeout(timeout)
        self._failure = None

    def _end_handling(self, busy: int, timeout: float | None) -> None:
        """Report the functions that are still running, and raise what ended the workers."""
        if busy:
            _log.warning(
                "queue %s: %d functions still run after %s s; their messages are in progress until close()",
                self.queue, busy, timeout,
            )  # fmt: skip
        else:
            self.stop(False)
        if self._failure is not None:
            raise self._failure

    async def _work(self, function: _Handler) -> None:
        """Call the function for one message after the other, until `stop`."""
        while not self._is_stopped:
            try:
                message = await self._receive(LOOK_SECONDS)
            except ClosedError:
                return
            except KwireError as error:
                if not error.is_retriable:
                    self._failure = error
                    self.stop()
                    return
                _log.warning("queue %s: %s", self.queue, error)
                await self._waiter.signal().wait(_PAUSE_SECONDS)
                continue
            if message is not None:
                await self._call(function, message)

    async def _call(self, function: _Handler, message: M) -> None:
        try:
            try:
                await self._waiter.call(function, message)
            except BaseException as error:
                await message._leave(error)
                raise
            await message._leave(None)
        except (ClosedError, LeaseLostError) as error:
            _log.warning("queue %s: %s", self.queue, error)
        except Exception:
            _log.exception("queue %s: a message could not be processed", self.queue)

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Give back what is in progress, wait until that is stored, and leave the group.

        Messages that nobody has got do not count as delivered. A second call does nothing.
        """
        check_timeout(timeout)
        if self._service.is_forked:  # a thread of the parent may hold the lock
            self._is_closed = True
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            in_progress, self._in_progress = self._in_progress, set()
            self._buffer.clear()
        self._wake()
        try:
            if self._backend is not None:
                await self._give_back(self._backend, in_progress)
                await self._backend.close(timeout)
        finally:
            self._service.forget(self)

    async def _give_back(self, backend: Backend, in_progress: Iterable[Delivery]) -> None:
        for delivery in sorted(in_progress, key=lambda one: one.identity):
            if delivery.is_settled:
                continue
            try:
                await backend.release(delivery, 0, is_counted=delivery.handed_out_at is not None)
            except LeaseLostError:
                continue
            except KwireError as error:
                _log.warning("queue %s: a message is not given back, and comes after its lease: %s", self.queue, error)

    async def _leave(self, error: BaseException | None) -> None:
        await self._close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"in progress: {len(self._in_progress)}"
        return f"<{type(self).__name__} of queue {self.queue!r}, {state}>"


class Consumer(QueueConsumerClient[Message], BlockingContext):
    """Receives the messages of a queue. Safe to use from many threads, which share its messages.

    >>> with queue.consumer() as consumer:         # doctest: +SKIP
    ...     for message in consumer:
    ...         with message:                      # leaves normally: ack; raises: release
    ...             send_mail(message.payload)
    """

    _waiter = BLOCKING
    _message = Message

    receive = blocking(QueueConsumerClient[Message]._receive)
    flush = blocking(QueueConsumerClient[Message]._flush)
    close = blocking(QueueConsumerClient[Message]._close)

    def handle(self, function: Callable[[Message], Any], workers: int = 1, *, timeout: float | None = 30.0) -> None:
        """Call `function(message)` for each message, on so many threads, until `stop`.

        A message whose call returns is acknowledged, unless the function settled it. One whose call raises is given
        back after the back-off, and the exception is logged; after max_deliveries it is a dead letter.

        After `stop`, Ctrl-C, or a signal within `with kwire.stop_on_signals():`, no further message is handled, and
        the calls that run have `timeout` seconds (None: no limit) to end. Raises the error that ended the reading.
        """
        self._begin_handling(function, workers, timeout)
        # Daemons: a call that hangs must not keep the process from ending.
        threads = [
            threading.Thread(
                target=lambda: run_blocking(self._work(function)),
                name=f"kwire queue {self.queue} {number}",
                daemon=True,
            )
            for number in range(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._is_stopped and (running := [thread for thread in threads if thread.is_alive()]):
                running[0].join(LOOK_SECONDS)
        finally:
            self.stop()
            clock = self._service.clock
            deadline = inf if timeout is None else clock.now() + timeout
            for thread in threads:
                while thread.is_alive() and clock.now() < deadline:
                    thread.join(min(LOOK_SECONDS, deadline - clock.now()))
        self._end_handling(sum(thread.is_alive() for thread in threads), timeout)

    def __iter__(self) -> Iterator[Message]:
        while not self._is_stopped:
            message = self.receive(LOOK_SECONDS)
            if message is not None:
                yield message


__all__ = ["LOOK_SECONDS", "Consumer", "QueueConsumerClient"]
