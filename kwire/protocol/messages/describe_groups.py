"""DescribeGroups (key 15): state and members of classic groups, from their coordinator.

v0   (the original consumer protocol)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   what the caller may do to the group (KIP-430)
v4   static members (KIP-345)
v5   flexible (KIP-482)
v6   GROUP_ID_NOT_FOUND instead of a group in state Dead; error messages (KIP-1043)
"""

from kwire.protocol.fields import boolean, bytes_, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

NOT_REQUESTED = -(2**31)  # authorised operations that were not requested


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], key=15, versions=(0, 6), flexible=5):
    groups: list[string]
    include_authorized_operations: boolean = since(3, default=False)


class DescribeGroupsResponse(Response, key=15, versions=(0, 6), flexible=5):
    class Group(Struct):
        class Member(Struct):
            member_id: string
            group_instance_id: string | None = since(4, default=None, ignorable=True)
            client_id: string
            client_host: string
            member_metadata: bytes_
            member_assignment: bytes_

        error_code: int16
        error_message: string | None = since(6, default=None)
        group_id: string
        group_state: string
        protocol_type: string
        protocol_data: string
        members: list[Member]
        authorized_operations: int32 = since(3, default=NOT_REQUESTED)

    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    groups: list[Group]
