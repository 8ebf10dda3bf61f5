"""Handle DescribeConfigs (KIP-133): return the configs of topics, groups and this broker."""

from __future__ import annotations

from collections.abc import Iterable

from kwire.broker.broker import Broker
from kwire.broker.cluster_state import check_topic_name
from kwire.broker.handlers.configs import (
    BROKER,
    DEFAULT_CONFIG,
    GROUP,
    GROUP_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC,
    TOPIC_CONFIG,
    broker_configs,
    config_type,
)
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

_Requested = DescribeConfigsRequest.Resource
_Result = DescribeConfigsResponse.Result
_Config = DescribeConfigsResponse.Result.Config


def handle(
    broker: Broker, request: DescribeConfigsRequest, context: RequestContext, now: float
) -> DescribeConfigsResponse:
    results = []
    for requested in request.resources:
        try:
            configs = list(_configs(broker, requested, context.version, synonyms=request.include_synonyms))
        except BrokerError as error:
            results.append(_result(requested, error.code, error.broker_message))
            continue
        if requested.configuration_keys:
            configs = [config for config in configs if config.name in requested.configuration_keys]
        result = _result(requested, ErrorCode.NONE, None)
        result.configs = configs
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _configs(broker: Broker, requested: _Requested, version: int, *, synonyms: bool) -> Iterable[_Config]:
    """Return the configs of one resource. Raises BrokerError."""
    options = broker.cluster.options
    if requested.resource_type == TOPIC:
        check_topic_name(requested.resource_name)
        settings = broker.cluster.find_topic(requested.resource_name).settings
        for name, value in settings.shown(options).items():
            source = TOPIC_CONFIG if name in settings.configs else DEFAULT_CONFIG
            yield _config(name, value, source, version, synonyms=synonyms)
    elif requested.resource_type == GROUP:
        group_settings = broker.cluster.group_configs.of(requested.resource_name)
        for name, value in group_settings.shown(options).items():
            source = GROUP_CONFIG if name in group_settings.configs else DEFAULT_CONFIG
            yield _config(name, value, source, version, synonyms=synonyms)
    elif requested.resource_type == BROKER:
        if requested.resource_name != str(broker.id):
            why = f"this is broker {broker.id}, not {requested.resource_name!r}"
            raise broker_error(ErrorCode.INVALID_REQUEST, why)
        for name, value in broker_configs(options, broker.id).items():
            yield _config(name, value, STATIC_BROKER_CONFIG, version, synonyms=synonyms)
    else:
        raise broker_error(ErrorCode.INVALID_REQUEST, f"there are no resources of type {requested.resource_type} here")


def _config(name: str, value: str, source: int, version: int, *, synonyms: bool) -> _Config:
    return _Config(
        name=name, value=value, read_only=source == STATIC_BROKER_CONFIG, config_source=source, is_sensitive=False,
        is_default=version == 0 and source == DEFAULT_CONFIG, config_type=config_type(name, value),
        synonyms=[_Config.Synonym(name=name, value=value, source=source)] if synonyms else [], documentation=None,
    )  # fmt: skip


def _result(requested: _Requested, code: int, message: str | None) -> _Result:
    return _Result(
        error_code=code, error_message=message, resource_type=requested.resource_type,
        resource_name=requested.resource_name, configs=[],
    )  # fmt: skip


def error_response(request: DescribeConfigsRequest, code: int, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(requested, code, None) for requested in request.resources])


DESCRIBE_CONFIGS = Handler(DescribeConfigsRequest, handle, error_response)
