"""JoinGroup (key 11): become or stay a member of a classic group, and learn whether one leads it.

v0   (the original consumer protocol)
v1   a time limit for rebalances, apart from the session's (KIP-62)
v2   throttle time (KIP-124)
v3   throttling is the client's to carry out (KIP-219)
v4   a first join gets MEMBER_ID_REQUIRED with an id to join with (KIP-394)
v5   static members (KIP-345)
v6   flexible (KIP-482)
v7   the protocol type in the response (KIP-559)
v8   a reason, for the broker's log (KIP-800)
v9   the response may let the leader skip the assignment (KIP-814)
"""

from kwire.protocol.fields import boolean, bytes_, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class JoinGroupRequest(Request["JoinGroupResponse"], key=11, versions=(0, 9), flexible=6):
    class Protocol(Struct):
        name: string
        metadata: bytes_

    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = since(1, default=-1, ignorable=True)
    member_id: string
    group_instance_id: string | None = since(5, default=None)
    protocol_type: string
    protocols: list[Protocol]
    reason: string | None = since(8, default=None, ignorable=True)


class JoinGroupResponse(Response, key=11, versions=(0, 9), flexible=6):
    class Member(Struct):
        member_id: string
        group_instance_id: string | None = since(5, default=None, ignorable=True)
        metadata: bytes_

    throttle_time_ms: int32 = since(2, default=0, ignorable=True)
    error_code: int16
    generation_id: int32 = -1
    protocol_type: string | None = since(7, default=None, ignorable=True)
    protocol_name: string | None = since(0, nullable_since=7)
    leader: string
    skip_assignment: boolean = since(9, default=False)
    member_id: string
    members: list[Member]
