"""List the requests of a recording in order: each API has a function that sends it in one version.

Such a function first sends the requests that this one depends on, and returns the exchange to record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recording import administration, connections, groups, new_groups, records, topics, transactions
from recording.scene import Scene
from recording.wire import Exchange

# The order matters: Produce before Fetch, OffsetCommit before OffsetFetch, ListGroups while there are few groups.
APIS: Mapping[str, Callable[[Scene, int], Exchange]] = {
    "ApiVersions": connections.api_versions,
    "Metadata": connections.metadata,
    "DescribeCluster": connections.describe_cluster,
    "FindCoordinator": connections.find_coordinator,
    "SaslHandshake": connections.sasl_handshake,
    "SaslAuthenticate": connections.sasl_authenticate,
    "InitProducerId": transactions.init_producer_id,
    "Produce": records.produce,
    "Fetch": records.fetch,
    "ListOffsets": records.list_offsets,
    "OffsetForLeaderEpoch": records.offset_for_leader_epoch,
    "DeleteRecords": records.delete_records,
    "OffsetCommit": groups.offset_commit,
    "OffsetFetch": groups.offset_fetch,
    "OffsetDelete": groups.offset_delete,
    "ListGroups": groups.list_groups,
    "DescribeGroups": groups.describe_groups,
    "DeleteGroups": groups.delete_groups,
    "JoinGroup": groups.join_group,
    "SyncGroup": groups.sync_group,
    "Heartbeat": groups.heartbeat,
    "LeaveGroup": groups.leave_group,
    "ConsumerGroupHeartbeat": new_groups.consumer_group_heartbeat,
    "ConsumerGroupDescribe": new_groups.consumer_group_describe,
    "ShareGroupHeartbeat": new_groups.share_group_heartbeat,
    "ShareGroupDescribe": new_groups.share_group_describe,
    "ShareFetch": new_groups.share_fetch,
    "ShareAcknowledge": new_groups.share_acknowledge,
    "DescribeShareGroupOffsets": new_groups.describe_share_group_offsets,
    "AlterShareGroupOffsets": new_groups.alter_share_group_offsets,
    "DeleteShareGroupOffsets": new_groups.delete_share_group_offsets,
    "CreateTopics": topics.create_topics,
    "CreatePartitions": topics.create_partitions,
    "DescribeConfigs": topics.describe_configs,
    "IncrementalAlterConfigs": topics.incremental_alter_configs,
    "DeleteTopics": topics.delete_topics,
    "AddPartitionsToTxn": transactions.add_partitions_to_txn,
    "AddOffsetsToTxn": transactions.add_offsets_to_txn,
    "TxnOffsetCommit": transactions.txn_offset_commit,
    "EndTxn": transactions.end_txn,
    "ListTransactions": transactions.list_transactions,
    "DescribeTransactions": transactions.describe_transactions,
    "DescribeProducers": transactions.describe_producers,
    "WriteTxnMarkers": transactions.write_txn_markers,
    "CreateAcls": administration.create_acls,
    "DescribeAcls": administration.describe_acls,
    "DeleteAcls": administration.delete_acls,
    "AlterClientQuotas": administration.alter_client_quotas,
    "DescribeClientQuotas": administration.describe_client_quotas,
    "AlterUserScramCredentials": administration.alter_user_scram_credentials,
    "DescribeUserScramCredentials": administration.describe_user_scram_credentials,
    "CreateDelegationToken": administration.create_delegation_token,
    "RenewDelegationToken": administration.renew_delegation_token,
    "ExpireDelegationToken": administration.expire_delegation_token,
    "DescribeDelegationToken": administration.describe_delegation_token,
    "DescribeTopicPartitions": administration.describe_topic_partitions,
    "AlterPartitionReassignments": administration.alter_partition_reassignments,
    "ListPartitionReassignments": administration.list_partition_reassignments,
    "ElectLeaders": administration.elect_leaders,
    "DescribeLogDirs": administration.describe_log_dirs,
    "AlterReplicaLogDirs": administration.alter_replica_log_dirs,
    "ListConfigResources": administration.list_config_resources,
    "UpdateFeatures": administration.update_features,
    "DescribeQuorum": administration.describe_quorum,
    "AddRaftVoter": administration.add_raft_voter,
    "RemoveRaftVoter": administration.remove_raft_voter,
    "UnregisterBroker": administration.unregister_broker,
    "UnregisterController": administration.unregister_controller,
}
