"""Topics: create, delete, list and describe them, add partitions.

CreateTopics v0 to v7, DeleteTopics v0 to v6 and CreatePartitions go to the controller. DescribeTopicPartitions goes to
any broker from Kafka 3.8, Metadata to older ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kwire.admin.metadata import metadata_request
from kwire.admin.noun import Noun, check_code, checked_items, checked_mapping, checked_name, checked_names, raised
from kwire.admin.operation import Operation, ResourceResult
from kwire.admin.results import Results
from kwire.cluster import Snapshot, ToAny, ToNode, is_topic_name
from kwire.cluster.metadata import NO_NODE
from kwire.cluster.waiting import blocking
from kwire.errors import (
    BrokerError,
    ConfigurationError,
    ErrorCode,
    KwireError,
    UnsupportedVersionError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kwire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kwire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

Resource = TypeVar("Resource")

BROKER_DEFAULT = -1
_DEFAULTS_SINCE = 4
_VALIDATE_SINCE = 1
_STATES_SINCE = 6

_CONFIGS = '{"retention.ms": "60000"}'  # an example, for errors


@dataclass(frozen=True)
class NewTopic:
    """A topic to create.

    partitions          their number; -1: the brokers' default (Kafka 2.4 and later)
    replication_factor  the number of replicas; -1: the brokers' default
    configs             such as {"cleanup.policy": "compact"}; the value None means the brokers' default
    assignments         {partition: [broker, ...]}, the preferred leader first, instead of the two numbers
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_topic_name(self.name):
            raise ConfigurationError(f"the name of a topic is {self.name!r}", remedy="give a str that is not empty")
        for what, count in (("partitions", self.partitions), ("replication_factor", self.replication_factor)):
            if count != BROKER_DEFAULT and (not isinstance(count, int) or count < 1):
                raise ConfigurationError(f"{what} is {count!r}", remedy="give 1 or more, or -1 for the default")
        for key, value in checked_mapping("configs", self.configs, _CONFIGS).items():
            if not isinstance(key, str) or not (value is None or isinstance(value, str)):
                raise ConfigurationError(f"configs has {key!r:.40}: {value!r:.40}", remedy=f"give texts: {_CONFIGS}")
        for brokers in checked_mapping("assignments", self.assignments, "{0: [1, 2], 1: [2, 1]}").values():
            checked_items("assignments", brokers, int)
        if self.assignments and (self.partitions, self.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise ConfigurationError(
                "assignments already give the numbers of partitions and replicas", remedy="leave out the numbers"
            )

    def encoded(self, version: int) -> CreateTopicsRequest.Topic:
        has_defaults = not self.assignments and BROKER_DEFAULT in (self.partitions, self.replication_factor)
        if has_defaults and version < _DEFAULTS_SINCE:
            raise UnsupportedVersionError(
                "brokers before Kafka 2.4 have no default for the partitions and replicas of a new topic",
                remedy="give partitions and replication_factor",
                topic=self.name,
            )
        return CreateTopicsRequest.Topic(
            name=self.name,
            num_partitions=self.partitions,
            replication_factor=self.replication_factor,
            assignments=[
                CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in self.assignments.items()
            ],
            configs=[CreateTopicsRequest.Topic.Config(name=name, value=value) for name, value in self.configs.items()],
        )


class CreatedTopic(NamedTuple):
    """A topic that was created. The numbers are -1 before Kafka 2.4, and the id is None before 2.8."""

    name: str
    id: UUID | None
    partitions: int
    replication_factor: int


class CreateTopics(Operation[NewTopic, CreatedTopic]):
    api = CreateTopicsRequest
    validate_only = False

    def build_request(self, resources: Mapping[str, NewTopic], timeout_ms: int, version: int) -> CreateTopicsRequest:
        if self.validate_only and version < _VALIDATE_SINCE:
            raise UnsupportedVersionError("this broker cannot check topics without creating them")
        return CreateTopicsRequest(
            topics=[topic.encoded(version) for topic in resources.values()],
            timeout_ms=timeout_ms,
            validate_only=self.validate_only,
        )

    def parse_response(self, response: Response, in_doubt: Collection[str]) -> Iterable[ResourceResult[CreatedTopic]]:
        assert isinstance(response, CreateTopicsResponse)
        for topic in response.topics:
            if topic.error_code:
                remedy = None
                if topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and topic.name in in_doubt:
                    remedy = "an earlier attempt of this call got no response, and may have created the topic"
                error = _error(topic.error_code, topic.error_message, topic.name, "CreateTopics", remedy)
                yield ResourceResult(topic.name, error)
            else:
                topic_id = topic.topic_id if topic.topic_id.int else None
                created = CreatedTopic(topic.name, topic_id, topic.num_partitions, topic.replication_factor)
                yield ResourceResult(topic.name, created)


class DeleteTopics(Operation[str, None]):
    api = DeleteTopicsRequest

    def build_request(self, resources: Mapping[str, str], timeout_ms: int, version: int) -> DeleteTopicsRequest:
        if version >= _STATES_SINCE:
            states = [DeleteTopicsRequest.Topic(name=name) for name in resources]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=list(resources), timeout_ms=timeout_ms)

    def parse_response(self, response: Response, in_doubt: Collection[str]) -> Iterable[ResourceResult[None]]:
        assert isinstance(response, DeleteTopicsResponse)
        for topic in response.responses:
            if topic.name is None:
                continue
            # An attempt without a response has deleted the topic: this is success.
            is_gone = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not topic.error_code or (is_gone and topic.name in in_doubt):
                yield ResourceResult(topic.name, None)
            else:
                yield ResourceResult(
                    topic.name, _error(topic.error_code, topic.error_message, topic.name, "DeleteTopics")
                )


class CreatePartitions(Operation[int, None]):
    api = CreatePartitionsRequest
    assignments: Sequence[Sequence[int]] | None = None
    validate_only = False

    def build_request(self, resources: Mapping[str, int], timeout_ms: int, version: int) -> CreatePartitionsRequest:
        assigned = None
        if self.assignments is not None:
            replicas = CreatePartitionsRequest.Topic.Assignment
            assigned = [replicas(broker_ids=list(brokers)) for brokers in self.assignments]
        topics = [
            CreatePartitionsRequest.Topic(name=name, count=total, assignments=assigned)
            for name, total in resources.items()
        ]
        return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=self.validate_only)

    def parse_response(self, response: Response, in_doubt: Collection[str]) -> Iterable[ResourceResult[None]]:
        assert isinstance(response, CreatePartitionsResponse)
        for topic in response.results:
            if not topic.error_code:
                yield ResourceResult(topic.name, None)
                continue
            remedy = None
            if topic.error_code == ErrorCode.INVALID_PARTITIONS and topic.name in in_doubt:
                remedy = "an earlier attempt of this call got no response, and may have added the partitions"
            error = _error(topic.error_code, topic.error_message, topic.name, "CreatePartitions", remedy)
            yield ResourceResult(topic.name, error)


@dataclass(frozen=True, slots=True)
class TopicPartitionDescription:
    """A partition of a topic. `leader` is -1 where there is none; `eligible` only from Kafka 4.0 (KIP-966)."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    eligible: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. `id` is None before Kafka 2.8."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[TopicPartitionDescription, ...]


class TopicAdmin(Noun):
    """What both faces share."""

    async def _create(
        self,
        topic: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str | None] | None = None,
        dry_run: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> CreatedTopic:
        """Create a topic; -1 and no configs mean the brokers' defaults.

        dry_run  the controller checks the topic and does not create it
        wait     return when every broker knows a leader of each partition, so that the topic can be used at once
        """
        checked_name("topic", topic)
        new = NewTopic(topic, partitions, replication_factor, {} if configs is None else configs)
        return (await self._create_many([new], dry_run=dry_run, wait=wait, timeout=timeout))[topic]

    async def _create_many(
        self, topics: Iterable[NewTopic], *, dry_run: bool = False, wait: bool = True, timeout: float | None = None
    ) -> Results[str, CreatedTopic]:
        """Create several topics, as `create` does. If one gets no result in time, the others are not waited for."""
        wanted = checked_items("topics", topics, NewTopic)
        deadline = self._deadline(timeout)
        operation = CreateTopics(by_name((one.name, one) for one in wanted), **self._operation_options(deadline))
        operation.validate_only = dry_run
        found = await self._run(operation, operation.future, deadline)
        results = Results(found)
        # Where the operation was cut short, no time is left to wait in: an error of the wait would hide the results.
        is_complete = all(isinstance(error, BrokerError) for error in results.errors.values())
        if wait and results.ok and is_complete and not dry_run:
            await self._wait_for_leaders(list(results.ok), deadline)
        return results

    async def _delete(self, topics: str | Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete topics with all of their records. Brokers may serve them for a short time after this has returned.

        A single topic's error is raised.
        """
        deadline = self._deadline(timeout)
        names = checked_names("topics", [topics] if isinstance(topics, str) else topics)
        operation = DeleteTopics({name: name for name in names}, **self._operation_options(deadline))
        found = await self._run(operation, operation.future, deadline)
        results = Results(found)
        if isinstance(topics, str):
            results[topics]
        return results

    async def _add_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Give a topic more partitions, so that it has `total`. Keys move to other partitions by that.

        assignments  the replicas of each new partition, the preferred leader first
        dry_run      have the controller only check it
        """
        checked_name("topic", topic)
        if assignments is not None:
            for brokers in checked_items("assignments", assignments, list, tuple):
                checked_items("assignments", brokers, int)
        if isinstance(total, bool) or not isinstance(total, int) or total < 1:
            raise ConfigurationError(f"total is {total!r}", remedy="give the number of partitions to have, 1 or more")
        deadline = self._deadline(timeout)
        operation = CreatePartitions({topic: total}, **self._operation_options(deadline))
        operation.assignments, operation.validate_only = assignments, dry_run
        results = await self._run(operation, operation.future, deadline)
        raised(results, topic)

    async def _list(self, *, internal: bool = False, timeout: float | None = None) -> list[str]:
        """Return the names of the topics; with `internal` also of Kafka's own, such as __consumer_offsets."""
        known = await self._snapshot(None, self._deadline(timeout))
        return sorted(name for name, topic in known.topics.items() if internal or not topic.is_internal)

    async def _exists(self, topic: str, *, timeout: float | None = None) -> bool:
        """Return whether the cluster has this topic. It is not created by the question."""
        known = await self._snapshot(checked_names("topic", [topic]), self._deadline(timeout))
        code = known.topics[topic].error_code if topic in known.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            raise broker_error(code, api="Metadata", topic=topic)
        return code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _describe(self, topic: str, *, timeout: float | None = None) -> TopicDescription:
        """Return a topic and its partitions. From Kafka 3.8 they name the replicas that are eligible to lead."""
        return (await self._describe_many([topic], timeout=timeout))[topic]

    async def _describe_many(
        self, topics: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, TopicDescription]:
        """Return several topics and their partitions, which come page by page from Kafka 3.8."""
        deadline = self._deadline(timeout)
        names = checked_names("topics", topics)
        if not names:
            return Results({})
        try:
            found = await self._described_in_pages(names, deadline)
        except UnsupportedVersionError:
            found = _described_by_metadata(names, await self._snapshot(names, deadline))
        return Results(self._named(found))

    # -- parts

    async def _described_in_pages(
        self, names: Sequence[str], deadline: float
    ) -> dict[str, TopicDescription | KwireError]:
        pages: dict[str, list[DescribeTopicPartitionsResponse.Topic]] = {name: [] for name in names}
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None
        while True:
            build = partial(_describe_request, sorted(names), cursor)
            response: DescribeTopicPartitionsResponse = await self._ask(
                ToAny(), DescribeTopicPartitionsRequest, build, deadline
            )
            for topic in response.topics:
                if topic.name in pages:
                    pages[topic.name].append(topic)
            following = response.next_cursor
            if following is None:
                return {name: _described(name, found) for name, found in pages.items()}
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )

    async def _wait_for_leaders(self, names: Sequence[str], deadline: float) -> None:
        """Wait until each broker knows all partitions of these topics and a leader of each.

        Raises RequestTimeoutError. A broker that cannot be reached is left out.
        """
        brokers = (await self._snapshot([], deadline)).brokers
        build = partial(metadata_request, list(names))
        results = await self._routed(
            {node: ToNode(node) for node in brokers}, MetadataRequest, lambda node, version: build(version),
            _check_leaders, deadline,
        )  # fmt: skip
        for error in results.values():
            if isinstance(error, KwireError) and isinstance(error.__cause__, BrokerError):
                error.add_note("the topic was created: only the wait for its leaders took too long")
                raise error

    def _operation_options(self, deadline: float) -> dict[str, Any]:
        return {"timeout": self._left(deadline), "backoff": self._backoff(), "random": Random()}


class Topics(TopicAdmin):
    """`Admin.topics`, for threads."""

    create = blocking(TopicAdmin._create)
    create_many = blocking(TopicAdmin._create_many)
    delete = blocking(TopicAdmin._delete)
    add_partitions = blocking(TopicAdmin._add_partitions)
    exists = blocking(TopicAdmin._exists)
    describe = blocking(TopicAdmin._describe)
    describe_many = blocking(TopicAdmin._describe_many)
    list = blocking(TopicAdmin._list)


def _error(code: int, message: str | None, topic: str, api: str, remedy: str | None = None) -> BrokerError:
    return broker_error(code, message, remedy=remedy, api=api, topic=topic)


def by_name(pairs: Iterable[tuple[str, Resource]]) -> dict[str, Resource]:
    """Return the things by name. Raises ConfigurationError for a name that is there twice."""
    resources: dict[str, Resource] = {}
    for name, resource in pairs:
        if name in resources:
            raise ConfigurationError(f"{name} is named twice")
        resources[name] = resource
    return resources


def _describe_request(
    names: Sequence[str], cursor: DescribeTopicPartitionsRequest.Cursor | None, version: int
) -> DescribeTopicPartitionsRequest:
    topics = [DescribeTopicPartitionsRequest.Topic(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)


def _described(name: str, pages: Sequence[DescribeTopicPartitionsResponse.Topic]) -> TopicDescription | KwireError:
    if not pages:
        return broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, api="DescribeTopicPartitions", topic=name)
    first = pages[0]
    if first.error_code:
        return broker_error(first.error_code, api="DescribeTopicPartitions", topic=name)
    partitions = [
        TopicPartitionDescription(
            one.partition_index, one.leader_id, one.leader_epoch, tuple(one.replica_nodes), tuple(one.isr_nodes),
            tuple(one.offline_replicas),
            None if one.eligible_leader_replicas is None else tuple(one.eligible_leader_replicas),
        )
        for page in pages
        for one in page.partitions
    ]  # fmt: skip
    partitions.sort(key=lambda one: one.index)
    return TopicDescription(name, first.topic_id, first.is_internal, tuple(partitions))


def _described_by_metadata(names: Iterable[str], known: Snapshot) -> dict[str, TopicDescription | KwireError]:
    found: dict[str, TopicDescription | KwireError] = {}
    for name in names:
        topic = known.topics.get(name)
        if topic is None or topic.error_code:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            found[name] = broker_error(code, api="Metadata", topic=name)
            continue
        partitions = tuple(
            TopicPartitionDescription(one.index, one.leader, one.leader_epoch, one.replicas, one.isr, one.offline)
            for one in topic.partitions
        )
        found[name] = TopicDescription(name, topic.id if topic.id.int else None, topic.is_internal, partitions)
    return found


def _check_leaders(node: int, response: MetadataResponse, in_doubt: bool) -> None:
    """Raise a retriable error while a broker does not know a leader of each partition."""
    for topic in response.topics:
        code = topic.error_code
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # created, so that only this broker does not know it yet
            code = ErrorCode.LEADER_NOT_AVAILABLE
        code = code or next((one.error_code for one in topic.partitions if one.leader_id == NO_NODE), 0)
        check_code(code, "Metadata", topic=topic.name, broker=node)
