"""Directories of the brokers' logs: sizes, and moves of replicas between the directories of one broker.

DescribeLogDirs (Kafka 1.0) and AlterReplicaLogDirs go to each broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kwire.admin.noun import (
    Noun,
    TopicPartition,
    by_topic,
    check_code,
    checked_items,
    checked_mapping,
    checked_names,
    checked_node,
    error_or_none,
)
from kwire.admin.results import Results
from kwire.cluster import ToNode
from kwire.cluster.waiting import blocking
from kwire.consumer.arguments import checked_partitions
from kwire.errors import ConfigurationError, KwireError
from kwire.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kwire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica in a directory. `offset_lag` is what it lacks to the high watermark, or to the log it is a move of."""

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker. Sizes are bytes; -1 before Kafka 3.3. `error` says that it is offline."""

    broker: int
    path: str
    replicas: tuple[ReplicaLog, ...]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    error: KwireError | None = None


class LogDirAdmin(Noun):
    """What both faces share."""

    async def _describe(
        self,
        brokers: Iterable[int] | None = None,
        *,
        topics: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> list[LogDir]:
        """Return the directories of these brokers (default: all), with the replicas of these topics (default: all)."""
        deadline = self._deadline(timeout)
        names = None if topics is None else checked_names("topics", topics)
        chosen = None if brokers is None else checked_items("brokers", brokers, int)
        known = await self._snapshot([] if names is None else names, deadline)
        nodes = sorted(known.brokers if chosen is None else chosen)
        wanted = None
        if names is not None:
            wanted = [
                DescribeLogDirsRequest.Topic(topic=one.name, partitions=list(range(len(one.partitions))))
                for one in known.topics.values()
            ]
        request = DescribeLogDirsRequest(topics=wanted)
        found: list[LogDir] = []
        for node, response in (
            await self._ask_brokers(nodes, DescribeLogDirsRequest, lambda _: request, deadline)
        ).items():
            assert isinstance(response, DescribeLogDirsResponse)
            check_code(response.error_code, "DescribeLogDirs", broker=node)
            found += [_log_dir(node, one) for one in response.results]
        return found

    async def _move(
        self, broker: int, paths: Mapping[TopicPartition, str], *, timeout: float | None = None
    ) -> Results[TopicPartition, None]:
        """Begin to move replicas of one broker to another of its directories."""
        checked_node("broker", broker)
        checked_mapping("paths", paths, '{("orders", 0): "/data-2"}')
        by_path: dict[str, list[TopicPartition]] = {}
        for key, path in zip(checked_partitions(paths), paths.values(), strict=True):
            if not isinstance(path, str) or not path.startswith("/"):
                raise ConfigurationError(f"the path of {key[0]}-{key[1]} is {path!r}", remedy="give an absolute path")
            by_path.setdefault(path, []).append(key)
        if not by_path:
            return Results({})
        topic_class = AlterReplicaLogDirsRequest.Dir.Topic
        dirs = [
            AlterReplicaLogDirsRequest.Dir(
                path=path,
                topics=[topic_class(name=topic, partitions=indexes) for topic, indexes in by_topic(keys).items()],
            )
            for path, keys in by_path.items()
        ]

        def parse(response: AlterReplicaLogDirsResponse) -> dict[TopicPartition, KwireError | None]:
            return {
                (topic.topic_name, one.partition_index): error_or_none(
                    one.error_code, "AlterReplicaLogDirs", topic=topic.topic_name, partition=one.partition_index,
                    broker=broker,
                )
                for topic in response.results
                for one in topic.partitions
            }  # fmt: skip

        request = AlterReplicaLogDirsRequest(dirs=dirs)
        return Results(
            await self._controlled(
                AlterReplicaLogDirsRequest, lambda _: request, parse, self._deadline(timeout), route=ToNode(broker)
            )
        )


class LogDirs(LogDirAdmin):
    """`Admin.log_dirs`, for threads."""

    describe = blocking(LogDirAdmin._describe)
    move = blocking(LogDirAdmin._move)


def _log_dir(broker: int, result: DescribeLogDirsResponse.Result) -> LogDir:
    replicas = [
        ReplicaLog(topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for topic in result.topics
        for one in topic.partitions
    ]
    replicas.sort(key=lambda one: (one.topic, one.partition))
    error = error_or_none(result.error_code, "DescribeLogDirs", broker=broker, resource=f"directory {result.log_dir}")
    return LogDir(
        broker, result.log_dir, tuple(replicas), result.total_bytes, result.usable_bytes, result.is_cordoned, error
    )
