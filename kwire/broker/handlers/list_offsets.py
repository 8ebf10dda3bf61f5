"""ListOffsets: the first and last offset of a partition, or the first one at or after a time."""

from __future__ import annotations

from kwire.broker.broker_state import BrokerState
from kwire.broker.exchange import RequestContext
from kwire.broker.handlers.fetch import READ_COMMITTED
from kwire.broker.handlers.handler import Handler
from kwire.broker.log import NO_TIMESTAMP, Found
from kwire.broker.partition import NO_EPOCH, Partition
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages import list_offsets as names
from kwire.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

_FIRST_VERSION_WITH_EPOCH = 4

_Asked = ListOffsetsRequest.Topic.Partition
_Result = ListOffsetsResponse.Topic.Partition


def handle(
    broker: BrokerState, request: ListOffsetsRequest, exchange: RequestContext, now: float
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name,
                partitions=[_answer(broker, request, exchange, topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(
    broker: BrokerState, request: ListOffsetsRequest, exchange: RequestContext, topic: str, asked: _Asked
) -> _Result:
    try:
        refused = exchange.refused(topic, asked.partition_index)
        if refused is not None:
            raise broker_error(refused)
        partition = broker.cluster.partition(topic, asked.partition_index)
        partition.check_leader(broker.id, asked.current_leader_epoch)
        found = _find(partition, asked.timestamp, committed=request.isolation_level == READ_COMMITTED)
    except BrokerError as error:
        return _Result(partition_index=asked.partition_index, error_code=error.code)
    if exchange.version == 0:
        return _Result(
            partition_index=asked.partition_index, error_code=ErrorCode.NONE,
            old_style_offsets=_old_style(partition, asked, found),
        )  # fmt: skip
    return _Result(
        partition_index=asked.partition_index, error_code=ErrorCode.NONE, timestamp=found.timestamp_ms,
        offset=found.offset, leader_epoch=found.leader_epoch if exchange.version >= _FIRST_VERSION_WITH_EPOCH else -1,
    )  # fmt: skip


def _find(partition: Partition, timestamp: int, *, committed: bool) -> Found:
    log = partition.log
    until = log.last_stable_offset if committed else log.high_watermark
    match timestamp:
        case names.LATEST:
            return Found(NO_TIMESTAMP, until, partition.leader_epoch)
        case names.EARLIEST | names.EARLIEST_LOCAL:
            return Found(NO_TIMESTAMP, log.start_offset, log.epoch_at(log.start_offset))
        case names.MAX_TIMESTAMP:
            return log.find_max_time()
        case names.LATEST_TIERED | names.EARLIEST_PENDING_UPLOAD:
            return Found(NO_TIMESTAMP, -1, NO_EPOCH)  # nothing is tiered
    if timestamp < 0:
        raise broker_error(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
    return log.find_time(timestamp, until=until)


def _old_style(partition: Partition, asked: _Asked, found: Found) -> list[int]:
    """v0 answered the ends of segments, newest first. Our log is one segment, begun at its start."""
    if asked.timestamp == names.LATEST:
        offsets = [found.offset] if found.offset == partition.log.start_offset else [
            found.offset, partition.log.start_offset,
        ]  # fmt: skip
    else:
        offsets = [partition.log.start_offset]
    return offsets[: max(asked.max_num_offsets, 0)]


def refuse(request: ListOffsetsRequest, code: int, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name,
                partitions=[
                    _Result(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def places(broker: BrokerState, request: ListOffsetsRequest) -> list[tuple[str, int]]:
    return [(topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions]


LIST_OFFSETS = Handler(ListOffsetsRequest, handle, refuse, places, refuses_places=True)
