"""Handle ListOffsets: return a partition's first or last offset, or the first offset at or after a timestamp."""

from __future__ import annotations

from collections import Counter

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.fetch import READ_COMMITTED
from kwire.broker.handlers.handler import Handler
from kwire.broker.log import NO_TIMESTAMP, TimestampAndOffset
from kwire.broker.partition import NO_EPOCH, Partition
from kwire.broker.request_context import RequestContext
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.protocol.messages import list_offsets as names
from kwire.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

_FIRST_VERSION_WITH_EPOCH = 4
_FIRST_VERSIONS = {
    names.MAX_TIMESTAMP: 7, names.EARLIEST_LOCAL: 8, names.LATEST_TIERED: 9, names.EARLIEST_PENDING_UPLOAD: 11,
}  # fmt: skip

_Requested = ListOffsetsRequest.Topic.Partition
_Result = ListOffsetsResponse.Topic.Partition


def handle(broker: Broker, request: ListOffsetsRequest, context: RequestContext, now: float) -> ListOffsetsResponse:
    counts = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    topics: dict[str, dict[int, _Requested]] = {}
    for topic in request.topics:
        topics.setdefault(topic.name, {}).update({one.partition_index: one for one in topic.partitions})
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=name,
                partitions=[
                    _list(broker, request, context, name, requested)
                    if counts[name, index] == 1
                    else _Result(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
                    for index, requested in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ]
    )


def _list(
    broker: Broker, request: ListOffsetsRequest, context: RequestContext, topic: str, requested: _Requested
) -> _Result:
    try:
        context.access.require_topic(Operation.DESCRIBE, topic)
        injected = context.injected_error(topic, requested.partition_index)
        if injected is not None:
            raise broker_error(injected)
        partition = broker.cluster.partition(topic, requested.partition_index)
        partition.check_leader(broker.id, requested.current_leader_epoch)
        if context.version < _FIRST_VERSIONS.get(requested.timestamp, 0):
            why = f"timestamp {requested.timestamp} is not supported by v{context.version}"
            raise broker_error(ErrorCode.UNSUPPORTED_VERSION, why)
        found = _find(partition, requested.timestamp, committed=request.isolation_level == READ_COMMITTED)
    except BrokerError as error:
        return _Result(partition_index=requested.partition_index, error_code=error.code)
    if context.version == 0:
        return _Result(
            partition_index=requested.partition_index, error_code=ErrorCode.NONE,
            old_style_offsets=_segment_starts(partition, requested, found),
        )  # fmt: skip
    return _Result(
        partition_index=requested.partition_index, error_code=ErrorCode.NONE, timestamp=found.timestamp_ms,
        offset=found.offset, leader_epoch=found.leader_epoch if context.version >= _FIRST_VERSION_WITH_EPOCH else -1,
    )  # fmt: skip


def _find(partition: Partition, timestamp: int, *, committed: bool) -> TimestampAndOffset:
    log = partition.log
    upper_bound = log.last_stable_offset if committed else log.high_watermark
    match timestamp:
        case names.LATEST:
            return TimestampAndOffset(NO_TIMESTAMP, upper_bound, partition.leader_epoch)
        case names.EARLIEST | names.EARLIEST_LOCAL:
            return TimestampAndOffset(NO_TIMESTAMP, log.start_offset, log.epoch_at(log.start_offset))
        case names.MAX_TIMESTAMP:
            return log.find_max_time()
        case names.LATEST_TIERED | names.EARLIEST_PENDING_UPLOAD:
            return TimestampAndOffset(NO_TIMESTAMP, -1, NO_EPOCH)  # nothing is tiered
    if timestamp < 0:
        raise broker_error(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} is not supported")
    return log.find_time(timestamp, upper_bound=upper_bound)


def _segment_starts(partition: Partition, requested: _Requested, found: TimestampAndOffset) -> list[int]:
    """Return what v0 returned: the start offsets of segments, newest first, after the end. This log is one segment."""
    if requested.timestamp == names.LATEST:
        offsets = [found.offset] if found.offset == partition.log.start_offset else [
            found.offset, partition.log.start_offset,
        ]  # fmt: skip
    else:
        offsets = [partition.log.start_offset]
    return offsets[: max(requested.max_num_offsets, 0)]


def error_response(request: ListOffsetsRequest, code: int, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name,
                partitions=[
                    _Result(partition_index=requested.partition_index, error_code=code)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def named_partitions(broker: Broker, request: ListOffsetsRequest) -> list[tuple[str, int]]:
    return [(topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions]


LIST_OFFSETS = Handler(ListOffsetsRequest, handle, error_response, named_partitions, supports_partition_errors=True)
