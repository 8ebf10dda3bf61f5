"""StopReplica (key 5): the controller makes brokers stop or delete replicas. ZooKeeper mode only.

v0   (the original)
v1   the broker's epoch; partitions by topic (KIP-380)
v2   flexible (KIP-482)
v3   leader epoch and deletion per partition (KIP-570)
v4   controllers of KRaft, for brokers that migrate (KIP-866)

Kafka 4.0 dropped the API.
"""

from kwire.protocol.fields import boolean, int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct, since


class StopReplicaRequest(Request["StopReplicaResponse"], key=5, versions=(0, 4), flexible=2):
    class UngroupedPartition(Struct):
        topic_name: string
        partition_index: int32

    class Topic(Struct):
        name: string
        partition_indexes: list[int32]

    class TopicState(Struct):
        class PartitionState(Struct):
            partition_index: int32
            leader_epoch: int32 = -1
            delete_partition: boolean

        topic_name: string
        partition_states: list[PartitionState]

    controller_id: int32
    is_k_raft_controller: boolean = since(4, default=False)
    controller_epoch: int32
    broker_epoch: int64 = since(1, default=-1, ignorable=True)
    delete_partitions: boolean = since(0, until=2, default=False)
    ungrouped_partitions: list[UngroupedPartition] = since(0, until=0, default=[])
    topics: list[Topic] = since(1, until=2, default=[])
    topic_states: list[TopicState] = since(3, default=[])


class StopReplicaResponse(Response, key=5, versions=(0, 4), flexible=2):
    class PartitionError(Struct):
        topic_name: string
        partition_index: int32
        error_code: int16

    error_code: int16
    partition_errors: list[PartitionError]
