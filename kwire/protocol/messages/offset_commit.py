"""OffsetCommit (key 8): store a group's positions.

v0   offsets are kept in ZooKeeper
v1   offsets are kept by the group's coordinator, given membership; a timestamp for each
v2   a retention time for all, in place of the timestamps
v3   throttle time (KIP-124)
v4   throttling is the client's to carry out (KIP-219)
v5   no retention time: the broker's configuration decides (KIP-211)
v6   leader epochs (KIP-320)
v7   static members (KIP-345)
v8   flexible (KIP-482)
v9   members of the new consumer groups may commit too, with their epoch (KIP-848)
v10  topics by id instead of name (KIP-848)

Kafka 4.0 dropped versions 0 and 1.
"""

from kwire.protocol.fields import NO_ID, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class OffsetCommitRequest(Request["OffsetCommitResponse"], key=8, versions=(0, 10), flexible=8):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = since(6, default=-1, ignorable=True)
            commit_timestamp: int64 = since(1, until=1, default=-1)
            committed_metadata: string | None

        name: string = since(0, until=9, default="", ignorable=True)
        topic_id: uuid = since(10, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    group_id: string
    generation_id_or_member_epoch: int32 = since(1, default=-1, ignorable=True)
    member_id: string = since(1, default="", ignorable=True)
    group_instance_id: string | None = since(7, default=None)
    retention_time_ms: int64 = since(2, until=4, default=-1, ignorable=True)
    topics: list[Topic]


class OffsetCommitResponse(Response, key=8, versions=(0, 10), flexible=8):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16

        name: string = since(0, until=9, default="", ignorable=True)
        topic_id: uuid = since(10, default=NO_ID, ignorable=True)
        partitions: list[Partition]

    throttle_time_ms: int32 = since(3, default=0, ignorable=True)
    topics: list[Topic]
