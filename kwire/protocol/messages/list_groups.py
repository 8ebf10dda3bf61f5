"""ListGroups (key 16): the groups that a broker coordinates, of every kind.

v0   (the original consumer protocol)
v1   throttle time (KIP-124)
v2   throttling is the client's to carry out (KIP-219)
v3   flexible (KIP-482)
v4   states, also to filter by (KIP-518)
v5   types, also to filter by (KIP-848)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class ListGroupsRequest(Request["ListGroupsResponse"], key=16, versions=(0, 5), flexible=3):
    states_filter: list[string] = since(4, default=[])
    types_filter: list[string] = since(5, default=[])


class ListGroupsResponse(Response, key=16, versions=(0, 5), flexible=3):
    class Group(Struct):
        group_id: string
        protocol_type: string
        group_state: string = since(4, default="", ignorable=True)
        group_type: string = since(5, default="", ignorable=True)

    throttle_time_ms: int32 = since(1, default=0, ignorable=True)
    error_code: int16
    groups: list[Group]
