"""SyncGroup (key 14): the leader of a classic group hands in the assignment, and every member gets its part.

v0   (the original consumer protocol)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   static members (KIP-345)
v4   flexible (KIP-482)
v5   protocol type and name, both ways, checked against the group's (KIP-559)
"""

from kwire.protocol.fields import bytes_, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class SyncGroupRequest(Request["SyncGroupResponse"], key=14, versions=(0, 5), flexible=4):
    class Assignment(Struct):
        member_id: string
        assignment: bytes_

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since(3, default=None)
    protocol_type: string | None = since(5, default=None, ignorable=True)
    protocol_name: string | None = since(5, default=None, ignorable=True)
    assignments: list[Assignment]


class SyncGroupResponse(Response, key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    error_code: int16
    protocol_type: string | None = since(5, default=None, ignorable=True)
    protocol_name: string | None = since(5, default=None, ignorable=True)
    assignment: bytes_
