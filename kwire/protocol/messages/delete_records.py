"""DeleteRecords (key 21): delete everything below an offset, per partition.

v0   (KIP-107)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], key=21, versions=(0, 2), flexible=2):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            offset: int64

        name: string
        partitions: list[Partition]

    topics: list[Topic]
    timeout_ms: int32


class DeleteRecordsResponse(Response, key=21, versions=(0, 2), flexible=2):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            low_watermark: int64
            error_code: int16

        name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    topics: list[Topic]
