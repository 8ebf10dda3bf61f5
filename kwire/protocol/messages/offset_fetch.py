"""OffsetFetch (key 9): the positions that groups have stored.

v0   offsets are read from ZooKeeper
v1   offsets are read from the group's coordinator
v2   null means every topic; a top-level error (KIP-88)
v3   throttle time (KIP-124)
v4   throttling is the client's to carry out (KIP-219)
v5   leader epochs (KIP-320)
v6   flexible (KIP-482)
v7   the asker may insist on offsets that no open transaction can change (KIP-447)
v8   several groups in one request (KIP-709)
v9   the requesting member of a new consumer group and its epoch (KIP-848)
v10  topics by id instead of name (KIP-848)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import NO_ID, boolean, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class OffsetFetchRequest(Request["OffsetFetchResponse"], key=9, versions=(0, 10), flexible=6):
    class Topic(Struct):
        name: string
        partition_indexes: list[int32]

    class Group(Struct):
        class Topic(Struct):
            name: string = since(8, until=9, default="", ignorable=True)
            topic_id: uuid = since(10, default=NO_ID, ignorable=True)
            partition_indexes: list[int32]

        group_id: string
        member_id: string | None = since(9, default=None, ignorable=True)
        member_epoch: int32 = since(9, default=-1, ignorable=True)
        topics: list[Topic] | None

    group_id: string = since(0, until=7, default="")
    topics: list[Topic] | None = since(0, until=7, default=[], nullable_since=2)
    groups: list[Group] = since(8, default=[])
    require_stable: boolean = since(7, default=False)


class OffsetFetchResponse(Response, key=9, versions=(0, 10), flexible=6):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 = since(5, default=-1, ignorable=True)
            metadata: string | None
            error_code: int16

        name: string
        partitions: list[Partition]

    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32 = -1
                metadata: string | None
                error_code: int16

            name: string = since(8, until=9, default="", ignorable=True)
            topic_id: uuid = since(10, default=NO_ID, ignorable=True)
            partitions: list[Partition]

        group_id: string
        topics: list[Topic]
        error_code: int16 = 0

    throttle_time_ms: int32 = since(3, default=0, ignorable=True)
    topics: list[Topic] = since(0, until=7, default=[])
    error_code: int16 = since(2, until=7, default=0, ignorable=True)
    groups: list[Group] = since(8, default=[])
