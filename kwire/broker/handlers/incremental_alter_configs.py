"""Handle IncrementalAlterConfigs (KIP-339) for topics, groups, brokers, loggers and client metrics.

Changes of a topic apply at once, to records in the log, too. A group need not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kwire.broker.broker import Broker
from kwire.broker.configs import is_list
from kwire.broker.handlers.configs import alter_each, config_result
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode, broker_error
from kwire.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Requested = IncrementalAlterConfigsRequest.Resource
_Result = IncrementalAlterConfigsResponse.Resource


def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext, now: float
) -> IncrementalAlterConfigsResponse:
    alter = partial(_alter, broker, validate_only=request.validate_only)
    altered = alter_each(context.access, request.resources, alter)
    return IncrementalAlterConfigsResponse(responses=[_Result(**fields) for fields in altered])


def _alter(broker: Broker, requested: _Requested, *, validate_only: bool) -> None:
    kind, name, configs = requested.resource_type, requested.resource_name, broker.cluster.configs
    if not configs.has_type(kind):
        raise broker_error(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    if len({config.name for config in requested.configs}) != len(requested.configs):
        raise broker_error(ErrorCode.INVALID_REQUEST, "the request names a config more than once")
    changed: dict[str, str | None] = dict(configs.set_values(kind, name, broker.id))
    shown = {entry.name: entry.value or "" for entry in configs.describe(kind, name, broker.id)}
    for config in requested.configs:
        _apply(changed, config, shown, kind)
    configs.replace(kind, name, broker.id, changed, validate_only=validate_only)


def _apply(
    configs: dict[str, str | None], config: _Requested.Config, shown: Mapping[str, str], resource_type: int
) -> None:
    name, value = config.name, config.value
    if config.config_operation == _DELETE:
        configs.pop(name, None)
        return
    if value is None:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"no value for {name}")
    if config.config_operation == _SET:
        configs[name] = value
        return
    if config.config_operation not in (_APPEND, _SUBTRACT) or not is_list(resource_type, name):
        why = f"operation {config.config_operation} does not apply to {name}"
        raise broker_error(ErrorCode.INVALID_CONFIG, why)
    now = [item for item in shown.get(name, "").split(",") if item]
    items = value.split(",")
    if config.config_operation == _APPEND:
        now += [item for item in items if item not in now]
    else:
        now = [item for item in now if item not in items]
    configs[name] = ",".join(now)


def error_response(request: IncrementalAlterConfigsRequest, code: int, version: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_Result(**config_result(requested, code)) for requested in request.resources]
    )


INCREMENTAL_ALTER_CONFIGS = Handler(IncrementalAlterConfigsRequest, handle, error_response)
