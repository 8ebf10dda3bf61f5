"""DeleteAcls (key 31): delete the access rules that match filters.

v0   (KIP-140)
v1   prefixed resource names (KIP-290)
v2   flexible (KIP-482)
v3   users as resources (KIP-373)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

LITERAL = 3  # pattern type


class DeleteAclsRequest(Request["DeleteAclsResponse"], key=31, versions=(0, 3), flexible=2):
    class Filter(Struct):
        resource_type_filter: int8
        resource_name_filter: string | None
        pattern_type_filter: int8 = since(1, default=LITERAL)
        principal_filter: string | None
        host_filter: string | None
        operation: int8
        permission_type: int8

    filters: list[Filter]


class DeleteAclsResponse(Response, key=31, versions=(0, 3), flexible=2):
    class Result(Struct):
        class Acl(Struct):
            error_code: int16
            error_message: string | None
            resource_type: int8
            resource_name: string
            pattern_type: int8 = since(1, default=LITERAL)
            principal: string
            host: string
            operation: int8
            permission_type: int8

        error_code: int16
        error_message: string | None
        matching_acls: list[Acl]

    throttle_time_ms: int32 = 0
    filter_results: list[Result]
