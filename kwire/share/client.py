"""What `kwire.ShareConsumer` and `kwire.aio.ShareConsumer` share: all but the way in which they wait.

Public methods here never wait. Those that wait are coroutines with a leading underscore, over the `Waiter` of the face
(`kwire.cluster.waiting`), and each face gives them their public names.

The `ShareFetcher` and the `ShareMembership` run on the loop thread and post `AcquiredRecords` into the `ShareBuffer`.
Records are decoded here, on the caller's thread. One lock guards what is here; the loop thread never takes it, and no
thread holds it while it waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar

from kwire.arguments import check_timeout, no_attribute, wrong_type
from kwire.cluster import (
    Backoff,
    ClientConfig,
    Cluster,
    ClusterMetrics,
    is_topic_name,
    open_loop_thread,
)
from kwire.cluster.dropped import Remains, weakly
from kwire.cluster.telemetry import ClientTelemetry, Reading, TelemetryMethods
from kwire.cluster.waiting import BLOCKING, Waiter, run_blocking
from kwire.consumer.arguments import TopicPartition, check_count, checked_partition
from kwire.consumer.dropped import EXIT_SECONDS
from kwire.consumer.signals import stop_with_signals
from kwire.errors import (
    AcknowledgeError,
    ClosedError,
    ConfigurationError,
    KwireError,
    LockLostError,
    RequestTimeoutError,
    WakeupError,
    timeout_error,
)
from kwire.option_checks import check_names
from kwire.share.acknowledgements import Acknowledgements, AcknowledgeType, OnDone, PendingAcknowledgements
from kwire.share.acquired import AcquiredRecords, collect_all
from kwire.share.buffer import AcknowledgeResult, ShareBuffer
from kwire.share.dropped import CLOSE_FRACTION, leave_group, say_farewell
from kwire.share.explain import ShareExplanation, explain
from kwire.share.fetcher import ShareFetcher
from kwire.share.membership import MemberState, PollTimer, ShareMembership
from kwire.share.metrics import ShareConsumerMetrics, readings
from kwire.share.options import CLIENT_DEFAULTS, ShareConsumerOptions
from kwire.share.record import ShareRecord

if TYPE_CHECKING:
    from kwire.cluster import ClusterEvent
    from kwire.cluster.thread import LoopThread

# The longest wait in seconds without a check: a missed wake-up would cause a delay, not a hang.
_WAIT_MAX = 1.0
# The next records are fetched while the caller works on the last ones, if polls come within this part of a lock: little
# of the new locks is lost then, and nobody else could have processed the records much sooner.
_AHEAD_FRACTION = 1 / 20

OnAcknowledged = Callable[[Mapping[TopicPartition, Sequence[int]], KwireError | None], object]
AcknowledgeAs = Literal["accept", "release", "reject", "renew"]

_NO_POSITIONS = "a share group has no assignment by hand and no positions: the broker decides who gets which record"
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("assign", "seek", "position", "committed", "pause", "resume"), _NO_POSITIONS),
    "commit_sync": "it is commit() here",
    "set_acknowledgement_commit_callback": "it is subscribe(topics, on_acknowledged=...) here",
    "acquisition_lock_timeout_ms": "it is acquisition_lock_ms here",
}


T = TypeVar("T")


class ShareConsumerClient(TelemetryMethods):
    """The methods of both faces. `_waiter` is how the face waits, `_name` the face in errors."""

    _waiter: Waiter
    _name: ClassVar[str]
    _is_stopping = False  # iterations end, and polls return at once

    def _set_up(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> None:
        check_names(self._name, bootstrap, options, ShareConsumerOptions, ClientConfig)
        shared: dict[str, Any] = {**CLIENT_DEFAULTS, **options}
        own = {name: shared.pop(name) for name in list(shared) if name in ShareConsumerOptions.option_names()}
        self._options = ShareConsumerOptions(**own)
        self._runtime = self._open_loop(bootstrap, shared)
        self._config = config = self._runtime.config
        self._buffer = ShareBuffer()
        self._poll_timer = PollTimer()
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        self._fetcher = ShareFetcher(
            self._options,
            self._buffer,
            backoff=backoff,
            random=self._new_random(),
            clock_now=self._runtime.clock.now,
            request_timeout_ms=config.request_timeout_ms,
            on_result=weakly(self._post_result, None),
        )
        self._membership = ShareMembership(
            self._options.group_id,
            rack=self._options.rack,
            max_poll_interval_ms=self._options.max_poll_interval_ms,
            poll_timer=self._poll_timer,
            backoff=backoff,
            random=self._new_random(),
            assign=self._fetcher.assign,
            lose=self._fetcher.lose,
            post_error=self._buffer.post,
        )
        self._fetcher.member_id = self._membership.member_id
        self._client_telemetry = ClientTelemetry(self, self._runtime, is_on=self._options.telemetry)
        self._lock = threading.RLock()
        self._topics: tuple[str, ...] = ()
        self._on_acknowledged: OnAcknowledged | None = None
        self._unread: deque[AcquiredRecords] = deque()
        self._iterated: deque[ShareRecord] = deque()  # read by the iteration, not yet handed out
        self._held: list[AcquiredRecords] = []  # with anything unread, in hand or to be sent
        self._results: deque[AcknowledgeResult] = deque()  # for the callback
        self._errors: deque[KwireError] = deque()  # to raise, each once
        self._counts = dict.fromkeys(("polled_records", "expired_records", "failed_acknowledgements"), 0)
        self._sent = dict.fromkeys(AcknowledgeType, 0)
        self._returned_at = 0.0  # when the last poll returned records
        self._is_started = False
        self._is_processed_in_parallel = False  # records of earlier polls may be in work
        self._is_closed = False
        self._is_woken = False
        self._remains = Remains(self, self._name, self._runtime, "and releases what was not acknowledged")
        self._runtime.deliver_before_end(weakly(self._close_with_cluster, None))
        stop_with_signals(self)

    def _open_loop(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> LoopThread:
        return open_loop_thread(self._name, bootstrap, options, "share consumer")

    def _new_random(self) -> Random:
        """Return a source of jitter and ids; a simulation has its own."""
        return Random()

    def __repr__(self) -> str:
        config, state = self._config, ", closed" if self._is_closed else f", {self._membership.state.value}"
        return (
            f"<{self._name} {config.client_id!r} of {','.join(config.bootstrap)}, group {self._options.group}{state}>"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, _ELSEWHERE)

    # -- subscription

    async def _subscribe(self, topics: Iterable[str], *, on_acknowledged: OnAcknowledged | None = None) -> None:
        """Read these topics with the other members of the group, instead of those named before.

        `on_acknowledged(offsets, error)` is called in `poll`, `commit` and `close` for each result of acknowledgements:
        offsets by (topic, partition), and None or why they did not count. Raises ConfigurationError.
        """
        names = _checked_topics(topics)
        with self._lock:
            self._check_usable()
            self._topics = names
            self._on_acknowledged = on_acknowledged
            self._poll_timer.last_poll = self._runtime.clock.now()
            if not self._is_started:
                self._is_started = True
                self._remains.joined(
                    self, partial(say_farewell, self._runtime, self._fetcher, self._membership, self._held)
                )
                self._runtime.add(self._membership)
                self._runtime.add(self._fetcher, "fetch")
                self._client_telemetry.start()
            self._runtime.call_soon(self._membership.subscribe, names)

    async def _unsubscribe(self) -> None:
        """Leave the group. Records in hand may still be acknowledged; records not yet polled are released."""
        with self._lock:
            self._check_usable()
            self._topics = ()
            self._receive()
            for acquired in self._unread:
                acquired.release_unread()
            self._unread.clear()
            for record in self._iterated:
                record._acquired.hand_out((record,))
                record._acquired.settle(record.offset, AcknowledgeType.RELEASE)
            self._iterated.clear()
            self._send_acknowledgements()
            if self._is_started:
                self._runtime.call_soon(self._membership.unsubscribe)

    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        return list(self._topics)

    @property
    def member_id(self) -> str:
        """Return the id by which the group knows this consumer."""
        return self._membership.member_id

    @property
    def acquisition_lock_ms(self) -> int | None:
        """Return how long a lock lasts, as the broker says; None before the first records."""
        return self._fetcher.lock_ms

    # -- reading

    async def _poll(self, max_records: int | None = None, timeout: float | None = 1.0) -> list[ShareRecord]:
        """Acquire and return records, at most `max_records` (None: max_poll_records).

        Returns as soon as there are records, or an empty list after `timeout` seconds (None: no limit). In the explicit
        mode every record of the last poll must have been acknowledged, or its lock have ended, else AcknowledgeError;
        in the implicit mode this accepts them. Acknowledgements are sent. Raises typed errors of the group, of a broker
        or of a partition once; WakeupError after `wakeup`.
        """
        count = self._options.max_poll_records if max_records is None else max_records
        check_count(count)
        check_timeout(timeout)
        clock = self._runtime.clock
        deadline = float("inf") if timeout is None else clock.now() + timeout
        records = await self._fill(count, deadline)
        with self._lock:
            self._hand_out(records)
        return records

    async def _fill(self, count: int, deadline: float) -> list[ShareRecord]:
        """Return the next records, not handed out yet, or an empty list at `deadline`."""
        clock = self._runtime.clock
        demanded = -1  # `ShareBuffer.taken` at the last demand
        is_prompt = clock.now() < self._returned_at + _AHEAD_FRACTION * (self.acquisition_lock_ms or 0) / 1000
        with self._lock:
            self._begin_poll()
        try:
            while True:
                wakeups = self._buffer.wakeups
                with self._lock:
                    self._check_usable()
                    self._receive()
                if self._results:
                    await self._call_back()
                with self._lock:
                    self._check_woken()
                    records = self._next_records(count)
                    if records:
                        if is_prompt and not self._unread and not self._is_limited:
                            self._runtime.call_soon(self._fetcher.fetch, count, 0.0, self._buffer.taken)
                        return records
                    self._raise_error()
                    wait = min(_WAIT_MAX, deadline - clock.now())
                    if wait <= 0 or self._is_stopping:
                        return records
                    if demanded != self._buffer.taken:
                        demanded = self._buffer.taken
                        self._runtime.call_soon(self._fetcher.fetch, count, deadline, demanded)
                await self._buffer.wait(self._waiter.signal(), wakeups, wait)
        finally:
            self._returned_at = self._poll_timer.last_poll = clock.now()
            self._poll_timer.is_polling = False

    @property
    def _is_limited(self) -> bool:
        return self._options.acquire_mode == "record_limit"

    def _begin_poll(self) -> None:
        """Check and send what the caller did with the last records."""
        self._check_usable()
        if not self._topics:
            raise ConfigurationError("nothing is subscribed", remedy="call subscribe([topic, ...]) before reading")
        self._check_acknowledged()
        self._poll_timer.is_polling = True
        if not self._options.is_explicit:
            for acquired in self._held:
                acquired.accept_handed_out()
        self._send_acknowledgements()
        if self._membership.state in (MemberState.STALE, MemberState.LEAVING):
            self._runtime.call_soon(self._membership.rejoin)
        if self._membership.error is not None and not self._buffer.has_items:
            raise self._membership.error

    def _check_acknowledged(self) -> None:
        if self._is_processed_in_parallel:
            return
        for acquired in self._held:
            acquired.drop_lost()
            forgotten = acquired.unacknowledged()
            if forgotten:
                raise AcknowledgeError(
                    f"{len(forgotten)} record{'s' if len(forgotten) > 1 else ''} of the last poll "
                    f"{'are' if len(forgotten) > 1 else 'is'} not acknowledged",
                    remedy="call accept, release, reject or renew of each, or use `with record:`; "
                    'acknowledgement_mode="implicit" accepts them all',
                    topic=acquired.topic,
                    partition=acquired.key.partition,
                    offset=forgotten[0],
                )

    def _receive(self) -> None:
        """Sort what the loop has posted."""
        for item in self._buffer.take():
            if isinstance(item, AcquiredRecords):
                self._unread.append(item)
                self._held.append(item)
            elif isinstance(item, AcknowledgeResult):
                self._add_result(item)
            else:
                self._errors.append(item)

    def _next_records(self, count: int) -> list[ShareRecord]:
        """Return up to `count` records whose lock lasts, without waiting."""
        records: list[ShareRecord] = []
        while self._iterated and len(records) < count:
            record = self._iterated.popleft()
            if not record.is_lost:
                records.append(record)
        while self._unread and len(records) < count:
            acquired = self._unread[0]
            if acquired.is_expired:
                self._counts["expired_records"] += acquired.drop_unread()
            else:
                taken = acquired.take(count - len(records))
                records = records + taken if records else taken
            if acquired.is_read:
                self._unread.popleft()
                if acquired.error is not None:
                    self._errors.append(acquired.error)
                    break  # the error follows these records
        return records

    def _hand_out(self, records: Sequence[ShareRecord]) -> None:
        """Note that the caller gets these records: neighbours of one partition together."""
        start = 0
        while start < len(records):
            acquired = records[start]._acquired
            end = len(records)
            if records[-1]._acquired is not acquired:
                end = next(at for at in range(start, end) if records[at]._acquired is not acquired)
            acquired.hand_out(records[start:end] if start or end < len(records) else records)
            start = end
        self._counts["polled_records"] += len(records)

    def _next_iterated(self) -> ShareRecord | None:
        """Return the next record of the iteration if there is one without waiting."""
        while self._iterated and not self._is_stopping:
            try:
                record = self._iterated.popleft()
            except IndexError:  # another thread took it
                return None
            if not record.is_lost:
                record._acquired.hand_out((record,))
                self._counts["polled_records"] += 1
                return record
        return None

    async def _fill_iteration(self) -> bool:
        """Wait for the next records of the iteration; False when the consumer was closed or stopped."""
        if self._is_stopping:
            return False
        try:
            records = await self._fill(self._options.max_poll_records, float("inf"))
        except ClosedError:
            if self._is_closed:
                return False
            raise
        self._iterated.extend(records)
        return True

    # -- acknowledgements

    def acknowledge(
        self,
        what: ShareRecord | Iterable[ShareRecord] | Mapping[TopicPartition, Iterable[int]],
        type: AcknowledgeAs = "accept",
    ) -> None:
        """Accept, release, reject or renew records: one, several, or offsets by (topic, partition).

        Raises LockLostError for the first whose lock has ended, AcknowledgeError for one that is not in hand.
        """
        with self._lock:
            self._check_usable()
            kind = _checked_type(type)
            if isinstance(what, ShareRecord):
                what._acquired.acknowledge(what.offset, kind)
            elif isinstance(what, Mapping):
                self._acknowledge_offsets(what, kind)
            elif not isinstance(what, Iterable):
                raise wrong_type("what", what, "a ShareRecord, several of them, or offsets by (topic, partition)")
            else:
                for acquired, offsets in _by_acquired(what):
                    acquired.acknowledge_all(offsets, kind)

    def _acknowledge_offsets(self, offsets: Mapping[Any, Iterable[int]], type: AcknowledgeType) -> None:
        for key, each in offsets.items():
            if not isinstance(key, tuple) or len(key) != 2:
                raise wrong_type("a key of what", key, "(topic, partition)")
            topic, partition = key
            checked_partition(topic, partition)
            if isinstance(each, (str, bytes)) or not isinstance(each, Iterable):
                raise wrong_type(f"what[{topic!r}, {partition}]", each, "a collection of offsets")
            for offset in each:
                self._acquired_at(topic, partition, offset).acknowledge(offset, type)

    def _acquired_at(self, topic: str, partition: int, offset: int) -> AcquiredRecords:
        for acquired in self._held:
            if acquired.topic == topic and acquired.key.partition == partition and acquired.holds(offset):
                return acquired
        raise AcknowledgeError(
            "no record with this offset is in hand",
            remedy="acknowledge what the last poll returned, once",
            topic=topic,
            partition=partition,
            offset=offset,
        )

    async def _commit(self, timeout: float | None = None) -> dict[TopicPartition, KwireError | None]:
        """Send the acknowledgements made so far and wait for their results, by partition: None, or the error.

        In the implicit mode this accepts the records of the last poll. A partition without a result after `timeout`
        seconds (None: request_timeout_ms) has a RequestTimeoutError. Records whose acknowledgement failed are
        delivered again.
        """
        check_timeout(timeout, none="wait for request_timeout_ms")
        seconds = self._config.request_timeout_ms / 1000 if timeout is None else timeout
        commit = _Commit(self._post_result)
        with self._lock:
            self._check_usable()
            if not self._options.is_explicit:
                for acquired in self._held:
                    acquired.accept_handed_out()
            pending = self._collect(commit.on_done, seconds)
            late = self._collect_late()
            commit.expect(pending)
            if pending:
                self._runtime.call_soon(self._fetcher.acknowledge, pending)
        if pending:
            with suppress(RequestTimeoutError):
                await self._waiter.result_of(commit.done, seconds)
        results = commit.results(pending)
        for result in late:
            results[result.topic, result.partition] = result.error
        with self._lock:
            self._receive()
        await self._call_back()
        return results

    def commit_async(self) -> None:
        """Send the acknowledgements made so far; `on_acknowledged` gets the results in a later call.

        In the implicit mode this accepts the records of the last poll.
        """
        with self._lock:
            self._check_usable()
            if not self._options.is_explicit:
                for acquired in self._held:
                    acquired.accept_handed_out()
            self._send_acknowledgements()

    def _send_acknowledgements(self) -> None:
        pending = self._collect(self._post_result, self._config.request_timeout_ms / 1000)
        self._collect_late()
        if pending:
            self._runtime.call_soon(self._fetcher.acknowledge, pending)

    def _collect(self, on_done: OnDone, seconds: float) -> list[PendingAcknowledgements]:
        return collect_all(self._held, on_done, self._runtime.clock.now() + seconds)

    def _collect_late(self) -> list[AcknowledgeResult]:
        """Return the results of what was settled after the lock had ended; forget batches of which nothing is left."""
        late = []
        for acquired in self._held:
            for offset in acquired.collect_late():
                acknowledgements = Acknowledgements({offset: AcknowledgeType.ACCEPT})
                error: LockLostError = acquired.lost_error(offset)
                late.append(AcknowledgeResult(acquired.topic, acquired.key.partition, acknowledgements, error))
        for result in late:
            self._add_result(result)
        self._held[:] = [acquired for acquired in self._held if not acquired.is_done]
        return late

    def _post_result(self, pending: PendingAcknowledgements, error: KwireError | None, now: float) -> None:
        """Pass a result on to the caller's thread. On the loop's thread."""
        self._buffer.post(AcknowledgeResult(pending.topic, pending.key.partition, pending.acknowledgements, error))

    def _add_result(self, result: AcknowledgeResult) -> None:
        for type, count in result.acknowledgements.counts().items():
            if result.error is None:
                self._sent[type] += count
            elif type is not AcknowledgeType.GAP:
                self._counts["failed_acknowledgements"] += count
        if self._on_acknowledged is not None:
            self._results.append(result)

    async def _call_back(self) -> None:
        """Call `on_acknowledged` for each result; raise the first exception of it at the end."""
        failure: Exception | None = None
        while self._results and self._on_acknowledged is not None:
            result = self._results.popleft()
            offsets = result.acknowledgements.of_records()
            if not offsets:
                continue
            try:
                await self._waiter.call(
                    self._on_acknowledged, {(result.topic, result.partition): offsets}, result.error
                )
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # -- looking in

    async def _metrics(self) -> ShareConsumerMetrics:
        """Return counts of records, acknowledgements, requests and brokers: one moment's copy."""
        return self._all_metrics(await self._waiter.on_loop_or_after(self._runtime, self._runtime.metrics))

    def collect_metrics(self) -> ShareConsumerMetrics:
        """Return what `metrics` returns, to an exporter's thread: wait for the loop thread instead of awaiting it."""
        return self._all_metrics(self._runtime.on_loop_or_after(self._runtime.metrics))

    @property
    def client_id(self) -> str:
        return self._config.client_id

    def telemetry_readings(self) -> list[Reading]:
        return readings(self.collect_metrics())

    def telemetry_resource(self) -> dict[str, str]:
        known = {"client_rack": self._options.rack, "group_id": self._options.group_id}
        return {name: value for name, value in known.items() if value} | {"group_member_id": self._membership.member_id}

    def _all_metrics(self, cluster: ClusterMetrics) -> ShareConsumerMetrics:
        fetcher, membership = self._fetcher, self._membership
        with self._lock:
            return ShareConsumerMetrics(
                group=self._options.group_id,
                member_id=membership.member_id,
                state=membership.state.value,
                member_epoch=membership.epoch,
                heartbeats=membership.heartbeats,
                rejoins=membership.rejoins,
                assigned_partitions=fetcher.assigned_count,
                acquisition_lock_ms=fetcher.lock_ms,
                **fetcher.counts,
                **self._counts,
                accepted=self._sent[AcknowledgeType.ACCEPT],
                released=self._sent[AcknowledgeType.RELEASE],
                rejected=self._sent[AcknowledgeType.REJECT],
                renewed=self._sent[AcknowledgeType.RENEW],
                gaps=self._sent[AcknowledgeType.GAP],
                in_hand_records=sum(acquired.in_hand_count for acquired in self._held),
                cluster=cluster,
            )

    async def _explain(self) -> ShareExplanation:
        """Return why there are no records: what the group, each broker and the caller are waiting for."""
        view = self._runtime.view_for("fetch")
        now = self._runtime.clock.now
        return await self._waiter.on_loop_or_after(
            self._runtime, lambda: explain(self._membership, self._fetcher, self._topics, now(), view)
        )

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Returns a function that ends it. Exceptions of `callback` are logged.
        """
        return self._runtime.on_cluster_event(callback)

    def wakeup(self) -> None:
        """End a poll of another thread, or the next one, with WakeupError. Signal handlers may call it."""
        self._is_woken = True
        self._wake_polls()

    # -- the end

    def stop(self, is_stopping: bool = True) -> None:
        """End iterations, and have polls return at once: what `stop_on_signals` does. False ends that."""
        self._is_stopping = is_stopping
        self._wake_polls()

    def _wake_polls(self) -> None:
        """Have polls that wait look again. Signal handlers call it."""
        with suppress(ClosedError):
            if self._is_started:
                self._runtime.call_soon(self._buffer.wake_all)  # its lock may be held where the signal came in

    async def _close(self, timeout: float | None = 30.0) -> None:
        """Send the acknowledgements, release the rest, close the sessions, leave the group, and end the connections.

        Waits at most `timeout` seconds (None: request_timeout_ms), also for brokers that do not respond. In the
        implicit mode the records of the last poll are released: `commit` before to accept them. A second call does
        nothing.
        """
        check_timeout(timeout, none="wait for request_timeout_ms")
        seconds = self._config.request_timeout_ms / 1000 if timeout is None else timeout
        await self._close_by(self._waiter, seconds)

    async def _close_by(self, waiter: Waiter, seconds: float) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._buffer.wake_all()
        self._remains.detach()
        clock = self._runtime.clock
        deadline = clock.now() + seconds
        try:
            if self._is_started and not self._runtime.is_closed and not self._runtime.is_forked:
                await waiter.shielded(self._leave(waiter, clock.now() + seconds * CLOSE_FRACTION, deadline))
        finally:
            await self._client_telemetry.end(waiter, deadline - clock.now())
            await waiter.close(self._runtime, max(1.0, deadline - clock.now()))
            self._buffer.close(ClosedError("the share consumer is closed"))
        with self._lock:
            self._receive()
        if waiter is self._waiter:
            await self._call_back()

    async def _leave(self, waiter: Waiter, acknowledge_by: float, leave_by: float) -> None:
        """Close the sessions with the last acknowledgements, then leave the group."""
        left: Future[None] = Future()
        with self._lock:
            self._iterated.clear()
            for acquired in self._held:
                acquired.release_in_hand()
            pending = self._collect(self._post_result, leave_by - self._runtime.clock.now())
            self._collect_late()
        with suppress(ClosedError, RequestTimeoutError):
            self._runtime.call_soon(
                leave_group, self._runtime, self._fetcher, self._membership, pending, acknowledge_by, leave_by,
                lambda: left.set_result(None),
            )  # fmt: skip
            await waiter.result_of(left, max(0.0, leave_by - self._runtime.clock.now()) + _WAIT_MAX)

    def _close_with_cluster(self, timeout: float | None) -> None:
        """Close because the `kwire.Cluster` of this client ends, on the thread that ends it."""
        run_blocking(self._close_by(BLOCKING, self._config.request_timeout_ms / 1000 if timeout is None else timeout))

    def _close_at_exit(self) -> None:
        """Leave the group, so that the records in hand are delivered again at once."""
        self._on_acknowledged = None
        self._close_with_cluster(EXIT_SECONDS)

    # -- checks

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedError("the share consumer is closed")
        if self._buffer.end is not None:
            raise self._buffer.end
        self._runtime.check_usable()

    def _check_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.popleft()


class _Commit:
    """Collects the results of one commit."""

    def __init__(self, pass_on: Callable[[PendingAcknowledgements, KwireError | None, float], None]) -> None:
        self.done: Future[None] = Future()
        self._pass_on = pass_on
        self._left = 0
        self._results: dict[PendingAcknowledgements, KwireError | None] = {}

    def expect(self, pending: Sequence[PendingAcknowledgements]) -> None:
        self._left = len(pending)

    def on_done(self, pending: PendingAcknowledgements, error: KwireError | None, now: float) -> None:
        """Take a result. On the loop's thread."""
        self._pass_on(pending, error, now)
        self._results[pending] = error
        self._left -= 1
        if self._left == 0:
            self.done.set_result(None)

    def results(self, pending: Sequence[PendingAcknowledgements]) -> dict[TopicPartition, KwireError | None]:
        """Return the results by partition; an error comes before None."""
        results: dict[TopicPartition, KwireError | None] = {}
        for one in pending:
            key = one.topic, one.key.partition
            if one in self._results:
                error = self._results[one]
            else:
                error = timeout_error("no result in time", topic=one.topic, partition=one.key.partition)
            results[key] = results.get(key) or error
        return results


def _by_acquired(records: Iterable[ShareRecord]) -> list[tuple[AcquiredRecords, list[int]]]:
    """Group the offsets of records by what they were acquired with."""
    grouped: dict[AcquiredRecords, list[int]] = {}
    for record in records:
        if not isinstance(record, ShareRecord):
            raise TypeError(f"{record!r:.60} is not a ShareRecord: give what poll returned")
        grouped.setdefault(record._acquired, []).append(record.offset)
    return list(grouped.items())


def _checked_topics(topics: Iterable[str]) -> tuple[str, ...]:
    if isinstance(topics, (str, bytes)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics is {topics!r:.60}: give a list of names; share groups have no patterns")
    names = tuple(dict.fromkeys(topics))
    for name in names:
        if not is_topic_name(name):
            raise ConfigurationError(f"topic is {name!r}", remedy="give its name; share groups have no patterns")
    if not names:
        raise ConfigurationError("no topics", remedy="name at least one, or call unsubscribe()")
    return names


def _checked_type(type: str) -> AcknowledgeType:
    if type not in ("accept", "release", "reject", "renew"):
        raise ConfigurationError(f"type is {type!r}", remedy='give "accept", "release", "reject" or "renew"')
    return AcknowledgeType[type.upper()]
