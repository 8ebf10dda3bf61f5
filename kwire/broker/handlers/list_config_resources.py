"""Handle ListConfigResources (KIP-1142): return the resources that have configs. v0 lists client metrics only."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.configs import CLIENT_METRICS, RESOURCE_TYPES
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_Resource = ListConfigResourcesResponse.ConfigResource


def handle(
    broker: Broker, request: ListConfigResourcesRequest, context: RequestContext, now: float
) -> ListConfigResourcesResponse:
    types = (request.resource_types or RESOURCE_TYPES) if context.version > 0 else [CLIENT_METRICS]
    if not set(types) <= set(RESOURCE_TYPES):
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION, context.version)
    found = [
        _Resource(resource_name=name, resource_type=type)
        for type in dict.fromkeys(types)
        for name in broker.cluster.configs.names(type)
    ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=found)


def error_response(request: ListConfigResourcesRequest, code: int, version: int) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


LIST_CONFIG_RESOURCES = Handler(
    ListConfigResourcesRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE_CONFIGS)
)
