"""`kwire.aio.Admin`: the nouns of `kwire.Admin`, awaited.

async with kwire.aio.Admin("localhost:9092") as admin:
    await admin.topics.create("greetings", partitions=3)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from kwire.admin.acls import AclAdmin
from kwire.admin.client import AdminClient
from kwire.admin.client_metrics import ClientMetricsAdmin
from kwire.admin.cluster import ClusterAdmin
from kwire.admin.configs import ConfigAdmin
from kwire.admin.groups import GroupAdmin
from kwire.admin.log_dirs import LogDirAdmin
from kwire.admin.offsets import OffsetAdmin
from kwire.admin.options import AdminKwargs, AdminOptions
from kwire.admin.partitions import PartitionAdmin
from kwire.admin.quotas import QuotaAdmin
from kwire.admin.records import RecordAdmin
from kwire.admin.tokens import TokenAdmin
from kwire.admin.topics import TopicAdmin
from kwire.admin.transactions import TransactionAdmin
from kwire.admin.users import UserAdmin
from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.asyncio_waiting import AWAITING
from kwire.cluster.waiting import AwaitedContext, awaited
from kwire.option_checks import documents_options, translate_bootstrap


class Acls(AclAdmin):
    """`Admin.acls`, awaited."""

    add = awaited(AclAdmin._add)
    find = awaited(AclAdmin._find)
    remove = awaited(AclAdmin._remove)


class AdminCluster(ClusterAdmin):
    """`Admin.cluster`, awaited."""

    describe = awaited(ClusterAdmin._describe)
    metadata = awaited(ClusterAdmin._metadata)
    features = awaited(ClusterAdmin._features)
    set_feature = awaited(ClusterAdmin._set_feature)
    quorum = awaited(ClusterAdmin._quorum)
    add_voter = awaited(ClusterAdmin._add_voter)
    remove_voter = awaited(ClusterAdmin._remove_voter)
    unregister_broker = awaited(ClusterAdmin._unregister_broker)
    unregister_controller = awaited(ClusterAdmin._unregister_controller)
    explain = awaited(ClusterAdmin._explain)


class ClientMetrics(ClientMetricsAdmin):
    """`Admin.client_metrics`, awaited."""

    list = awaited(ClientMetricsAdmin._subscriptions)
    get = awaited(ClientMetricsAdmin._subscription)
    set = awaited(ClientMetricsAdmin._subscribe)
    delete = awaited(ClientMetricsAdmin._unsubscribe)


class Configs(ConfigAdmin):
    """`Admin.configs`, awaited."""

    get = awaited(ConfigAdmin._get)
    append = awaited(ConfigAdmin._append)
    subtract = awaited(ConfigAdmin._subtract)
    reset = awaited(ConfigAdmin._reset)
    set_many = awaited(ConfigAdmin._set_many)
    resources = awaited(ConfigAdmin._resources)
    set = awaited(ConfigAdmin._set)


class Groups(GroupAdmin):
    """`Admin.groups`, awaited."""

    delete = awaited(GroupAdmin._delete)
    remove_members = awaited(GroupAdmin._remove_members)
    offsets = awaited(GroupAdmin._offsets)
    set_offsets = awaited(GroupAdmin._set_offsets)
    delete_offsets = awaited(GroupAdmin._delete_offsets)
    reset = awaited(GroupAdmin._reset)
    describe = awaited(GroupAdmin._describe)
    describe_many = awaited(GroupAdmin._describe_many)
    lag = awaited(GroupAdmin._lag)
    lag_many = awaited(GroupAdmin._lag_many)
    list = awaited(GroupAdmin._list)


class LogDirs(LogDirAdmin):
    """`Admin.log_dirs`, awaited."""

    describe = awaited(LogDirAdmin._describe)
    move = awaited(LogDirAdmin._move)


class Offsets(OffsetAdmin):
    """`Admin.offsets`, awaited."""

    list = awaited(OffsetAdmin._list)


class Partitions(PartitionAdmin):
    """`Admin.partitions`, awaited."""

    reassign = awaited(PartitionAdmin._reassign)
    cancel = awaited(PartitionAdmin._cancel)
    reassignments = awaited(PartitionAdmin._reassignments)
    elect = awaited(PartitionAdmin._elect)


class Quotas(QuotaAdmin):
    """`Admin.quotas`, awaited."""

    get = awaited(QuotaAdmin._get)
    set = awaited(QuotaAdmin._set)


class Records(RecordAdmin):
    """`Admin.records`, awaited."""

    delete = awaited(RecordAdmin._delete)
    delete_before = awaited(RecordAdmin._delete_before)


class Tokens(TokenAdmin):
    """`Admin.tokens`, awaited."""

    create = awaited(TokenAdmin._create)
    renew = awaited(TokenAdmin._renew)
    expire = awaited(TokenAdmin._expire)
    list = awaited(TokenAdmin._list)


class Topics(TopicAdmin):
    """`Admin.topics`, awaited."""

    create = awaited(TopicAdmin._create)
    create_many = awaited(TopicAdmin._create_many)
    delete = awaited(TopicAdmin._delete)
    add_partitions = awaited(TopicAdmin._add_partitions)
    exists = awaited(TopicAdmin._exists)
    describe = awaited(TopicAdmin._describe)
    describe_many = awaited(TopicAdmin._describe_many)
    list = awaited(TopicAdmin._list)


class Transactions(TransactionAdmin):
    """`Admin.transactions`, awaited."""

    describe = awaited(TransactionAdmin._describe)
    describe_many = awaited(TransactionAdmin._describe_many)
    producers = awaited(TransactionAdmin._producers)
    hanging = awaited(TransactionAdmin._hanging)
    abort = awaited(TransactionAdmin._abort)
    fence = awaited(TransactionAdmin._fence)
    terminate = awaited(TransactionAdmin._terminate)
    list = awaited(TransactionAdmin._list)


class Users(UserAdmin):
    """`Admin.users`, awaited."""

    set_scram = awaited(UserAdmin._set_scram)
    delete_scram = awaited(UserAdmin._delete_scram)
    list = awaited(UserAdmin._list)


@documents_options(AdminOptions, ClientConfig)
class Admin(AwaitedContext, AdminClient):
    """Administers a Kafka cluster, in any running asyncio loop. `kwire.Admin` has the same nouns and options."""

    _name = "kwire.aio.Admin"
    _waiter = AWAITING

    @translate_bootstrap("kwire.aio.Admin")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[AdminKwargs]) -> None:
        self._set_up(bootstrap, options)
        parts = self._runtime, AWAITING, self._client_telemetry
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

    metrics = awaited(AdminClient._metrics)
    client_instance_id = awaited(AdminClient._client_instance_id)
    close = awaited(AdminClient._close)
