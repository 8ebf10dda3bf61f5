"""GetTelemetrySubscriptions (key 71): which of its metrics the client is to push.

v0   flexible (KIP-714)
"""

from kwire.protocol.fields import boolean, int8, int16, int32, string, uuid
from kwire.protocol.schema import Request, Response


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], key=71, versions=(0, 0), flexible=0
):
    client_instance_id: uuid


class GetTelemetrySubscriptionsResponse(Response, key=71, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = 0
    error_code: int16
    client_instance_id: uuid
    subscription_id: int32
    accepted_compression_types: list[int8]
    push_interval_ms: int32
    telemetry_max_bytes: int32
    delta_temporality: boolean
    requested_metrics: list[string]
