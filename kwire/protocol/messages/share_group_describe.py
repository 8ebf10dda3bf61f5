"""ShareGroupDescribe (key 77): state and members of share groups.

v0   flexible; early access in 4.0, removed in 4.1 (KIP-932)
v1   the first stable one (KIP-932)
"""

from kwire.protocol.fields import boolean, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response, Struct

NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"], key=77, versions=(0, 1), flexible=0):
    group_ids: list[string]
    include_authorized_operations: boolean


class ShareGroupDescribeResponse(Response, key=77, versions=(0, 1), flexible=0):
    class Group(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: uuid
                    topic_name: string
                    partitions: list[int32]

                topic_partitions: list[TopicPartitions]

            member_id: string
            rack_id: string | None = None
            member_epoch: int32
            client_id: string
            client_host: string
            subscribed_topic_names: list[string]
            assignment: Assignment

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
