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
from contextlib import suppress
from inspect import iscoroutine
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from kwire.arguments import check_timeout, is_int, wrong_type
from kwire.cluster.dropped import weakly
from kwire.cluster.waiting import BLOCKING, BlockingContext, Signal, Waiter, blocking, not_awaited, run_blocking
from kwire.consumer.signals import stop_with_signals
from kwire.errors import ClosedError, KwireError, LeaseLostError, SettledError
from kwire.queue.backend import Backend, Delivery, may_pass
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
# A buffer that is empty within the first time may grow; one that lasts for the second time shrinks.
_QUICK_SECONDS, _SLOW_SECONDS = 0.1, 1.0
_BATCH_FIRST, _BATCH_MIN = 500, 10
# How long `handle` does not fetch ahead after it has found the topic read to its end.
_AHEAD_SECONDS = 0.01
# So many messages are counted at once.
_UNCOUNTED_MAX = 500
# Further counts of deliveries are one in the metrics.
_DELIVERIES_MAX = 10


def _no_backend(delivery: Delivery, now: float) -> None:
    raise AssertionError("a delivery without a backend")


def _add_delivery(counters: ConsumerCounters, count: int, messages: int = 1) -> None:
    name = str(count) if count < _DELIVERIES_MAX else f"{_DELIVERIES_MAX}+"
    counters.deliveries[name] = counters.deliveries.get(name, 0) + messages


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
        self._expired: deque[Delivery] = deque()  # in the buffer: to be made dead letters
        # Threads take from the buffer, and add to what is to be counted, without the lock: one call does each.
        self._in_progress: set[Delivery] = set()
        self._settling: set[Delivery] = set()  # by a call that waits for the brokers
        self._handed_out: deque[Delivery] = deque()
        self._acknowledged: deque[tuple[Delivery, float]] = deque()
        self._runtime = service.runtime
        self._now: Callable[[], float] = lambda: 0.0  # the clock of the backend, once there is one
        self._ack: Callable[[Delivery, float], None] = _no_backend
        self._is_fetching = False
        self._batch = _BATCH_FIRST  # how much the buffer may have: what is handled in a short time
        self._was_full = False  # the last fetch found as much as it might
        self._fetched_at = self._ahead_at = 0.0
        self._looks = 0  # how often a caller found the buffer empty
        self._is_closed = False
        self._is_stopped = False
        self._signals: list[Signal] = []  # of callers that wait for a message, or for room
        self._failure: BaseException | None = None  # what ends `handle`
        stop_with_signals(self)

    def now(self) -> float:
        """Return the time of the leases' clock, in seconds."""
        return self._now()

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
            if self._expired:
                await self._refuse_expired()
            signal = None
            with self._lock:
                self._looks += 1
                room = self._begin_fetch()
                if not room:
                    signal = self._waiter.signal()
                    self._signals.append(signal)
            remaining = max(0.0, deadline - clock.now())
            if signal is not None:
                wait_max = self._service.options.consumer_next_message_timeout_ms / 1000
                await signal.wait(min(remaining, wait_max))
                if len(self._in_progress) + len(self._settling) >= self._service.options.max_in_progress:
                    self._let_go_overdue()
            else:
                await self._fetch(room, remaining)
            message = self._take()
            if message is not None or clock.now() >= deadline or self._is_stopped:
                return message

    async def _receive_many(self, limit: int = 500, timeout: float | None = 1.0) -> list[M]:
        """Return the next messages, at most `limit`, as soon as there is one; none after `timeout` seconds.

        Raises what `receive` raises.
        """
        if not is_int(limit) or limit < 1:
            raise wrong_type("limit", limit, "how many messages, from 1 on")
        message = await self._receive(timeout)
        return [] if message is None else [message, *self._take_many(limit - 1)]

    def _take(self) -> M | None:
        """Return the next message of the buffer. Takes no lock: many threads may do so at once."""
        if self._is_closed:
            raise self._closed()
        buffer, now = self._buffer, self._now()
        while True:
            try:
                delivery = buffer.popleft()
            except IndexError:
                return None
            if delivery.lease.deadline < now:  # it waited too long, since no keep-alive went through
                delivery.is_settled = True
                self._in_progress.discard(delivery)
            elif delivery._envelope is not None and delivery.has_expired(now):
                self._expired.append(delivery)
            elif not delivery.is_settled:  # by `close`
                delivery.handed_out_at = now
                self._handed_out.append(delivery)
                return self._message(self, delivery)

    def _take_many(self, most: int) -> list[M]:
        """Return the next messages of the buffer, at most `most`. Takes no lock, as `_take`."""
        taken: list[Delivery] = []
        with suppress(IndexError):  # another thread took the last one
            for _ in range(min(most, len(self._buffer))):
                taken.append(self._buffer.popleft())
        now = self._now()
        over = {one for one in taken if one.is_settled or one.lease.deadline < now}
        if over:
            taken = [one for one in taken if one not in over]
            for one in over:
                one.is_settled = True
            self._in_progress.difference_update(over)
        expired = {one for one in taken if one._envelope is not None and one.has_expired(now)}
        if expired:
            taken = [one for one in taken if one not in expired]
            self._expired.extend(expired)
        for one in taken:
            one.handed_out_at = now
        self._handed_out.extend(taken)
        return list(map(self._message, repeat(self), taken))

    async def _refuse_expired(self) -> None:
        """Make dead letters of what expired in the buffer. Each is of one caller, as in `_claim`."""
        backend = self._backend
        assert backend is not None
        while True:
            try:
                delivery = self._expired.popleft()
                self._in_progress.remove(delivery)
            except IndexError:
                return
            except KeyError:  # `close` gives it back, or its lease is over
                continue
            try:
                await backend.expire(delivery)
            finally:
                if not delivery.is_settled:  # the task was cancelled
                    self._in_progress.add(delivery)
                    self._expired.append(delivery)
                if self._signals:
                    self._wake()

    def _closed(self) -> ClosedError:
        return ClosedError(f"the consumer of queue {self.queue} is closed")

    def _begin_fetch(self) -> int:
        """Return how many messages the caller is to fetch; 0 if there is no room, or another fetches. With the lock."""
        if self._is_fetching:
            return 0
        options, batch = self._service.options, self._batch
        since = self._now() - self._fetched_at
        if self._was_full and since < _QUICK_SECONDS:
            batch *= 2
        elif since > _SLOW_SECONDS:
            batch = max(_BATCH_MIN, batch // 2)
        batch = min(batch, options.consumer_receive_buffer_capacity)
        in_progress = len(self._in_progress) + len(self._settling)
        room = min(batch - len(self._buffer), options.max_in_progress - in_progress)
        if room <= 0:
            return 0
        self._batch, self._is_fetching = batch, True
        return room

    async def _fetch(self, room: int, remaining: float) -> None:
        """Fetch messages into the buffer, after `_begin_fetch`."""
        fetched: list[Delivery] = []
        try:
            if self._backend is None:
                backend = await self._service.new_backend(self.queue, self._counters)
                self._backend, self._now, self._ack = backend, backend.now, backend.ack
                backend.watch(weakly(self._progress, None), weakly(self._take_back, False))
            seconds = min(remaining, self._service.options.consumer_next_message_timeout_ms / 1000)
            fetched = list(await self._backend.fetch(room, seconds))
        except KwireError as error:
            if self._is_closed:  # `close` aborted the transaction of this call
                raise self._closed() from error
            raise
        finally:
            with self._lock:
                self._is_fetching = False
                self._was_full, self._fetched_at = len(fetched) >= room, self._now()
                self._in_progress.update(fetched)
                self._buffer.extend(fetched)
            if len(self._handed_out) >= _UNCOUNTED_MAX:
                self._count()
            self._wake()

    def _progress(self) -> object:
        """Return something that changes while the program receives and settles messages."""
        received = self._counters.received + len(self._handed_out)
        return self._looks, received, len(self._in_progress) + len(self._settling)

    def _take_back(self, delivery: Delivery) -> bool:
        """Remove a message from the buffer; False if a caller has got it meanwhile. Takes no lock, as `_take`."""
        try:
            self._buffer.remove(delivery)
        except ValueError:
            return False
        self._in_progress.discard(delivery)
        return True

    def _is_low(self) -> bool:
        """Return whether the buffer is half empty, and nobody fetches."""
        return 2 * len(self._buffer) <= self._batch and not self._is_fetching and self._backend is not None

    async def _look_ahead(self) -> None:
        """Fetch messages that are there already, while other workers process those in the buffer.

        Raises no error: it comes again when the buffer is empty, and `receive` raises it.
        """
        if self._expired:
            await self._refuse_expired()
        if self._now() < self._ahead_at:
            return
        with self._lock:
            room = 0 if self._is_closed else self._begin_fetch()
        if room:
            with suppress(KwireError):
                await self._fetch(room, 0.0)
            if not self._was_full:
                self._ahead_at = self._now() + _AHEAD_SECONDS

    def _let_go_overdue(self) -> None:
        """Stop counting messages that were handed out and lost: a hung handler must not stop the queue for good."""
        now = self._now()
        for one in self._in_progress.copy():
            if one.lease.deadline < now or one.is_settled:
                with self._lock:
                    one.is_let_go = one in self._in_progress
                    self._in_progress.discard(one)

    def _wake(self) -> None:
        with self._lock:
            signals, self._signals = self._signals, []
        for signal in signals:
            signal.set()

    # -- settling

    def _claim(self, delivery: Delivery) -> None:
        """Remove a message from those in progress: of several calls that settle it, only one goes on.

        Takes no lock: removing it from the set is atomic.
        """
        try:
            self._in_progress.remove(delivery)
        except KeyError:
            with self._lock:
                is_let_go, delivery.is_let_go = delivery.is_let_go, False
            if not is_let_go:
                raise self._settled(delivery) from None

    async def settle(
        self, message: MessageClient, how: Literal["nack", "release"], *, reason: str = "",
        delay_ms: int | None = 0,
    ) -> None:  # fmt: skip
        """Refuse a message, or give it back, once."""
        self._service.check_usable()
        delivery, backend = message._delivery, self._backend
        assert backend is not None
        with self._lock:
            if delivery in self._settling:
                raise self._settled(delivery)
            self._settling.add(delivery)  # first, so that it counts as in progress at any time
        try:
            self._claim(delivery)
            try:
                if how == "nack":
                    await backend.dead_letter(delivery, reason)
                    self._counters.nacked += 1
                else:
                    await backend.release(delivery, delay_ms, is_counted=True)
            finally:
                if delivery.is_settled:
                    self._observe_end(delivery)
                else:
                    self._in_progress.add(delivery)
        finally:
            self._settling.discard(delivery)
            if self._signals:
                self._wake()

    def acknowledge(self, delivery: Delivery) -> None:
        """Take a message off its queue, once."""
        if self._runtime.is_forked:
            self._service.check_usable()
        try:
            self._in_progress.remove(delivery)  # as in `_claim`, without its call
        except KeyError:
            self._claim(delivery)
        now = self._now()
        try:
            self._ack(delivery, now)
        except BaseException:
            self._observe_end(delivery)
            raise
        finally:
            if self._signals:
                self._wake()
        self._acknowledged.append((delivery, now))
        if len(self._acknowledged) >= _UNCOUNTED_MAX:
            self._count()

    def acknowledge_all(self, messages: Iterable[MessageClient]) -> None:
        """Take these messages off their queue, each once. Raises the error of the first that it could not."""
        self._service.check_usable()
        given = list(messages)
        for message in given:
            if not isinstance(message, MessageClient) or message._consumer is not self:
                raise wrong_type("messages", message, "messages of this consumer")
        failure: KwireError | None = None
        claimed: list[Delivery] = []
        for message in given:
            try:
                self._claim(message._delivery)
            except SettledError as error:
                failure = failure or error
            else:
                claimed.append(message._delivery)
        now = self._now()
        try:
            failed = self._backend.ack_many(claimed, now) if self._backend is not None else {}
        finally:
            if self._signals:
                self._wake()
        for delivery, lost in failed.items():
            failure = failure or lost
            self._observe_end(delivery)
        self._acknowledged.extend((delivery, now) for delivery in claimed if delivery not in failed)
        if len(self._acknowledged) >= _UNCOUNTED_MAX:
            self._count()
        if failure is not None:
            raise failure

    def _observe_end(self, delivery: Delivery) -> None:
        """Count the processing time of a message that was settled without an acknowledgement."""
        with self._lock:
            if delivery.handed_out_at is not None:
                self._counters.processing_time.observe(max(0.0, self._now() - delivery.handed_out_at))

    async def extend(self, message: MessageClient, timeout_ms: int | None) -> None:
        """Extend the lease of a message."""
        assert self._backend is not None
        if message._delivery.is_settled:
            raise self._settled(message._delivery)
        await self._backend.extend(message._delivery, timeout_ms or message._delivery.lease.timeout_ms)

    def _settled(self, delivery: Delivery) -> SettledError:
        return SettledError(
            f"message {delivery.envelope.id} is settled already",
            remedy="acknowledge, refuse or release a message once; the consumer releases all in close()",
        )

    def _count(self) -> None:
        """Count what was handed out, processed and acknowledged meanwhile: many at once cost less."""
        with self._lock:
            counters = self._counters
            handed_out = [self._handed_out.popleft() for _ in range(len(self._handed_out))]
            acknowledged = [self._acknowledged.popleft() for _ in range(len(self._acknowledged))]
            counters.received += len(handed_out)
            counters.wait_time.observe_all(
                [(one.lease.appended_ms - one.record.timestamp_ms) / 1000 for one in handed_out]
            )
            again = [one.envelope.deliveries for one in handed_out if one._envelope is not None]
            for count in again:
                _add_delivery(counters, count + 1)
            if len(handed_out) > len(again):
                _add_delivery(counters, 1, len(handed_out) - len(again))
            counters.processing_time.observe_all(
                [now - one.handed_out_at for one, now in acknowledged if one.handed_out_at is not None]
            )
            counters.acked += len(acknowledged)
            counters.total_time.observe_all(
                [
                    (one.lease.appended_ms - one.record.timestamp_ms) / 1000 + now - one.lease.leased_at
                    for one, now in acknowledged
                ]
            )

    # -- the rest

    async def _ack_many(self, messages: Iterable[M]) -> None:
        """Take these messages off the queue: they are processed. Costs less than `ack` for each.

        Does not wait for the broker, as `ack`. If some cannot be acknowledged, the others are; then raises the
        LeaseLostError or SettledError of the first.
        """
        self.acknowledge_all(messages)

    async def _flush(self, timeout: float | None = 30.0) -> None:
        """Wait until the acknowledgements that were made are stored.

        Raises RequestTimeoutError after `timeout` seconds (None: no limit); with share groups also the error of
        acknowledgements that failed since the last call. Those messages may be delivered again.
        """
        check_timeout(timeout)
        if self._backend is not None:
            await self._backend.flush(timeout)

    def metrics(self) -> ConsumerCounters:
        """Return what was counted: a copy of now."""
        self._count()
        with self._lock:
            counters = self._counters.copy()
        in_progress = self._in_progress | self._settling
        counters.in_progress, counters.buffered = len(in_progress), len(self._buffer)
        handed_out = [one.handed_out_at for one in in_progress if one.handed_out_at is not None]
        counters.oldest_in_progress_seconds = self._now() - min(handed_out) if handed_out else 0.0
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

    def _fail(self, error: BaseException) -> None:
        """Stop the workers of `handle`, which raises this error, or the first."""
        if self._failure is None:
            self._failure = error
        self.stop()

    async def _work(self, function: _Handler, has_others: bool) -> None:
        """Call the function for one message after the other, until `stop`."""
        while not self._is_stopped:
            if has_others and self._is_low():
                await self._look_ahead()
            message = await self._next()
            if message is not None:
                await self._call(function, message)

    async def _next(self) -> M | None:
        """Return the next message for `handle`; None after a while. Stops `handle` if none can come."""
        try:
            return await self._receive(LOOK_SECONDS)
        except ClosedError:
            self._is_stopped = True
        except KwireError as error:
            if not may_pass(error):
                self._fail(error)
                return None
            _log.warning("queue %s: %s", self.queue, error)
            await self._waiter.signal().wait(_PAUSE_SECONDS)
        return None

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

    async def _give_back(self, backend: Backend, in_progress: set[Delivery]) -> None:
        for delivery in sorted(in_progress, key=lambda one: one.identity):
            try:
                in_progress.remove(delivery)  # no call settles it any more
            except KeyError:
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

    receive_many = blocking(QueueConsumerClient[Message]._receive_many)
    ack_many = blocking(QueueConsumerClient[Message]._ack_many)
    flush = blocking(QueueConsumerClient[Message]._flush)
    close = blocking(QueueConsumerClient[Message]._close)

    def receive(self, timeout: float | None = 1.0) -> Message | None:
        """Return the next message, or None after `timeout` seconds (None: no limit).

        Raises the KwireError that kept a message from being marked as in progress: nothing is lost, call it again.
        """
        if self._buffer and not self._runtime.is_forked:
            message = self._take()
            if message is not None:
                return message
        return run_blocking(self._receive(timeout))

    def handle(self, function: Callable[[Message], Any], workers: int = 1, *, timeout: float | None = 30.0) -> None:
        """Call `function(message)` for each message, on so many threads, until `stop`.

        A message whose call returns is acknowledged, unless the function settled it. One whose call raises is given
        back after the back-off, and the exception is logged; after max_deliveries it is a dead letter.

        After `stop`, Ctrl-C, or a signal within `with kwire.stop_on_signals():`, no further message is handled, and
        the calls that run have `timeout` seconds (None: no limit) to end. Raises the error that ended the reading, and
        a SystemExit, KeyboardInterrupt or the like of the function.
        """
        self._begin_handling(function, workers, timeout)
        # Daemons: a call that hangs must not keep the process from ending.
        threads = [
            threading.Thread(
                target=self._run,
                args=(function, workers > 1),
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

    def _run(self, function: _Handler, has_others: bool) -> None:
        """Do what a thread of `handle` does, and keep what ends it, SystemExit too: nobody else would see it."""
        try:
            self._handle(function, has_others)
        except BaseException as error:
            self._fail(error)

    def _handle(self, function: _Handler, has_others: bool) -> None:
        """Call the function for one message after the other, until `stop`."""
        while not self._is_stopped:
            if has_others and self._is_low():
                run_blocking(self._look_ahead())
            try:
                message = self._take()
            except ClosedError:
                return
            if message is None:
                message = run_blocking(self._next())
            if message is not None:
                self._call_now(function, message)

    def _call_now(self, function: _Handler, message: Message) -> None:
        """Do what `_call` does, without a coroutine."""
        try:
            with message:
                if iscoroutine(result := function(message)):
                    result.close()
                    raise not_awaited(function)
        except (ClosedError, LeaseLostError) as error:
            _log.warning("queue %s: %s", self.queue, error)
        except Exception:
            _log.exception("queue %s: a message could not be processed", self.queue)

    def __iter__(self) -> Iterator[Message]:
        while not self._is_stopped:
            message = self.receive(LOOK_SECONDS)
            if message is not None:
                yield message


__all__ = ["LOOK_SECONDS", "Consumer", "QueueConsumerClient"]
