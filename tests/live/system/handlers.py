"""What the harness of Kafka's system tests asserts about the events of a consumer.

The classes and methods have the names of kafkatest's services/verifiable_consumer.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

Event = dict[str, Any]
TopicPartition = tuple[str, int]


class ConsumerState(Enum):
    STARTED = 1
    DEAD = 2
    REBALANCING = 3
    JOINED = 4


def partitions_of(items: Iterable[Event]) -> list[TopicPartition]:
    return [(item["topic"], item["partition"]) for item in items]


class ConsumerEventHandler:
    """A member with an eager assignor: each rebalance takes all partitions away first."""

    def __init__(self, verify_offsets: bool = True) -> None:
        self.verify_offsets = verify_offsets
        self.state = ConsumerState.DEAD
        self.revoked_count = 0
        self.assigned_count = 0
        self.assignment: list[TopicPartition] = []
        self.position: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.total_consumed = 0

    def handle(self, event: Event) -> None:
        """Note an event. Raises AssertionError for one that must not be."""
        handler = getattr(self, f"handle_{event['name']}", None)
        if handler is not None:
            handler(event)

    def handle_startup_complete(self, event: Event) -> None:
        self.state = ConsumerState.STARTED

    def handle_shutdown_complete(self, event: Event | None = None) -> None:
        self.state = ConsumerState.DEAD
        self.assignment = []
        self.position = {}

    def handle_offsets_committed(self, event: Event) -> None:
        if not event["success"]:
            return
        for one in event["offsets"]:
            if one.get("error"):
                continue
            key, offset = (one["topic"], one["partition"]), one["offset"]
            assert key in self.assignment, f"committed {key}, which is not assigned: {self.assignment}"
            assert key in self.position, f"committed {key}, of which nothing was consumed: {event}"
            assert self.position[key] >= offset, f"committed {key} to {offset}, beyond {self.position[key]}"
            self.committed[key] = offset

    def handle_records_consumed(self, event: Event) -> None:
        assert self.state is ConsumerState.JOINED, f"consumed while {self.state}: {event}"
        for batch in event["partitions"]:
            key = batch["topic"], batch["partition"]
            assert key in self.assignment, f"consumed {key}, which is not assigned: {self.assignment}"
            position = self.position.get(key, batch["minOffset"])
            assert not self.verify_offsets or position == batch["minOffset"], f"{key}: {batch} after {position}"
            self.position[key] = batch["maxOffset"] + 1
        self.total_consumed += event["count"]

    def handle_partitions_revoked(self, event: Event) -> None:
        self.revoked_count += 1
        self.state = ConsumerState.REBALANCING
        self.position = {}

    def handle_partitions_assigned(self, event: Event) -> None:
        self.assigned_count += 1
        self.state = ConsumerState.JOINED
        self.assignment = partitions_of(event["partitions"])


class IncrementalAssignmentConsumerEventHandler(ConsumerEventHandler):
    """A member with a cooperative assignor: events name only what changes."""

    def handle_partitions_revoked(self, event: Event) -> None:
        super().handle_partitions_revoked(event)
        for key in partitions_of(event["partitions"]):
            assert key in self.assignment, f"revoked {key}, which was not assigned: {self.assignment}"
            self.assignment.remove(key)

    def handle_partitions_assigned(self, event: Event) -> None:
        before = self.assignment
        super().handle_partitions_assigned(event)
        self.assignment = before + self.assignment


class ConsumerProtocolConsumerEventHandler(IncrementalAssignmentConsumerEventHandler):
    """A member by KIP-848, or of librdkafka: it consumes on while partitions are taken away."""

    def handle_partitions_revoked(self, event: Event) -> None:
        self.revoked_count += 1
        for key in partitions_of(event["partitions"]):
            self.position.pop(key, None)
            if key in self.assignment:
                self.assignment.remove(key)
