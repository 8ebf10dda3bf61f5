"""CreatePartitions (key 37): give topics more partitions. `count` is the new total.

v0   (KIP-195)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
v3   THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)
"""

from kwire.protocol.fields import boolean, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], key=37, versions=(0, 3), flexible=2):
    class Topic(Struct):
        class Assignment(Struct):
            broker_ids: list[int32]

        name: string
        count: int32
        assignments: list[Assignment] | None

    topics: list[Topic]
    timeout_ms: int32
    validate_only: boolean


class CreatePartitionsResponse(Response, key=37, versions=(0, 3), flexible=2):
    class Result(Struct):
        name: string
        error_code: int16
        error_message: string | None = None

    throttle_time_ms: int32 = 0
    results: list[Result]
