"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single values of a configuration.

v0   (KIP-339)
v1   flexible (KIP-482)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct

# config_operation
SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3


class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"], key=44, versions=(0, 1), flexible=1):
    class Resource(Struct):
        class Config(Struct):
            name: string
            config_operation: int8
            value: string | None

        resource_type: int8
        resource_name: string
        configs: list[Config]

    resources: list[Resource]
    validate_only: boolean


class IncrementalAlterConfigsResponse(Response, key=44, versions=(0, 1), flexible=1):
    class Resource(Struct):
        error_code: int16
        error_message: string | None
        resource_type: int8
        resource_name: string

    throttle_time_ms: int32 = 0
    responses: list[Resource]
