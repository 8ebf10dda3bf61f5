"""The judge of what a producer writes: each rule is broken by hand, and found; good conduct is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

import pytest

from kwire.cluster import Broker, ClusterView, Partition, PendingRequest, Snapshot, ToNode, Topic
from kwire.errors import ErrorCode, RequestTimeoutError
from kwire.producer.options import ProducerSettings
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import encode_batch
from kwire.simulation.conduct import Conduct

TOPIC = "t"
VERSION = 9  # topics by name


class Story:
    """A producer's requests about one partition; each `write` may get its response later."""

    def __init__(self, settings: Mapping[str, Any] | None = None, first_sequence: int = 0) -> None:
        self.now = 0.0
        self.leader = (1, 0)
        self.topic_id = UUID(int=1)
        self.conduct = Conduct("p", ProducerSettings(**(settings or {})), lambda: self.now, first_sequence)

    def write(
        self, sequence: int, count: int = 1, *, id: int = 7, epoch: int = 0, value: bytes = b"v"
    ) -> PendingRequest:
        """Write a batch to the leader that is known."""
        node, leader_epoch = self.leader
        records = encode_batch(
            [(0, None, value, ())] * count, producer_id=id, producer_epoch=epoch, base_sequence=sequence
        )
        places = [ProduceRequest.Topic.Partition(index=0, records=records)]
        data = ProduceRequest.Topic(name=TOPIC, partition_data=places)
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=[data])
        partition = Partition(0, node, leader_epoch, (), (), (), 0)
        snapshot = Snapshot(
            brokers={node: Broker(node, "h", 1)}, topics={TOPIC: Topic(TOPIC, self.topic_id, (partition,), False, 0)}
        )
        call = PendingRequest(ToNode(node), ProduceRequest, lambda version: request, lambda result, now: None)
        self.conduct.watch(call, cast(ClusterView, _View(snapshot)))
        call.build(VERSION)
        return call

    def respond(self, call: PendingRequest, code: int = 0, throttle_ms: int = 0) -> None:
        one = ProduceResponse.Topic.Partition(index=0, error_code=code, base_offset=0)
        topics = [ProduceResponse.Topic(name=TOPIC, partition_responses=[one])]
        call.on_done(ProduceResponse(responses=topics, throttle_time_ms=throttle_ms), self.now)

    def lose(self, call: PendingRequest) -> None:
        call.on_done(RequestTimeoutError("no response"), self.now)

    def open_gate(self) -> None:
        self.respond(self.write(0))

    @property
    def kinds(self) -> list[str]:
        return [anomaly.kind for anomaly in self.conduct.anomalies]


class _View:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def good_conduct(story: Story) -> None:
    story.open_gate()
    out = [story.write(sequence) for sequence in range(1, 6)]
    for call in out:
        story.lose(call)
    for sequence in range(1, 6):
        story.respond(story.write(sequence))
    story.write(0, id=8)


def six_out(story: Story) -> None:
    story.open_gate()
    for sequence in range(1, 7):
        story.write(sequence)


def two_to_an_unproven_leader(story: Story) -> None:
    story.write(0)
    story.write(1)


def two_to_a_new_epoch(story: Story) -> None:
    story.open_gate()
    story.leader = 1, 1
    story.write(1)
    story.write(2)


def two_after_a_failure(story: Story) -> None:
    story.open_gate()
    story.lose(story.write(1))
    story.write(1)
    story.write(2)


def two_after_an_acknowledgement_behind_a_failure(story: Story) -> None:
    story.open_gate()
    first, second = story.write(1), story.write(2)
    story.lose(first)
    story.respond(second)
    story.write(1)
    story.write(3)


def two_after_a_minute(story: Story) -> None:
    story.open_gate()
    story.now = 61.0
    story.write(1)
    story.write(2)


def two_leaders(story: Story) -> None:
    story.open_gate()
    story.write(1)
    story.leader = 2, 1
    story.write(2)


def two_identities(story: Story) -> None:
    story.open_gate()
    story.write(1)
    story.write(0, id=8)


def a_gap(story: Story) -> None:
    story.open_gate()
    story.write(2)


def a_new_identity_that_goes_on(story: Story) -> None:
    story.open_gate()
    story.write(1, id=8)


def none_any_more(story: Story) -> None:
    story.open_gate()
    story.write(-1, id=-1, epoch=-1)


def overtaking(story: Story) -> None:
    story.open_gate()
    story.respond(story.write(1), ErrorCode.INVALID_RECORD)
    story.write(2)


def other_bytes(story: Story) -> None:
    story.lose(story.write(0, value=b"v"))
    story.write(0, value=b"w")


def impatience(story: Story) -> None:
    story.respond(story.write(0), throttle_ms=500)
    story.now = 0.4
    story.write(1)


CASES: list[tuple[Callable[[Story], None], set[str]]] = [
    (good_conduct, set()),
    (six_out, {"window"}),
    (two_to_an_unproven_leader, {"gate"}),
    (two_to_a_new_epoch, {"gate"}),
    (two_after_a_failure, {"gate"}),
    (two_after_an_acknowledgement_behind_a_failure, {"gate", "overtaken"}),
    (two_after_a_minute, {"gate"}),
    (two_leaders, {"two leaders"}),
    (two_identities, {"two producer ids", "gate"}),
    (a_gap, {"sequence"}),
    (a_new_identity_that_goes_on, {"sequence"}),
    (none_any_more, {"sequence"}),
    (overtaking, {"overtaken"}),
    (other_bytes, {"changed"}),
    (impatience, {"throttle"}),
]


@pytest.mark.parametrize(("build", "kinds"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_each_rule(build: Callable[[Story], None], kinds: set[str]) -> None:
    story = Story()
    build(story)
    assert set(story.kinds) <= kinds
    assert bool(story.kinds) == bool(kinds)


def test_without_sequences_one_batch_is_out() -> None:
    story = Story({"idempotence": False})
    story.respond(story.write(-1, id=-1, epoch=-1))
    story.write(-1, id=-1, epoch=-1)
    story.write(-1, id=-1, epoch=-1)
    assert "window" in story.kinds


def test_a_producer_that_keeps_no_order_is_free() -> None:
    story = Story({"ordered": False})
    for _ in range(10):
        story.write(-1, id=-1, epoch=-1)
    assert not story.kinds


def test_sequences_wrap() -> None:
    story = Story(first_sequence=2**31 - 2)
    story.respond(story.write(2**31 - 2, 4))
    story.respond(story.write(2))
    assert not story.kinds


def test_pieces_of_a_batch_that_was_too_large() -> None:
    story = Story()
    story.respond(story.write(0, 4), ErrorCode.MESSAGE_TOO_LARGE)
    story.respond(story.write(0, 2))
    story.respond(story.write(2, 2))
    story.respond(story.write(4))
    assert not story.kinds
    story.write(4, 2)
    assert story.kinds == ["changed"]


def test_the_sequence_of_a_batch_that_went_elsewhere_is_the_next_ones() -> None:
    story = Story()
    story.respond(story.write(0, 3), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    story.respond(story.write(0, 2, value=b"w"))
    story.respond(story.write(2))
    assert not story.kinds


def test_a_topic_that_was_created_again_begins_at_0() -> None:
    story = Story()
    story.open_gate()
    story.respond(story.write(1))
    story.topic_id = UUID(int=2)
    story.respond(story.write(0, value=b"w"))
    story.respond(story.write(1, value=b"x"))
    assert not story.kinds
