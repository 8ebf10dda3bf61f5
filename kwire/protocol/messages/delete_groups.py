"""DeleteGroups (key 42): delete empty groups and their offsets.

v0   (KIP-229)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
v3   error messages (KIP-1331)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], key=42, versions=(0, 3), flexible=2):
    groups_names: list[string]


class DeleteGroupsResponse(Response, key=42, versions=(0, 3), flexible=2):
    class Result(Struct):
        group_id: string
        error_code: int16
        error_message: string | None = since(3, default=None, ignorable=True)

    throttle_time_ms: int32 = 0
    results: list[Result]
