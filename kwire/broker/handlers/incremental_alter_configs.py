"""Handle IncrementalAlterConfigs (KIP-339) for topics. Changes apply at once, to records in the log, too."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.cluster_state import Topic
from kwire.broker.handlers.configs import LISTS, TOPIC
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
    if requested.resource_type != TOPIC:
        raise broker_error(ErrorCode.INVALID_REQUEST, "only the configs of topics can be altered")
    topic = broker.cluster.find_topic(requested.resource_name)
    if len({config.name for config in requested.configs}) != len(requested.configs):
        raise broker_error(ErrorCode.INVALID_REQUEST, "the request names a config more than once")
    configs: dict[str, str | None] = dict(topic.settings.configs)
    for config in requested.configs:
        _apply(configs, config, broker, topic)
    broker.cluster.alter_topic(topic, configs, validate_only=validate_only)


def _apply(configs: dict[str, str | None], config: _Requested.Config, broker: Broker, topic: Topic) -> None:
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
    now = [item for item in topic.settings.shown(broker.cluster.options)[name].split(",") if item]
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
