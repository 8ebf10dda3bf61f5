"""AlterShareGroupOffsets (key 91): move the start of an empty share group.

v0   flexible (KIP-932)
"""

from kwire.protocol.fields import int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct


class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"], key=91, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            start_offset: int64

        topic_name: string
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class AlterShareGroupOffsetsResponse(Response, key=91, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            error_message: string | None = None

        topic_name: string
        topic_id: uuid
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
    responses: list[Topic]
