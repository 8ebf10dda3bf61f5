"""Heartbeat (key 12): a member of a classic group is alive; the response says when to rejoin.

v0   (the original consumer protocol)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   static members (KIP-345)
v4   flexible (KIP-482)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, since


class HeartbeatRequest(Request["HeartbeatResponse"], key=12, versions=(0, 4), flexible=4):
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since(3, default=None)


class HeartbeatResponse(Response, key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    error_code: int16
