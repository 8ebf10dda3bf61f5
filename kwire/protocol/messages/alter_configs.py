"""AlterConfigs (key 33): replace the whole configuration of a resource. IncrementalAlterConfigs is the better one.

v0   (KIP-133)
v1   throttling is the client's to carry out (KIP-219)
v2   flexible (KIP-482)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class AlterConfigsRequest(Request["AlterConfigsResponse"], key=33, versions=(0, 2), flexible=2):
    class Resource(Struct):
        class Config(Struct):
            name: string
            value: string | None

        resource_type: int8
        resource_name: string
        configs: list[Config]

    resources: list[Resource]
    validate_only: boolean


class AlterConfigsResponse(Response, key=33, versions=(0, 2), flexible=2):
    class Resource(Struct):
        error_code: int16
        error_message: string | None
        resource_type: int8
        resource_name: string

    throttle_time_ms: int32 = 0
    responses: list[Resource]
