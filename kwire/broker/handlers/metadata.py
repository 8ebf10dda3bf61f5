"""Handle Metadata: return brokers, topics and leaders. Create missing topics if the cluster and the client allow it."""

from __future__ import annotations

from collections.abc import Sequence

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import Topic, check_topic_name
from kwire.broker.diagnostics import logger
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.create_topics import may_create
from kwire.broker.handlers.handler import NOT_REQUESTED, Handler, find_topic
from kwire.broker.ids import NO_ID
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

# Before v4 the client cannot decide: every missing topic is created.
_FIRST_VERSION_WITH_CONSENT = 4
_FIRST_VERSION_WITH_NULL_NAME = 12


def handle(broker: Broker, request: MetadataRequest, context: RequestContext, now: float) -> MetadataResponse:
    if context.version < _FIRST_VERSION_WITH_NULL_NAME and any(
        topic.name is None or topic.topic_id != NO_ID for topic in request.topics or ()
    ):
        return error_response(request, ErrorCode.INVALID_REQUEST, context.version)
    cluster = broker.cluster
    include_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in cluster.nodes_seen_by(context.listener)
            if node.is_up
        ],
        cluster_id=cluster.options.cluster_id,
        controller_id=cluster.controller_id,
        topics=_topics(broker, request, context),
        cluster_authorized_operations=context.access.cluster_operations() if include_operations else NOT_REQUESTED,
    )


def _topics(broker: Broker, request: MetadataRequest, context: RequestContext) -> list[MetadataResponse.Topic]:
    requested = request.topics
    if requested is None or (not requested and context.version == 0):
        described = [topic for topic in broker.cluster.topics.values() if context.access.describes(topic.name)]
        return [_topic(broker, topic, request, context) for topic in described]
    topics = []
    for topic in _each_once(requested, context.version):
        injected = context.injected_error(topic.name or "", NO_PARTITION)
        try:
            if injected is not None:
                raise broker_error(injected)
            topics.append(_topic(broker, _find(broker, topic, request, context), request, context))
        except BrokerError as error:
            topics.append(_error_topic(topic, error.code, context.version))
            is_unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_unknown and request.include_topic_authorized_operations and topic.name:
                operations = context.access.operations(ResourceType.TOPIC, topic.name)
                topics[-1].topic_authorized_operations = operations
    return topics


def _each_once(requested: Sequence[MetadataRequest.Topic], version: int) -> list[MetadataRequest.Topic]:
    """Return what is requested without repetitions. As in Kafka, names are ignored beside ids."""
    by_id = {topic.topic_id: topic for topic in requested if _is_by_id(topic, version)}
    return list(by_id.values()) or list({topic.name: topic for topic in requested}.values())


def _find(broker: Broker, topic: MetadataRequest.Topic, request: MetadataRequest, context: RequestContext) -> Topic:
    version, access = context.version, context.access
    if _is_by_id(topic, version):
        return find_topic(broker, access, Operation.DESCRIBE, None, topic.topic_id)
    assert topic.name is not None
    access.require_topic(Operation.DESCRIBE, topic.name)
    check_topic_name(topic.name)
    creates = version < _FIRST_VERSION_WITH_CONSENT or request.allow_auto_topic_creation
    if creates and broker.cluster.options.auto_create_topics and topic.name not in broker.cluster.topics:
        if not may_create(access, topic.name):
            raise broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _create(broker, topic.name)
    return broker.cluster.find_topic(topic.name)


def _create(broker: Broker, name: str) -> None:
    """Create a topic. As in Kafka, what keeps it from being created is in the log: the client finds no topic."""
    try:
        broker.cluster.maybe_auto_create(name)
    except BrokerError as error:
        logger.warning("topic %s is not auto-created: %s", name, error)


def _is_by_id(topic: MetadataRequest.Topic, version: int) -> bool:
    """Return whether a topic is requested by its id. Java's consumer then sends an empty name, others send null."""
    return topic.name is None or (version >= _FIRST_VERSION_WITH_NULL_NAME and topic.topic_id != NO_ID)


def _topic(broker: Broker, topic: Topic, request: MetadataRequest, context: RequestContext) -> MetadataResponse.Topic:
    includes_operations = request.include_topic_authorized_operations
    return MetadataResponse.Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(broker, partition) for partition in topic.partitions],
        topic_authorized_operations=(
            context.access.operations(ResourceType.TOPIC, topic.name) if includes_operations else NOT_REQUESTED
        ),
    )


def _partition(broker: Broker, partition: Partition) -> MetadataResponse.Topic.Partition:
    leader = broker.cluster.told_leader(broker.id, partition)
    has_leader = leader != NO_LEADER
    return MetadataResponse.Topic.Partition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[node for node in partition.replicas if not broker.cluster.nodes[node].is_up],
    )


def error_response(request: MetadataRequest, code: int, version: int) -> MetadataResponse:
    topics = [_error_topic(topic, code, version) for topic in request.topics or ()]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def _error_topic(requested: MetadataRequest.Topic, code: int, version: int) -> MetadataResponse.Topic:
    name = None if _is_by_id(requested, version) else requested.name
    if version < _FIRST_VERSION_WITH_NULL_NAME:
        name = requested.name or ""
    return MetadataResponse.Topic(error_code=code, name=name, topic_id=requested.topic_id, partitions=[])


def named_partitions(broker: Broker, request: MetadataRequest) -> list[tuple[str, int]]:
    return [(topic.name, NO_PARTITION) for topic in request.topics or () if topic.name is not None]


METADATA = Handler(MetadataRequest, handle, error_response, named_partitions, supports_partition_errors=True)
