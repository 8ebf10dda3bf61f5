"""Handle GetTelemetrySubscriptions (KIP-714): tell a client which metrics to push, and how often."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.telemetry import ACCEPTED_CODECS, DEFAULT_INTERVAL_MS, MAX_BYTES
from kwire.errors import ErrorCode
from kwire.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    broker: Broker, request: GetTelemetrySubscriptionsRequest, context: RequestContext, now: float
) -> GetTelemetrySubscriptionsResponse:
    telemetry = broker.cluster.telemetry
    id = telemetry.instance_id(request.client_instance_id)
    subscription = telemetry.subscription(context.telemetry_labels(id))
    return GetTelemetrySubscriptionsResponse(
        error_code=ErrorCode.NONE, client_instance_id=id, subscription_id=subscription.id,
        accepted_compression_types=list(ACCEPTED_CODECS), push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=MAX_BYTES, delta_temporality=True, requested_metrics=list(subscription.metrics),
    )  # fmt: skip


def error_response(
    request: GetTelemetrySubscriptionsRequest, code: int, version: int
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=code, client_instance_id=request.client_instance_id, subscription_id=0,
        accepted_compression_types=[], push_interval_ms=DEFAULT_INTERVAL_MS, telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True, requested_metrics=[],
    )  # fmt: skip


GET_TELEMETRY_SUBSCRIPTIONS = Handler(GetTelemetrySubscriptionsRequest, handle, error_response)
