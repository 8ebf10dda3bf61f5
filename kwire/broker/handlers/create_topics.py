"""CreateTopics: at any broker, as with KRaft, where brokers forward it to the controller."""

from __future__ import annotations

from collections import Counter

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.configs import DEFAULT_CONFIG, TOPIC_CONFIG
from kwire.broker.handlers.handler import Handler
from kwire.broker.state import Topic
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

_Result = CreateTopicsResponse.Topic


def handle(
    broker: BrokerState, request: CreateTopicsRequest, exchange: RequestContext, now: float
) -> CreateTopicsResponse:
    named = Counter(asked.name for asked in request.topics)
    results = []
    for asked in {asked.name: asked for asked in request.topics}.values():
        try:
            if named[asked.name] > 1:
                raise broker_error(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            results.append(_created(broker, _create(broker, asked, request.validate_only), request.validate_only))
        except BrokerError as error:
            results.append(_failed(asked.name, error.code, error.broker_message))
    return CreateTopicsResponse(topics=results)


def _create(broker: BrokerState, asked: CreateTopicsRequest.Topic, validate_only: bool) -> Topic:
    if asked.assignments and (asked.num_partitions != -1 or asked.replication_factor != -1):
        raise broker_error(ErrorCode.INVALID_REQUEST, "give either a replica assignment, or numbers")
    assignments = {one.partition_index: one.broker_ids for one in asked.assignments}
    if len(assignments) != len(asked.assignments):
        raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    return broker.cluster.create_topic(
        asked.name, asked.num_partitions, asked.replication_factor,
        {config.name: config.value for config in asked.configs}, assignments=assignments, validate_only=validate_only,
    )  # fmt: skip


def _created(broker: BrokerState, topic: Topic, validate_only: bool) -> _Result:
    result = _Result(
        name=topic.name, error_code=ErrorCode.NONE, error_message=None, num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor, configs=_configs(broker, topic),
    )  # fmt: skip
    if not validate_only:
        result.topic_id = topic.id
    return result


def _configs(broker: BrokerState, topic: Topic) -> list[_Result.Config]:
    return [
        _Result.Config(
            name=name, value=value, read_only=False, is_sensitive=False,
            config_source=TOPIC_CONFIG if name in topic.settings.configs else DEFAULT_CONFIG,
        )
        for name, value in topic.settings.shown(broker.cluster.options).items()
    ]  # fmt: skip


def _failed(name: str, code: int, message: str | None) -> _Result:
    return _Result(name=name, error_code=code, error_message=message, configs=[])


def refuse(request: CreateTopicsRequest, code: int, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failed(asked.name, code, None) for asked in request.topics])


def places(broker: BrokerState, request: CreateTopicsRequest) -> list[tuple[str, int]]:
    return [(asked.name, NO_PARTITION) for asked in request.topics]


CREATE_TOPICS = Handler(CreateTopicsRequest, handle, refuse, places)
