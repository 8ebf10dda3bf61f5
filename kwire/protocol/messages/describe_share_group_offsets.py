"""DescribeShareGroupOffsets (key 90): where share groups start in each partition.

v0   flexible (KIP-932)
v1   lag (KIP-1226)
"""

from kwire.protocol.fields import int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class DescribeShareGroupOffsetsRequest(
    Request["DescribeShareGroupOffsetsResponse"], key=90, versions=(0, 1), flexible=0
):
    class Group(Struct):
        class Topic(Struct):
            topic_name: string
            partitions: list[int32]

        group_id: string
        topics: list[Topic] | None

    groups: list[Group]


class DescribeShareGroupOffsetsResponse(Response, key=90, versions=(0, 1), flexible=0):
    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int32
                start_offset: int64
                leader_epoch: int32
                lag: int64 = since(1, default=-1, ignorable=True)
                error_code: int16
                error_message: string | None = None

            topic_name: string
            topic_id: uuid
            partitions: list[Partition]

        group_id: string
        topics: list[Topic]
        error_code: int16
        error_message: string | None = None

    throttle_time_ms: int32 = 0
    groups: list[Group]
