"""Handle IncrementalAlterConfigs (KIP-339) for topics and groups.

Changes of a topic apply at once, to records in the log, too. A group need not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.broker.broker import Broker
from kwire.broker.handlers.configs import GROUP, LISTS, TOPIC
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
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
    results = []
    for requested in request.resources:
        try:
            _alter(broker, requested, validate_only=request.validate_only)
        except BrokerError as error:
            results.append(_result(requested, error.code, error.broker_message))
        else:
            results.append(_result(requested, ErrorCode.NONE))
    return IncrementalAlterConfigsResponse(responses=results)


def _alter(broker: Broker, requested: _Requested, *, validate_only: bool) -> None:
    if requested.resource_type not in (TOPIC, GROUP):
        raise broker_error(ErrorCode.INVALID_REQUEST, "only the configs of topics and groups can be altered")
    cluster, name = broker.cluster, requested.resource_name
    if len({config.name for config in requested.configs}) != len(requested.configs):
        raise broker_error(ErrorCode.INVALID_REQUEST, "the request names a config more than once")
    if requested.resource_type == GROUP:
        group_settings = cluster.group_configs.of(name)
        changed = _changed(group_settings.configs, group_settings.shown(cluster.options), requested)
        cluster.group_configs.alter(name, changed, validate_only=validate_only)
        return
    topic = cluster.find_topic(name)
    changed = _changed(topic.settings.configs, topic.settings.shown(cluster.options), requested)
    cluster.alter_topic(topic, changed, validate_only=validate_only)


def _changed(configs: Mapping[str, str], shown: Mapping[str, str], requested: _Requested) -> dict[str, str | None]:
    changed: dict[str, str | None] = dict(configs)
    for config in requested.configs:
        _apply(changed, config, shown)
    return changed


def _apply(configs: dict[str, str | None], config: _Requested.Config, shown: Mapping[str, str]) -> None:
    name, value = config.name, config.value
    if config.config_operation == _DELETE:
        configs.pop(name, None)
        return
    if value is None:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"no value for {name}")
    if config.config_operation == _SET:
        configs[name] = value
        return
    if config.config_operation not in (_APPEND, _SUBTRACT) or name not in LISTS:
        why = f"operation {config.config_operation} does not apply to {name}"
        raise broker_error(ErrorCode.INVALID_CONFIG, why)
    now = [item for item in shown[name].split(",") if item]
    items = value.split(",")
    if config.config_operation == _APPEND:
        now += [item for item in items if item not in now]
    else:
        now = [item for item in now if item not in items]
    configs[name] = ",".join(now)


def _result(requested: _Requested, code: int, message: str | None = None) -> _Result:
    return _Result(
        error_code=code,
        error_message=message,
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
    )


def error_response(request: IncrementalAlterConfigsRequest, code: int, version: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[_result(requested, code) for requested in request.resources])


INCREMENTAL_ALTER_CONFIGS = Handler(IncrementalAlterConfigsRequest, handle, error_response)
