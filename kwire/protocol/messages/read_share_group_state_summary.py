"""ReadShareGroupStateSummary (key 87): between brokers: where share-partitions start, without their batches.

v0   flexible (KIP-932)
v1   how many deliveries are complete, for the lag (KIP-1226)
"""

from kwire.protocol.fields import int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class ReadShareGroupStateSummaryRequest(
    Request["ReadShareGroupStateSummaryResponse"], key=87, versions=(0, 1), flexible=0
):
    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            leader_epoch: int32

        topic_id: uuid
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class ReadShareGroupStateSummaryResponse(Response, key=87, versions=(0, 1), flexible=0):
    class Result(Struct):
        class Partition(Struct):
            partition: int32
            error_code: int16
            error_message: string | None = None
            state_epoch: int32
            leader_epoch: int32
            start_offset: int64
            delivery_complete_count: int32 = since(1, default=-1, ignorable=True)

        topic_id: uuid
        partitions: list[Partition]

    results: list[Result]
