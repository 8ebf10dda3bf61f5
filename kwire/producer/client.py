"""What `kwire.Producer` and `kwire.aio.Producer` share: the loop's thread, the sender, the accumulator, the records.

The two differ only in how they wait. `MetadataWaiter` makes the loop fetch metadata of the topics that a caller's own
partitioner needs, and notifies the callers.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from random import Random
from typing import Any, TypeVar

from kwire.cluster import (
    Backoff,
    ClientConfig,
    Cluster,
    ClusterView,
    LoopThread,
    PendingRequest,
    Topic,
    is_topic_name,
    open_loop_thread,
)
from kwire.cluster.metadata import TOPIC_NAME_BYTES_MAX
from kwire.cluster.telemetry import ClientTelemetry, Reading
from kwire.errors import (
    PERMANENT_TOPIC_CODES,
    ClosedError,
    ConfigurationError,
    ErrorCode,
    KwireError,
    RecordTooLargeError,
    RequestTimeoutError,
    UndeliveredError,
    broker_error,
    counted,
    timeout_error,
)
from kwire.option_checks import check_names
from kwire.producer.accumulator import Append, BufferPool, PendingRecord, RecordAccumulator
from kwire.producer.batch_builder import Dispatch
from kwire.producer.bulk import (
    Bulk,
    Keys,
    ManyHeaders,
    OnRefused,
    Partitions,
    Slice,
    Timestamps,
    Values,
    check_column,
    lines_of,
    pyarrow_is_missing,
    slice_of,
)
from kwire.producer.consumed import ConsumedBatches
from kwire.producer.explain import Explanation
from kwire.producer.futures import Callbacks, MakeResponse, ProduceResponse, refused, wait_for
from kwire.producer.interceptors import ProducerInterceptors
from kwire.producer.message import (
    Data,
    Headers,
    Message,
    check_message,
    check_partition,
    check_timestamp,
    to_bytes,
    to_headers,
)
from kwire.producer.metrics import ProducerMetrics, readings
from kwire.producer.options import ProducerSettings
from kwire.producer.partitioner import own_rule, routing
from kwire.producer.producer_request import DeliveryOptions, may_share
from kwire.producer.sender import Sender
from kwire.producer.serializers import Serializers
from kwire.producer.transaction import Transaction
from kwire.records import Compression, record_bytes_max
from kwire.wire.buffers import Bytes

OnKnown = Callable[[KwireError | None], object]


class MetadataWaiter:
    """The callers that wait for a topic's metadata. All methods are for the loop's thread."""

    def __init__(self, max_idle: float = 300.0) -> None:
        """`max_idle`: seconds for which a found topic is refreshed; after that, only while it has records."""
        self._max_idle = max_idle
        self._topics: dict[str, list[OnKnown]] = {}
        self._until: dict[str, float] = {}  # when to forget a topic, earliest first
        self._closed: KwireError | None = None

    def wait_for_topic(self, topic: str, on_known: OnKnown) -> None:
        """Call `on_known(None)` when the topic has partitions, or `on_known(error)` if it never will; exactly once."""
        if self._closed is not None:
            on_known(self._closed)
        else:
            self._topics.setdefault(topic, []).append(on_known)
            self._until.pop(topic, None)

    def connection_error(self, topic: str, view: ClusterView) -> KwireError | None:
        """Return the error why the topic is not known yet, if there is one."""
        known = view.snapshot.topics.get(topic)
        if known is not None and known.error_code:
            return broker_error(known.error_code, topic=topic, **view.metadata_status().source)
        return view.connection_error

    def topics(self) -> Collection[str]:
        return self._topics.keys()

    def turn(self, now: float, view: ClusterView) -> Iterable[PendingRequest]:
        while self._until and (first := next(iter(self._until.items())))[1] <= now:
            del self._until[first[0]], self._topics[first[0]]
        for topic, waiting in self._topics.items():
            if waiting:
                view.allow_topic_creation(topic)
                is_over, error = self._outcome(topic, view)
                if is_over:
                    self._topics[topic] = []
                    self._until[topic] = now + self._max_idle
                    for on_known in waiting:
                        on_known(error)
        return ()

    def deadline(self) -> float | None:
        return next(iter(self._until.values()), None)

    def closed(self, error: KwireError) -> None:
        self._closed = error
        for waiting in self._topics.values():
            while waiting:
                waiting.pop(0)(error)

    def _outcome(self, topic: str, view: ClusterView) -> tuple[bool, KwireError | None]:
        known = view.snapshot.topics.get(topic)
        if known is not None and known.partitions:
            return True, None
        if known is not None and known.error_code in PERMANENT_TOPIC_CODES:
            return True, broker_error(known.error_code, topic=topic, **view.metadata_status().source)
        return view.has_fatal_error, view.connection_error if view.has_fatal_error else None


R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("kwire.producer")

# How long, in seconds, a producer that was not closed delivers its records when the interpreter ends.
EXIT_SECONDS = 5.0

# How long, in seconds, `close` waits for deliveries: by default; at the end of a `with` block if no broker was ever
# reached; and after a block that raised.
CLOSE_SECONDS = 30.0
UNREACHED_SECONDS = 5.0
RAISED_SECONDS = 1.0

# How long, in seconds, `close` then waits for the threads to end; a callback may be running.
THREAD_END_SECONDS = 10.0

_SETTINGS = frozenset(field.name for field in fields(ProducerSettings))

# With the single_broker partitioner, connections to earlier brokers are closed after this: before the next switch, but
# late enough that a pause between records does not cost a new connection.
_SINGLE_BROKER_IDLE_MS = 15_000


def make_accumulator(
    settings: ProducerSettings,
    dispatch: Dispatch,
    wakeup: Callable[[], object],
    time_ms: Callable[[], int] | None = None,
    slow_path: Callable[..., object] | None = None,
    *,
    by_system: bool = False,
) -> RecordAccumulator:
    """Return the accumulator of a producer with these settings; only its own `send` needs `time_ms` and `slow_path`."""
    return RecordAccumulator(
        future_class=ProduceResponse,
        dispatch=dispatch,
        batch_bytes=settings.batch_bytes,
        bytes_max=settings.max_buffered_bytes,
        record_bytes_max=settings.record_bytes_max,
        key_hash=routing(settings.partitioner, ignore_keys=settings.partitioner_ignore_keys).key_hash,
        may_share=may_share,
        time_ms=time_ms or _never,
        wakeup=wakeup,
        slow_path=slow_path or _never,
        by_system=by_system,
        sums=settings.codec is Compression.NONE,
    )


def _never(*_: object) -> Any:
    raise AssertionError("the accumulator's own `send` is not for this producer")


class ProducerClient:
    """The part of a producer that does not wait. Methods may be called from any thread unless they say otherwise."""

    def __init__(
        self,
        client: str,
        bootstrap: str | Sequence[str] | Cluster,
        options: Mapping[str, Any],
        slow_path: Callable[..., object],
        dispatch: Dispatch | None = None,
    ) -> None:
        """`client` is the name of the public class, for errors; `slow_path` is that of the accumulator's `send`.

        `dispatch` runs the callbacks of records; None: on the callback thread.
        """
        check_names(client, bootstrap, options, ProducerSettings, ClientConfig)
        self._name = client
        shared = dict(options)
        own = {name: shared.pop(name) for name in options if name in _SETTINGS}
        self.settings = ProducerSettings(**own)
        if dispatch is not None and self.settings.callback_executor is not None:
            raise ConfigurationError(
                f"callback_executor is not for {client}: its callbacks run in the asyncio loop",
                remedy="leave the option out, and let a callback call loop.run_in_executor",
            )
        self.custom_partitioner = own_rule(self.settings.partitioner)
        self.serializers: Serializers | None = None
        if self.settings.key_serializer is not None or self.settings.value_serializer is not None:
            self.serializers = Serializers(self.settings.key_serializer, self.settings.value_serializer)
        self.interceptors: ProducerInterceptors | None = None
        if self.settings.interceptors:
            self.interceptors = ProducerInterceptors(self.settings.interceptors)
        # Whether a message may change before it is appended, or must be reported if it is refused.
        self.is_plain = self.serializers is None and self.interceptors is None
        has_own_connections = not isinstance(bootstrap, Cluster)
        if (
            has_own_connections
            and self.custom_partitioner is None
            and str(self.settings.partitioner).endswith("single_broker")
        ):
            shared.setdefault("idle_timeout_ms", min(_SINGLE_BROKER_IDLE_MS, self.settings.single_broker_switch_ms))
        self.runtime = self._open_loop(bootstrap, shared)
        config = self.runtime.config
        self.callbacks = Callbacks(
            dispatch or self.runtime.dispatch,
            # In an asyncio loop a callback that blocks also blocks the tasks that send.
            self.settings.max_buffered_bytes if dispatch is None else None,
            self.settings.callback_executor,
        )
        if self.interceptors is not None and self.interceptors.is_told:
            self.callbacks.on_resolved = self.interceptors.resolved
        self.consumed = ConsumedBatches()
        self.buffer_pool = BufferPool(
            make_accumulator(
                self.settings,
                self.callbacks,
                self.runtime.wakeup,
                self.runtime.clock.time_ms,
                slow_path,
                by_system=self.runtime.has_system_clock,
            ),
            self.settings.when_full,
            self.settings.max_block_ms / 1000,
            self.runtime.wakeup,
        )
        self.callbacks.bind(self.buffer_pool.release)
        self.sender = Sender(
            self.settings,
            self.buffer_pool,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            request_timeout_ms=config.request_timeout_ms,
            random=self._new_random(),
        )
        self.telemetry = ClientTelemetry(self, self.runtime, is_on=self.settings.telemetry)
        self.metadata_waiter = MetadataWaiter(self.settings.metadata_max_idle_ms / 1000)
        self.is_started = False
        self._is_closing = False
        self._at_exit: weakref.finalize[[ProducerClient], LoopThread] | None = None
        self._lock = threading.Lock()
        self._record_bytes_max = self.settings.record_bytes_max
        self._time_ms = self.runtime.clock.time_ms

    def _open_loop(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> LoopThread:
        return open_loop_thread(self._name, bootstrap, options, "producer")

    def _new_random(self) -> Random:
        return Random()

    def start(self) -> None:
        """Start the loop, which opens connections. Raises ClosedError once `stop_accepting` was called."""
        with self._lock:
            self._check_open()
            if not self.is_started:
                self.runtime.add(self.sender, "produce")
                if self.custom_partitioner is not None:
                    self.runtime.add(self.metadata_waiter)
                self.telemetry.start()
                # A running loop keeps the runtime, and through it this object, alive until it is closed.
                self._at_exit = weakref.finalize(self.runtime, _deliver_at_exit, self)
                self.runtime.deliver_before_end(self._deliver_before_cluster_ends)
                self.is_started = True
                # A caller's own partitioner runs for every record, before the accumulator's `send`.
                self.buffer_pool.accumulator.is_open = self.custom_partitioner is None
                if self.buffer_pool.accumulator.is_open:
                    self.runtime.on_fork(self._shut)

    def _deliver_before_cluster_ends(self, timeout: float | None) -> None:
        _deliver(self, self.drain_steps(timeout, UNREACHED_SECONDS), "the kwire.Cluster was closed before the producer")

    def _shut(self) -> None:
        """Make `send` take the slow path in a forked child, which raises."""
        self.buffer_pool.accumulator.is_open = False

    def pending_record(
        self,
        topic: str,
        value: Data,
        key: Data,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
        terms: DeliveryOptions | None = None,
        make: MakeResponse = ProduceResponse,
    ) -> PendingRecord:
        """Return a record for the buffer pool; raises what `Producer.send` raises. `make` creates the response."""
        self.check_usable()
        check_topic(topic)
        key_bytes, value_bytes = to_bytes(key, "key"), to_bytes(value, "value")
        header_tuple = to_headers(headers)
        size_bytes = record_bytes_max(key_bytes, value_bytes, header_tuple)
        check_partition(partition)
        if size_bytes > self._record_bytes_max:
            raise RecordTooLargeError(
                f"the record has {size_bytes} bytes, {self._record_bytes_max} are allowed",
                code=ErrorCode.MESSAGE_TOO_LARGE,
                remedy="raise max_request_bytes, and the topic's max.message.bytes on the brokers, or send it in parts",
                topic=topic,
                partition=partition,
            )
        if timestamp_ms is None:
            timestamp_ms = self._time_ms()
        else:
            check_timestamp(timestamp_ms)
            timestamp_ms = int(timestamp_ms)
        index = None if partition is None else int(partition)  # C takes no subclass, such as an IntEnum
        return PendingRecord(
            topic, index, (timestamp_ms, key_bytes, value_bytes, header_tuple), size_bytes, terms, make
        )

    def check_usable(self) -> None:
        """Start the loop if necessary. Raises ClosedError in a forked child and once `close` was called."""
        if not self.is_started:
            self.start()
        self.runtime.check_usable()
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closing:
            raise _closed()

    def append_or_wait(self, append: Append[R], limit: float | None = None) -> R:
        """Append a record, or many; blocks or raises BufferFullError when the buffer is full."""
        if not self.callbacks.is_running_here:
            return self.buffer_pool.append_or_wait(append, limit)
        with self.callbacks.sending():
            return self.buffer_pool.append_or_wait(append, limit)

    def outgoing(self, message: Message) -> Message:
        """Return the message that interceptors and serializers make of a caller's. Raises SerializationError."""
        if self.is_plain:
            return message
        check_message(message)
        check_topic(message.topic)
        if self.interceptors is not None:
            message = self.interceptors.on_send(message)
        if self.serializers is None:
            return message
        return self.serializers.message(message)

    def prepared(
        self, message: Message, terms: DeliveryOptions | None, make: MakeResponse = ProduceResponse
    ) -> PendingRecord | ProduceResponse:
        """Return the record of one of several messages, or a failed response if it is too large."""
        try:
            return self.pending_record(*message, terms, make)
        except RecordTooLargeError as error:
            return self.refused(message.topic, error, make)

    def tell_refused(self, topic: object, partition: int | None, error: KwireError, count: int = 1) -> None:
        """Report records that the caller gets an error for, not a response, to the interceptors."""
        if self.interceptors is not None and isinstance(topic, str):
            self.interceptors.refused(topic, partition, error, count)

    def refused(self, topic: str, error: KwireError, make: MakeResponse = ProduceResponse) -> ProduceResponse:
        """Return the failed response of a record that was not accepted."""
        return refused(topic, error, make, self.callbacks)

    # -- many at once

    def slice_of(
        self, topic: str, values: Values, keys: Keys, headers: ManyHeaders, timestamps_ms: Timestamps,
        partitions: Partitions,
    ) -> Slice:  # fmt: skip
        """Return the records of `send_many` as columns; raises what `send_many` raises."""
        check_topic(topic)
        self.check_usable()
        if self.serializers is not None:
            check_column(values, "values")
            values = self.serializers.many(topic, "value", values)
            if keys is not None:
                check_column(keys, "keys")
                keys = self.serializers.many(topic, "key", keys)
        return slice_of(values, keys, headers, timestamps_ms, partitions, self._time_ms())

    def lines_slice(self, topic: str, data: Bytes, delimiter: bytes) -> Slice:
        """Return the records of `send_lines` as columns; raises what `send_lines` raises."""
        check_topic(topic)
        self.check_usable()
        return lines_of(data, delimiter, self._time_ms())

    def arrow_slices(self, topic: str, table: object) -> list[Slice]:
        """Return the records of `send_arrow` as columns; raises what `send_arrow` raises."""
        check_topic(topic)
        self.check_usable()
        if find_spec("pyarrow") is None:
            raise pyarrow_is_missing()
        from kwire.producer import arrow  # imported late: pyarrow takes longer to import than kwire

        return arrow.slices_of(table, self._time_ms())

    def bulk(self, topic: str, slices: Iterable[Slice], known: Topic | None, dispatch: Dispatch | None = None) -> Bulk:
        """Return the records as one append; `known` is for the caller's own partitioner, if there is one."""
        on_refused: OnRefused | None = None
        if self.interceptors is not None:
            slices = [self.interceptors.changed(topic, one) for one in slices]
            on_refused = partial(self.tell_refused, topic, None)
        if known is not None:
            slices = [self._placed(topic, one, known) for one in slices]
        return Bulk(topic, slices, dispatch or self.callbacks, self.callbacks.failures, on_refused)

    def _placed(self, topic: str, one: Slice, known: Topic) -> Slice:
        """Return the columns with the partitions that the caller's own partitioner chooses."""
        partitions = array("i")
        for timestamp_ms, key, value, headers, partition in one.columns.rows(0, one.length):
            if partition is None:
                partition = self.choose_partition(Message(topic, value, key, headers, None, timestamp_ms), known)
            partitions.append(-1 if partition is None else partition)
        return Slice(one.columns._replace(partitions=partitions), one.length)

    # -- a caller's own partitioner

    def known(self, topic: str) -> Topic | None:
        """Return a topic's metadata; None until its partitions are known."""
        topic_or_none = self.runtime.snapshot.topics.get(topic)
        return topic_or_none if topic_or_none is not None and topic_or_none.partitions else None

    def wait_for_topic(self, topic: str) -> Future[None]:
        """Return a future that resolves when the topic is known, or fails if it never will be."""

        def want(future: Future[None]) -> None:
            def on_known(error: KwireError | None) -> None:
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

            self.metadata_waiter.wait_for_topic(topic, on_known)

        if not self.is_started:
            self.start()
        return self.on_loop(want)

    def topic_timeout_error(self, topic: str) -> RequestTimeoutError:
        """Return the error of a timeout while waiting for a topic's metadata. On the loop's thread."""
        cause = self.metadata_waiter.connection_error(topic, self.runtime.view_for("produce"))
        return timeout_error(
            f"the topic's partitions are not known after {self.settings.max_block_ms} ms",
            cause,
            remedy="a partitioner of your own needs them: check that the topic exists and that a broker can be reached",
            **({"api": "Metadata", "topic": topic} | (cause.where if cause is not None else {})),
        )

    def choose_partition(self, message: Message, known: Topic) -> int | None:
        """Return the partition that the caller's own partitioner chooses; it runs on the caller's thread."""
        assert self.custom_partitioner is not None
        ready = message._replace(
            value=to_bytes(message.value, "value"),
            key=to_bytes(message.key, "key"),
            headers=to_headers(message.headers),
        )
        index = self.custom_partitioner(ready, known)
        if index is None:
            return None
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(known.partitions):
            has = counted(len(known.partitions), "partition")
            raise ValueError(f"the partitioner returned {index!r} for topic {known.name}, which has {has}")
        return index

    # -- on the loop

    def flush(self, on_done: Callable[[], object]) -> bool:
        """Send all records without further linger; `on_done` runs on the loop's thread when all have a result.

        Return True for `wait_for`: `on_done` is always called.
        """
        clock = self.runtime.clock
        self.runtime.call_soon(lambda: self.sender.flush(on_done, clock.now()))
        return True

    def drain(self, on_done: Callable[[], object]) -> bool:
        """End an open transaction, then `flush`, for `close`. An abort is logged, not raised."""
        clock, failures = self.runtime.clock, self.callbacks.failures
        self.runtime.call_soon(lambda: self.sender.drain(on_done, failures.clear, clock.now()))
        return True

    def explain(self, topic: str, partition: int | None) -> Explanation:
        """Return why records are not sent yet. On the loop's thread, or while none runs."""
        return self.sender.explain(topic, partition, self.runtime.clock.now(), self.runtime.view_for("produce"))

    def metrics(self) -> ProducerMetrics:
        """Return a snapshot of the metrics. On the loop's thread, or while none runs."""
        return self.sender.metrics(self.runtime.metrics())

    def telemetry_readings(self) -> list[Reading]:
        return readings(self.runtime.on_loop_or_after(self.metrics))

    def telemetry_resource(self) -> dict[str, str]:
        id = self.settings.transactional_id
        return {} if id is None else {"transactional_id": id}

    def timeout_error(self, what: str, timeout: float | None) -> RequestTimeoutError:
        """Return the error when `what` exceeded the caller's timeout. On the loop's thread, or while none runs."""
        return self.sender.timeout_error(what, timeout, self.runtime.clock.now(), self.runtime.view_for("produce"))

    # -- the end

    def stop_accepting(self) -> None:
        """Refuse further records, also of senders that wait for memory; buffered records are still sent."""
        with self._lock:
            self._is_closing = True
        self.buffer_pool.close(_closed())
        if self._at_exit is not None:
            self._at_exit.detach()

    def close_interceptors(self) -> None:
        """Close the interceptors once the loop has ended and they have learned the results of the last records."""
        if self.interceptors is not None:
            self.runtime.when_ended(partial(self.callbacks, self.interceptors.close))

    def is_reached(self) -> bool:
        """Return whether a broker was ever reached."""
        return bool(self.runtime.snapshot.brokers)

    def drain_steps(self, timeout: float | None, unreached: float | None) -> Iterator[float | None]:
        """Yield the seconds to wait for deliveries: first, and again after that wait was too short.

        `timeout` is the total; `unreached` is the limit if no broker was ever reached.
        """
        if self.is_reached() or unreached is None or (timeout is not None and timeout <= unreached):
            yield timeout
            return
        yield unreached
        if self.is_reached():
            yield None if timeout is None else timeout - unreached

    def undelivered(self, late: KwireError | None) -> UndeliveredError | None:
        """Return the error about failed records that no caller has seen, once; None if there are none."""
        return self.callbacks.failures.take(late)

    def state(self) -> str:
        """Return the state of the producer in one or two words."""
        if self.runtime.is_forked:
            return "another process's"
        if self.runtime.is_closed:
            return "closed"
        if self._is_closing:
            return "closing"
        return "open" if self.is_started else "not started"

    def describe(self) -> str:
        """Return the repr of the producer."""
        config = self.runtime.config
        return f"<{self._name} of {','.join(config.bootstrap)}, client_id {config.client_id!r}, {self.state()}>"

    # -- transactions

    def transaction(self) -> Transaction:
        """Return the transaction, whose methods are for the loop's thread."""
        transaction = self.sender.transaction
        if transaction is None:
            raise ConfigurationError(
                "this producer has no transactional_id", remedy="give one, of its own, to the constructor"
            )
        if not self.is_started:
            self.start()
        return transaction

    def on_loop(self, act: Callable[[Future[T]], None]) -> Future[T]:
        """Run `act(future)` on the loop's thread and return the future, which `act` resolves."""
        future: Future[T] = Future()
        self.runtime.call_soon(act, future)
        return future

    def run(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the loop's thread and return a future of its result or error."""

        def act(future: Future[T]) -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        if not self.is_started:
            self.start()
        return self.on_loop(act)


def _closed() -> ClosedError:
    return ClosedError("the producer is closed", remedy="make another one, or close it later")


def check_topic(topic: object) -> None:
    """Raise TypeError or ValueError unless `topic` is a topic's name."""
    if isinstance(topic, Message):
        raise TypeError("send takes a topic, then a value and a key: hand Messages over with send_all([...])")
    if not isinstance(topic, str) or not topic:
        raise TypeError(f"topic is {topic!r}: it must be a str that is not empty")
    if not is_topic_name(topic):
        raise ValueError(f"topic is {topic[:50]!r}: it must be text of at most {TOPIC_NAME_BYTES_MAX} bytes in UTF-8")


def _deliver_at_exit(core: ProducerClient) -> None:
    """Deliver the records of a producer that was not closed when the interpreter ends; log those that are lost."""
    if not core.runtime.is_forked:  # in a forked child, the records are the parent's
        _deliver(core, [EXIT_SECONDS], "nobody closed the producer, and the interpreter ends")


def _deliver(core: ProducerClient, steps: Iterable[float | None], why: str) -> None:
    """Refuse further records and deliver the buffered ones within `steps` (`drain_steps`); log those that are lost."""
    core.stop_accepting()
    core.close_interceptors()
    late: KwireError | None = None
    with contextlib.suppress(ClosedError):
        for seconds in steps:
            if wait_for(core.drain, seconds):
                late = None
                break
            late = core.runtime.on_loop_or_after(partial(core.timeout_error, "close()", seconds), EXIT_SECONDS)
    if late is not None:
        _log.error("%s before all is delivered: %s", why, late.message)
    undelivered = core.undelivered(None)
    if undelivered is not None:
        _log.error("%s: %s", why, undelivered)
