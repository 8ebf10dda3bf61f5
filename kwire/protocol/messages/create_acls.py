"""CreateAcls (key 30): add access rules.

v0   (KIP-140)
v1   prefixed resource names (KIP-290)
v2   flexible (KIP-482)
v3   users as resources (KIP-373)

Kafka 4.0 dropped version 0.
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

LITERAL = 3  # pattern type


class CreateAclsRequest(Request["CreateAclsResponse"], key=30, versions=(0, 3), flexible=2):
    class Creation(Struct):
        resource_type: int8
        resource_name: string
        resource_pattern_type: int8 = since(1, default=LITERAL)
        principal: string
        host: string
        operation: int8
        permission_type: int8

    creations: list[Creation]


class CreateAclsResponse(Response, key=30, versions=(0, 3), flexible=2):
    class Result(Struct):
        error_code: int16
        error_message: string | None

    throttle_time_ms: int32 = 0
    results: list[Result]
