"""ShareGroupHeartbeat (key 76): join, live in and leave a share group; the broker assigns.

v0   flexible; early access in 4.0, removed in 4.1 (KIP-932)
v1   the first stable one (KIP-932)
"""

from kwire.protocol.fields import int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct


class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"], key=76, versions=(0, 1), flexible=0):
    group_id: string
    member_id: string
    member_epoch: int32
    rack_id: string | None = None
    subscribed_topic_names: list[string] | None = None


class ShareGroupHeartbeatResponse(Response, key=76, versions=(0, 1), flexible=0):
    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: uuid
            partitions: list[int32]

        topic_partitions: list[TopicPartitions]

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: string | None = None
    member_id: string | None = None
    member_epoch: int32
    heartbeat_interval_ms: int32
    assignment: Assignment | None = None
