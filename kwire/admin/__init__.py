"""The admin client. A noun of Kafka is an attribute of `Admin` and a file here; a verb is a method.

    admin           `Admin`, whose methods block the calling thread
    client          what both faces have beside the nouns: options, metrics, the end
    options         the options of an admin client
    acls            `Admin.acls`: rules about who may do what
    client_metrics  `Admin.client_metrics`: what clients push to the brokers
    cluster         `Admin.cluster`: brokers, features, the quorum, what is wrong
    configs         `Admin.configs`: of topics, brokers, groups
    groups          `Admin.groups`: of every type, with their offsets and lag
    log_dirs        `Admin.log_dirs`: directories of the brokers' logs
    offsets         `Admin.offsets`: where logs begin and end
    partitions      `Admin.partitions`: reassignments and elections
    quotas          `Admin.quotas`: of users, client ids, addresses
    records         `Admin.records`: deletion
    tokens          `Admin.tokens`: delegation tokens
    topics          `Admin.topics`
    transactions    `Admin.transactions`
    users           `Admin.users`: SCRAM passwords
    noun            what all nouns stand on: deadlines, requests to those who are responsible
    metadata        Metadata requests that create no topic
    operation       a request to the controller, retried until every resource has a result
    routed          a request per thing to its broker, retried until each has a result
    results         `Results`: one result or error for each thing that a call names

Imports: consumer, cluster, session, protocol.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kwire.admin.acls import Acl, AclFilter
    from kwire.admin.admin import Admin
    from kwire.admin.client_metrics import MetricsSubscription
    from kwire.admin.cluster import ClusterDescription, Feature, Quorum
    from kwire.admin.configs import ConfigEntry, ConfigResource
    from kwire.admin.groups import (
        Group,
        GroupLag,
        GroupListing,
        GroupMember,
        Groups,
        Move,
        PartitionLag,
        StreamsTasks,
        Subtopology,
    )
    from kwire.admin.log_dirs import LogDir, ReplicaLog
    from kwire.admin.partitions import Reassignment
    from kwire.admin.quotas import Quota
    from kwire.admin.results import Results
    from kwire.admin.tokens import DelegationToken
    from kwire.admin.topics import CreatedTopic, NewTopic, TopicDescription
    from kwire.admin.transactions import ActiveProducer, Transaction, TransactionListing
    from kwire.admin.users import ScramUser

__all__ = [
    "Acl", "AclFilter", "ActiveProducer", "Admin", "ClusterDescription", "ConfigEntry", "ConfigResource",
    "CreatedTopic", "DelegationToken", "Feature", "Group", "GroupLag", "GroupListing", "GroupMember", "Groups",
    "LogDir", "MetricsSubscription", "Move", "NewTopic", "PartitionLag", "Quorum", "Quota", "Reassignment",
    "ReplicaLog", "Results", "ScramUser", "StreamsTasks", "Subtopology", "TopicDescription", "Transaction",
    "TransactionListing",
]  # fmt: skip

# Name -> its file, imported on first use: what only sends requests, as Spark's sink, needs `noun` and not all nouns.
_FILES = {
    "Acl": "acls",
    "AclFilter": "acls",
    "ActiveProducer": "transactions",
    "Admin": "admin",
    "ClusterDescription": "cluster",
    "ConfigEntry": "configs",
    "ConfigResource": "configs",
    "CreatedTopic": "topics",
    "DelegationToken": "tokens",
    "Feature": "cluster",
    "Group": "groups",
    "GroupLag": "groups",
    "GroupListing": "groups",
    "GroupMember": "groups",
    "Groups": "groups",
    "LogDir": "log_dirs",
    "MetricsSubscription": "client_metrics",
    "Move": "groups",
    "NewTopic": "topics",
    "PartitionLag": "groups",
    "Quorum": "cluster",
    "Quota": "quotas",
    "Reassignment": "partitions",
    "ReplicaLog": "log_dirs",
    "Results": "results",
    "ScramUser": "users",
    "StreamsTasks": "groups",
    "Subtopology": "groups",
    "TopicDescription": "topics",
    "Transaction": "transactions",
    "TransactionListing": "transactions",
}

if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
