"""The backend of `kwire.queue` on share groups: the brokers lock messages, and know what is in progress.

ack is ACCEPT, nack a dead letter and then REJECT, release is RELEASE, extend is RENEW. A message is leased as long as
its lock lasts; the share consumer renews the locks of what it has, with keep_alive, for max_processing_ms.
Acknowledgements go out together: one call of the callback thread sends what has come in meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from kwire.consumer import TopicPartition
from kwire.errors import ClosedError, ConfigurationError, KwireError, LeaseLostError, LockLostError, RequestTimeoutError
from kwire.producer import Message as ProducedMessage
from kwire.queue.backend import Backend, Delivery, Lease, QueuePlace, record_envelope
from kwire.queue.envelope import dead_letter_headers
from kwire.queue.markers import NO_TOPIC_ID, Headers
from kwire.queue.metrics import ConsumerCounters
from kwire.queue.options import QueueOptions
from kwire.share import ShareRecord
from kwire.share.acknowledgements import AcknowledgeType

if TYPE_CHECKING:
    from kwire.queue.service import ServiceClient

_log = logging.getLogger("kwire.queue")


class ShareLease(Lease):
    """The lock of one message, which the broker has and renewals extend."""

    __slots__ = ("_record",)

    def __init__(self, record: ShareRecord, timeout_ms: int, leased_at: float, appended_ms: int) -> None:
        self._record = record
        self.topic_id = NO_TOPIC_ID
        self.timeout_ms = timeout_ms
        self.leased_at = leased_at
        self.marker_partition = -1
        self.appended_ms = appended_ms

    @property
    def deadline(self) -> float:  # type: ignore[override]
        """Return when the lock ends; in the past once the broker has taken it away."""
        return -inf if self._record.is_lost else self._record.lock_deadline


class ShareDelivery(Delivery):
    """A message under a lock of the broker."""

    __slots__ = ()

    record: ShareRecord

    @property
    def headers(self) -> Headers:
        return self.envelope.headers()


class ShareBackend(Backend):
    def __init__(
        self, service: ServiceClient[Any, Any], queue: str, place: QueuePlace, counters: ConsumerCounters
    ) -> None:
        self._options: QueueOptions = service.options
        self._service = service
        self._queue = queue.encode()
        self._place = place
        self._counters = counters
        self._group = self._options.share_group(queue)
        self._records = service.new_share_consumer(
            group=self._group,
            acquire_mode="record_limit",  # what others could process is not locked here
            renew=self._options.keep_alive,
            max_processing_ms=self._options.max_processing_ms,
            max_poll_interval_ms=None,
        )
        self.now = self._records._runtime.clock.now
        self._records._is_processed_in_parallel = True  # polls do not ask what became of the last records
        self._is_subscribed = False
        self._is_sending = False
        self._lock = threading.Lock()
        self._unconfirmed: set[tuple[int, int]] = set()  # (partition, offset) of what was settled
        self._failure: KwireError | None = None  # the first of acknowledgements since the last flush

    def watch(self, progress: Callable[[], object], take_back: Callable[[Delivery], bool]) -> None:
        """Do nothing: no member of a share group holds partitions, and locks end by max_processing_ms."""

    # -- taking messages

    async def fetch(self, limit: int, timeout: float) -> Sequence[Delivery]:
        if not self._is_subscribed:
            await self._records._subscribe([self._place.topic], on_acknowledged=self._acknowledged)
            self._is_subscribed = True
        now_ms = self._service.clock.time_ms()
        held: list[Delivery] = []
        for record in await self._records._poll(limit, timeout):
            one = self._delivery(record, now_ms)
            reason = self._reason(one)
            if reason is None:
                held.append(one)
            else:
                await self._refuse(one, reason)
        return held

    def _delivery(self, record: ShareRecord, now_ms: int) -> Delivery:
        envelope = record_envelope(record)
        envelope.deliveries = record.delivery_count - 1
        lease = ShareLease(record, self._options.redelivery_timeout_ms, self.now(), now_ms)
        return ShareDelivery(record, lease, envelope)

    def _reason(self, delivery: Delivery) -> str | None:
        """Return why a message is not handed out; None if it is."""
        envelope, limit = delivery.envelope, self._options.max_deliveries
        if limit is not None and envelope.deliveries >= limit:
            return f"delivered {envelope.deliveries} times"
        if envelope.expires_in:
            remaining_ms = envelope.first_at + envelope.expires_in - self._service.clock.time_ms()
            if remaining_ms <= 0:
                self._counters.expired += 1
                return "expired"
            envelope.expires_at = self.now() + remaining_ms / 1000
        return None

    async def expire(self, delivery: Delivery) -> None:
        await self._refuse(delivery, "expired")
        self._counters.expired += 1

    async def _refuse(self, delivery: Delivery, reason: str) -> None:
        """Make a message a dead letter instead of handing it out; where that fails, some consumer gets it again."""
        try:
            await self.dead_letter(delivery, reason)
        except KwireError as error:
            _log.warning("queue %s: a message (%s) is no dead letter yet: %s", self._group, reason, error)
            with suppress(KwireError):
                self._settle(delivery, AcknowledgeType.RELEASE)

    # -- settling

    def _settle(self, delivery: Delivery, type: AcknowledgeType) -> None:
        """Choose what becomes of a message. Raises LeaseLostError if the lock has ended."""
        assert isinstance(delivery, ShareDelivery)
        record = delivery.record
        place = record.partition, record.offset
        delivery.is_settled = True
        with self._lock:
            self._unconfirmed.add(place)
        try:
            record._acquired.acknowledge(record.offset, type)
        except LockLostError as error:
            with self._lock:
                self._unconfirmed.discard(place)
            self._counters.lease_lost += 1
            raise self._lost(delivery) from error
        self._send_soon()

    def _lost(self, delivery: Delivery) -> LeaseLostError:
        return LeaseLostError(
            f"the lease of message {delivery.envelope.id} is over: it is delivered again",
            remedy="process it in less time than redelivery_timeout_ms, extend it, or raise max_processing_ms",
            topic=self._place.topic, partition=delivery.identity.partition, offset=delivery.identity.offset,
        )  # fmt: skip

    def _send_soon(self) -> None:
        with self._lock:
            if self._is_sending:
                return
            self._is_sending = True
        self._records._runtime.dispatch(self._send)

    def _send(self) -> None:
        """Send the acknowledgements made so far; on the callback thread."""
        with self._lock:
            self._is_sending = False
        with suppress(ClosedError):  # close sends them
            self._records.commit_async()

    def _acknowledged(self, offsets: Mapping[TopicPartition, Sequence[int]], error: KwireError | None) -> None:
        """Take the result of acknowledgements, and of renewals."""
        for (_, partition), each in offsets.items():
            with self._lock:
                settled = self._unconfirmed.intersection((partition, offset) for offset in each)
                self._unconfirmed -= settled
            if error is not None and settled:
                self._failure = self._failure or error
                self._counters.lease_lost += len(settled)
                _log.warning(
                    "queue %s: %d messages are delivered again, since their lease was over: %s",
                    self._group, len(settled), error,
                )  # fmt: skip

    def ack(self, delivery: Delivery, now: float) -> None:
        self._settle(delivery, AcknowledgeType.ACCEPT)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        assert isinstance(delivery, ShareDelivery)
        if delivery.record.is_lost:
            delivery.is_settled = True
            self._counters.lease_lost += 1
            raise self._lost(delivery)
        if not self._options.dead_letters:
            self._settle(delivery, AcknowledgeType.REJECT)
            return
        place = (self._place.topic, delivery.identity.partition, delivery.identity.offset)
        headers = dead_letter_headers(delivery.headers, reason, place, delivery.deliveries_made)
        dead = ProducedMessage(self._options.dead_letters, delivery.payload, self._queue, headers)
        (response,) = await self._service.deliver([dead])
        await self._service.stored(response)
        # Not REJECT: the brokers would write a second dead letter, without headers, where they have a topic for it.
        self._settle(delivery, AcknowledgeType.ACCEPT)
        self._counters.dead_lettered += 1

    async def release(self, delivery: Delivery, delay_ms: int | None, *, is_counted: bool) -> None:
        if delay_ms:  # share groups have no back-off, either
            raise ConfigurationError(
                f"a share group cannot put a message off for {delay_ms} ms",
                remedy='release it without a delay, or use a service with backend="tracker"',
            )
        limit = self._options.max_deliveries
        if is_counted and limit is not None and delivery.envelope.deliveries + 1 >= limit:
            await self.dead_letter(delivery, f"delivered {limit} times")
            return
        self._settle(delivery, AcknowledgeType.RELEASE)
        self._counters.released += 1

    async def extend(self, delivery: Delivery, timeout_ms: int) -> None:
        assert isinstance(delivery, ShareDelivery)
        if timeout_ms > self._options.redelivery_timeout_ms:
            raise ConfigurationError(
                f"a lock lasts redelivery_timeout_ms ({self._options.redelivery_timeout_ms}), not {timeout_ms} ms",
                remedy="extend the message several times, or leave keep_alive on, which does",
            )
        record = delivery.record
        try:
            record.renew()
        except LockLostError as error:
            raise self._lost(delivery) from error
        results = await self._records._commit()
        failure = results.get((record.topic, record.partition))
        if failure is not None:
            raise self._lost(delivery) from failure
        self._counters.extended += 1

    # -- the end

    async def flush(self, timeout: float | None) -> None:
        if not self._is_subscribed:
            return
        deadline = inf if timeout is None else self.now() + timeout
        buffer = self._records._buffer
        while True:
            wakeups = buffer.wakeups
            await self._records._commit(None if timeout is None else max(0.0, deadline - self.now()))
            remaining = deadline - self.now()
            if not self._unconfirmed or remaining <= 0:
                break
            await buffer.wait(self._service.waiter.signal(), wakeups, min(1.0, remaining))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._unconfirmed:
            raise RequestTimeoutError(
                f"{len(self._unconfirmed)} acknowledgements have no result after {timeout} s",
                remedy="wait longer; messages whose acknowledgement fails are delivered again", topic=self._place.topic,
            )  # fmt: skip

    async def close(self, timeout: float | None) -> None:
        await self._records._close(timeout)


__all__ = ["ShareBackend"]
