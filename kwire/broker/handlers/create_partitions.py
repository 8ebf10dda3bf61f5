"""Handle CreatePartitions (KIP-195): add partitions to a topic. `count` is the new total."""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.faults import NO_PARTITION
from kwire.broker.handlers.handler import Handler, Mutations, grouped
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

_FIRST_VERSION_WITH_QUOTA = 3

_Requested = CreatePartitionsRequest.Topic
_Result = CreatePartitionsResponse.Result


def handle(
    broker: Broker, request: CreatePartitionsRequest, context: RequestContext, now: float
) -> CreatePartitionsResponse:
    mutations = Mutations(broker, context, since=_FIRST_VERSION_WITH_QUOTA)
    results = []
    for same in grouped(request.topics, lambda topic: topic.name).values():
        requested = same[-1]
        code: int = ErrorCode.NONE
        message = None
        try:
            if len(same) > 1:
                raise broker_error(ErrorCode.INVALID_REQUEST, "the request names the topic more than once")
            context.access.require_topic(Operation.ALTER, requested.name)
            _create(broker, requested, mutations, now, validate_only=request.validate_only)
        except BrokerError as error:
            code, message = error.code, error.broker_message
        results.append(_Result(name=requested.name, error_code=code, error_message=message))
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=results)


def _create(broker: Broker, requested: _Requested, mutations: Mutations, now: float, *, validate_only: bool) -> None:
    assignments = (
        [assignment.broker_ids for assignment in requested.assignments] if requested.assignments is not None else None
    )
    topic = broker.cluster.find_topic(requested.name)
    broker.cluster.add_partitions(topic, requested.count, assignments, validate_only=True)
    if not validate_only:
        mutations.take(requested.count - len(topic.partitions), now)
        broker.cluster.add_partitions(topic, requested.count, assignments)


def error_response(request: CreatePartitionsRequest, code: int, version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[_Result(name=requested.name, error_code=code) for requested in request.topics]
    )


def named_partitions(broker: Broker, request: CreatePartitionsRequest) -> list[tuple[str, int]]:
    return [(requested.name, NO_PARTITION) for requested in request.topics]


CREATE_PARTITIONS = Handler(CreatePartitionsRequest, handle, error_response, named_partitions)
