"""The topics of a queue service: created with the right configuration, or checked.

The check refuses configurations that lose messages or repeat them for ever: markers with the times of the consumers'
clocks (F1), compaction, which deletes markers and messages of the same key (F5), retention that is shorter than a lease
(F4), one replica that acknowledges alone (F24).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from kwire.admin import NewTopic
from kwire.admin.configs import ConfigAdmin
from kwire.cluster import LoopThread, Snapshot, ToAny, ToController, Topic
from kwire.cluster.waiting import Waiter
from kwire.errors import ConfigurationError, ErrorCode, RequestTimeoutError, broker_error
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.queue.options import TIME_MAX_MS, QueueOptions

_log = logging.getLogger("kwire.queue")

_TOPIC = 2  # the type of a resource
_PAUSE_SECONDS = 0.05
# What a batch and a marker add to a message at most, beside its headers.
_OVERHEAD_BYTES = 400
_MARKERS_RETENTION_MS = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class QueueTopics:
    """What the service needs to know of its topics."""

    message_topic_id: UUID
    message_partitions: int
    marker_partitions: int
    message_bytes_max: int  # of payload and headers
    marker_retention_ms: int  # -1: for ever

    @classmethod
    async def open(cls, options: QueueOptions, setup: TopicSetup) -> QueueTopics:
        """Create the topics that do not exist, check the others, and return what they are.

        Raises ConfigurationError with all that is wrong, BrokerError or RequestTimeoutError.
        """
        names = [options.message_topic, options.marker_topic]
        names += [options.dead_letters] if options.dead_letters else []
        topics, configs = await setup.prepare(names)
        return cls(
            topics[options.message_topic].id,
            len(topics[options.message_topic].partitions),
            len(topics[options.marker_topic].partitions),
            message_bytes_max(configs),
            int(configs[options.marker_topic].get("retention.ms", _MARKERS_RETENTION_MS)),
        )


def message_bytes_max(configs: Mapping[str, Mapping[str, str]]) -> int:
    """Return how many bytes a message may have, with its headers, so that each of these topics takes it."""
    return min(int(one.get("max.message.bytes", 1_048_588)) for one in configs.values()) - _OVERHEAD_BYTES


class TopicSetup(ConfigAdmin):
    """Creates topics or checks them, and asks the cluster what else must be known, until a deadline."""

    def __init__(self, options: QueueOptions, runtime: LoopThread, waiter: Waiter, deadline: float) -> None:
        super().__init__(runtime, waiter)
        self._options = options
        self._until = deadline
        self._is_created = False

    async def prepare(
        self, names: Sequence[str], more_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    ) -> tuple[dict[str, Topic], dict[str, Mapping[str, str]]]:
        """Create the topics that do not exist, check the others; return all of them and their configurations.

        `more_configs` are for topics that are created, by name.
        """
        topics = await self._topics(names, more_configs)
        configs = await self.configs(_TOPIC, names)
        problems = [problem for name in names for problem in self._problems(name, configs[name], topics[name])]
        if problems and self._options.check_topics:
            raise ConfigurationError(
                "the topics are not fit for queues: " + "; ".join(problems),
                remedy="change the configuration of the topics, or give check_topics=False and live with it",
            )
        for problem in problems:
            _log.warning("queues: %s", problem)
        return topics, configs

    async def exists(self, name: str) -> bool:
        """Return whether there is a topic of this name."""
        found = (await self._known([name])).topics.get(name)
        return found is not None and not found.error_code

    async def any_broker(self) -> int:
        """Return the id of a broker."""
        return min((await self._known([])).brokers)

    async def feature(self, name: str) -> int:
        """Return the level of a feature of the cluster; 0 without it. Some request must have been made before."""
        future: Future[int] = Future()
        view = self._runtime.view_for("general")
        self._runtime.call_soon(lambda: future.set_result(view.feature(name)))
        return await self._waiter.result_of(future, 5.0)

    async def _known(self, names: Sequence[str]) -> Snapshot:
        return await self._snapshot(names, self._until)

    async def _topics(self, names: Sequence[str], more_configs: Mapping[str, Mapping[str, str]]) -> dict[str, Topic]:
        """Return the topics; create those that are missing and wait until the brokers know them."""
        while True:
            known = await self._known(names)
            found = {name: known.topics[name] for name in names if name in known.topics}
            missing = [name for name in names if name not in found or found[name].error_code]
            if not missing:
                return found
            for name in missing:
                code = found[name].error_code if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                    raise broker_error(code, None, api="Metadata", topic=name)
            if not self._is_created:
                await self._create(missing, len(known.brokers), more_configs)
                self._is_created = True
            await self._waiter.signal().wait(_PAUSE_SECONDS)

    async def _create(self, names: Sequence[str], brokers: int, more_configs: Mapping[str, Mapping[str, str]]) -> None:
        options = self._options
        if not options.create_topics:
            raise ConfigurationError(
                f"there is no topic {' and no topic '.join(names)}",
                remedy="create it, or leave create_topics=False out",
            )
        replicas = min(options.replication_factor, max(1, brokers))
        new = [
            NewTopic(name, options.partitions, replicas, {**self._wanted(replicas), **more_configs.get(name, {})})
            for name in names
        ]
        response = await self._ask(
            ToController(),
            CreateTopicsRequest,
            lambda version: CreateTopicsRequest(
                topics=[topic.encoded(version) for topic in new], timeout_ms=30_000, validate_only=False
            ),
            self._until,
        )
        for topic in response.topics:
            if topic.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise broker_error(topic.error_code, topic.error_message, api="CreateTopics", topic=topic.name)

    def _wanted(self, replicas: int) -> dict[str, str | None]:
        return {
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "delete",
            "min.insync.replicas": str(min(2, replicas)),
            "retention.ms": str(_MARKERS_RETENTION_MS),
        }

    async def configs(self, resource_type: int, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Return the configurations of these topics or groups."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.Resource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                )
                for name in names
            ]
        )
        response = await self._ask(ToAny(), DescribeConfigsRequest, lambda version: request, self._until)
        found: dict[str, Mapping[str, str]] = {}
        for result in response.results:
            if result.error_code:
                where = {"topic" if resource_type == _TOPIC else "group": result.resource_name}
                raise broker_error(result.error_code, result.error_message, api="DescribeConfigs", **where)
            found[result.resource_name] = {one.name: one.value for one in result.configs if one.value is not None}
        return found

    def _problems(self, name: str, configs: Mapping[str, str], topic: Topic) -> list[str]:
        options, problems = self._options, []
        if "compact" in configs.get("cleanup.policy", ""):
            problems.append(f"cleanup.policy of {name} has compact, which deletes all but the last record of a queue")
        replicas = max(len(partition.replicas) for partition in topic.partitions)
        if replicas > 1 and int(configs.get("min.insync.replicas", "1")) < 2:
            problems.append(
                f"min.insync.replicas of {name} is 1 with {replicas} replicas: what one broker has acknowledged alone "
                "is lost with it"
            )
        if name == options.marker_topic:
            if configs.get("message.timestamp.type") != "LogAppendTime":
                problems.append(
                    f"message.timestamp.type of {name} is CreateTime: a consumer whose clock is wrong makes messages "
                    "come early or late; set LogAppendTime"
                )
            retention_ms = int(configs.get("retention.ms", "-1"))
            needed_ms = options.redelivery_timeout_ms + (options.max_processing_ms if options.keep_alive else 0)
            needed_ms += options.backoff(options.max_deliveries or TIME_MAX_MS)
            if 0 <= retention_ms < needed_ms:
                problems.append(
                    f"retention.ms of {name} is {retention_ms}: messages are in progress for up to {needed_ms} ms, and "
                    "would be forgotten"
                )
        return problems

    async def set_group_configs(self, group: str, configs: Mapping[str, str]) -> None:
        """Set configs of a group. Raises BrokerError for what the brokers refuse."""
        await self._set(configs, group=group, timeout=self._left(self._until))

    def _left(self, deadline: float) -> float:
        """Return the time until the deadline. Raises RequestTimeoutError after it."""
        seconds = deadline - self._runtime.clock.now()
        if seconds <= 0:
            raise RequestTimeoutError(
                "the topics of the queues were not found in time", topic=self._options.marker_topic
            )
        return seconds


__all__ = ["QueueTopics", "TopicSetup", "message_bytes_max"]
