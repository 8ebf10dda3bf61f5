"""ReadShareGroupState (key 84): between brokers: the stored state of share-partitions.

v0   flexible (KIP-932)
"""

from kwire.protocol.fields import int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct


class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"], key=84, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            leader_epoch: int32

        topic_id: uuid
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class ReadShareGroupStateResponse(Response, key=84, versions=(0, 0), flexible=0):
    class Result(Struct):
        class Partition(Struct):
            class StateBatch(Struct):
                first_offset: int64
                last_offset: int64
                delivery_state: int8
                delivery_count: int16

            partition: int32
            error_code: int16
            error_message: string | None = None
            state_epoch: int32
            start_offset: int64
            state_batches: list[StateBatch]

        topic_id: uuid
        partitions: list[Partition]

    results: list[Result]
