"""Handle UnregisterBroker: forget a broker that will not return. The brokers of an embedded cluster all stay."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(
    broker: Broker, request: UnregisterBrokerRequest, context: RequestContext, now: float
) -> UnregisterBrokerResponse:
    if request.broker_id not in broker.cluster.nodes:
        why = f"Broker ID {request.broker_id} is not currently registered"
        return UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=why)
    return UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST, error_message="the brokers of an embedded cluster cannot be unregistered"
    )


def error_response(request: UnregisterBrokerRequest, code: int, version: int) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=code, error_message=None)


UNREGISTER_BROKER = Handler(UnregisterBrokerRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER))
