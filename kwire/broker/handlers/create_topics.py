"""Handle CreateTopics (KIP-4). Every broker accepts it, as in KRaft, where brokers forward it to the controller."""

from __future__ import annotations

from kwire.broker.authorizer import CLUSTER_NAME, Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import METADATA_TOPIC, Topic
from kwire.broker.configs import DEFAULT_CONFIG, TOPIC_CONFIG
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler, Mutations, grouped
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

_FIRST_VERSION_WITH_QUOTA = 6

_Result = CreateTopicsResponse.Topic


def handle(broker: Broker, request: CreateTopicsRequest, context: RequestContext, now: float) -> CreateTopicsResponse:
    results = []
    mutations = Mutations(broker, context, since=_FIRST_VERSION_WITH_QUOTA)
    for same in grouped(request.topics, lambda topic: topic.name).values():
        requested = same[-1]
        try:
            if len(same) > 1:
                raise broker_error(ErrorCode.INVALID_REQUEST, "the request names the topic more than once")
            if requested.name == METADATA_TOPIC:
                why = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
                raise broker_error(ErrorCode.INVALID_REQUEST, why)
            if not may_create(context.access, requested.name):
                raise broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            if mutations.are_limited and not request.validate_only:
                mutations.take(len(_create(broker, requested, validate_only=True).partitions), now)
            topic = _create(broker, requested, validate_only=request.validate_only)
            results.append(_result(broker, topic, context.access, request.validate_only))
        except BrokerError as error:
            results.append(_error_result(requested.name, error.code, error.broker_message))
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms, topics=results)


def may_create(access: Access, topic: str) -> bool:
    """Return whether the client may create a topic: any topic, or this one."""
    create = Operation.CREATE
    return access.allows(create, ResourceType.CLUSTER, CLUSTER_NAME) or access.allows(create, ResourceType.TOPIC, topic)


def _create(broker: Broker, requested: CreateTopicsRequest.Topic, *, validate_only: bool) -> Topic:
    if requested.assignments and (requested.num_partitions != -1 or requested.replication_factor != -1):
        raise broker_error(
            ErrorCode.INVALID_REQUEST, "give either a replica assignment, or the numbers of partitions and replicas"
        )
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in requested.assignments}
    if len(assignments) != len(requested.assignments):
        raise broker_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    return broker.cluster.create_topic(
        requested.name, requested.num_partitions, requested.replication_factor,
        {config.name: config.value for config in requested.configs}, assignments=assignments,
        validate_only=validate_only,
    )  # fmt: skip


def _result(broker: Broker, topic: Topic, access: Access, validate_only: bool) -> _Result:
    result = _Result(
        name=topic.name, error_code=ErrorCode.NONE, error_message=None, num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor, configs=_configs(broker, topic),
    )  # fmt: skip
    if not access.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        result.num_partitions = result.replication_factor = -1
        result.configs = []
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not validate_only:
        result.topic_id = topic.id
    return result


def _configs(broker: Broker, topic: Topic) -> list[_Result.Config]:
    return [
        _Result.Config(
            name=name, value=value, read_only=False, is_sensitive=False,
            config_source=TOPIC_CONFIG if name in topic.settings.configs else DEFAULT_CONFIG,
        )
        for name, value in topic.settings.shown(broker.cluster.options).items()
    ]  # fmt: skip


def _error_result(name: str, code: int, message: str | None) -> _Result:
    return _Result(name=name, error_code=code, error_message=message, configs=[])


def error_response(request: CreateTopicsRequest, code: int, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_error_result(requested.name, code, None) for requested in request.topics])


def named_partitions(broker: Broker, request: CreateTopicsRequest) -> list[tuple[str, int]]:
    return [(requested.name, NO_PARTITION) for requested in request.topics]


CREATE_TOPICS = Handler(CreateTopicsRequest, handle, error_response, named_partitions)
