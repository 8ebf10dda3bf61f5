"""Create and delete topics: CreateTopics v0 to v7, DeleteTopics v0 to v6, both sent to the controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kwire.admin.operation import Operation, ResourceResult
from kwire.cluster import is_topic_name
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, UnsupportedVersionError, broker_error
from kwire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kwire.protocol.schema import Response

BROKER_DEFAULT = -1
_DEFAULTS_SINCE = 4
_VALIDATE_SINCE = 1
_STATES_SINCE = 6


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

    def build_request(self, resources: Iterable[NewTopic], timeout_ms: int, version: int) -> CreateTopicsRequest:
        if self.validate_only and version < _VALIDATE_SINCE:
            raise UnsupportedVersionError("this broker cannot check topics without creating them")
        return CreateTopicsRequest(
            topics=[topic.encoded(version) for topic in resources],
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

    def build_request(self, resources: Iterable[str], timeout_ms: int, version: int) -> DeleteTopicsRequest:
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


def _error(code: int, message: str | None, topic: str, api: str, remedy: str | None = None) -> BrokerError:
    return broker_error(code, message, remedy=remedy, api=api, topic=topic)
