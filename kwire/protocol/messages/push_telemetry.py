"""PushTelemetry (key 72): the client's metrics, in OpenTelemetry's format.

v0   flexible (KIP-714)
"""

from kwire.protocol.fields import boolean, bytes_, int8, int16, int32, uuid
from kwire.protocol.schema import Request, Response


class PushTelemetryRequest(Request["PushTelemetryResponse"], key=72, versions=(0, 0), flexible=0):
    client_instance_id: uuid
    subscription_id: int32
    terminating: boolean
    compression_type: int8
    metrics: bytes_


class PushTelemetryResponse(Response, key=72, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
