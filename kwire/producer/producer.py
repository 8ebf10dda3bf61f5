"""`kwire.Producer`: the face of the producer for threads and asyncio alike.

It checks what the caller gives, hands it to the loop through the `Intake`, and answers a `ProduceResponse` at once.
Everything else happens on the loop's thread, in the `Sender`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from random import Random
from types import TracebackType
from typing import Any, Self

from kwire.cluster import Backoff, ClientConfig, Runtime, client_config
from kwire.errors import (
    ClosedError,
    ConfigurationError,
    ErrorCode,
    FatalError,
    RecordTooLargeError,
    RequestTimeoutError,
)
from kwire.producer.intake import Incoming, Intake
from kwire.producer.response import Callback, ProduceResponse
from kwire.producer.sender import Sender
from kwire.producer.settings import ProducerSettings
from kwire.producer.transaction import GroupMetadata, Transaction
from kwire.records import record_bytes_max

Data = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]] | None

_SETTINGS = frozenset(field.name for field in fields(ProducerSettings))


class Producer:
    """Sends records to a Kafka cluster; safe to use from many threads.

    >>> with kwire.Producer("localhost:9092") as producer:            # doctest: +SKIP
    ...     response = producer.send("greetings", b"hello", key=b"en")
    ...     print(response.result(timeout=10).offset)

    bootstrap               "host:port,host:port" of any brokers of the cluster
    acks                    "all" (the default), 1, or 0: whose acknowledgement a record waits for
    idempotence             None: no duplicates wherever brokers (0.11 and later) and acks allow it; True insists on
                            it, False forgoes it
    ordered                 False lets batches of a partition overtake each other after a failure
    linger_ms               how long a record may wait for others to share its batch
    batch_bytes             a batch is closed at this size (before compression), per partition
    max_request_bytes       a request is closed at this size; a record larger than this is refused
    compression             "none", "gzip", "snappy", "lz4" or "zstd", with compression_level where the codec has levels
    partitioner             "murmur2" (Java's) or "crc32" (librdkafka's) for records with a key; others are spread
    max_buffered_bytes      the bound on records that are not yet delivered; when it is reached, `send` blocks for
                            max_block_ms (when_full="block") or raises BufferFullError (when_full="raise")
    delivery_timeout_ms     from `send` to giving up, retries included
    transactional_id        makes the producer transactional: `begin`, `send`, `send_offsets`, `commit` or `abort`
    transaction_timeout_ms  brokers abort a transaction that takes longer
    unknown_topic_timeout_ms  how long brokers may say that they do not know the topic, which may be about to be created

    and the options of `kwire.cluster.ClientConfig`: client_id, tls, sasl, request_timeout_ms, ...

    Raises ConfigurationError for options that are unknown or contradict each other. No broker is contacted before the
    first `send`, and an unreachable one makes responses fail, not the constructor.
    """

    def __init__(self, bootstrap: str | Sequence[str], **options: Any) -> None:
        settings = {name: options.pop(name) for name in list(options) if name in _SETTINGS}
        self._settings = ProducerSettings(**settings)
        config: ClientConfig = client_config(bootstrap, options)
        self._runtime = Runtime(config, name=f"{config.client_id} producer")
        self._intake = Intake(
            self._settings.max_buffered_bytes,
            self._settings.when_full,
            self._settings.max_block_ms / 1000,
            self._runtime.wakeup,
        )
        self._sender = Sender(
            self._settings,
            self._intake,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            request_timeout_ms=config.request_timeout_ms,
            random=Random(),
        )
        self._is_added = False
        self._lock = threading.Lock()

    def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse:
        """Hand over one record; answers at once with the response that will know its fate.

        Text is encoded as UTF-8. `headers` are a mapping or (name, value) pairs; `timestamp_ms` is milliseconds since
        1970, by default now. `on_delivery(response)` runs on the callback thread when the fate is known.

        Raises RecordTooLargeError, BufferFullError, ClosedError, or TypeError/ValueError for arguments that no record
        can have. What happens after that is the response's to tell.
        """
        if not self._is_added:
            self._join_loop()
        self._runtime.check_usable()
        key_bytes, value_bytes = _to_bytes(key, "key"), _to_bytes(value, "value")
        header_tuple = _to_headers(headers) if headers else ()
        size_bytes = record_bytes_max(key_bytes, value_bytes, header_tuple)
        if size_bytes > self._settings.max_request_bytes:
            raise RecordTooLargeError(
                f"the record has {size_bytes} bytes, {self._settings.max_request_bytes} are allowed",
                code=ErrorCode.MESSAGE_TOO_LARGE,
                remedy="raise max_request_bytes, and the topic's max.message.bytes on the brokers, or send it in parts",
                topic=topic,
                partition=partition,
            )
        if not isinstance(topic, str) or not topic:
            raise TypeError(f"topic is {topic!r}: it must be a str that is not empty")
        if partition is not None and not 0 <= partition < 2**31:
            raise ValueError(f"partition is {partition}: it must be from 0 to 2**31 - 1")
        if timestamp_ms is None:
            timestamp_ms = self._runtime.clock.time_ms()
        elif not 0 <= timestamp_ms < 2**63:
            raise ValueError(f"timestamp_ms is {timestamp_ms}: it must be milliseconds since 1970")
        response = ProduceResponse(self._runtime.dispatch)
        if on_delivery is not None:
            response.add_done_callback(on_delivery)
        record = (timestamp_ms, key_bytes, value_bytes, header_tuple)
        self._intake.put(Incoming(topic, partition, record, response, size_bytes))
        return response

    def flush(self, timeout: float | None = None) -> None:
        """Send what was handed over without further linger, and wait until all of it has an outcome.

        Outcomes are the responses' to tell: a failed record does not make flush raise. RequestTimeoutError after
        `timeout` seconds; what is unresolved then is still being sent.
        """
        if not self._is_added:
            return
        done = threading.Event()
        clock = self._runtime.clock
        self._runtime.call_soon(lambda: self._sender.flush(done.set, clock.now(), self._runtime.snapshot))
        if not done.wait(timeout):
            raise RequestTimeoutError(
                f"records are still on their way after {timeout} s ({self._intake.used_bytes} bytes)",
                remedy="wait longer, or look at the log of kwire.cluster for brokers that cannot be reached",
            )

    # -- transactions

    def init_transactions(self, timeout: float | None = 60.0) -> None:
        """Get the producer id and fence every earlier producer with this transactional id. `begin` does it by itself.

        Raises FencedError, FatalError, or RequestTimeoutError after `timeout` seconds: then it may be called again.
        """
        transaction = self._transaction()
        self._await_loop(transaction.init, timeout)

    def begin(self, timeout: float | None = 60.0) -> None:
        """Begin a transaction: what is sent from now on becomes visible at once with `commit`, or never."""
        transaction = self._transaction()
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
        transaction = self._transaction()
        member = GroupMetadata(group) if isinstance(group, str) else group
        self._await_loop(lambda future: transaction.add_offsets(dict(offsets), member, future), timeout)

    def commit(self, timeout: float | None = 60.0) -> None:
        """Deliver what was sent, then make it visible. Returns when that is certain.

        AbortableError: something could not be delivered; call `abort`. FatalError or FencedError: close the producer.
        RequestTimeoutError: it is still being committed; call `commit` again.
        """
        transaction = self._transaction()
        self._await_loop(lambda future: self._sender.end(transaction, future, is_commit=True), timeout)

    def abort(self, timeout: float | None = 60.0) -> None:
        """Throw the transaction away: what was not sent yet fails with AbortableError. Errors as in `commit`."""
        transaction = self._transaction()
        self._await_loop(lambda future: self._sender.end(transaction, future, is_commit=False), timeout)

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

    def _transaction(self) -> Transaction:
        transaction = self._sender.transaction
        if transaction is None:
            raise ConfigurationError(
                "this producer has no transactional_id", remedy="give one, of its own, to kwire.Producer"
            )
        if not self._is_added:
            self._join_loop()
        return transaction

    def _await_loop(self, start: Callable[[Future[None]], None], timeout: float | None) -> None:
        """Run `start(future)` on the loop's thread and wait for what it resolves the future with."""
        future: Future[None] = Future()
        self._runtime.call_soon(start, future)
        self._runtime.wait(future, timeout)

    # -- the rest

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that were handed over and have no outcome yet."""
        return self._intake.used_bytes

    def partitions(self, topic: str) -> int | None:
        """How many partitions the topic has, as far as this producer knows by now; None if it does not."""
        known = self._runtime.snapshot.topics.get(topic)
        return len(known.partitions) if known is not None and known.partitions else None

    def close(self, timeout: float | None = 30.0) -> None:
        """Deliver what was handed over, for at most `timeout` seconds.

        Fail the rest; end the thread. May be repeated.
        """
        if self._is_added:
            # What does not make it in time is failed below, each record with its own DeliveryError.
            with contextlib.suppress(RequestTimeoutError, ClosedError):
                self.flush(timeout)
        self._intake.close(ClosedError("the producer is closed"))
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _join_loop(self) -> None:
        with self._lock:
            if not self._is_added:
                self._runtime.add(self._sender)
                self._is_added = True


def _to_bytes(data: Data, name: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)  # a copy: the caller may change his buffer before it is sent
    raise TypeError(f"{name} is {type(data).__name__}: it must be bytes, str or None")


def _to_headers(headers: Mapping[str, Data] | Iterable[tuple[str, Data]]) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    result = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is {name!r}: it must be str")
        result.append((name, _to_bytes(value, f"header {name}")))
    return tuple(result)
