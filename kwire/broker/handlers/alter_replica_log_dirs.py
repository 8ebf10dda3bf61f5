"""Handle AlterReplicaLogDirs (KIP-113): move replicas to another directory. There is one directory, and no other."""

from __future__ import annotations

from collections.abc import Callable

from kwire.broker.authorizer import Operation
from kwire.broker.broker import Broker
from kwire.broker.handlers.handler import Handler, needs_cluster
from kwire.broker.request_context import RequestContext
from kwire.errors import ErrorCode
from kwire.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

_Topic = AlterReplicaLogDirsResponse.Topic


def handle(
    broker: Broker, request: AlterReplicaLogDirsRequest, context: RequestContext, now: float
) -> AlterReplicaLogDirsResponse:
    return _response(request, lambda path, topic, index: _check(broker, path, topic, index))


def _check(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    if path != broker.cluster.log_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = broker.cluster.maybe_partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker.id in partition.replicas else ErrorCode.REPLICA_NOT_AVAILABLE


def _response(request: AlterReplicaLogDirsRequest, code: Callable[[str, str, int], int]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, _Topic] = {}
    for dir in request.dirs:
        for topic in dir.topics:
            found = topics.setdefault(topic.name, _Topic(topic_name=topic.name, partitions=[]))
            found.partitions += [
                _Topic.Partition(partition_index=index, error_code=code(dir.path, topic.name, index))
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def error_response(request: AlterReplicaLogDirsRequest, code: int, version: int) -> AlterReplicaLogDirsResponse:
    return _response(request, lambda path, topic, index: code)


ALTER_REPLICA_LOG_DIRS = Handler(
    AlterReplicaLogDirsRequest, handle, error_response, authorize=needs_cluster(Operation.ALTER)
)
