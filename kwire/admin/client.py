"""What `kwire.Admin` and `kwire.aio.Admin` have in common beside the nouns: options, metrics, the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from kwire.admin.options import AdminOptions
from kwire.arguments import check_timeout, no_attribute
from kwire.cluster import ClientConfig, Cluster, ClusterMetrics, LoopThread, open_loop_thread
from kwire.cluster.dropped import Remains
from kwire.cluster.telemetry import ClientTelemetry, Reading, TelemetryMethods, cluster_readings
from kwire.cluster.waiting import Waiter
from kwire.option_checks import check_names

if TYPE_CHECKING:
    from kwire.cluster import ClusterEvent


# What does the work of other clients' methods, for programs that are being ported.
_ELSEWHERE: Mapping[str, str] = {
    name: f"it is {verb} here"
    for name, verb in {
        "alter_configs": "configs.set",
        "alter_consumer_group_offsets": "groups.set_offsets",
        "alter_group_offsets": "groups.set_offsets",
        "alter_partition_reassignments": "partitions.reassign",
        "alter_replica_log_dirs": "log_dirs.move",
        "alter_user_scram_credentials": "users.set_scram",
        "abort_transaction": "transactions.abort",
        "create_acls": "acls.add",
        "create_partitions": "topics.add_partitions",
        "create_topics": "topics.create_many",
        "delete_acls": "acls.remove",
        "delete_consumer_groups": "groups.delete",
        "delete_group_offsets": "groups.delete_offsets",
        "delete_groups": "groups.delete",
        "delete_records": "records.delete",
        "delete_topics": "topics.delete",
        "describe_acls": "acls.find",
        "describe_cluster": "cluster.describe",
        "describe_configs": "configs.get",
        "describe_consumer_groups": "groups.describe_many",
        "describe_features": "cluster.features",
        "describe_groups": "groups.describe_many",
        "describe_log_dirs": "log_dirs.describe",
        "describe_metadata_quorum": "cluster.quorum",
        "describe_producers": "transactions.producers",
        "describe_topics": "topics.describe_many",
        "describe_transactions": "transactions.describe_many",
        "describe_user_scram_credentials": "users.list",
        "elect_leaders": "partitions.elect",
        "find_hanging_transactions": "transactions.hanging",
        "incremental_alter_configs": "configs.set",
        "list_config_resources": "configs.resources",
        "list_consumer_group_offsets": "groups.offsets",
        "list_consumer_groups": "groups.list",
        "list_group_offsets": "groups.offsets",
        "list_groups": "groups.list",
        "list_offsets": "offsets.list",
        "list_partition_offsets": "offsets.list",
        "list_partition_reassignments": "partitions.reassignments",
        "list_topics": "topics.list",
        "list_transactions": "transactions.list",
        "remove_group_members": "groups.remove_members",
        "reset_configs": "configs.reset",
        "reset_group_offsets": "groups.reset",
        "update_features": "cluster.set_feature",
    }.items()
}


class AdminReport:
    """What an admin client pushes: the counts about brokers, under the names of Java's client."""

    def __init__(self, runtime: LoopThread) -> None:
        self._runtime = runtime

    def telemetry_readings(self) -> list[Reading]:
        return cluster_readings("admin.client", self._runtime.on_loop_or_after(self._runtime.metrics))

    def telemetry_resource(self) -> dict[str, str]:
        return {}


class AdminClient(TelemetryMethods):
    """The methods of both faces. `_waiter` is how the face waits, `_name` the face in errors."""

    _waiter: Waiter
    _name: ClassVar[str]

    def _set_up(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> None:
        check_names(self._name, bootstrap, options, AdminOptions, ClientConfig)
        shared = dict(options)
        own = AdminOptions(**{name: shared.pop(name) for name in AdminOptions.option_names() & shared.keys()})
        self._runtime = open_loop_thread(self._name, bootstrap, shared, "admin")
        self._config = self._runtime.config
        self._report = AdminReport(self._runtime)
        self._client_telemetry = ClientTelemetry(self._report, self._runtime, is_on=own.telemetry)
        # Its nouns have the telemetry, too: in Admin(...).topics.list() they outlive the client.
        self._remains = Remains(self._client_telemetry, self._name, self._runtime)

    def __repr__(self) -> str:
        return f"<{self._name} {self._config.client_id!r} of {','.join(self._config.bootstrap)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, _ELSEWHERE)

    async def _metrics(self) -> ClusterMetrics:
        """Return the counts about brokers: connections, requests, how long they took. A copy of now."""
        return await self._waiter.on_loop_or_after(self._runtime, self._runtime.metrics)

    @property
    def client_id(self) -> str:
        """Return the option `client_id`."""
        return self._config.client_id

    def collect_metrics(self) -> ClusterMetrics:
        """Return `metrics` from an exporter's thread, which blocks until the client's own thread has responded."""
        return self._runtime.on_loop_or_after(self._runtime.metrics)

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` on the callback thread for each event of `kwire.cluster.events` from now on.

        Events are brokers that appear, fail and disappear, partitions that lose their leader, and changed metadata.
        Exceptions of `callback` are logged. Returns a function that ends the calls; a call that is running then may end
        after it.
        """
        return self._runtime.on_cluster_event(callback)

    async def _close(self, timeout: float | None = 10.0) -> None:
        """End the thread and the connections; calls that wait raise ClosedError. A second call does nothing.

        A client whose metrics brokers have asked for pushes them once more, for at most a second.
        """
        check_timeout(timeout)
        self._remains.detach()
        if not self._runtime.is_forked:  # the metrics are the parent's
            await self._client_telemetry.end(self._waiter, timeout)
        await self._waiter.close(self._runtime, timeout)

    async def _leave(self, error: BaseException | None) -> None:
        await self._close()
