"""OffsetDelete (key 47): forget a group's positions in topics that it does not subscribe to.

v0   (KIP-496)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], key=47, versions=(0, 0), flexible=None):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32

        name: string
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class OffsetDeleteResponse(Response, key=47, versions=(0, 0), flexible=None):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16

        name: string
        partitions: list[Partition]

    error_code: int16
    throttle_time_ms: int32 = 0
    topics: list[Topic]
