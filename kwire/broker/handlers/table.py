"""The table of all handlers. ApiVersions and the SASL APIs are missing: the session handles them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kwire.broker.handlers.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from kwire.broker.handlers.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from kwire.broker.handlers.alter_client_quotas import ALTER_CLIENT_QUOTAS
from kwire.broker.handlers.alter_configs import ALTER_CONFIGS
from kwire.broker.handlers.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from kwire.broker.handlers.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS
from kwire.broker.handlers.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS
from kwire.broker.handlers.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from kwire.broker.handlers.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from kwire.broker.handlers.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from kwire.broker.handlers.create_acls import CREATE_ACLS
from kwire.broker.handlers.create_delegation_token import CREATE_DELEGATION_TOKEN
from kwire.broker.handlers.create_partitions import CREATE_PARTITIONS
from kwire.broker.handlers.create_topics import CREATE_TOPICS
from kwire.broker.handlers.delete_acls import DELETE_ACLS
from kwire.broker.handlers.delete_groups import DELETE_GROUPS
from kwire.broker.handlers.delete_records import DELETE_RECORDS
from kwire.broker.handlers.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS
from kwire.broker.handlers.delete_topics import DELETE_TOPICS
from kwire.broker.handlers.describe_acls import DESCRIBE_ACLS
from kwire.broker.handlers.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from kwire.broker.handlers.describe_cluster import DESCRIBE_CLUSTER
from kwire.broker.handlers.describe_configs import DESCRIBE_CONFIGS
from kwire.broker.handlers.describe_delegation_token import DESCRIBE_DELEGATION_TOKEN
from kwire.broker.handlers.describe_groups import DESCRIBE_GROUPS
from kwire.broker.handlers.describe_log_dirs import DESCRIBE_LOG_DIRS
from kwire.broker.handlers.describe_producers import DESCRIBE_PRODUCERS
from kwire.broker.handlers.describe_quorum import DESCRIBE_QUORUM
from kwire.broker.handlers.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS
from kwire.broker.handlers.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from kwire.broker.handlers.describe_transactions import DESCRIBE_TRANSACTIONS
from kwire.broker.handlers.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from kwire.broker.handlers.elect_leaders import ELECT_LEADERS
from kwire.broker.handlers.end_txn import END_TXN
from kwire.broker.handlers.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from kwire.broker.handlers.fetch import FETCH
from kwire.broker.handlers.find_coordinator import FIND_COORDINATOR
from kwire.broker.handlers.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.heartbeat import HEARTBEAT
from kwire.broker.handlers.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from kwire.broker.handlers.init_producer_id import INIT_PRODUCER_ID
from kwire.broker.handlers.join_group import JOIN_GROUP
from kwire.broker.handlers.leave_group import LEAVE_GROUP
from kwire.broker.handlers.list_config_resources import LIST_CONFIG_RESOURCES
from kwire.broker.handlers.list_groups import LIST_GROUPS
from kwire.broker.handlers.list_offsets import LIST_OFFSETS
from kwire.broker.handlers.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from kwire.broker.handlers.list_transactions import LIST_TRANSACTIONS
from kwire.broker.handlers.metadata import METADATA
from kwire.broker.handlers.offset_commit import OFFSET_COMMIT
from kwire.broker.handlers.offset_delete import OFFSET_DELETE
from kwire.broker.handlers.offset_fetch import OFFSET_FETCH
from kwire.broker.handlers.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from kwire.broker.handlers.produce import PRODUCE
from kwire.broker.handlers.push_telemetry import PUSH_TELEMETRY
from kwire.broker.handlers.raft_voters import ADD_RAFT_VOTER, REMOVE_RAFT_VOTER
from kwire.broker.handlers.renew_delegation_token import RENEW_DELEGATION_TOKEN
from kwire.broker.handlers.share_acknowledge import SHARE_ACKNOWLEDGE
from kwire.broker.handlers.share_fetch import SHARE_FETCH
from kwire.broker.handlers.share_group_describe import SHARE_GROUP_DESCRIBE
from kwire.broker.handlers.share_group_heartbeat import SHARE_GROUP_HEARTBEAT
from kwire.broker.handlers.streams_group_describe import STREAMS_GROUP_DESCRIBE
from kwire.broker.handlers.streams_group_heartbeat import STREAMS_GROUP_HEARTBEAT
from kwire.broker.handlers.sync_group import SYNC_GROUP
from kwire.broker.handlers.txn_offset_commit import TXN_OFFSET_COMMIT
from kwire.broker.handlers.unregister_broker import UNREGISTER_BROKER
from kwire.broker.handlers.update_features import UPDATE_FEATURES
from kwire.broker.handlers.write_txn_markers import WRITE_TXN_MARKERS
from kwire.protocol import ApiKey

_ALL: tuple[Handler[Any], ...] = (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ADD_RAFT_VOTER,
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    ALTER_SHARE_GROUP_OFFSETS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_QUORUM,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    END_TXN,
    EXPIRE_DELEGATION_TOKEN,
    FETCH,
    FIND_COORDINATOR,
    GET_TELEMETRY_SUBSCRIPTIONS,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_CONFIG_RESOURCES,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    PUSH_TELEMETRY,
    REMOVE_RAFT_VOTER,
    RENEW_DELEGATION_TOKEN,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    WRITE_TXN_MARKERS,
)

HANDLERS: Mapping[ApiKey, Handler[Any]] = {ApiKey(handler.request.API_KEY): handler for handler in _ALL}
