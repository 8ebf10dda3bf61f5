"""`kwire.Producer`: the producer for threads.

On the caller's thread, `send` runs serializers, hashes the key once the partitions are known, appends the record to its
batch (with C in its final bytes, with their CRC) and returns a `ProduceResponse`. The loop thread compresses, builds
requests and handles responses, in the `Sender`. `kwire.aio.Producer` is the same for asyncio, over the same
`ProducerClient`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

from kwire.cluster import Cluster, ClusterEvent
from kwire.cluster.waiting import BLOCKING, blocking, run_blocking
from kwire.options import translate_bootstrap
from kwire.producer.accumulator import Append
from kwire.producer.base import ProducerBase
from kwire.producer.batch_builder import Dispatch
from kwire.producer.client import ProducerClient, check_topic
from kwire.producer.futures import Callback, MakeResponse, ProduceResponse, check_callback
from kwire.producer.message import Data, Headers, Message
from kwire.producer.options import ProducerKwargs
from kwire.producer.producer_request import DeliveryOptions, ProducerRequest

T = TypeVar("T")


class Producer(ProducerBase):
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

    _waiter = BLOCKING

    @translate_bootstrap("kwire.Producer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ProducerKwargs]) -> None:
        self._core = ProducerClient("kwire.Producer", bootstrap, options, partial(Producer._send, self))
        if type(self).send is Producer.send and self._core.serializers is None:
            # From here on `producer.send(...)` is the accumulator's bound method, which saves a Python call per record.
            # It appends a plain record itself; for anything unusual (a new topic, headers, a full buffer, a wrong type)
            # it calls `_send` below. Subclasses that override `send`, and serializers, keep the method.
            self.send = self._core.buffer_pool.accumulator.send  # type: ignore[method-assign]

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
        if self._core.serializers is not None and not isinstance(topic, ProducerRequest):
            _, value, key, *_ = self._core.serialized(Message(topic, value, key))
            response: ProduceResponse = self._core.buffer_pool.accumulator.send(
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
            return run_blocking(
                self._send_each(topic, topic.terms(self._core.settings, self._core.runtime.clock.now()))
            )
        if partition is None and self._core.custom_partitioner is not None:
            check_topic(topic)
            message = Message(topic, value, key, headers, partition, timestamp_ms)
            known = self._core.known(topic) or run_blocking(self._known(topic))
            partition = self._core.choose_partition(message, known)
        if on_delivery is not None:
            check_callback(on_delivery)
        incoming = self._core.pending_record(topic, value, key, headers, partition, timestamp_ms)
        response = self._core.append_or_wait(incoming)
        if on_delivery is not None:
            response.on_delivery(on_delivery)
        return response

    send_all = blocking(ProducerBase._send_all)
    send_many = blocking(ProducerBase._send_many)
    send_arrow = blocking(ProducerBase._send_arrow)
    flush = blocking(ProducerBase._flush)
    explain = blocking(ProducerBase._explain)
    metrics = blocking(ProducerBase._metrics)
    close = blocking(ProducerBase._close)

    async def _append(self, append: Append[T], terms: DeliveryOptions | None = None) -> T:
        limit = None
        if terms is not None and terms.timeout is not None:
            limit = max(0.0, terms.deadline - self._core.runtime.clock.now())
        return self._core.append_or_wait(append, limit)

    def _response_maker(self) -> MakeResponse:
        return ProduceResponse

    def _bulk_dispatch(self) -> Dispatch | None:
        return None

    # -- transactions

    init_transactions = blocking(ProducerBase._init_transactions)
    begin = blocking(ProducerBase._begin)
    send_offsets = blocking(ProducerBase._send_offsets)
    commit = blocking(ProducerBase._commit)
    abort = blocking(ProducerBase._abort)

    @contextlib.contextmanager
    def transaction(self, timeout: float | None = 60.0) -> Iterator[None]:
        """`begin`, then `commit`; or `abort`, if the block raises or the commit fails.

        If the block or the commit raises, that error is raised; the abort waits for at most 5 s, and its own error goes
        to the log.

        >>> with producer.transaction():  # doctest: +SKIP
        ...     producer.send("out", b"result")
        ...     producer.send_offsets({("in", 0): 42}, "my-group")
        """
        self.begin(timeout)
        try:
            yield
            self.commit(timeout)
        except BaseException as error:
            run_blocking(self._abort_after(error, timeout))
            raise

    # -- the rest

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Events: brokers that come, fail and go, partitions that lose their leader, metadata that changed. What
        `callback` raises is logged. Returns a function that ends it; nothing is called after that function has
        returned, except a call that is running just then.
        """
        return self._core.runtime.on_cluster_event(callback)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close: for 30 s, 5 s while no broker has ever responded; after a block that raised 1 s, or not at all.

        Raises UndeliveredError, after a block that did not raise, if records failed or were not delivered in time and
        no caller has seen their failure. After a block that raised, it is an error in the log.
        """
        run_blocking(self._exit(error))
