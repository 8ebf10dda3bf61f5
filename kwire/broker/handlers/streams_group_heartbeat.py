"""Handle StreamsGroupHeartbeat (KIP-1071): a member of a group of Kafka Streams joins, gets its tasks, or leaves.

Internal topics that the topology needs are created here, with the rights of the client. The response still says that
they are missing; the next heartbeat finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kwire.broker.authorizer import Access, Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.create_topics import may_create
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.broker.streams_assignor import Tasks, TaskSet
from kwire.broker.streams_groups import EndpointPartitions, Heartbeat, HeartbeatResult
from kwire.broker.streams_topology import MISSING_INTERNAL_TOPICS, InternalTopic, Status, Subtopology, Topology
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.streams_group_heartbeat import (
    StreamsEndpoint,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsTaskIds,
)

_Topology = StreamsGroupHeartbeatRequest.Topology
_Endpoint = StreamsGroupHeartbeatResponse.EndpointToPartitions


def handle(
    broker: Broker, request: StreamsGroupHeartbeatRequest, context: RequestContext, now: float
) -> StreamsGroupHeartbeatResponse:
    if not broker.cluster.options.has_streams_groups:
        return _error(ErrorCode.UNSUPPORTED_VERSION, "groups of Kafka Streams exist since Kafka 4.2")
    try:
        broker.check_coordinates(request.group_id)
        result = broker.cluster.streams_groups.heartbeat(_heartbeat(request, context), now)
    except BrokerError as error:
        return _error(error.code, error.broker_message)
    return _response(result, _create_missing(broker, result, context.access))


def _heartbeat(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> Heartbeat:
    kinds = {
        "ActiveTasks": request.active_tasks, "StandbyTasks": request.standby_tasks,
        "WarmupTasks": request.warmup_tasks,
    }  # fmt: skip
    reported = [_tasks(found) for found in kinds.values() if found is not None]
    topology, endpoint = request.topology, request.user_endpoint
    return Heartbeat(
        group_id=request.group_id, member_id=request.member_id, epoch=request.member_epoch,
        client_id=context.client_id, client_host=context.client_host,
        endpoint_epoch=request.endpoint_information_epoch, instance_id=request.instance_id, rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if topology is None else _topology(topology),
        has_patterns=topology is not None and any(one.source_topic_regex for one in topology.subtopologies),
        owned=Tasks(*reported) if len(reported) == len(kinds) else None,
        unreported=next((name for name, found in kinds.items() if found is None or found), None),
        process_id=request.process_id, endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=None if request.client_tags is None else {tag.key: tag.value for tag in request.client_tags},
        has_task_offsets=bool(request.task_offsets or request.task_end_offsets),
        shuts_down=request.shutdown_application,
    )  # fmt: skip


def _tasks(found: list[StreamsTaskIds]) -> TaskSet:
    return frozenset((one.subtopology_id, partition) for one in found for partition in one.partitions)


def _topology(topology: _Topology) -> Topology:
    """Return the topology. Raises STREAMS_INVALID_TOPOLOGY for a copartition group that names a topic which is not
    there."""
    for one in topology.subtopologies:
        for group in one.copartition_groups:
            _check_places(one.subtopology_id, group.source_topics, len(one.source_topics))
            _check_places(one.subtopology_id, group.repartition_source_topics, len(one.repartition_source_topics))
    return Topology(
        topology.epoch,
        tuple(
            Subtopology(
                one.subtopology_id, tuple(one.source_topics), tuple(one.repartition_sink_topics),
                tuple(map(_internal_topic, one.repartition_source_topics)),
                tuple(map(_internal_topic, one.state_changelog_topics)),
                tuple(
                    frozenset(
                        [one.source_topics[place] for place in group.source_topics]
                        + [one.repartition_source_topics[place].name for place in group.repartition_source_topics]
                    )
                    for group in one.copartition_groups
                ),
            )
            for one in topology.subtopologies
        ),
    )  # fmt: skip


def _check_places(subtopology: str, places: Sequence[int], count: int) -> None:
    for place in places:
        if not 0 <= place < count:
            why = f"A copartition group of subtopology {subtopology} names topic {place} of {count}."
            raise broker_error(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def _internal_topic(topic: _Topology.Subtopology.TopicInfo) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in topic.topic_configs)
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def _create_missing(broker: Broker, result: HeartbeatResult, access: Access) -> tuple[Status, ...]:
    """Create the internal topics that are missing. Return the statuses, with what prevented it."""
    failures = []
    refused = [topic.name for topic in result.missing if not may_create(access, topic.name)]
    if refused:
        failures.append(f"Unauthorized to CREATE on topics {', '.join(refused)}.")
    for topic in result.missing if not refused else ():
        try:
            broker.cluster.create_topic(
                topic.name, (result.partitions or {})[topic.name], topic.replication_factor or -1, dict(topic.configs)
            )
        except BrokerError as error:
            failures.append(f"Failed to create {topic.name}: {error.broker_message}")
    return tuple(
        (code, "; ".join([detail, *failures]) if code == MISSING_INTERNAL_TOPICS else detail)
        for code, detail in result.statuses
    )


def _response(result: HeartbeatResult, statuses: tuple[Status, ...]) -> StreamsGroupHeartbeatResponse:
    tasks, endpoints = result.tasks, result.endpoints
    return StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE, member_id=result.member_id, member_epoch=result.epoch,
        heartbeat_interval_ms=result.interval_ms, task_offset_interval_ms=0,
        status=[StreamsGroupHeartbeatResponse.Status(status_code=code, status_detail=text) for code, text in statuses],
        active_tasks=None if tasks is None else task_ids(tasks.active),
        standby_tasks=None if tasks is None else task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else task_ids(tasks.warmup),
        endpoint_information_epoch=result.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint(one) for one in endpoints],
    )  # fmt: skip


def task_ids(tasks: TaskSet) -> list[StreamsTaskIds]:
    """Return tasks by subtopology, both in order."""
    return [
        StreamsTaskIds(subtopology_id=id, partitions=sorted(partition for other, partition in tasks if other == id))
        for id in sorted({id for id, _ in tasks})
    ]


def _endpoint(one: EndpointPartitions) -> _Endpoint:
    host, port = one.endpoint
    return _Endpoint(
        user_endpoint=StreamsEndpoint(host=host, port=port), active_partitions=_partitions(one.active),
        standby_partitions=_partitions(one.standby),
    )  # fmt: skip


def _partitions(found: Mapping[str, list[int]]) -> list[_Endpoint.TopicPartition]:
    return [_Endpoint.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in found.items()]


def _error(code: int, message: str | None) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        error_code=code, error_message=message, member_id="", member_epoch=0, heartbeat_interval_ms=0,
        task_offset_interval_ms=0, status=[], endpoint_information_epoch=0,
    )  # fmt: skip


def authorize(request: StreamsGroupHeartbeatRequest, access: Access, version: int) -> None:
    access.require_group(Operation.READ, request.group_id)
    if request.topology is None:
        return
    for topic in sorted(_topology(request.topology).required_topics):
        access.require_topic(Operation.DESCRIBE, topic)


def error_response(request: StreamsGroupHeartbeatRequest, code: int, version: int) -> StreamsGroupHeartbeatResponse:
    return _error(code, None)


STREAMS_GROUP_HEARTBEAT = Handler(StreamsGroupHeartbeatRequest, handle, error_response, authorize=authorize)
