"""DeleteTopics: by name, or since v6 by id. The records go at once."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

_FIRST_VERSION_BY_ID = 6

_Asked = DeleteTopicsRequest.Topic
_Result = DeleteTopicsResponse.Topic


def handle(
    broker: BrokerState, request: DeleteTopicsRequest, exchange: RequestContext, now: float
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_delete(broker, asked, now) for asked in _asked(request, exchange.version)])


def _asked(request: DeleteTopicsRequest, version: int) -> list[_Asked]:
    return request.topics if version >= _FIRST_VERSION_BY_ID else [_Asked(name=name) for name in request.topic_names]


def _delete(broker: BrokerState, asked: _Asked, now: float) -> _Result:
    cluster = broker.cluster
    try:
        topic = cluster.find_topic(asked.name) if asked.name is not None else cluster.find_topic_by_id(asked.topic_id)
    except BrokerError as error:
        why = error.broker_message
        return _Result(name=asked.name, topic_id=asked.topic_id, error_code=error.code, error_message=why)
    cluster.delete_topic(topic, now)
    return _Result(name=topic.name, topic_id=topic.id, error_code=ErrorCode.NONE)


def refuse(request: DeleteTopicsRequest, code: int, version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            _Result(name=asked.name, topic_id=asked.topic_id, error_code=code) for asked in _asked(request, version)
        ]
    )


def places(broker: BrokerState, request: DeleteTopicsRequest) -> list[tuple[str, int]]:
    names = [*request.topic_names, *(asked.name for asked in request.topics if asked.name is not None)]
    return [(name, NO_PARTITION) for name in names]


DELETE_TOPICS = Handler(DeleteTopicsRequest, handle, refuse, places)
