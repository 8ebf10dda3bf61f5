"""DeleteShareGroupOffsets (key 92): have a share group forget topics.

v0   flexible (KIP-932)
"""

from kwire.protocol.fields import int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct


class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"], key=92, versions=(0, 0), flexible=0):
    class Topic(Struct):
        topic_name: string

    group_id: string
    topics: list[Topic]


class DeleteShareGroupOffsetsResponse(Response, key=92, versions=(0, 0), flexible=0):
    class Topic(Struct):
        topic_name: string
        topic_id: uuid
        error_code: int16
        error_message: string | None = None

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
    responses: list[Topic]
