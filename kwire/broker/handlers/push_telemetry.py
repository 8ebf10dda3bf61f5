"""Handle PushTelemetry (KIP-714): keep the metrics that a client has pushed."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.telemetry import Push
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kwire.records import Compression


def handle(broker: Broker, request: PushTelemetryRequest, context: RequestContext, now: float) -> PushTelemetryResponse:
    try:
        codec = Compression(request.compression_type)
    except ValueError:
        return error_response(request, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, context.version)
    id = request.client_instance_id
    push = Push(id, context.client_id, codec, bytes(request.metrics), request.terminating)
    try:
        broker.cluster.telemetry.push(push, request.subscription_id, context.telemetry_labels(id))
    except BrokerError as error:
        return error_response(request, error.code, context.version)
    return PushTelemetryResponse(error_code=ErrorCode.NONE)


def error_response(request: PushTelemetryRequest, code: int, version: int) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=code)


PUSH_TELEMETRY = Handler(PushTelemetryRequest, handle, error_response)
