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
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, overload

from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.waiting import BLOCKING, blocking, run_blocking
from kwire.errors import KwireError
from kwire.option_checks import documents_options, translate_bootstrap
from kwire.producer.accumulator import Append
from kwire.producer.batch_builder import Dispatch
from kwire.producer.client import ProducerClient, check_topic
from kwire.producer.futures import Callback, MakeResponse, ProduceResponse, check_callback
from kwire.producer.message import Data, Headers, Message
from kwire.producer.methods import ProducerMethods
from kwire.producer.options import ProducerKwargs, ProducerSettings
from kwire.producer.producer_request import DeliveryOptions, ProducerRequest

if TYPE_CHECKING:
    from kwire.cluster import ClusterEvent

T = TypeVar("T")


@documents_options(ProducerSettings, ClientConfig)
class Producer(ProducerMethods):
    """Sends records to a Kafka cluster; safe to use from many threads.

    >>> with kwire.Producer("localhost:9092") as producer:            # doctest: +SKIP
    ...     response = producer.send("greetings", b"hello", key=b"en")
    ...     print(response.result(timeout=10).offset)

    The options used most: acks, linger_ms, batch_bytes, compression, max_buffered_bytes, delivery_timeout_ms,
    value_serializer, transactional_id, tls and sasl. `help(kwire.Producer)` and the page "Options" of the documentation
    have all of them, with defaults and units.

    Close it, or use `with`. If the interpreter ends first, accepted records get five seconds more (a transaction that
    was not committed is aborted), and an error in the log names those that are not delivered by then. A forked child
    cannot use it: create another one there.

    Raises ConfigurationError for options that are unknown or contradict each other. No broker is contacted before the
    first `send`, and an unreachable one makes responses fail, not the constructor.
    """

    _waiter = BLOCKING

    @translate_bootstrap("kwire.Producer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ProducerKwargs]) -> None:
        self._core = ProducerClient("kwire.Producer", bootstrap, options, partial(Producer._send, self))
        if type(self).send is Producer.send and self._core.is_plain:
            # From here on `producer.send(...)` is the accumulator's bound method, which saves a Python call per record.
            # It appends a plain record itself; for anything unusual (a new topic, headers, a full buffer, a wrong type)
            # it calls `_send` below. Subclasses that override `send`, serializers and interceptors keep the method.
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
        if self._core.is_plain or isinstance(topic, ProducerRequest):
            return self._send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        try:
            message = self._core.outgoing(Message(topic, value, key, headers, partition, timestamp_ms))
            response: ProduceResponse = self._core.buffer_pool.accumulator.send(*message, on_delivery)
        except KwireError as error:
            self._core.tell_refused(topic, partition, error)
            raise
        return response

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

    _send.__qualname__ = "Producer.send"  # which errors about arguments name

    send_all = blocking(ProducerMethods._send_all)
    send_many = blocking(ProducerMethods._send_many)
    send_lines = blocking(ProducerMethods._send_lines)
    send_arrow = blocking(ProducerMethods._send_arrow)
    flush = blocking(ProducerMethods._flush)
    explain = blocking(ProducerMethods._explain)
    metrics = blocking(ProducerMethods._metrics)
    client_instance_id = blocking(ProducerMethods._client_instance_id)
    close = blocking(ProducerMethods._close)

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

    init_transactions = blocking(ProducerMethods._init_transactions)
    begin = blocking(ProducerMethods._begin)
    send_offsets = blocking(ProducerMethods._send_offsets)
    commit = blocking(ProducerMethods._commit)
    abort = blocking(ProducerMethods._abort)

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
