"""WriteShareGroupState (key 85): between brokers: store the state of share-partitions.

v0   flexible (KIP-932)
v1   how many deliveries are complete, for the lag (KIP-1226)
"""

from kwire.protocol.fields import int8, int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"], key=85, versions=(0, 1), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            class StateBatch(Struct):
                first_offset: int64
                last_offset: int64
                delivery_state: int8
                delivery_count: int16

            partition: int32
            state_epoch: int32
            leader_epoch: int32
            start_offset: int64
            delivery_complete_count: int32 = since(1, default=-1, ignorable=True)
            state_batches: list[StateBatch]

        topic_id: uuid
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class WriteShareGroupStateResponse(Response, key=85, versions=(0, 1), flexible=0):
    class Result(Struct):
        class Partition(Struct):
            partition: int32
            error_code: int16
            error_message: string | None = None

        topic_id: uuid
        partitions: list[Partition]

    results: list[Result]
