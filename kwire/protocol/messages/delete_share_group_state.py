"""DeleteShareGroupState (key 86): between brokers: delete the stored state of share-partitions.

v0   flexible (KIP-932)
"""

from kwire.protocol.fields import int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct


class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"], key=86, versions=(0, 0), flexible=0):
    class Topic(Struct):
        class Partition(Struct):
            partition: int32

        topic_id: uuid
        partitions: list[Partition]

    group_id: string
    topics: list[Topic]


class DeleteShareGroupStateResponse(Response, key=86, versions=(0, 0), flexible=0):
    class Result(Struct):
        class Partition(Struct):
            partition: int32
            error_code: int16
            error_message: string | None = None

        topic_id: uuid
        partitions: list[Partition]

    results: list[Result]
