"""Members of consumer groups for tests: they send ConsumerGroupHeartbeat to a virtual cluster by encoded requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kwire.broker.consumer_group import ConsumerGroup
from kwire.errors import ErrorCode
from kwire.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.virtual_cluster import VirtualCluster

GROUP = "g"
REBALANCE_MS = 30_000

Parts = set[tuple[str, int]]


class Members:
    """One consumer group. Partitions are written as (topic name, number)."""

    def __init__(self, topics: dict[str, int] | None = None, **options: Any) -> None:
        self.cluster = VirtualCluster(1, **options)
        for name, partitions in (topics if topics is not None else {"t": 4}).items():
            self.cluster.state.create_topic(name, partitions)

    @property
    def group(self) -> ConsumerGroup:
        group = self.cluster.state.consumer_groups.get(GROUP)
        assert group is not None
        return group

    @property
    def names(self) -> dict[UUID, str]:
        return {id: topic.name for id, topic in self.cluster.state.topics_by_id.items()}

    def owned(self, parts: Iterable[tuple[str, int]]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        by_topic: dict[UUID, list[int]] = {}
        for name, partition in sorted(parts):
            by_topic.setdefault(self.cluster.state.topics[name].id, []).append(partition)
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=id, partitions=partitions)
            for id, partitions in by_topic.items()
        ]

    def send(self, *, version: int = 1, client: str = "c", **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat of these fields."""
        request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        return self.cluster.request(self.cluster.coordinator(request.group_id), request, version, client_id=client)

    def join(self, member_id: str, topics: Sequence[str] | None = ("t",), **more: Any) -> Member:
        member = Member(self, member_id, more.get("instance_id"))
        member.join(topics, **more)
        return member


class Member:
    """A member that obeys: it revokes and takes over what the coordinator says, as soon as `beat` is called again."""

    def __init__(self, members: Members, id: str, instance_id: str | None = None) -> None:
        self.members = members
        self.id = id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Parts = set()
        self.error: int = ErrorCode.NONE

    def join(self, topics: Sequence[str] | None = ("t",), **more: Any) -> ConsumerGroupHeartbeatResponse:
        self.owned = set()
        return self._send(
            member_epoch=0, subscribed_topic_names=None if topics is None else list(topics), topic_partitions=[],
            **{"rebalance_timeout_ms": REBALANCE_MS, "instance_id": self.instance_id, **more},
        )  # fmt: skip

    def beat(self, *, owned: bool = True, **more: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, which reports what the member owns unless `owned` is false."""
        parts = self.members.owned(self.owned) if owned else None
        return self._send(**{"member_epoch": self.epoch, "topic_partitions": parts, **more})

    def leave(self, *, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        return self.members.send(member_id=self.id, member_epoch=epoch, instance_id=self.instance_id)

    def _send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields = {"instance_id": self.instance_id, **fields}
        response = self.members.send(member_id=self.id, **fields)
        self.error = response.error_code
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                names = self.members.names
                self.owned = {
                    (names[topic.topic_id], partition)
                    for topic in response.assignment.topic_partitions
                    for partition in topic.partitions
                }
        return response


def settle(*members: Member, rounds: int = 6) -> None:
    """Let members send heartbeats until nothing changes."""
    for _ in range(rounds):
        for member in members:
            member.beat()


def all_of(topic: str, count: int) -> Parts:
    return {(topic, partition) for partition in range(count)}
