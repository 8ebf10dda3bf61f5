"""Creating and deleting topics: CreateTopics v0 to v7, DeleteTopics v0 to v6, both to the controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kwire.admin.operation import Operation, Settled
from kwire.cluster import is_topic_name
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, UnsupportedVersionError, broker_error
from kwire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kwire.protocol.schema import Response

BROKERS_CHOICE = -1
_DEFAULTS_SINCE = 4
_VALIDATE_SINCE = 1
_STATES_SINCE = 6


@dataclass(frozen=True)
class NewTopic:
    """A topic to be created.

    partitions          how many; -1: as the brokers are configured (Kafka 2.4 and later)
    replication_factor  likewise
    configs             such as {"cleanup.policy": "compact"}; None as a value: the brokers' default
    assignments         {partition: [broker, ...]}, the preferred leader first, instead of the two numbers
    """

    name: str
    partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_topic_name(self.name):
            raise ConfigurationError(f"a topic's name is {self.name!r}", remedy="give a str that is not empty")
        for what, count in (("partitions", self.partitions), ("replication_factor", self.replication_factor)):
            if count != BROKERS_CHOICE and (not isinstance(count, int) or count < 1):
                raise ConfigurationError(f"{what} is {count!r}", remedy="give 1 or more, or -1 for the default")
        if self.assignments and (self.partitions, self.replication_factor) != (BROKERS_CHOICE, BROKERS_CHOICE):
            raise ConfigurationError("assignments say already how many", remedy="leave the numbers out")

    def encoded(self, version: int) -> CreateTopicsRequest.Topic:
        is_open = not self.assignments and BROKERS_CHOICE in (self.partitions, self.replication_factor)
        if is_open and version < _DEFAULTS_SINCE:
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
    """What came of it; -1 and None where the brokers are too old to tell (before Kafka 2.4, the id before 2.8)."""

    name: str
    id: UUID | None
    partitions: int
    replication_factor: int


class CreateTopics(Operation[NewTopic, CreatedTopic]):
    api = CreateTopicsRequest
    validate_only = False

    def request(self, things: Iterable[NewTopic], timeout_ms: int, version: int) -> CreateTopicsRequest:
        if self.validate_only and version < _VALIDATE_SINCE:
            raise UnsupportedVersionError("this broker cannot check topics without creating them")
        return CreateTopicsRequest(
            topics=[topic.encoded(version) for topic in things],
            timeout_ms=timeout_ms,
            validate_only=self.validate_only,
        )

    def settled(self, response: Response, in_doubt: Collection[str]) -> Iterable[Settled[CreatedTopic]]:
        assert isinstance(response, CreateTopicsResponse)
        for topic in response.topics:
            if topic.error_code:
                remedy = None
                if topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and topic.name in in_doubt:
                    remedy = "an earlier attempt of this call was not answered, and may be what created it"
                error = _error(topic.error_code, topic.error_message, topic.name, "CreateTopics", remedy)
                yield Settled(topic.name, error)
            else:
                topic_id = topic.topic_id if topic.topic_id.int else None
                created = CreatedTopic(topic.name, topic_id, topic.num_partitions, topic.replication_factor)
                yield Settled(topic.name, created)


class DeleteTopics(Operation[str, None]):
    api = DeleteTopicsRequest

    def request(self, things: Iterable[str], timeout_ms: int, version: int) -> DeleteTopicsRequest:
        if version >= _STATES_SINCE:
            states = [DeleteTopicsRequest.Topic(name=name) for name in things]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=list(things), timeout_ms=timeout_ms)

    def settled(self, response: Response, in_doubt: Collection[str]) -> Iterable[Settled[None]]:
        assert isinstance(response, DeleteTopicsResponse)
        for topic in response.responses:
            if topic.name is None:
                continue
            # What an unanswered attempt has deleted is gone, as was asked.
            is_gone = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not topic.error_code or (is_gone and topic.name in in_doubt):
                yield Settled(topic.name, None)
            else:
                yield Settled(topic.name, _error(topic.error_code, topic.error_message, topic.name, "DeleteTopics"))


def _error(code: int, message: str | None, topic: str, api: str, remedy: str | None = None) -> BrokerError:
    return broker_error(code, message, remedy=remedy, api=api, topic=topic)
