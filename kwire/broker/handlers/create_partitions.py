"""Handle CreatePartitions (KIP-195): add partitions to a topic. `count` is the new total."""

from __future__ import annotations

from kwire.broker.broker import Broker
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

_Requested = CreatePartitionsRequest.Topic
_Result = CreatePartitionsResponse.Result


def handle(
    broker: Broker, request: CreatePartitionsRequest, context: RequestContext, now: float
) -> CreatePartitionsResponse:
    results = [_create(broker, requested, validate_only=request.validate_only) for requested in request.topics]
    return CreatePartitionsResponse(results=results)


def _create(broker: Broker, requested: _Requested, *, validate_only: bool) -> _Result:
    assignments = (
        [assignment.broker_ids for assignment in requested.assignments] if requested.assignments is not None else None
    )
    try:
        topic = broker.cluster.find_topic(requested.name)
        broker.cluster.add_partitions(topic, requested.count, assignments, validate_only=validate_only)
    except BrokerError as error:
        return _Result(name=requested.name, error_code=error.code, error_message=error.broker_message)
    return _Result(name=requested.name, error_code=ErrorCode.NONE)


def error_response(request: CreatePartitionsRequest, code: int, version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[_Result(name=requested.name, error_code=code) for requested in request.topics]
    )


def named_partitions(broker: Broker, request: CreatePartitionsRequest) -> list[tuple[str, int]]:
    return [(requested.name, NO_PARTITION) for requested in request.topics]


CREATE_PARTITIONS = Handler(CreatePartitionsRequest, handle, error_response, named_partitions)
