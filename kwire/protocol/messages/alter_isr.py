"""AlterIsr (key 56): the name and the field names that AlterPartition v0 had in 2.7 and 2.8. The bytes are the same.

v0   flexible (KIP-497)
"""

from kwire.protocol.fields import int16, int32, int64, string
from kwire.protocol.schema import Request, Response, Struct


class AlterIsrRequest(Request["AlterIsrResponse"], key=56, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            leader_epoch: int32
            new_isr: list[int32]
            current_isr_version: int32

        name: string
        partitions: list[Partition]

    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[Topic]


class AlterIsrResponse(Response, key=56, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32
            isr: list[int32]
            current_isr_version: int32

        name: string
        partitions: list[Partition]

    throttle_time_ms: int32 = 0
    error_code: int16
    topics: list[Topic]
