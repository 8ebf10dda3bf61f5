"""ListClientMetricsResources (key 74): the name that ListConfigResources v0 had until 4.0. The bytes are the same.

v0   flexible (KIP-1000)
"""

from kwire.protocol.fields import int16, int32, string
from kwire.protocol.schema import Request, Response, Struct


class ListClientMetricsResourcesRequest(
    Request["ListClientMetricsResourcesResponse"], key=74, versions=(0, 0), flexible=0
):
    pass


class ListClientMetricsResourcesResponse(Response, key=74, versions=(0, 0), flexible=0):
    class ClientMetricsResource(Struct):
        name: string

    throttle_time_ms: int32 = 0
    error_code: int16
    client_metrics_resources: list[ClientMetricsResource]
