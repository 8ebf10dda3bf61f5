"""Handle AlterConfigs (KIP-133): replace all configs of a resource. What the request does not name gets its default."""

from __future__ import annotations

from functools import partial

from kwire.broker.broker import Broker
from kwire.broker.configs import LOGGER
from kwire.broker.handlers.configs import alter_each, config_result
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode, broker_error
from kwire.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

_Requested = AlterConfigsRequest.Resource
_Result = AlterConfigsResponse.Resource


def handle(broker: Broker, request: AlterConfigsRequest, context: RequestContext, now: float) -> AlterConfigsResponse:
    alter = partial(_alter, broker, validate_only=request.validate_only)
    altered = alter_each(context.access, request.resources, alter)
    return AlterConfigsResponse(responses=[_Result(**fields) for fields in altered])


def _alter(broker: Broker, requested: _Requested, *, validate_only: bool) -> None:
    kind = requested.resource_type
    if not broker.cluster.configs.has_type(kind) or kind == LOGGER:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    if len({config.name for config in requested.configs}) != len(requested.configs):
        raise broker_error(ErrorCode.INVALID_REQUEST, "the request names a config more than once")
    for config in requested.configs:
        if config.value is None:
            raise broker_error(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    values = {config.name: config.value for config in requested.configs}
    broker.cluster.configs.replace(kind, requested.resource_name, broker.id, values, validate_only=validate_only)


def error_response(request: AlterConfigsRequest, code: int, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[_Result(**config_result(requested, code)) for requested in request.resources]
    )


ALTER_CONFIGS = Handler(AlterConfigsRequest, handle, error_response)
