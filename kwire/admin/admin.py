"""`kwire.Admin`: the face, blocking, for any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from kwire.admin.cluster import ClusterDescription, describe_cluster, snapshot
from kwire.admin.operation import Operation
from kwire.admin.topics import CreatedTopic, CreateTopics, DeleteTopics, NewTopic
from kwire.cluster import Backoff, ClientKwargs, ClusterEvent, LoopThread, Snapshot, client_config
from kwire.errors import BrokerError, ClosedError, ConfigurationError, KwireError, RequestTimeoutError
from kwire.options import translate_bootstrap

Thing = TypeVar("Thing")
Outcome = TypeVar("Outcome")

# Seconds beyond an operation's own end, after which the loop must have broken without a word.
_GRACE = 10.0


class Admin:
    """Asks a Kafka cluster to be different, and what it is; safe to use from many threads.

    >>> with kwire.Admin("localhost:9092") as admin:                  # doctest: +SKIP
    ...     admin.create_topics([kwire.NewTopic("greetings", partitions=3)])

    Options, with their defaults:

    bootstrap                "host:port,host:port" of any brokers of the cluster, or a list of such
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

    Calls wait for their outcome at most `timeout` seconds, by default request_timeout_ms. They raise the typed error of
    what went wrong. One that changes several things raises the first error once every outcome is known, and names the
    other failures in its notes; with raise_errors=False it answers the errors in place of the outcomes.
    """

    @translate_bootstrap("kwire.Admin")
    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ClientKwargs]) -> None:
        self._config = client_config(bootstrap, options, client="kwire.Admin")
        self._runtime = LoopThread(self._config, name=f"{self._config.client_id} admin")

    def __repr__(self) -> str:
        return f"<kwire.Admin {self._config.client_id!r} of {','.join(self._config.bootstrap)}>"

    @overload
    def create_topics(
        self, topics: Iterable[NewTopic], timeout: float | None = None, *, validate_only: bool = False,
        raise_errors: Literal[True] = True,
    ) -> dict[str, CreatedTopic]: ...  # fmt: skip

    @overload
    def create_topics(
        self, topics: Iterable[NewTopic], timeout: float | None = None, *, validate_only: bool = False,
        raise_errors: bool,
    ) -> dict[str, CreatedTopic | BrokerError]: ...  # fmt: skip

    def create_topics(
        self,
        topics: Iterable[NewTopic],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Mapping[str, CreatedTopic | BrokerError]:
        """Create topics. When it answers the controller has them; every other broker hears of them soon after.

        `validate_only` checks whether they could be created, and creates none.
        """
        wanted = _by_name((topic.name, topic) for topic in topics)
        operation = CreateTopics(wanted, **self._operation_options(timeout))
        operation.validate_only = validate_only
        return self._outcomes(operation, timeout, raise_errors)

    def delete_topics(
        self, names: Iterable[str], timeout: float | None = None, *, raise_errors: bool = True
    ) -> Mapping[str, BrokerError | None]:
        """Delete topics with all of their records. Brokers stop answering for them soon after this has returned."""
        if isinstance(names, str):
            raise ConfigurationError(f"names is {names!r}", remedy="give a list of names")
        operation = DeleteTopics(_by_name((name, name) for name in names), **self._operation_options(timeout))
        return self._outcomes(operation, timeout, raise_errors)

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Brokers that come, fail and go, partitions that lose their leader, metadata that changed. What `callback` raises
        is logged. Returns a function that ends it; nothing is called after that function has returned, but what is
        running just then.
        """
        return self._runtime.on_cluster_event(callback)

    def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers, and which of them answers for the controller."""
        return describe_cluster(self._runtime, self._timeout(timeout))

    def metadata(self, topics: Sequence[str] | None = None, timeout: float | None = None) -> Snapshot:
        """Topics, partitions and their leaders, fresh from a broker; of all topics if none are named.

        A topic that does not exist is in the answer with its error_code, and is not created.
        """
        return snapshot(self._runtime, topics, self._timeout(timeout))

    def close(self, timeout: float | None = 10.0) -> None:
        """End the thread and the connections; calls that still wait get ClosedError. A second call does nothing."""
        self._runtime.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _timeout(self, timeout: float | None) -> float:
        return self._config.request_timeout_ms / 1000 if timeout is None else timeout

    def _operation_options(self, timeout: float | None) -> dict[str, Any]:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_ms_max)
        return {"timeout": self._timeout(timeout), "backoff": backoff, "random": Random()}

    def _outcomes(
        self, operation: Operation[Thing, Outcome], timeout: float | None, raise_errors: bool
    ) -> dict[str, Outcome | BrokerError]:
        self._runtime.add(operation)
        try:
            outcomes = operation.future.result(self._timeout(timeout) + _GRACE)
        except FutureTimeoutError as error:
            if isinstance(error, KwireError):  # the operation's own answer
                raise
            raise RequestTimeoutError("the event loop did not answer") from error
        finally:
            with suppress(ClosedError):
                self._runtime.remove(operation)
        failed = {name: one for name, one in outcomes.items() if isinstance(one, BrokerError)}
        if failed and raise_errors:
            first, *others = failed.values()
            for other in others:
                first.add_note(f"also: {other}")
            raise first
        return outcomes


def _by_name(pairs: Iterable[tuple[str, Thing]]) -> dict[str, Thing]:
    things: dict[str, Thing] = {}
    for name, thing in pairs:
        if name in things:
            raise ConfigurationError(f"{name} is named twice")
        things[name] = thing
    return things
