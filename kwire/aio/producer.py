"""`kwire.aio.Producer`: the producer for asyncio, over the same `ProducerClient` as `kwire.Producer`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast, overload

from kwire.aio.waiting import Signal, result_of
from kwire.arguments import check_timeout
from kwire.cluster import Cluster, ClusterEvent, Topic
from kwire.cluster.callbacks import AsyncioBridge, asyncio_bridge
from kwire.errors import (
    ClosedError,
    FatalError,
    KwireError,
    RequestTimeoutError,
    TransactionError,
    UndeliveredError,
)
from kwire.options import translate_bootstrap
from kwire.producer import GroupMetadata, Message, ProduceResponse, ProducerRequest, RecordMetadata
from kwire.producer.accumulator import Append, BlockedAppend, PendingRecord
from kwire.producer.bulk import BulkResponse, Keys, ManyHeaders, Partitions, Slice, Timestamps, Values
from kwire.producer.client import (
    CLOSE_SECONDS,
    RAISED_SECONDS,
    THREAD_END_SECONDS,
    UNREACHED_SECONDS,
    ProducerClient,
    check_topic,
)
from kwire.producer.explain import Explanation
from kwire.producer.futures import Callback, HomedResponse, MakeResponse, check_callback
from kwire.producer.message import Data, Headers, check_message
from kwire.producer.metrics import ProducerMetrics
from kwire.producer.options import ProducerKwargs
from kwire.producer.producer_request import DeliveryOptions

T = TypeVar("T")

# While there is room, `send` has nothing to await: it yields this often, so that other tasks can run.
_SENDS_PER_TURN = 100

_log = logging.getLogger("kwire.producer")


class Producer:
    """Sends records to a Kafka cluster from asyncio.

    >>> async with kwire.aio.Producer("localhost:9092") as producer:      # doctest: +SKIP
    ...     response = await producer.send("greetings", b"hello")         # in its batch, once there was room
    ...     print((await response).offset)                                # delivered
    ...     print(await producer.send_and_wait("greetings", b"hello"))    # both

    The options are those of `kwire.Producer`. when_full="block" means that `send` waits for room without blocking the
    loop. Callbacks run in the loop that `send` was called in. One producer serves any number of tasks; records go out
    in the order in which `send` was called, also those that waited for room. Options, with their defaults:

    bootstrap                "host:port,host:port" of any brokers of the cluster, a list of such, or a `kwire.Cluster`
    acks                     ["all"] whose acknowledgement a record waits for: "all" in-sync replicas, 1: the leader
                             alone, 0: none
    idempotence              [None] no duplicates: None wherever brokers (0.11 and later) and acks allow it; True
                             insists on it, False forgoes it
    ordered                  [True] False lets batches of a partition overtake each other after a failure
    linger_ms                [5 ms] how long a record may wait for others to share its batch
    batch_bytes              [1_000_000 bytes] a partition's batch is closed when it has about this size as it is sent;
                             before compression it may have as much as a request
    max_request_bytes        [None] a request is closed at this size in bytes, and a larger record refused; None: 4 MiB,
                             and 1 MiB for a record, since brokers take no larger one by default (message.max.bytes)
    compression              ["none"] "none", "gzip", "snappy", "lz4" or "zstd"; zstd is the package kwire[zstd]
    compression_level        [None] the codec's own level; None: its default
    partitioner              ["murmur2"] "murmur2" (Java's hash of the key), "crc32" (librdkafka's), "round_robin",
                             "sticky", "single_broker", a pair such as "crc32+sticky", or a function of a `Message` and
                             a `Topic`: see `kwire.producer.partitioner`
    partitioner_ignore_keys  [False] True spreads records with a key by batches, as those without: keys choose no
                             partition
    single_broker_switch_ms  [30_000 ms] how long the partitioner "single_broker" keeps to a broker
    key_serializer           [None] makes bytes or str of a key that is not None: a function of the topic and the key,
                             called on the thread that sends; see `kwire.producer.serializers`
    value_serializer         [None] the same for values
    max_buffered_bytes       [33_554_432 bytes] the bound on records that are not yet delivered; see when_full. A topic
                             may hold at most 16 times what is free: one alone 94 %, and none stops the others
    when_full                ["block"] what `send` does where there is no room: "block" for max_block_ms, or "raise"
                             BufferFullError at once
    max_block_ms             [60_000 ms] how long `send` waits for room, or for what a partitioner of your own needs
    delivery_timeout_ms      [120_000 ms] from `send` to giving up, retries included
    retries                  [None] how often a batch is sent again before it is given up; None: as often as
                             delivery_timeout_ms allows. Waiting for an earlier batch and being split are no retries
    unknown_topic_timeout_ms [10_000 ms] how long brokers may say that they do not know the topic, which may be about to
                             be created
    metadata_max_idle_ms     [300_000 ms] a topic that got no record for this long is forgotten: its metadata is
                             refreshed no more
    transactional_id         [None] makes the producer transactional: `begin`, `send`, `send_offsets`, `commit` or
                             `abort`
    transaction_timeout_ms   [60_000 ms] brokers abort a transaction that takes longer
    callback_executor        [None] what runs callbacks: a concurrent.futures.Executor, whose threads may change their
                             order, or a function that gets each call to make; None: one thread of the producer's.
                             `close` does not wait for it. Not for asyncio, where callbacks run in the loop

    and those of every client:

    client_id                ["kwire"] the name in the brokers' logs, metrics and quotas
    tls                      [None] True for TLS with the system's certificate authorities, or a `kwire.Tls`
    sasl                     [None] how to log in: `kwire.Sasl("SCRAM-SHA-512", user, password)`
    request_timeout_ms       [30_000 ms] a broker may take this long to answer; then its connection is closed
    connect_timeout_ms       [10_000 ms] a connection may take this long, TLS and SASL included
    idle_timeout_ms          [540_000 ms] an unused connection is closed after this
    metadata_max_age_ms      [300_000 ms] metadata is refreshed after this even if nothing went wrong
    retry_backoff_ms         [100 ms] the first pause before a retry; it doubles up to the maximum, with jitter
                             (KIP-580)
    retry_backoff_ms_max     [1_000 ms] the longest pause before a retry
    reconnect_backoff_ms     [50 ms] the first pause before connecting to a broker again; it doubles likewise
    reconnect_backoff_ms_max [1_000 ms] the longest pause before connecting again
    max_frame_bytes          [104_857_600 bytes] a larger response is refused
    max_in_flight            [5 requests] requests sent on one connection and not yet answered
    allow_auto_create_topics [True] whether brokers may create a topic that a client asks for

    A task that is cancelled in `send` while it waits for room takes its record back; in the moment in which the record
    is let in, the cancellation is too late for that, and the record is sent though nobody has its response.
    """

    @translate_bootstrap("kwire.aio.Producer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ProducerKwargs]) -> None:
        self._core = ProducerClient("kwire.aio.Producer", bootstrap, options, _declined, self._dispatch)
        self._buffer_pool = self._core.buffer_pool
        self._send_at_once = self._buffer_pool.accumulator.send
        self._sends = 0
        # The accumulator's own `send` serves the loop that sent first, where the callbacks of its responses run.
        self._first_loop: asyncio.AbstractEventLoop | None = None
        self._first_bridge: AsyncioBridge | None = None
        self._home: tuple[asyncio.AbstractEventLoop, tuple[AsyncioBridge, MakeResponse]] | None = None

    @overload
    async def send(self, topic: ProducerRequest) -> list[ProduceResponse]: ...

    @overload
    async def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse: ...

    async def send(
        self,
        topic: str | ProducerRequest,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse | list[ProduceResponse]:
        """Append one record to its batch, once there is room; return its future, which can be awaited.

        Arguments and errors are those of `kwire.Producer.send`; BufferFullError comes after max_block_ms.
        """
        if isinstance(topic, ProducerRequest):
            return await self._send_all(topic, topic.terms(self._core.settings, self._core.runtime.clock.now()))
        if self._core.serializers is not None:
            _, value, key, *_ = self._core.serialized(Message(topic, value, key))
        self._sends += 1
        if self._sends % _SENDS_PER_TURN == 0:
            await asyncio.sleep(0)
        if asyncio.get_running_loop() is self._first_loop and not self._buffer_pool.is_full:
            # No task waits for room, so none is overtaken. It returns None without room, and for unusual records.
            place = self._send_at_once(topic, value, key, headers, partition, timestamp_ms, on_delivery)
            if place is not None:
                return cast(ProduceResponse, place)
        if partition is None and self._core.custom_partitioner is not None:
            check_topic(topic)
            message = Message(topic, value, key, headers, partition, timestamp_ms)
            partition = self._core.choose_partition(message, await self._known(topic))
        if on_delivery is not None:
            check_callback(on_delivery)
        bridge, make = self._current_loop()
        append = self._core.pending_record(topic, value, key, headers, partition, timestamp_ms, None, make)
        response = await self._append(append, bridge)
        if on_delivery is not None:
            response.add_done_callback(on_delivery)
        return response

    async def send_and_wait(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """`send`, and await the response. A task that is cancelled after the first half leaves the record under way."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def send_all(self, messages: Iterable[Message]) -> list[ProduceResponse]:
        """Send several messages; return a response for each, in their order: see `kwire.Producer.send_all`."""
        return await self._send_all(messages, None)

    async def _send_all(self, messages: Iterable[Message], terms: DeliveryOptions | None) -> list[ProduceResponse]:
        core = self._core
        bridge, make = self._current_loop()
        prepared = [core.prepared(await self._placed(core.serialized(message)), terms, make) for message in messages]
        responses: list[ProduceResponse] = []
        for one in prepared:
            if isinstance(one, PendingRecord):
                try:
                    responses.append(await self._append(one, bridge, terms))
                except KwireError as error:
                    responses.append(core.refused(one.topic, error, make))
            else:
                responses.append(one)
        return responses

    async def send_many(
        self,
        topic: str,
        values: Values,
        keys: Keys = None,
        headers: ManyHeaders = None,
        timestamps_ms: Timestamps = None,
        partitions: Partitions = None,
    ) -> BulkResponse:
        """Send a record for each of `values`, as there is room; return one response for all, which can be awaited.

        Arguments and errors are those of `kwire.Producer.send_many`. If the task is cancelled while it waits for room,
        the records that have none yet are dropped; the others are sent.
        """
        records = self._core.slice_of(topic, values, keys, headers, timestamps_ms, partitions)
        return await self._append_many(topic, [records])

    async def send_arrow(self, topic: str, table: Any) -> BulkResponse:
        """`send_many` for the rows of an Arrow table: see `kwire.Producer.send_arrow`."""
        return await self._append_many(topic, self._core.arrow_slices(topic, table))

    async def _append_many(self, topic: str, slices: list[Slice]) -> BulkResponse:
        known = None if self._core.custom_partitioner is None else await self._known(topic)
        bridge, _ = self._current_loop()
        bulk = self._core.bulk(topic, slices, known, partial(_dispatch, bridge, self._core.runtime.dispatch))
        try:
            return await self._append(bulk, bridge)
        except KwireError as error:
            if not bulk.has_begun:
                raise
            return bulk.refuse(error)

    async def _append(self, append: Append[T], bridge: AsyncioBridge, terms: DeliveryOptions | None = None) -> T:
        """Append a record, or many, once there is room."""
        room = Signal(bridge)
        entered = self._buffer_pool.append_nowait(append, room.set)
        if not isinstance(entered, BlockedAppend):
            return entered
        await self._wait_for_room(entered, room, terms)
        assert entered.response is not None
        response: T = entered.response
        return response

    async def _wait_for_room(self, blocked: BlockedAppend[Any], room: Signal, terms: DeliveryOptions | None) -> None:
        """Wait until the append is done; BufferFullError when that takes too long."""
        limit = self._core.settings.max_block_ms / 1000
        if terms is not None and terms.timeout is not None:
            limit = min(limit, max(0.0, terms.deadline - self._core.runtime.clock.now()))
        try:
            left = 0
            while left != blocked.append.left:  # of many: as long as some went in
                left = blocked.append.left
                if await room.wait(limit):
                    return
            # If it cannot be cancelled any more, it was appended in the meantime, which is as good.
            if self._buffer_pool.cancel(blocked):
                raise self._buffer_pool.full_error(blocked.append.topic)
            await room.wait()  # it is being notified just now
        except asyncio.CancelledError:
            self._buffer_pool.cancel(blocked)
            raise

    async def _placed(self, message: Message) -> Message:
        check_message(message)
        if message.partition is not None or self._core.custom_partitioner is None:
            return message
        return message._replace(partition=self._core.choose_partition(message, await self._known(message.topic)))

    async def _known(self, topic: str) -> Topic:
        """The topic's metadata for the caller's own partitioner; waits for it, for at most max_block_ms."""
        known = self._core.known(topic)
        if known is None:
            wanted = self._core.wait_for_topic(topic)
            try:
                await result_of(wanted, self._core.settings.max_block_ms / 1000)
            except RequestTimeoutError:
                if wanted.done():  # the outcome is this error
                    raise
                late = await self._on_loop(lambda: self._core.topic_timeout_error(topic))
                raise late from late.__cause__
            known = self._core.known(topic)
            assert known is not None
        return known

    def _current_loop(self) -> tuple[AsyncioBridge, MakeResponse]:
        """Return the bridge to the running loop, and a maker of responses whose callbacks run there.

        Once that loop is closed, they run on the callback thread.
        """
        loop = asyncio.get_running_loop()
        if self._home is None or self._home[0] is not loop:
            bridge = asyncio_bridge(loop)
            home = partial(_dispatch, bridge, self._core.runtime.dispatch)
            self._home = loop, (bridge, partial(HomedResponse, home=home))
            if self._first_loop is None:
                self._first_loop, self._first_bridge = loop, bridge
        return self._home[1]

    def _dispatch(self, function: Callable[..., object], *args: Any) -> None:
        """Run callbacks of responses that the accumulator's own `send` made."""
        assert self._first_bridge is not None
        _dispatch(self._first_bridge, self._core.runtime.dispatch, function, *args)

    async def flush(self, timeout: float | None = None) -> None:
        """Send what was handed over without further linger, and wait until all of it has an outcome.

        RequestTimeoutError after `timeout` seconds; what is unresolved then is still being sent.
        """
        await self._wait_until(self._core.flush, "flush()", timeout)

    async def _wait_until(
        self, start: Callable[[Callable[[], object]], bool], what: str, timeout: float | None
    ) -> None:
        """Call `start(on_done)` and wait for the call of `on_done`."""
        if not self._core.is_started:
            return
        done = Signal()
        start(done.set)
        if not await done.wait(timeout):
            raise await self._late(what, timeout)

    # -- transactions

    async def init_transactions(self, timeout: float | None = 60.0) -> None:
        """Get the producer id and fence earlier producers with this transactional id; `begin` does it by itself."""
        await self._await_loop("init_transactions()", self._core.transaction().init, timeout)

    async def begin(self, timeout: float | None = 60.0) -> None:
        """Begin a transaction: what is sent from now on becomes visible at once with `commit`, or never."""
        transaction = self._core.transaction()
        await self.init_transactions(timeout)
        await self._on_loop(lambda: transaction.begin(self._core.runtime.view), timeout)

    async def send_offsets(
        self,
        offsets: Mapping[tuple[str, int], int],
        group: GroupMetadata | str,
        timeout: float | None = 60.0,
    ) -> None:
        """Make a group's positions a part of the transaction: see `kwire.Producer.send_offsets`."""
        transaction = self._core.transaction()
        member = GroupMetadata(group) if isinstance(group, str) else group
        positions = dict(offsets)
        await self._await_loop(
            "send_offsets()", lambda future: transaction.add_offsets(positions, member, future), timeout
        )

    async def commit(self, timeout: float | None = 60.0) -> None:
        """Deliver what was sent, then make it visible. Errors as in `kwire.Producer.commit`."""
        await self._end("commit()", timeout, is_commit=True)

    async def abort(self, timeout: float | None = 60.0) -> None:
        """Throw the transaction away: what was not sent yet fails with AbortableError."""
        await self._end("abort()", timeout, is_commit=False)

    @contextlib.asynccontextmanager
    async def transaction(self, timeout: float | None = 60.0) -> AsyncIterator[None]:
        """`begin`, then `commit`; or `abort`, when the block raises, is cancelled, or the commit could not be done."""
        await self.begin(timeout)
        try:
            yield
            await self.commit(timeout)
        except FatalError:
            raise
        except BaseException:
            await self.abort(timeout)
            raise

    async def _end(self, what: str, timeout: float | None, *, is_commit: bool) -> None:
        transaction, failures = self._core.transaction(), self._core.callbacks.failures
        try:
            await self._await_loop(
                what, lambda future: self._core.sender.end(transaction, future, is_commit=is_commit), timeout
            )
        except TransactionError:
            failures.clear()  # this error reports them
            raise
        failures.clear()

    async def _await_loop(self, what: str, start: Callable[[Future[None]], None], timeout: float | None) -> None:
        future = self._core.on_loop(start)
        try:
            await result_of(future, timeout)
        except RequestTimeoutError:
            if future.done():  # the outcome is this error, or it came just now
                return future.result()
            late = await self._late(what, timeout)
            raise late from late.__cause__

    async def _late(self, what: str, timeout: float | None) -> RequestTimeoutError:
        return await self._on_loop_or_after(lambda: self._core.timeout_error(what, timeout))

    async def _on_loop(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run on the loop thread; return what the function returns, or raise what it raises."""
        return await result_of(self._core.run(function), timeout)

    # -- the rest

    @property
    def client_id(self) -> str:
        return self._core.runtime.config.client_id

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that were handed over and have no outcome yet."""
        return self._buffer_pool.used_bytes

    def partitions(self, topic: str) -> int | None:
        """How many partitions the topic has, as far as this producer knows by now; None if it does not."""
        known = self._core.known(topic)
        return None if known is None else len(known.partitions)

    async def explain(self, topic: str, partition: int | None = None) -> Explanation:
        """Why records of a partition, or of a whole topic, are not delivered now: see `kwire.Producer.explain`."""
        return await self._on_loop_or_after(lambda: self._core.explain(topic, partition))

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` in the running event loop for each event of `kwire.cluster.events` from now on.

        Brokers that come, fail and go, partitions that lose their leader, metadata that changed. What `callback` raises
        is logged. Returns a function that ends it; nothing is called after that function has returned, but what is
        running just then.
        """
        bridge = asyncio_bridge(asyncio.get_running_loop())
        return self._core.runtime.on_cluster_event(lambda event: bridge.post(callback, event))

    async def metrics(self) -> ProducerMetrics:
        """Counts of records, batches and bytes, of what became of them, and of every broker: one moment's copy."""
        return await self._on_loop_or_after(self._core.metrics)

    async def _on_loop_or_after(self, function: Callable[[], T]) -> T:
        if self._core.runtime.is_running:
            with contextlib.suppress(ClosedError):  # it is ending just now
                return await self._on_loop(function)
        return function()

    def collect_metrics(self) -> ProducerMetrics:
        """As `metrics`, for an exporter's thread: waits for the producer's own thread instead of awaiting it."""
        return self._core.runtime.on_loop_or_after(self._core.metrics)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Take no more records, deliver what was handed over, for at most `timeout` seconds, and end the threads.

        `send` raises ClosedError from now on, also where it waits for room. What is not delivered in time fails; where
        the task is cancelled, at once. A transaction that was not committed is aborted, and a warning in the log says
        so. May be repeated.

        Where nobody has looked at the response of a record that failed or was not delivered in time, an error in the
        log says so: how many, of which topics, and the first cause. It is not raised: `async with` does that.
        """
        check_timeout(timeout)
        undelivered = await self._close(timeout, None)
        if undelivered is not None:
            _log.error("%r: %s", self, undelivered)

    async def _close(self, timeout: float | None, unreached: float | None) -> UndeliveredError | None:
        """See `ProducerClient.drain_steps`."""
        core, runtime, late = self._core, self._core.runtime, None
        if runtime.is_forked:  # the records are the parent's affair
            return None
        core.stop_accepting()
        try:
            for step in core.drain_steps(timeout, unreached):
                try:
                    await self._wait_until(core.drain, "close()", step)
                    late = None
                    break
                except RequestTimeoutError as error:
                    late = error
                except ClosedError:  # by another task, just now
                    break
        finally:
            runtime.close(timeout=0)  # begin to
            ended = Signal()
            runtime.when_ended(ended.set)
            if await ended.wait(THREAD_END_SECONDS):
                runtime.close()  # its thread is at its last step
        return core.undelivered(late)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close: for 30 s, 5 s while no broker has ever answered; after a block that raised 1 s, or not at all.

        Raises UndeliveredError, after a block that did not raise itself, where records failed or were not delivered in
        time and nobody looked at their responses. After one that raised or was cancelled it is an error in the log.
        """
        if error is None:
            undelivered = await self._close(CLOSE_SECONDS, UNREACHED_SECONDS)
            if undelivered is not None:
                raise undelivered
            return
        undelivered = await self._close(RAISED_SECONDS, 0.0)
        if undelivered is not None:
            _log.error("%r, closed because of %s: %s", self, type(error).__name__, undelivered)

    def __repr__(self) -> str:
        return self._core.describe("kwire.aio.Producer")


def _declined(*_: object) -> None:
    """Return None from the accumulator's own `send` where it does not accept a record."""


def _dispatch(
    bridge: AsyncioBridge, otherwise: Callable[..., None], function: Callable[..., object], *args: Any
) -> None:
    if not bridge.post(function, *args):
        otherwise(function, *args)
