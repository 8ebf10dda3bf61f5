"""Metadata: brokers, topics, leaders. Topics that do not exist are made where the cluster and the client allow it."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS, Handler
from kwire.broker.partition import NO_LEADER, Partition
from kwire.broker.state import Topic, check_topic_name
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

# Before v4 the client has no say, and every topic that is asked for is made.
_FIRST_VERSION_WITH_CONSENT = 4
_FIRST_VERSION_WITH_NULL_NAME = 12


def handle(broker: BrokerState, request: MetadataRequest, exchange: RequestContext, now: float) -> MetadataResponse:
    cluster = broker.cluster
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in cluster.live_nodes
        ],
        cluster_id=cluster.options.cluster_id,
        controller_id=cluster.controller_id,
        topics=_topics(broker, request, exchange),
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_REQUESTED,
    )


def _topics(broker: BrokerState, request: MetadataRequest, exchange: RequestContext) -> list[MetadataResponse.Topic]:
    asked = request.topics
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED
    if asked is None or (not asked and exchange.version == 0):
        return [_topic(broker, topic, operations) for topic in broker.cluster.topics.values()]
    answers = []
    for one in asked:
        refused = exchange.refused(one.name or "", NO_PARTITION)
        try:
            if refused is not None:
                raise broker_error(refused)
            answers.append(_topic(broker, _find(broker, one, request, exchange.version), operations))
        except BrokerError as error:
            answers.append(_failed(one, error.code, exchange.version))
    return answers


def _find(broker: BrokerState, one: MetadataRequest.Topic, request: MetadataRequest, version: int) -> Topic:
    if one.name is None:
        return broker.cluster.find_topic_by_id(one.topic_id)
    check_topic_name(one.name)
    may_create = version < _FIRST_VERSION_WITH_CONSENT or request.allow_auto_topic_creation
    made = broker.cluster.maybe_auto_create(one.name) if may_create else None
    return made or broker.cluster.find_topic(one.name)


def _topic(broker: BrokerState, topic: Topic, operations: int) -> MetadataResponse.Topic:
    return MetadataResponse.Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(broker, partition) for partition in topic.partitions],
        topic_authorized_operations=operations,
    )


def _partition(broker: BrokerState, partition: Partition) -> MetadataResponse.Topic.Partition:
    led = partition.leader != NO_LEADER
    return MetadataResponse.Topic.Partition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[node for node in partition.replicas if not broker.cluster.nodes[node].is_up],
    )


def refuse(request: MetadataRequest, code: int, version: int) -> MetadataResponse:
    topics = [_failed(one, code, version) for one in request.topics or ()]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def _failed(asked: MetadataRequest.Topic, code: int, version: int) -> MetadataResponse.Topic:
    name = asked.name if version >= _FIRST_VERSION_WITH_NULL_NAME else asked.name or ""
    return MetadataResponse.Topic(error_code=code, name=name, topic_id=asked.topic_id, partitions=[])


def places(broker: BrokerState, request: MetadataRequest) -> list[tuple[str, int]]:
    return [(one.name, NO_PARTITION) for one in request.topics or () if one.name is not None]


METADATA = Handler(MetadataRequest, handle, refuse, places, refuses_places=True)
