"""Handle Produce: append to partitions that this broker leads, and respond when `acks` is satisfied.

With acks=0 there is no response. An error then closes the connection: this is all that such a client can notice.
"""

from __future__ import annotations

from functools import partial

from kwire.broker.authorizer import Operation, ResourceType
from kwire.broker.broker import Broker
from kwire.broker.cluster_state import Topic
from kwire.broker.handlers.handler import Handler, LeaderHints, find_topic
from kwire.broker.handlers.transactional import add_or_verify
from kwire.broker.ids import ProducerIdAndEpoch
from kwire.broker.log import PartitionLog
from kwire.broker.log_validator import decode_produced, is_transactional, validate
from kwire.broker.partition import Partition
from kwire.broker.request_context import CloseConnection, NoReply, RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error, error_name
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Batch

_FIRST_VERSION_BY_ID = 13
_FIRST_VERSION_WITH_LEADERS = 10
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_ADDS = 12  # the partition to the transaction (KIP-890)
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
# Errors of the log for which Kafka leaves out the log's start offset.
_WITHOUT_START = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR})

_Result = ProduceResponse.Topic.Partition


def handle(broker: Broker, request: ProduceRequest, context: RequestContext, now: float) -> ProduceResponse | None:
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return error_response(request, ErrorCode.INVALID_REQUIRED_ACKS, context.version)
    if not _may_write_transactions(request, context):
        return error_response(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, context.version)
    hints = LeaderHints(broker.cluster, context.listener)
    pending_appends: list[_PendingAppend] = []
    topics = []
    for requested in request.topic_data:
        results = []
        for data in requested.partition_data:
            result, pending = _append(broker, request, context, requested, data, hints, now)
            results.append(result)
            if pending is not None:
                pending_appends.append(pending)
        topics.append(
            ProduceResponse.Topic(name=requested.name, topic_id=requested.topic_id, partition_responses=results)
        )
    response = ProduceResponse(responses=topics)
    if request.acks == ACKS_NONE:
        failures = [result for topic in topics for result in topic.partition_responses if result.error_code]
        context.complete(CloseConnection(_unacknowledged_error(failures[0])) if failures else NoReply())
        return None
    if pending_appends:
        DelayedProduce(broker, response, pending_appends, hints, context, now + request.timeout_ms / 1000)
        return None
    return _with_endpoints(response, hints)


def _unacknowledged_error(failure: _Result) -> str:
    reason = f": {failure.error_message}" if failure.error_message else ""
    return f"Produce with acks=0 failed with {error_name(failure.error_code)}{reason}, and it has no response"


def _with_endpoints(response: ProduceResponse, hints: LeaderHints) -> ProduceResponse:
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in hints.nodes()
    ]
    return response


def _add_leader_hint(result: _Result, partition: Partition, hints: LeaderHints, version: int) -> None:
    """Name the current leader, if the version has the field and the error calls for it (KIP-951)."""
    if version >= _FIRST_VERSION_WITH_LEADERS and hints.applies_to(result.error_code):
        leader, epoch = hints.leader_of(partition)
        result.current_leader = _Result.Leader(leader_id=leader, leader_epoch=epoch)


class _PendingAppend:
    """An appended batch that is not replicated yet."""

    __slots__ = ("end_offset", "epoch", "partition", "result")

    def __init__(self, partition: Partition, end_offset: int, result: _Result) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.end_offset = end_offset
        self.result = result


def _append(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    requested: ProduceRequest.Topic,
    data: ProduceRequest.Topic.Partition,
    hints: LeaderHints,
    now: float,
) -> tuple[_Result, _PendingAppend | None]:
    partition: Partition | None = None
    log: PartitionLog | None = None
    try:
        topic = _find_topic(broker, requested, context)
        partition = broker.cluster.partition(topic.name, data.index)
        injected = context.injected_error(topic.name, data.index)
        if injected is not None:
            raise broker_error(injected)
        decoded = decode_produced(data.records, context.version)
        partition.check_leader(broker.id)
        log = partition.log
        wall_ms = broker.cluster.wall_ms(now)
        batches = validate(decoded, partition.settings, wall_ms)
        _check_transaction(broker, request.transactional_id, context.version, partition, batches[0], now)
        appended = partition.append(batches, all_replicas=request.acks == ACKS_ALL, now=now, wall_ms=wall_ms)
    except BrokerError as error:
        result = _Result(index=data.index, error_code=error.code, base_offset=-1, error_message=error.broker_message)
        if log is not None and error.code not in _WITHOUT_START:
            result.log_start_offset = log.start_offset
        if partition is not None:
            _add_leader_hint(result, partition, hints, context.version)
        return result, None
    result = _Result(
        index=data.index, error_code=ErrorCode.NONE, base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms, log_start_offset=log.start_offset,
    )  # fmt: skip
    end = appended.last_offset + 1
    is_pending = request.acks == ACKS_ALL and partition.log.high_watermark < end
    return result, _PendingAppend(partition, end, result) if is_pending else None


def _check_transaction(
    broker: Broker, transactional_id: str | None, version: int, partition: Partition, batch: Batch, now: float
) -> None:
    """Check with the coordinator at a transaction's first write to a partition."""
    if not batch.is_transactional or partition.log.producers.has_open_transaction(
        batch.producer_id, batch.producer_epoch
    ):
        return
    add_or_verify(
        broker.cluster, transactional_id or "", ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch),
        (partition.topic, partition.index), now, adds=version >= _FIRST_VERSION_THAT_ADDS,
        supports_abortable=version >= _FIRST_VERSION_WITH_ABORTABLE,
    )  # fmt: skip


def _may_write_transactions(request: ProduceRequest, context: RequestContext) -> bool:
    """Return whether the request's transactional records, if there are any, have a transactional id that is allowed."""
    id = request.transactional_id
    if id is not None and context.access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, id):
        return True
    data = [data for requested in request.topic_data for data in requested.partition_data]
    return not any(is_transactional(one.records) for one in data)


def _find_topic(broker: Broker, requested: ProduceRequest.Topic, context: RequestContext) -> Topic:
    id = requested.topic_id if context.version >= _FIRST_VERSION_BY_ID else None
    return find_topic(broker, context.access, Operation.WRITE, requested.name, id)


class DelayedProduce:
    """A Produce with acks=all that waits until the high watermark passes its batches or its timeout expires."""

    def __init__(
        self,
        broker: Broker,
        response: ProduceResponse,
        pending_appends: list[_PendingAppend],
        hints: LeaderHints,
        context: RequestContext,
        until: float,
    ) -> None:
        self._broker = broker
        self._response = response
        self._pending = pending_appends
        self._leaders = hints
        self._context = context
        self._partitions = [pending.partition for pending in pending_appends]
        self._timer = broker.cluster.timers.at(until, self._expire)
        for partition in self._partitions:
            partition.add_listener(self._check)

    def _check(self, now: float) -> None:
        self._pending = [pending for pending in self._pending if not self._is_done(pending)]
        if not self._pending or self._context.is_complete:
            self._complete()

    def _is_done(self, pending: _PendingAppend) -> bool:
        partition = pending.partition
        if partition.leader != self._broker.id or partition.leader_epoch != pending.epoch:
            _fail(pending.result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            _add_leader_hint(pending.result, partition, self._leaders, self._context.version)
            return True
        if partition.log.high_watermark < pending.end_offset:
            return False
        if len(partition.isr) < partition.min_isr:
            _fail(pending.result, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def _expire(self, now: float) -> None:
        for pending in self._pending:
            _fail(pending.result, ErrorCode.REQUEST_TIMED_OUT)
        self._complete()

    def _complete(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.remove_listener(self._check)
        self._context.respond(_with_endpoints(self._response, self._leaders))


def _fail(result: _Result, code: ErrorCode) -> None:
    """Set an error. As in Kafka the base offset stays: it shows that the batch was appended."""
    result.error_code = code


def error_response(request: ProduceRequest, code: int, version: int, base_offset: int = -1) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.Topic(
                name=requested.name, topic_id=requested.topic_id,
                partition_responses=[
                    _Result(index=data.index, error_code=code, base_offset=base_offset)
                    for data in requested.partition_data
                ],
            )
            for requested in request.topic_data
        ]
    )  # fmt: skip


def named_partitions(broker: Broker, request: ProduceRequest) -> list[tuple[str, int]]:
    by_id = broker.cluster.topics_by_id
    return [
        (requested.name or (by_id[requested.topic_id].name if requested.topic_id in by_id else ""), data.index)
        for requested in request.topic_data
        for data in requested.partition_data
    ]


PRODUCE = Handler(
    ProduceRequest,
    handle,
    error_response,
    named_partitions,
    supports_partition_errors=True,
    applied_error_response=partial(error_response, base_offset=0),
)
