"""`kwire.Admin`: blocking methods, safe to call from many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from kwire.admin.cluster import ClusterDescription, describe_cluster, snapshot
from kwire.admin.groups import Groups
from kwire.admin.operation import Operation
from kwire.admin.topics import CreatedTopic, CreateTopics, DeleteTopics, NewTopic
from kwire.cluster import Backoff, ClientConfig, ClientKwargs, Cluster, ClusterEvent, Snapshot, open_loop_thread
from kwire.cluster.waiting import BLOCKING
from kwire.errors import BrokerError, ConfigurationError
from kwire.options import check_names, documents_options, translate_bootstrap

Resource = TypeVar("Resource")
Result = TypeVar("Result")


@documents_options(ClientConfig)
class Admin:
    """Administers a Kafka cluster; safe to use from many threads.

    >>> with kwire.Admin("localhost:9092") as admin:                  # doctest: +SKIP
    ...     admin.create_topics([kwire.NewTopic("greetings", partitions=3)])

    Options are those of every client, such as request_timeout_ms, tls and sasl; `help(kwire.Admin)` and the page
    "Options" of the documentation have all of them, with defaults and units.

    Each method blocks for at most `timeout` seconds, by default request_timeout_ms, and raises a typed error. A method
    that changes several resources raises the first error once every result is known, with the other errors as notes.
    With raise_errors=False it returns the errors in place of the results.
    """

    @translate_bootstrap("kwire.Admin")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ClientKwargs]) -> None:
        check_names("kwire.Admin", bootstrap, options, ClientConfig)
        self._runtime = open_loop_thread("kwire.Admin", bootstrap, options, "admin")
        self._config = self._runtime.config
        self.groups = Groups(self._runtime, BLOCKING)

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
        """Create topics. The controller has them when this returns; the other brokers learn of them soon after.

        With `validate_only` the controller checks the topics and creates none.
        """
        wanted = _by_name((topic.name, topic) for topic in topics)
        operation = CreateTopics(wanted, **self._operation_options(timeout))
        operation.validate_only = validate_only
        return self._run(operation, timeout, raise_errors)

    def delete_topics(
        self, names: Iterable[str], timeout: float | None = None, *, raise_errors: bool = True
    ) -> Mapping[str, BrokerError | None]:
        """Delete topics with all of their records. Brokers may serve them for a short time after this has returned."""
        if isinstance(names, str):
            raise ConfigurationError(f"names is {names!r}", remedy="give a list of names")
        operation = DeleteTopics(_by_name((name, name) for name in names), **self._operation_options(timeout))
        return self._run(operation, timeout, raise_errors)

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Events are brokers that appear, fail and disappear, partitions that lose their leader, and changed metadata.
        Exceptions of `callback` are logged. Returns a function that ends the calls; a call that is running then may end
        after it.
        """
        return self._runtime.on_cluster_event(callback)

    def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, its brokers, and the controller."""
        return describe_cluster(self._runtime, self._timeout(timeout))

    def metadata(self, topics: Sequence[str] | None = None, timeout: float | None = None) -> Snapshot:
        """Request topics, partitions and their leaders from a broker; of all topics if `topics` is None.

        A topic that does not exist is in the result with its error_code, and is not created.
        """
        return snapshot(self._runtime, topics, self._timeout(timeout))

    def close(self, timeout: float | None = 10.0) -> None:
        """End the thread and the connections; blocked calls raise ClosedError. A second call does nothing."""
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

    def _run(
        self, operation: Operation[Resource, Result], timeout: float | None, raise_errors: bool
    ) -> dict[str, Result | BrokerError]:
        results = self._runtime.run_until_done(operation, operation.future, self._timeout(timeout))
        failed = {name: result for name, result in results.items() if isinstance(result, BrokerError)}
        if failed and raise_errors:
            first, *others = failed.values()
            for other in others:
                first.add_note(f"also: {other}")
            raise first
        return results


def _by_name(pairs: Iterable[tuple[str, Resource]]) -> dict[str, Resource]:
    resources: dict[str, Resource] = {}
    for name, resource in pairs:
        if name in resources:
            raise ConfigurationError(f"{name} is named twice")
        resources[name] = resource
    return resources
