"""Produce: append to the partitions that this broker leads, and answer when as many replicas have it as was asked.

With acks=0 there is no answer; an error then closes the connection, which is all that such a client can be told.
"""

from __future__ import annotations

from functools import partial

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import CloseConnection, NoReply, RequestContext
from kwire.broker.handlers.handler import Handler
from kwire.broker.handlers.leaders import Leaders
from kwire.broker.handlers.transactional import enter
from kwire.broker.log import PartitionLog
from kwire.broker.log_validator import is_transactional, open_records, validate
from kwire.broker.partition import Partition
from kwire.broker.producer_ids import Identity
from kwire.broker.state import Topic
from kwire.errors import BrokerError, ErrorCode, broker_error, error_name
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Batch

_FIRST_VERSION_BY_ID = 13
_FIRST_VERSION_WITH_LEADERS = 10
_FIRST_VERSION_WITH_ABORTABLE = 11
_FIRST_VERSION_THAT_ADDS = 12  # the partition to the transaction (KIP-890)
NONE, LEADER, ALL = 0, 1, -1
# Errors of the log that Kafka answers without saying where the log begins.
_WITHOUT_START = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR})

_Result = ProduceResponse.Topic.Partition


def handle(
    broker: BrokerState, request: ProduceRequest, exchange: RequestContext, now: float
) -> ProduceResponse | None:
    if request.acks not in (NONE, LEADER, ALL):
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS, exchange.version)
    if _is_nobodys_transaction(request):
        return refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, exchange.version)
    leaders = Leaders(broker.cluster)
    waiting: list[_Waiting] = []
    topics = []
    for asked in request.topic_data:
        results = []
        for data in asked.partition_data:
            result, wait = _append(broker, request, exchange, asked, data, leaders, now)
            results.append(result)
            if wait is not None:
                waiting.append(wait)
        topics.append(ProduceResponse.Topic(name=asked.name, topic_id=asked.topic_id, partition_responses=results))
    response = ProduceResponse(responses=topics)
    if request.acks == NONE:
        failures = [result for topic in topics for result in topic.partition_responses if result.error_code]
        exchange.finish(CloseConnection(_why_unacknowledged(failures[0])) if failures else NoReply())
        return None
    if waiting:
        DelayedProduce(broker, response, waiting, leaders, exchange, now + request.timeout_ms / 1000)
        return None
    return _with_endpoints(response, leaders)


def _why_unacknowledged(failure: _Result) -> str:
    reason = f": {failure.error_message}" if failure.error_message else ""
    return f"Produce with acks=0 failed with {error_name(failure.error_code)}{reason}, and has no answer to say so"


def _with_endpoints(response: ProduceResponse, leaders: Leaders) -> ProduceResponse:
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in leaders.named()
    ]
    return response


def _hint(result: _Result, partition: Partition, leaders: Leaders, version: int) -> None:
    """Say who leads, where the version can and the error is worth it."""
    if version >= _FIRST_VERSION_WITH_LEADERS and leaders.concerns(result.error_code):
        leader, epoch = leaders.of(partition)
        result.current_leader = _Result.Leader(leader_id=leader, leader_epoch=epoch)


class _Waiting:
    """An appended batch that is not on all replicas yet."""

    __slots__ = ("end_offset", "epoch", "partition", "result")

    def __init__(self, partition: Partition, end_offset: int, result: _Result) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.end_offset = end_offset
        self.result = result


def _append(
    broker: BrokerState,
    request: ProduceRequest,
    exchange: RequestContext,
    asked: ProduceRequest.Topic,
    data: ProduceRequest.Topic.Partition,
    leaders: Leaders,
    now: float,
) -> tuple[_Result, _Waiting | None]:
    partition: Partition | None = None
    log: PartitionLog | None = None
    try:
        topic = _find_topic(broker, asked, exchange.version)
        partition = broker.cluster.partition(topic.name, data.index)
        refused = exchange.refused(topic.name, data.index)
        if refused is not None:
            raise broker_error(refused)
        opened = open_records(data.records, exchange.version)
        partition.check_leader(broker.id)
        log = partition.log
        wall_ms = broker.cluster.wall_ms(now)
        batches = validate(opened, partition.settings, wall_ms)
        _enter_transaction(broker, request.transactional_id, exchange.version, partition, batches[0], now)
        appended = partition.append(batches, all_replicas=request.acks == ALL, now=now, wall_ms=wall_ms)
    except BrokerError as error:
        result = _Result(index=data.index, error_code=error.code, base_offset=-1, error_message=error.broker_message)
        if log is not None and error.code not in _WITHOUT_START:
            result.log_start_offset = log.start_offset
        if partition is not None:
            _hint(result, partition, leaders, exchange.version)
        return result, None
    result = _Result(
        index=data.index, error_code=ErrorCode.NONE, base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms, log_start_offset=log.start_offset,
    )  # fmt: skip
    end = appended.last_offset + 1
    waits = request.acks == ALL and partition.log.high_watermark < end
    return result, _Waiting(partition, end, result) if waits else None


def _enter_transaction(
    broker: BrokerState, transactional_id: str | None, version: int, partition: Partition, batch: Batch, now: float
) -> None:
    """The first write of a transaction in a partition is where its coordinator is asked."""
    if not batch.is_transactional or partition.log.producers.is_open(batch.producer_id, batch.producer_epoch):
        return
    enter(
        broker.cluster, transactional_id or "", Identity(batch.producer_id, batch.producer_epoch),
        (partition.topic, partition.index), now, adds=version >= _FIRST_VERSION_THAT_ADDS,
        knows_abortable=version >= _FIRST_VERSION_WITH_ABORTABLE,
    )  # fmt: skip


def _is_nobodys_transaction(request: ProduceRequest) -> bool:
    """Transactional records without a transactional id: Kafka's authorizer has nobody to ask about."""
    if request.transactional_id is not None:
        return False
    return any(is_transactional(data.records) for asked in request.topic_data for data in asked.partition_data)


def _find_topic(broker: BrokerState, asked: ProduceRequest.Topic, version: int) -> Topic:
    if version >= _FIRST_VERSION_BY_ID:
        return broker.cluster.find_topic_by_id(asked.topic_id)
    return broker.cluster.find_topic(asked.name)


class DelayedProduce:
    """A Produce with acks=all that waits for the high watermark to pass its batches, or for its time to be up."""

    def __init__(
        self,
        broker: BrokerState,
        response: ProduceResponse,
        waiting: list[_Waiting],
        leaders: Leaders,
        exchange: RequestContext,
        until: float,
    ) -> None:
        self._broker = broker
        self._response = response
        self._waiting = waiting
        self._leaders = leaders
        self._exchange = exchange
        self._watched = [wait.partition for wait in waiting]
        self._timer = broker.cluster.timers.at(until, self._expire)
        for partition in self._watched:
            partition.watch(self._look)

    def _look(self, now: float) -> None:
        self._waiting = [wait for wait in self._waiting if not self._is_decided(wait)]
        if not self._waiting or self._exchange.is_over:
            self._end()

    def _is_decided(self, wait: _Waiting) -> bool:
        partition = wait.partition
        if partition.leader != self._broker.id or partition.leader_epoch != wait.epoch:
            _fail(wait.result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            _hint(wait.result, partition, self._leaders, self._exchange.version)
            return True
        if partition.log.high_watermark < wait.end_offset:
            return False
        if len(partition.isr) < partition.settings.min_insync_replicas:
            _fail(wait.result, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def _expire(self, now: float) -> None:
        for wait in self._waiting:
            _fail(wait.result, ErrorCode.REQUEST_TIMED_OUT)
        self._end()

    def _end(self) -> None:
        self._timer.cancel()
        for partition in self._watched:
            partition.unwatch(self._look)
        self._exchange.answer(_with_endpoints(self._response, self._leaders))


def _fail(result: _Result, code: ErrorCode) -> None:
    """What was appended keeps its offset: as with Kafka, that tells it from what was refused at once."""
    result.error_code = code


def refuse(request: ProduceRequest, code: int, version: int, base_offset: int = -1) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.Topic(
                name=asked.name, topic_id=asked.topic_id,
                partition_responses=[
                    _Result(index=data.index, error_code=code, base_offset=base_offset) for data in asked.partition_data
                ],
            )
            for asked in request.topic_data
        ]
    )  # fmt: skip


def places(broker: BrokerState, request: ProduceRequest) -> list[tuple[str, int]]:
    by_id = broker.cluster.topics_by_id
    return [
        (asked.name or (by_id[asked.topic_id].name if asked.topic_id in by_id else ""), data.index)
        for asked in request.topic_data
        for data in asked.partition_data
    ]


PRODUCE = Handler(
    ProduceRequest, handle, refuse, places, refuses_places=True, refuse_applied=partial(refuse, base_offset=0)
)
