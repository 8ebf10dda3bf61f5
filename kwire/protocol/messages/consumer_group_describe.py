"""ConsumerGroupDescribe (key 69): state and members of groups of the new consumer protocol.

v0   flexible (KIP-848)
v1   whether a member speaks the classic protocol (KIP-1099)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct, since

NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"], key=69, versions=(0, 1), flexible=0):
    group_ids: list[string]
    include_authorized_operations: boolean


class ConsumerGroupAssignment(Struct):
    class TopicPartitions(Struct):
        topic_id: uuid
        topic_name: string
        partitions: list[int32]

    topic_partitions: list[TopicPartitions]


class ConsumerGroupDescribeResponse(Response, key=69, versions=(0, 1), flexible=0):
    class Group(Struct):
        class Member(Struct):
            member_id: string
            instance_id: string | None = None
            rack_id: string | None = None
            member_epoch: int32
            client_id: string
            client_host: string
            subscribed_topic_names: list[string]
            subscribed_topic_regex: string | None = None
            assignment: ConsumerGroupAssignment
            target_assignment: ConsumerGroupAssignment
            member_type: int8 = since(1, default=-1, ignorable=True)

        error_code: int16
        error_message: string | None = None
        group_id: string
        group_state: string
        group_epoch: int32
        assignment_epoch: int32
        assignor_name: string
        members: list[Member]
        authorized_operations: int32 = NOT_REQUESTED

    throttle_time_ms: int32 = 0
    groups: list[Group]
