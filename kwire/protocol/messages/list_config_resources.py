"""ListConfigResources (key 74): the resources that have a configuration of their own.

v0   flexible; only client metrics, under the name ListClientMetricsResources (KIP-1000)
v1   every type, the requested ones or all (KIP-1142)
"""

from kwire.protocol.fields import int8, int16, int32, string
from kwire.protocol.schema import Request, Response, Struct, since

CLIENT_METRICS = 16  # resource type


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], key=74, versions=(0, 1), flexible=0):
    resource_types: list[int8] = since(1, default=[])


class ListConfigResourcesResponse(Response, key=74, versions=(0, 1), flexible=0):
    class ConfigResource(Struct):
        resource_name: string
        resource_type: int8 = since(1, default=CLIENT_METRICS, ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16
    config_resources: list[ConfigResource]
