"""DescribeConfigs: of topics, and of the broker that is asked."""

from __future__ import annotations

from collections.abc import Iterable

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.configs import (
    BROKER,
    DEFAULT_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC,
    TOPIC_CONFIG,
    broker_configs,
    type_of,
)
from kwire.broker.handlers.handler import Handler
from kwire.broker.state import check_topic_name
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

_Asked = DescribeConfigsRequest.Resource
_Result = DescribeConfigsResponse.Result
_Config = DescribeConfigsResponse.Result.Config


def handle(
    broker: BrokerState, request: DescribeConfigsRequest, exchange: RequestContext, now: float
) -> DescribeConfigsResponse:
    results = []
    for asked in request.resources:
        try:
            configs = list(_configs(broker, asked, exchange.version, synonyms=request.include_synonyms))
        except BrokerError as error:
            results.append(_result(asked, error.code, error.broker_message))
            continue
        if asked.configuration_keys:
            configs = [config for config in configs if config.name in asked.configuration_keys]
        result = _result(asked, ErrorCode.NONE, None)
        result.configs = configs
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _configs(broker: BrokerState, asked: _Asked, version: int, *, synonyms: bool) -> Iterable[_Config]:
    """Raises BrokerError."""
    options = broker.cluster.options
    if asked.resource_type == TOPIC:
        check_topic_name(asked.resource_name)
        settings = broker.cluster.find_topic(asked.resource_name).settings
        for name, value in settings.shown(options).items():
            source = TOPIC_CONFIG if name in settings.configs else DEFAULT_CONFIG
            yield _config(name, value, source, version, synonyms=synonyms)
    elif asked.resource_type == BROKER:
        if asked.resource_name != str(broker.id):
            why = f"this is broker {broker.id}, not {asked.resource_name!r}"
            raise broker_error(ErrorCode.INVALID_REQUEST, why)
        for name, value in broker_configs(options, broker.id).items():
            yield _config(name, value, STATIC_BROKER_CONFIG, version, synonyms=synonyms)
    else:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"there are no resources of type {asked.resource_type} here")


def _config(name: str, value: str, source: int, version: int, *, synonyms: bool) -> _Config:
    return _Config(
        name=name, value=value, read_only=source == STATIC_BROKER_CONFIG, config_source=source, is_sensitive=False,
        is_default=version == 0 and source == DEFAULT_CONFIG, config_type=type_of(name, value),
        synonyms=[_Config.Synonym(name=name, value=value, source=source)] if synonyms else [], documentation=None,
    )  # fmt: skip


def _result(asked: _Asked, code: int, message: str | None) -> _Result:
    return _Result(
        error_code=code, error_message=message, resource_type=asked.resource_type, resource_name=asked.resource_name,
        configs=[],
    )  # fmt: skip


def refuse(request: DescribeConfigsRequest, code: int, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(asked, code, None) for asked in request.resources])


DESCRIBE_CONFIGS = Handler(DescribeConfigsRequest, handle, refuse)
