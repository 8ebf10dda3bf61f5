"""ConsumerGroupHeartbeat (key 68): join, live in and leave a group of the new consumer protocol; the broker assigns.

Null means "as before" in the request and "nothing new" in the response's assignment. Epoch 0 joins, -1 leaves, -2
leaves for a while (a static member).

v0   flexible (KIP-848)
v1   subscription by regular expression (KIP-848); the member makes its own id (KIP-1082)
"""

from kwire.protocol.fields import int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since


class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"], key=68, versions=(0, 1), flexible=0):
    class TopicPartitions(Struct):
        topic_id: uuid
        partitions: list[int32]

    group_id: string
    member_id: string
    member_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[string] | None = None
    subscribed_topic_regex: string | None = since(1, default=None)
    server_assignor: string | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Response, key=68, versions=(0, 1), flexible=0):
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
