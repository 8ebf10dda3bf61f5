"""The tracker on the embedded brokers: what no topic takes, and what it keeps."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from kwire import Producer
from kwire.queue.markers import NO_TOPIC_ID, Identity, Marker, MarkerType, encode_marker
from kwire.queue.options import QueueOptions
from kwire.queue.tracker import TrackedPartition
from tests.queue.worlds import World, payloads, put, take
from tests.waiting import wait_until

RIGHT = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}


def start(world: World, offset: int, value: bytes) -> None:
    """Write a START of another program, which is due at once."""
    marker = Marker(MarkerType.START, Identity(NO_TOPIC_ID, 0, offset), 0, b"jobs", value)
    with Producer(world.cluster.bootstrap) as producer:
        producer.send("markers", encode_marker(marker)).result(10)


def test_a_message_that_the_queue_topic_does_not_take_is_a_dead_letter_and_keeps_no_other_waiting(world: World) -> None:
    small = {**RIGHT, "max.message.bytes": "2000"}
    world.cluster.create_topic("messages", partitions=1, replication_factor=3, configs=small)
    service = world.service()
    put(service, "jobs", b"hi")  # creates the topics
    start(world, 100, b"x" * 5_000)
    start(world, 101, b"small")
    tracker = world.tracker(service)
    assert payloads(take(service.queue("jobs").consumer(), 2)) == [b"hi", b"small"]
    wait_until(lambda: tracker.metrics().dead_lettered == 1)
    assert world.dead_letters() == [(b"x" * 5_000, "too large for the queue topic")]


def test_a_message_that_no_topic_takes_stays_and_keeps_no_other_waiting(world: World) -> None:
    small = {**RIGHT, "max.message.bytes": "2000"}
    for topic in ("messages", "messages-dead-letters"):
        world.cluster.create_topic(topic, partitions=3, replication_factor=3, configs=small)
    service = world.service()
    put(service, "jobs", b"hi")
    start(world, 100, b"x" * 5_000)
    start(world, 101, b"small")
    tracker = world.tracker(service)
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 2):
        message.ack()
    wait_until(lambda: tracker.metrics().in_progress == 1)
    assert world.dead_letters() == []
    start(world, 102, b"later")
    assert payloads(take(consumer, 1)) == [b"later"]


def test_a_tracker_waits_for_the_log_while_its_tick_is_not_read() -> None:
    """A consumer's open transaction can hide the TICK for long: until it is read, time alone is no reason to work."""
    tracker: Any = SimpleNamespace(_options=QueueOptions(), _counters=None, _now=lambda: 1_000.0)
    consumer: Any = None
    partition = TrackedPartition(tracker, 0, consumer)
    in_use: Any = object()
    partition._producer = in_use
    partition.state.begin(-1)
    assert not partition.state.is_replaying
    assert partition.works_at() == 60.0
    partition._tick = in_use
    assert partition.works_at() == math.inf
