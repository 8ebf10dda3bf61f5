"""Handle DeleteTopics (KIP-4): delete topics by name or, since v6 (KIP-516), by id. Records are deleted at once."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from kwire.broker.authorizer import CLUSTER_NAME, FULL_ACCESS, Access, Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler, Mutations, find_topic, grouped
from kwire.broker.ids import NO_ID
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

_FIRST_VERSION_BY_ID = 6
_FIRST_VERSION_WITH_QUOTA = 5

_Requested = DeleteTopicsRequest.Topic
_Result = DeleteTopicsResponse.Topic


def handle(broker: Broker, request: DeleteTopicsRequest, context: RequestContext, now: float) -> DeleteTopicsResponse:
    mutations = Mutations(broker, context, since=_FIRST_VERSION_WITH_QUOTA)
    results = []
    # All are looked up before the first is deleted.
    for same in grouped(_requested_topics(request, context.version), partial(_id, broker)).values():
        requested = same[0]
        if (requested.name is None) is (requested.topic_id == NO_ID):
            why = "give either the name or the id of a topic"
            results.append(_error_result(requested, ErrorCode.INVALID_REQUEST, why))
        elif len(same) > 1:
            why = "the request names the topic more than once"
            results.append(_error_result(requested, ErrorCode.INVALID_REQUEST, why))
        else:
            results.append(_delete(broker, requested, context, mutations, now))
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms, responses=results)


def _requested_topics(request: DeleteTopicsRequest, version: int) -> list[_Requested]:
    return (
        request.topics if version >= _FIRST_VERSION_BY_ID else [_Requested(name=name) for name in request.topic_names]
    )


def _delete(
    broker: Broker, requested: _Requested, context: RequestContext, mutations: Mutations, now: float
) -> _Result:
    cluster = broker.cluster
    try:
        id = requested.topic_id if requested.name is None else None
        access = FULL_ACCESS if _may_delete_all(context.access) else context.access
        topic = find_topic(broker, access, Operation.DELETE, requested.name, id)
        mutations.take(len(topic.partitions), now)
    except BrokerError as error:
        return _error_result(requested, error.code, error.broker_message)
    cluster.delete_topic(topic, now)
    return _Result(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE)


def _id(broker: Broker, requested: _Requested) -> UUID | str:
    """Return the topic's id, its name if there is no such topic."""
    if requested.name is None:
        return requested.topic_id
    topic = broker.cluster.topics.get(requested.name)
    return requested.name if topic is None else topic.id


def _error_result(requested: _Requested, code: int, message: str | None) -> _Result:
    return _Result(name=requested.name, topic_id=requested.topic_id, error_code=code, error_message=message)


def _may_delete_all(access: Access) -> bool:
    return access.allows(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)


def error_response(request: DeleteTopicsRequest, code: int, version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            _Result(name=requested.name, topic_id=requested.topic_id, error_code=code)
            for requested in _requested_topics(request, version)
        ]
    )


def named_partitions(broker: Broker, request: DeleteTopicsRequest) -> list[tuple[str, int]]:
    names = [*request.topic_names, *(requested.name for requested in request.topics if requested.name is not None)]
    return [(name, NO_PARTITION) for name in names]


DELETE_TOPICS = Handler(DeleteTopicsRequest, handle, error_response, named_partitions)
