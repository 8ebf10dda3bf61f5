"""InitializeShareGroupState (key 83): between brokers: begin the stored state of share-partitions.

v0   flexible (KIP-932)
"""

from kwire.protocol.fields import int16, int32, int64, string, uuid
from kwire.protocol.schema import Request, Response, Struct


class InitializeShareGroupStateRequest(
    Request["InitializeShareGroupStateResponse"], key=83, versions=(0, 0), flexible=0
):
    class Topic(Struct):
        class Partition(Struct):
            partition: int32
            state_epoch: int32
            start_offset: int64

        topic_id: uuid
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class InitializeShareGroupStateResponse(Response, key=83, versions=(0, 0), flexible=0):
    class Result(Struct):
        class Partition(Struct):
            partition: int32
            error_code: int16
            error_message: string | None = None

        topic_id: uuid
        partitions: list[Partition]

    results: list[Result]
