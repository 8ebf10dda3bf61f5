"""IncrementalAlterConfigs: of topics. They take effect at once, on what is in the log already too."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.configs import LISTS, TOPIC
from kwire.broker.handlers.handler import Handler
from kwire.broker.state import Topic
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Asked = IncrementalAlterConfigsRequest.Resource
_Result = IncrementalAlterConfigsResponse.Resource


def handle(
    broker: BrokerState, request: IncrementalAlterConfigsRequest, exchange: RequestContext, now: float
) -> IncrementalAlterConfigsResponse:
    results = []
    for asked in request.resources:
        try:
            _alter(broker, asked, validate_only=request.validate_only)
        except BrokerError as error:
            results.append(_result(asked, error.code, error.broker_message))
        else:
            results.append(_result(asked, ErrorCode.NONE))
    return IncrementalAlterConfigsResponse(responses=results)


def _alter(broker: BrokerState, asked: _Asked, *, validate_only: bool) -> None:
    if asked.resource_type != TOPIC:
        raise broker_error(ErrorCode.INVALID_REQUEST, "only topics can be altered here")
    topic = broker.cluster.find_topic(asked.resource_name)
    if len({config.name for config in asked.configs}) != len(asked.configs):
        raise broker_error(ErrorCode.INVALID_REQUEST, "a config is named more than once")
    configs: dict[str, str | None] = dict(topic.settings.configs)
    for config in asked.configs:
        _apply(configs, config, broker, topic)
    broker.cluster.alter_topic(topic, configs, validate_only=validate_only)


def _apply(configs: dict[str, str | None], config: _Asked.Config, broker: BrokerState, topic: Topic) -> None:
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
        why = f"operation {config.config_operation} is not for {name}"
        raise broker_error(ErrorCode.INVALID_CONFIG, why)
    now = [item for item in topic.settings.shown(broker.cluster.options)[name].split(",") if item]
    items = value.split(",")
    if config.config_operation == _APPEND:
        now += [item for item in items if item not in now]
    else:
        now = [item for item in now if item not in items]
    configs[name] = ",".join(now)


def _result(asked: _Asked, code: int, message: str | None = None) -> _Result:
    return _Result(
        error_code=code, error_message=message, resource_type=asked.resource_type, resource_name=asked.resource_name
    )


def refuse(request: IncrementalAlterConfigsRequest, code: int, version: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=[_result(asked, code) for asked in request.resources])


INCREMENTAL_ALTER_CONFIGS = Handler(IncrementalAlterConfigsRequest, handle, refuse)
