"""`kwire.Admin`: blocking methods, safe to call from many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from kwire.admin.acls import Acls
from kwire.admin.client_metrics import ClientMetrics
from kwire.admin.cluster import AdminCluster, ClusterDescription
from kwire.admin.configs import Configs
from kwire.admin.groups import Groups
from kwire.admin.log_dirs import LogDirs
from kwire.admin.noun import checked_names
from kwire.admin.offsets import Offsets
from kwire.admin.partitions import Partitions
from kwire.admin.quotas import Quotas
from kwire.admin.records import Records
from kwire.admin.results import Results
from kwire.admin.tokens import Tokens
from kwire.admin.topics import CreatedTopic, NewTopic, Topics
from kwire.admin.transactions import Transactions
from kwire.admin.users import Users
from kwire.cluster import ClientConfig, ClientKwargs, Cluster, ClusterEvent, Snapshot, open_loop_thread
from kwire.cluster.waiting import BLOCKING
from kwire.errors import KwireError
from kwire.option_checks import check_names, documents_options, translate_bootstrap

Result = TypeVar("Result")


@documents_options(ClientConfig)
class Admin:
    """Administers a Kafka cluster; safe to use from many threads.

    >>> with kwire.Admin("localhost:9092") as admin:                  # doctest: +SKIP
    ...     admin.topics.create("greetings", partitions=3)

    A noun is an attribute, and a verb a method of it: topics, configs, offsets, records, groups, partitions, log_dirs,
    transactions, acls, quotas, users, tokens, client_metrics, cluster. `kwire.aio.Admin` has the same.

    Options are those of every client, such as request_timeout_ms, tls and sasl; `help(kwire.Admin)` and the page
    "Options" of the documentation have all of them, with defaults and units.

    Each method blocks for at most `timeout` seconds, by default request_timeout_ms. A verb for one thing returns its
    result or raises its error; a verb for several returns `Results`. The methods create_topics and delete_topics raise
    the first error once every result is known, with the other errors as notes, or return the errors in place of the
    results with raise_errors=False.
    """

    @translate_bootstrap("kwire.Admin")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ClientKwargs]) -> None:
        check_names("kwire.Admin", bootstrap, options, ClientConfig)
        self._runtime = open_loop_thread("kwire.Admin", bootstrap, options, "admin")
        self._config = self._runtime.config
        self.acls = Acls(self._runtime, BLOCKING)
        self.client_metrics = ClientMetrics(self._runtime, BLOCKING)
        self.cluster = AdminCluster(self._runtime, BLOCKING)
        self.configs = Configs(self._runtime, BLOCKING)
        self.groups = Groups(self._runtime, BLOCKING)
        self.log_dirs = LogDirs(self._runtime, BLOCKING)
        self.offsets = Offsets(self._runtime, BLOCKING)
        self.partitions = Partitions(self._runtime, BLOCKING)
        self.quotas = Quotas(self._runtime, BLOCKING)
        self.records = Records(self._runtime, BLOCKING)
        self.tokens = Tokens(self._runtime, BLOCKING)
        self.topics = Topics(self._runtime, BLOCKING)
        self.transactions = Transactions(self._runtime, BLOCKING)
        self.users = Users(self._runtime, BLOCKING)

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
    ) -> dict[str, CreatedTopic | KwireError]: ...  # fmt: skip

    def create_topics(
        self,
        topics: Iterable[NewTopic],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Mapping[str, CreatedTopic | KwireError]:
        """Create topics. The controller has them when this returns; the other brokers learn of them soon after.

        With `validate_only` the controller checks the topics and creates none. `topics.create` waits for the brokers.
        """
        results = self.topics.create_many(topics, dry_run=validate_only, wait=False, timeout=timeout)
        return _raised_or_returned(results, raise_errors)

    def delete_topics(
        self, names: Iterable[str], timeout: float | None = None, *, raise_errors: bool = True
    ) -> Mapping[str, KwireError | None]:
        """Delete topics with all of their records. Brokers may serve them for a short time after this has returned."""
        return _raised_or_returned(self.topics.delete(checked_names("names", names), timeout=timeout), raise_errors)

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Events are brokers that appear, fail and disappear, partitions that lose their leader, and changed metadata.
        Exceptions of `callback` are logged. Returns a function that ends the calls; a call that is running then may end
        after it.
        """
        return self._runtime.on_cluster_event(callback)

    def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, its brokers, and the controller."""
        return self.cluster.describe(timeout=timeout)

    def metadata(self, topics: Sequence[str] | None = None, timeout: float | None = None) -> Snapshot:
        """Request topics, partitions and their leaders from a broker; of all topics if `topics` is None.

        A topic that does not exist is in the result with its error_code, and is not created.
        """
        return self.cluster.metadata(topics, timeout=timeout)

    def close(self, timeout: float | None = 10.0) -> None:
        """End the thread and the connections; blocked calls raise ClosedError. A second call does nothing."""
        self._runtime.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _raised_or_returned(results: Results[str, Result], raise_errors: bool) -> dict[str, Any]:
    if results.errors and raise_errors:
        first, *others = results.errors.values()
        for other in others:
            first.add_note(f"also: {other}")
        raise first
    return results.ok | results.errors
