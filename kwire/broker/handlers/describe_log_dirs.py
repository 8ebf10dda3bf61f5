"""Handle DescribeLogDirs (KIP-113, KIP-827): return the size of each replica of this broker.

Records are in memory. A broker says that it has one directory, and that the memory which is left is the space in it;
with a data directory too, as no more records fit than into memory.
"""

from __future__ import annotations

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

_Result = DescribeLogDirsResponse.Result


def handle(
    broker: Broker, request: DescribeLogDirsRequest, context: RequestContext, now: float
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, _Result.Topic] = {}
    for partition in broker.cluster.partitions():
        if broker.id in partition.replicas and (wanted is None or (partition.topic, partition.index) in wanted):
            found = topics.setdefault(partition.topic, _Result.Topic(name=partition.topic, partitions=[]))
            size = sum(len(stored.data) for stored in partition.log)
            found.partitions.append(
                _Result.Topic.Partition(
                    partition_index=partition.index, partition_size=size, offset_lag=0, is_future_key=False
                )
            )
    storage = broker.cluster.storage
    result = _Result(
        error_code=ErrorCode.NONE, log_dir=broker.cluster.log_dir, topics=list(topics.values()),
        total_bytes=storage.max_bytes, usable_bytes=max(0, storage.max_bytes - storage.used_bytes),
    )  # fmt: skip
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[result])


def error_response(request: DescribeLogDirsRequest, code: int, version: int) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=code, results=[])


DESCRIBE_LOG_DIRS = Handler(DescribeLogDirsRequest, handle, error_response, authorize=needs_cluster(Operation.DESCRIBE))
