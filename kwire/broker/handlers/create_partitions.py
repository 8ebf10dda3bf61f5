"""CreatePartitions: more of them; `count` is the new total."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

_Asked = CreatePartitionsRequest.Topic
_Result = CreatePartitionsResponse.Result


def handle(
    broker: BrokerState, request: CreatePartitionsRequest, exchange: RequestContext, now: float
) -> CreatePartitionsResponse:
    results = [_create(broker, asked, validate_only=request.validate_only) for asked in request.topics]
    return CreatePartitionsResponse(results=results)


def _create(broker: BrokerState, asked: _Asked, *, validate_only: bool) -> _Result:
    assigned = [one.broker_ids for one in asked.assignments] if asked.assignments is not None else None
    try:
        topic = broker.cluster.find_topic(asked.name)
        broker.cluster.add_partitions(topic, asked.count, assigned, validate_only=validate_only)
    except BrokerError as error:
        return _Result(name=asked.name, error_code=error.code, error_message=error.broker_message)
    return _Result(name=asked.name, error_code=ErrorCode.NONE)


def refuse(request: CreatePartitionsRequest, code: int, version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_Result(name=asked.name, error_code=code) for asked in request.topics])


def places(broker: BrokerState, request: CreatePartitionsRequest) -> list[tuple[str, int]]:
    return [(asked.name, NO_PARTITION) for asked in request.topics]


CREATE_PARTITIONS = Handler(CreatePartitionsRequest, handle, refuse, places)
