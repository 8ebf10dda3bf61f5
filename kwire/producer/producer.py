"""`kwire.Producer`: the producer for threads.

On the caller's thread, `send` runs serializers, hashes the key once the partitions are known, appends the record to its
batch (with C in its final bytes, with their CRC) and returns a `ProduceResponse`. The loop thread compresses, builds
requests and handles responses, in the `Sender`. `kwire.aio.Producer` is the same for asyncio, over the same
`ProducerClient`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack, overload

from kwire.arguments import check_timeout
from kwire.cluster import Cluster, ClusterEvent, GroupMetadata, Topic
from kwire.errors import (
    ClosedError,
    FatalError,
    KwireError,
    RequestTimeoutError,
    TransactionError,
    UndeliveredError,
)
from kwire.options import translate_bootstrap
from kwire.producer.accumulator import PendingRecord
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
from kwire.producer.futures import Callback, ProduceResponse, check_callback, wait_for
from kwire.producer.message import Data, Headers, Message, check_message
from kwire.producer.metrics import ProducerMetrics
from kwire.producer.options import ProducerKwargs
from kwire.producer.producer_request import DeliveryOptions, ProducerRequest

# How long the loop's thread may take to say what a wait is about.
_GRACE = 5.0

_log = logging.getLogger("kwire.producer")


class Producer:
    """Sends records to a Kafka cluster; safe to use from many threads.

    >>> with kwire.Producer("localhost:9092") as producer:            # doctest: +SKIP
    ...     response = producer.send("greetings", b"hello", key=b"en")
    ...     print(response.result(timeout=10).offset)

    Options, with their defaults:

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

    Close it, or use `with`. When the interpreter ends and nobody did, records that were handed over get five seconds
    more (a transaction that was not committed is aborted), and an error in the log tells of those that are not
    delivered by then. A forked child cannot use it: make another one there.

    Raises ConfigurationError for options that are unknown or contradict each other. No broker is contacted before the
    first `send`, and an unreachable one makes responses fail, not the constructor.
    """

    @translate_bootstrap("kwire.Producer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ProducerKwargs]) -> None:
        self._core = ProducerClient("kwire.Producer", bootstrap, options, partial(Producer._send, self))
        self._runtime = self._core.runtime
        self._buffer_pool = self._core.buffer_pool
        self._serializers = self._core.serializers
        if type(self).send is Producer.send and self._serializers is None:
            # From here on `producer.send(...)` is the accumulator's bound method, which saves a Python call per record.
            # It appends a plain record itself; for anything unusual (a new topic, headers, a full buffer, a wrong type)
            # it calls `_send` below. Subclasses that override `send`, and serializers, keep the method.
            self.send = self._buffer_pool.accumulator.send  # type: ignore[method-assign]

    @overload
    def send(self, topic: ProducerRequest) -> list[ProduceResponse]: ...

    @overload
    def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse: ...

    def send(
        self,
        topic: str | ProducerRequest,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse | list[ProduceResponse]:
        """Append one record to its batch and return its future at once. (`__init__` says what runs on an instance.)

        Text is encoded as UTF-8. `headers` are a mapping or (name, value) pairs; `timestamp_ms` is milliseconds since
        1970, by default now. `on_delivery(response)` runs on the callback thread when the fate is known.

        Raises RecordTooLargeError, BufferFullError, ClosedError, or TypeError/ValueError for arguments that no record
        can have. The response reports what happens after that.

        Or hand over a `ProducerRequest`, alone: then it returns what `send_all` does. Messages are for `send_all`, too.
        """
        if self._serializers is not None and not isinstance(topic, ProducerRequest):
            _, value, key, *_ = self._core.serialized(Message(topic, value, key))
            response: ProduceResponse = self._buffer_pool.accumulator.send(
                topic, value, key, headers, partition, timestamp_ms, on_delivery
            )
            return response
        return self._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    def _send(
        self,
        topic: str | ProducerRequest,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse | list[ProduceResponse]:
        """`send` for any record, whose key and value are serialized."""
        if isinstance(topic, ProducerRequest):
            return self._send_all(topic, topic.terms(self._core.settings, self._runtime.clock.now()))
        if partition is None and self._core.custom_partitioner is not None:
            check_topic(topic)
            message = Message(topic, value, key, headers, partition, timestamp_ms)
            partition = self._core.choose_partition(message, self._known(topic))
        if on_delivery is not None:
            check_callback(on_delivery)
        incoming = self._core.pending_record(topic, value, key, headers, partition, timestamp_ms)
        response = self._core.append_or_wait(incoming)
        if on_delivery is not None:
            response.on_delivery(on_delivery)
        return response

    def send_all(self, messages: Iterable[Message]) -> list[ProduceResponse]:
        """Send several messages; return a response for each, in their order.

        TypeError or ValueError for a message that no record can be: then none is sent. From there on nothing is raised:
        a message that is too large, or for which there was no room, has a response that says so.
        """
        return self._send_all(messages, None)

    def _send_all(self, messages: Iterable[Message], terms: DeliveryOptions | None) -> list[ProduceResponse]:
        core, clock = self._core, self._runtime.clock
        prepared = [core.prepared(self._placed(core.serialized(message)), terms) for message in messages]
        responses: list[ProduceResponse] = []
        for one in prepared:
            if isinstance(one, PendingRecord):
                try:
                    limit = None if terms is None or terms.timeout is None else max(0.0, terms.deadline - clock.now())
                    responses.append(core.append_or_wait(one, limit))
                except KwireError as error:
                    responses.append(core.refused(one.topic, error))
            else:
                responses.append(one)
        return responses

    def send_many(
        self,
        topic: str,
        values: Values,
        keys: Keys = None,
        headers: ManyHeaders = None,
        timestamps_ms: Timestamps = None,
        partitions: Partitions = None,
    ) -> BulkResponse:
        """Send a record for each of `values`; return at once one response for all of them.

        Each further argument has an item for each record, of which None stands for none given; or is one for all
        records: a mapping of headers, a number. Items are what `send` takes. More than max_buffered_bytes go through in
        parts, so that this blocks meanwhile, for max_block_ms in which no room was made.

        Raises TypeError or ValueError for what no records can have: then none is sent. BufferFullError or ClosedError
        only where none was accepted; else the response reports them, and RecordTooLargeError, for those records.
        """
        return self._append_many(topic, [self._core.slice_of(topic, values, keys, headers, timestamps_ms, partitions)])

    def send_arrow(self, topic: str, table: Any) -> BulkResponse:
        """`send_many` for the rows of a pyarrow.Table or RecordBatch, or of what hands out an Arrow stream.

        Columns: value, and where there are any key, headers (list<struct<key: string, value: binary>>), partition and
        timestamp. Keys and values are read where they are: no Python object is made for one.

        Raises EncodeError, which names the column, for what no records can have: then none is sent. The rest is as in
        `send_many`. ConfigurationError where pyarrow is not installed: it is kwire[arrow].
        """
        return self._append_many(topic, self._core.arrow_slices(topic, table))

    def _append_many(self, topic: str, slices: list[Slice]) -> BulkResponse:
        known = None if self._core.custom_partitioner is None else self._known(topic)
        bulk = self._core.bulk(topic, slices, known)
        try:
            return self._core.append_or_wait(bulk)
        except KwireError as error:
            if not bulk.has_begun:
                raise
            return bulk.refuse(error)

    def _placed(self, message: Message) -> Message:
        """With the partition that the caller's own partitioner chose, if there is one to be asked."""
        check_message(message)
        if message.partition is not None or self._core.custom_partitioner is None:
            return message
        return message._replace(partition=self._core.choose_partition(message, self._known(message.topic)))

    def _known(self, topic: str) -> Topic:
        """The topic's metadata for the caller's own partitioner; waits for it, for at most max_block_ms."""
        known = self._core.known(topic)
        if known is None:
            future, limit = self._core.wait_for_topic(topic), self._core.settings.max_block_ms / 1000
            try:
                future.result(limit)
            except FutureTimeoutError:
                if future.done():  # the outcome is this error
                    raise
                late = self._runtime.run(lambda: self._core.topic_timeout_error(topic))
                raise late from late.__cause__
            known = self._core.known(topic)
            assert known is not None
        return known

    def flush(self, timeout: float | None = None) -> None:
        """Send what was handed over without further linger, and wait until all of it has an outcome.

        A failed record does not make flush raise: its response does. RequestTimeoutError after
        `timeout` seconds; what is unresolved then is still being sent.
        """
        if self._core.is_started and not wait_for(self._core.flush, timeout):
            raise self._late("flush()", timeout)

    # -- transactions

    def init_transactions(self, timeout: float | None = 60.0) -> None:
        """Get the producer id and fence every earlier producer with this transactional id. `begin` does it by itself.

        Raises FencedError, FatalError, or RequestTimeoutError after `timeout` seconds: then it may be called again.
        """
        transaction = self._core.transaction()
        self._await_loop("init_transactions()", transaction.init, timeout)

    def begin(self, timeout: float | None = 60.0) -> None:
        """Begin a transaction: what is sent from now on becomes visible at once with `commit`, or never."""
        transaction = self._core.transaction()
        self.init_transactions(timeout)
        self._runtime.run(lambda: transaction.begin(self._runtime.view), timeout)

    def send_offsets(
        self,
        offsets: Mapping[tuple[str, int], int],
        group: GroupMetadata | str,
        timeout: float | None = 60.0,
    ) -> None:
        """Make a group's positions a part of the transaction: {(topic, partition): next offset to read}.

        With the member's generation in `group` a member that has lost its partitions is refused (KIP-447).
        Raises AbortableError or FatalError.
        """
        transaction = self._core.transaction()
        member = GroupMetadata(group) if isinstance(group, str) else group
        positions = dict(offsets)
        self._await_loop("send_offsets()", lambda future: transaction.add_offsets(positions, member, future), timeout)

    def commit(self, timeout: float | None = 60.0) -> None:
        """Deliver what was sent, then make it visible. Returns when that is certain.

        AbortableError: something could not be delivered; call `abort`. FatalError or FencedError: close the producer.
        RequestTimeoutError: it is still being committed; call `commit` again.
        """
        self._end("commit()", timeout, is_commit=True)

    def abort(self, timeout: float | None = 60.0) -> None:
        """Throw the transaction away: what was not sent yet fails with AbortableError. Errors as in `commit`."""
        self._end("abort()", timeout, is_commit=False)

    @contextlib.contextmanager
    def transaction(self, timeout: float | None = 60.0) -> Iterator[None]:
        """`begin`, then `commit`; or `abort`, when the block raises or the commit could not be done.

        >>> with producer.transaction():  # doctest: +SKIP
        ...     producer.send("out", b"result")
        ...     producer.send_offsets({("in", 0): 42}, "my-group")
        """
        self.begin(timeout)
        try:
            yield
            self.commit(timeout)
        except FatalError:
            raise
        except BaseException:
            self.abort(timeout)
            raise

    def _end(self, what: str, timeout: float | None, *, is_commit: bool) -> None:
        transaction, failures = self._core.transaction(), self._core.callbacks.failures
        try:
            self._await_loop(
                what, lambda future: self._core.sender.end(transaction, future, is_commit=is_commit), timeout
            )
        except TransactionError:
            failures.clear()  # this error reports them
            raise
        failures.clear()

    def _await_loop(self, what: str, start: Callable[[Future[None]], None], timeout: float | None) -> None:
        """Run `start(future)` on the loop's thread and wait for what it resolves the future with."""
        future = self._core.on_loop(start)
        try:
            self._runtime.wait(future, timeout)
        except RequestTimeoutError:
            if future.done():  # the outcome is this error, or it came just now
                return future.result()
            late = self._late(what, timeout)
            raise late from late.__cause__

    def _late(self, what: str, timeout: float | None) -> RequestTimeoutError:
        return self._runtime.on_loop_or_after(lambda: self._core.timeout_error(what, timeout), _GRACE)

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

    def explain(self, topic: str, partition: int | None = None) -> Explanation:
        """Why records of a partition, or of a whole topic, are not delivered now; `print` it, or read its reasons.

        It describes the present moment: no leader, an unreachable broker and the last failure, a back-off, a window
        closed to keep order, a producer id that is being requested, a linger, an outstanding response, full memory.
        """
        return self._runtime.on_loop_or_after(lambda: self._core.explain(topic, partition))

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Brokers that come, fail and go, partitions that lose their leader, metadata that changed. What `callback` raises
        is logged. Returns a function that ends it; nothing is called after that function has returned, but what is
        running just then.
        """
        return self._runtime.on_cluster_event(callback)

    def metrics(self) -> ProducerMetrics:
        """Counts of records, batches and bytes, of what became of them, and of every broker: one moment's copy."""
        return self._runtime.on_loop_or_after(self._core.metrics)

    def collect_metrics(self) -> ProducerMetrics:
        """`metrics`, under the name by which exporters ask both faces of the producer."""
        return self.metrics()

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Take no more records, deliver what was handed over, for at most `timeout` seconds, and end the threads.

        `send` raises ClosedError from now on, also where it waits for room. What is not delivered in time fails. A
        transaction that was not committed is aborted, and a warning in the log says so. May be repeated.

        Where nobody has looked at the response of a record that failed or was not delivered in time, an error in the
        log says so: how many, of which topics, and the first cause. It is not raised: `with` does that.
        """
        check_timeout(timeout)
        undelivered = self._close(timeout, None)
        if undelivered is not None:
            _log.error("%r: %s", self, undelivered)

    def _close(
        self, timeout: float | None, unreached: float | None, patience: float = THREAD_END_SECONDS
    ) -> UndeliveredError | None:
        """See `ProducerClient.drain_steps`; `patience` is how many seconds the threads may take to end."""
        core, late = self._core, None
        if self._runtime.is_forked:  # the records are the parent's affair
            return None
        core.stop_accepting()
        try:
            for step in core.drain_steps(timeout, unreached):
                try:
                    if core.is_started and not wait_for(core.drain, step):
                        raise self._late("close()", step)
                    late = None
                    break
                except RequestTimeoutError as error:
                    late = error
                except ClosedError:  # by another thread, just now
                    break
        finally:
            self._runtime.close(patience)
        return core.undelivered(late)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close: for 30 s, 5 s while no broker has ever answered; after a block that raised 1 s, or not at all.

        Raises UndeliveredError, after a block that did not raise itself, where records failed or were not delivered in
        time and nobody looked at their responses. After one that raised it is an error in the log.
        """
        if error is None:
            undelivered = self._close(CLOSE_SECONDS, UNREACHED_SECONDS)
            if undelivered is not None:
                raise undelivered
            return
        undelivered = self._close(RAISED_SECONDS, 0.0, RAISED_SECONDS)
        if undelivered is not None:
            _log.error("%r, closed because of %s: %s", self, type(error).__name__, undelivered)

    def __repr__(self) -> str:
        return self._core.describe("kwire.Producer")
