"""Handle StreamsGroupDescribe (KIP-1071): return the topology, the state and the members of groups of Kafka Streams."""

from __future__ import annotations

from kwire.broker.authorizer import Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import NOT_REQUESTED, Handler
from kwire.broker.handlers.streams_group_heartbeat import task_ids
from kwire.broker.request_context import RequestContext
from kwire.broker.streams_assignor import Tasks
from kwire.broker.streams_group import NO_TASKS, StreamsGroup, StreamsMember
from kwire.broker.streams_topology import InternalTopic
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from kwire.protocol.messages.streams_group_heartbeat import StreamsEndpoint

_Result = StreamsGroupDescribeResponse.Group
_Subtopology = _Result.Topology.Subtopology
_TopicInfo = _Subtopology.TopicInfo


def handle(
    broker: Broker, request: StreamsGroupDescribeRequest, context: RequestContext, now: float
) -> StreamsGroupDescribeResponse:
    with_operations = request.include_authorized_operations
    return StreamsGroupDescribeResponse(
        groups=[_describe(broker, group_id, context.access, with_operations) for group_id in request.group_ids]
    )


def _describe(broker: Broker, group_id: str, access: Access, with_operations: bool) -> _Result:
    try:
        access.require_group(Operation.DESCRIBE, group_id)
        broker.check_coordinates(group_id)
        group = broker.cluster.streams_groups.find(group_id)
        topics = group.topology.required_topics if group.topology is not None else frozenset()
        if not all(access.describes(topic) for topic in topics):
            why = "The group has described topic(s) that the client is not authorized to describe."
            raise broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    except BrokerError as error:
        return _error_group(group_id, error.code, error.broker_message)
    return _Result(
        error_code=ErrorCode.NONE, group_id=group_id, group_state=group.state_name, group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch, topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
        authorized_operations=access.operations(ResourceType.GROUP, group_id) if with_operations else NOT_REQUESTED,
    )  # fmt: skip


def _topology(group: StreamsGroup) -> _Result.Topology | None:
    if group.topology is None:
        return None

    def infos(topics: tuple[InternalTopic, ...]) -> list[_TopicInfo]:
        return [_topic_info(topic, group.configured.partitions.get(topic.name, topic.partitions)) for topic in topics]

    return _Result.Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            _Subtopology(
                subtopology_id=one.id, source_topics=list(one.source_topics),
                repartition_sink_topics=list(one.repartition_sinks), state_changelog_topics=infos(one.changelogs),
                repartition_source_topics=infos(one.repartition_sources),
            )
            for one in group.topology.subtopologies
        ],
    )  # fmt: skip


def _topic_info(topic: InternalTopic, partitions: int) -> _TopicInfo:
    configs = [_TopicInfo.Config(key=key, value=value) for key, value in topic.configs]
    return _TopicInfo(
        name=topic.name, partitions=partitions, replication_factor=topic.replication_factor, topic_configs=configs
    )


def _member(group: StreamsGroup, member: StreamsMember) -> _Result.Member:
    endpoint = member.endpoint
    return _Result.Member(
        member_id=member.id, member_epoch=member.epoch, rack_id=member.rack_id, client_id=member.client_id,
        client_host=f"/{member.client_host}", topology_epoch=member.topology_epoch, process_id=member.process_id,
        user_endpoint=None if endpoint is None else StreamsEndpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[_Result.Member.KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=[], task_end_offsets=[], assignment=_assignment(member.current.assigned),
        target_assignment=_assignment(group.targets.get(member.id, NO_TASKS)), is_classic=False,
    )  # fmt: skip


def _assignment(tasks: Tasks) -> _Result.Member.Assignment:
    return _Result.Member.Assignment(
        active_tasks=task_ids(tasks.active), standby_tasks=task_ids(tasks.standby), warmup_tasks=task_ids(tasks.warmup)
    )


def _error_group(group_id: str, code: int, message: str | None = None) -> _Result:
    return _Result(
        error_code=code, error_message=message, group_id=group_id, group_state="", group_epoch=0, assignment_epoch=0,
        members=[],
    )  # fmt: skip


def error_response(request: StreamsGroupDescribeRequest, code: int, version: int) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(groups=[_error_group(group_id, code) for group_id in request.group_ids])


STREAMS_GROUP_DESCRIBE = Handler(StreamsGroupDescribeRequest, handle, error_response)
