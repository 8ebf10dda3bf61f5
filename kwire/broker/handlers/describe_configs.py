"""Handle DescribeConfigs (KIP-133): return the configs of topics, groups, brokers, loggers and client metrics."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import check_topic_name
from kwire.broker.configs import DEFAULT_CONFIG, STATIC_BROKER_CONFIG, TOPIC, Entry
from kwire.broker.handlers.configs import require_config_right
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
    results, refused = [], []
    for requested in request.resources:
        try:
            require_config_right(context.access, Operation.DESCRIBE_CONFIGS, requested)
        except BrokerError as error:
            refused.append(_result(requested, error.code, error.broker_message))
            continue
        try:
            entries = _entries(broker, requested)
        except BrokerError as error:
            results.append(_result(requested, error.code, error.broker_message))
            continue
        result = _result(requested, ErrorCode.NONE, None)
        result.configs = [
            _config(entry, context.version, synonyms=request.include_synonyms)
            for entry in entries
            if not requested.configuration_keys or entry.name in requested.configuration_keys
        ]
        results.append(result)
    return DescribeConfigsResponse(results=results + refused)


def _entries(broker: Broker, requested: _Requested) -> list[Entry]:
    kind, name = requested.resource_type, requested.resource_name
    if not broker.cluster.configs.has_type(kind):
        raise broker_error(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    if kind == TOPIC:
        check_topic_name(name)
    return broker.cluster.configs.describe(kind, name, broker.id)


def _config(entry: Entry, version: int, *, synonyms: bool) -> _Config:
    return _Config(
        name=entry.name, value=entry.value, read_only=entry.is_read_only, config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        is_default=version == 0 and entry.source in (DEFAULT_CONFIG, STATIC_BROKER_CONFIG), config_type=entry.type,
        synonyms=[
            _Config.Synonym(name=entry.name, value=value, source=source) for value, source in entry.synonyms
        ] if synonyms else [],
        documentation=None,
    )  # fmt: skip


def _result(requested: _Requested, code: int, message: str | None) -> _Result:
    return _Result(
        error_code=code, error_message=message, resource_type=requested.resource_type,
        resource_name=requested.resource_name, configs=[],
    )  # fmt: skip


def error_response(request: DescribeConfigsRequest, code: int, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(requested, code, None) for requested in request.resources])


DESCRIBE_CONFIGS = Handler(DescribeConfigsRequest, handle, error_response)
