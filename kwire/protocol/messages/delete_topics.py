"""DeleteTopics (key 20): delete topics; the controller's work.

v0   (KIP-4)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   TOPIC_DELETION_DISABLED may be returned (KIP-322)
v4   flexible (KIP-482)
v5   error messages; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
v6   topics by id or by name (KIP-516)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import NO_ID, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], key=20, versions=(0, 6), flexible=4):
    class Topic(Struct):
        name: string | None = None
        topic_id: uuid = NO_ID

    topics: list[Topic] = since(6, default=[])
    topic_names: list[string] = since(0, until=5, default=[], ignorable=True)
    timeout_ms: int32


class DeleteTopicsResponse(Response, key=20, versions=(0, 6), flexible=4):
    class Topic(Struct):
        name: string | None = since(0, nullable_since=6)
        topic_id: uuid = since(6, default=NO_ID, ignorable=True)
        error_code: int16
        error_message: string | None = since(5, default=None, ignorable=True)

    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    responses: list[Topic]
