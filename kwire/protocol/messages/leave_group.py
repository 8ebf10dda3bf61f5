"""LeaveGroup (key 13): members leave a classic group at once, without waiting for their sessions to end.

v0   (the original consumer protocol)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   several members in one request, static ones too (KIP-345)
v4   flexible (KIP-482)
v5   a reason, for the broker's log (KIP-800)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class LeaveGroupRequest(Request["LeaveGroupResponse"], key=13, versions=(0, 5), flexible=4):
    class Member(Struct):
        member_id: string
        group_instance_id: string | None = None
        reason: string | None = since(5, default=None, ignorable=True)

    group_id: string
    member_id: string = since(0, until=2, default="")
    members: list[Member] = since(3, default=[])


class LeaveGroupResponse(Response, key=13, versions=(0, 5), flexible=4):
    class Member(Struct):
        member_id: string
        group_instance_id: string | None
        error_code: int16

    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    error_code: int16
    members: list[Member] = since(3, default=[])
