"""LeaderAndIsr (key 4): the controller sends brokers the leaders and replicas of their partitions. ZooKeeper mode only.

v0   (the original)
v1   partitions that are new; KAFKA_STORAGE_ERROR may be returned (KIP-112)
v2   the broker's epoch; partitions by topic (KIP-380)
v3   replicas being added and removed (KIP-455)
v4   flexible (KIP-482)
v5   topic ids; distinguishes full and incremental requests (KIP-516)
v6   recovery after an unclean election (KIP-704)
v7   controllers of KRaft, for brokers that migrate (KIP-866)

Kafka 4.0 dropped the API.
"""

from kwire.protocol.fields import NO_ID, boolean, int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class LeaderAndIsrPartitionState(Struct):
    topic_name: string = since(0, until=1, default="", ignorable=True)
    partition_index: int32
    controller_epoch: int32
    leader: int32
    leader_epoch: int32
    isr: list[int32]
    partition_epoch: int32
    replicas: list[int32]
    adding_replicas: list[int32] = since(3, default=[], ignorable=True)
    removing_replicas: list[int32] = since(3, default=[], ignorable=True)
    is_new: boolean = since(1, default=False, ignorable=True)
    leader_recovery_state: int8 = since(6, default=0)


class LeaderAndIsrPartitionError(Struct):
    topic_name: string = since(0, until=4, default="", ignorable=True)
    partition_index: int32
    error_code: int16


class LeaderAndIsrRequest(Request["LeaderAndIsrResponse"], key=4, versions=(0, 7), flexible=4):
    class TopicState(Struct):
        topic_name: string
        topic_id: uuid = since(5, default=NO_ID, ignorable=True)
        partition_states: list[LeaderAndIsrPartitionState]

    class LiveLeader(Struct):
        broker_id: int32
        host_name: string
        port: int32

    controller_id: int32
    is_k_raft_controller: boolean = since(7, default=False)
    controller_epoch: int32
    broker_epoch: int64 = since(2, default=-1, ignorable=True)
    type: int8 = since(5, default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since(0, until=1, default=[])
    topic_states: list[TopicState] = since(2, default=[])
    live_leaders: list[LiveLeader]


class LeaderAndIsrResponse(Response, key=4, versions=(0, 7), flexible=4):
    class Topic(Struct):
        topic_id: uuid
        partition_errors: list[LeaderAndIsrPartitionError]

    error_code: int16
    partition_errors: list[LeaderAndIsrPartitionError] = since(0, until=4, default=[])
    topics: list[Topic] = since(5, default=[])
