"""`kwire.Admin`: blocking methods, safe to call from many threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from kwire.admin.acls import Acls
from kwire.admin.client import AdminClient
from kwire.admin.client_metrics import ClientMetrics
from kwire.admin.cluster import AdminCluster, ClusterDescription
from kwire.admin.configs import Configs
from kwire.admin.groups import Groups
from kwire.admin.log_dirs import LogDirs
from kwire.admin.noun import checked_names
from kwire.admin.offsets import Offsets
from kwire.admin.options import AdminKwargs, AdminOptions
from kwire.admin.partitions import Partitions
from kwire.admin.quotas import Quotas
from kwire.admin.records import Records
from kwire.admin.results import Results
from kwire.admin.tokens import Tokens
from kwire.admin.topics import CreatedTopic, NewTopic, Topics
from kwire.admin.transactions import Transactions
from kwire.admin.users import Users
from kwire.cluster import ClientConfig, Cluster, Snapshot
from kwire.cluster.waiting import BLOCKING, BlockingContext, blocking
from kwire.errors import KwireError
from kwire.option_checks import documents_options, translate_bootstrap

Result = TypeVar("Result")


@documents_options(AdminOptions, ClientConfig)
class Admin(BlockingContext, AdminClient):
    """Administers a Kafka cluster; safe to use from many threads.

    >>> with kwire.Admin("localhost:9092") as admin:                  # doctest: +SKIP
    ...     admin.topics.create("greetings", partitions=3)

    A noun is an attribute, and a verb a method of it: topics, configs, offsets, records, groups, partitions, log_dirs,
    transactions, acls, quotas, users, tokens, client_metrics, cluster. `kwire.aio.Admin` has the same.

    Each method blocks for at most `timeout` seconds, by default request_timeout_ms. A verb for one thing returns its
    result or raises its error; a verb for several returns `Results`. The methods create_topics and delete_topics raise
    the first error once every result is known, with the other errors as notes, or return the errors in place of the
    results with raise_errors=False.
    """

    _name = "kwire.Admin"
    _waiter = BLOCKING

    @translate_bootstrap("kwire.Admin")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[AdminKwargs]) -> None:
        self._set_up(bootstrap, options)
        parts = self._runtime, BLOCKING, self._client_telemetry
        self.acls = Acls(*parts)
        self.client_metrics = ClientMetrics(*parts)
        self.cluster = AdminCluster(*parts)
        self.configs = Configs(*parts)
        self.groups = Groups(*parts)
        self.log_dirs = LogDirs(*parts)
        self.offsets = Offsets(*parts)
        self.partitions = Partitions(*parts)
        self.quotas = Quotas(*parts)
        self.records = Records(*parts)
        self.tokens = Tokens(*parts)
        self.topics = Topics(*parts)
        self.transactions = Transactions(*parts)
        self.users = Users(*parts)

    metrics = blocking(AdminClient._metrics)
    client_instance_id = blocking(AdminClient._client_instance_id)
    close = blocking(AdminClient._close)

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

    def describe_cluster(self, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, its brokers, and the controller."""
        return self.cluster.describe(timeout=timeout)

    def metadata(self, topics: Sequence[str] | None = None, timeout: float | None = None) -> Snapshot:
        """Request topics, partitions and their leaders from a broker; of all topics if `topics` is None.

        A topic that does not exist is in the result with its error_code, and is not created.
        """
        return self.cluster.metadata(topics, timeout=timeout)


def _raised_or_returned(results: Results[str, Result], raise_errors: bool) -> dict[str, Any]:
    if results.errors and raise_errors:
        first, *others = results.errors.values()
        for other in others:
            first.add_note(f"also: {other}")
        raise first
    return results.ok | results.errors
