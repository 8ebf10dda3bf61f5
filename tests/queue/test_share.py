"""Queues on share groups: what differs from those with a tracker, and `backend="auto"`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kwire.broker import Refuse
from kwire.cluster.waiting import run_blocking
from kwire.consumer import Ago, AtTimestamp
from kwire.errors import ConfigurationError, ErrorCode, KwireError, LeaseLostError
from kwire.protocol import ApiKey
from kwire.queue import QueueOptions
from kwire.queue.share_backend import ShareBackend
from kwire.queue.share_setup import topic_of
from tests.queue.worlds import LEASE_MS, World, payloads, put, take


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, "share")


@pytest.mark.parametrize(
    "options",
    [
        {"transactional": True},
        {"marker_format": "kafka-mq-v1", "max_deliveries": None},
        {"backoff_ms": 500},
        {"dedup_window_ms": 1_000},
        {"start": AtTimestamp(1)},
        {"max_deliveries": None},
        {"max_deliveries": 10},
    ],
)
def test_what_share_groups_lack_is_refused_at_construction(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match='backend="tracker"'):
        QueueOptions(backend="share", **options)


def test_delays_and_timeouts_of_single_messages_are_refused(world: World) -> None:
    service = world.service()
    with service.queue("jobs").producer() as producer:
        for options in ({"delay_ms": 5}, {"deliver_at_ms": 1 << 50}, {"redelivery_timeout_ms": 5}):
            with pytest.raises(ConfigurationError, match='backend="tracker"'):
                producer.send(b"hi", **options)  # type: ignore[arg-type]
    put(service, "jobs", b"hi")
    (message,) = take(service.queue("jobs").consumer(), 1)
    with pytest.raises(ConfigurationError, match="without a delay"):
        message.release(5)
    with pytest.raises(ConfigurationError, match="several times"):
        message.extend(60_000)
    message.extend()
    message.ack()


def test_the_dead_letter_topic_is_no_queue(world: World) -> None:
    service = world.service(dead_letter_topic="messages-jobs")
    wrong = pytest.raises(ConfigurationError, match=r"messages-jobs is .* the dead letter topic.*another")
    with wrong:
        put(service, "jobs", b"hi")
    with wrong:
        service.queue("jobs").consumer().receive(1)
    put(service, "other", b"hi")


def test_the_group_has_the_configs_of_the_service(world: World) -> None:
    service = world.service(max_deliveries=3)
    put(service, "jobs", b"hi")
    take(service.queue("jobs").consumer(), 1)[0].ack()
    group = "kwire-mq-share-messages-jobs"
    settings = world.cluster.call(lambda state, _: state.group_configs.of(group).configs)
    assert settings["share.record.lock.duration.ms"] == str(LEASE_MS)
    assert settings["share.delivery.count.limit"] == "8"
    assert settings["share.auto.offset.reset"] == "earliest"
    assert settings["share.isolation.level"] == "read_committed"
    assert settings["errors.deadletterqueue.topic.name"] == "dlq.messages"


def test_q90_a_group_begins_some_time_ago(world: World) -> None:
    service = world.service(start=Ago(hours=1, seconds=0.5))
    put(service, "jobs", b"hi")
    take(service.queue("jobs").consumer(), 1)[0].ack()
    group = "kwire-mq-share-messages-jobs"
    settings = world.cluster.call(lambda state, _: state.group_configs.of(group).configs)
    assert settings["share.auto.offset.reset"] == "by_duration:PT3600.500S"


def test_a_lock_that_the_brokers_refuse_names_the_remedy() -> None:
    with ExitStack() as stack:
        world = World(stack, "share", share_min_record_lock_ms=15_000)
        put(world.service(), "jobs", b"hi")
        with pytest.raises(ConfigurationError, match=r"group\.share\.min\.record\.lock\.duration\.ms"):
            world.service().queue("jobs").consumer().receive(1)


def test_before_4_3_the_limit_of_the_brokers_must_be_higher() -> None:
    with ExitStack() as stack:
        world = World(stack, "share", version="4.2")
        put(world.service(), "jobs", b"hi")
        with pytest.raises(ConfigurationError, match="max_deliveries=4"):
            world.service().queue("jobs").consumer().receive(1)
        assert payloads(take(world.service(max_deliveries=4).queue("jobs").consumer(), 1)) == [b"hi"]


def test_f13_a_lock_that_has_ended_is_a_lost_lease(world: World) -> None:
    service = world.service(keep_alive=False)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    (again,) = take(consumer, 1)
    assert again.deliveries == 2
    with pytest.raises(LeaseLostError, match="delivered again"):
        message.ack()
    again.ack()


def test_q64_a_message_of_a_dead_consumer_comes_again(world: World) -> None:
    service = world.service(keep_alive=False)
    put(service, "jobs", b"hi")
    dead = service.queue("jobs").consumer()
    take(dead, 1)
    assert isinstance(dead._backend, ShareBackend)
    run_blocking(dead._backend._records._close())
    (message,) = take(service.queue("jobs").consumer(), 1)
    assert (message.payload, message.deliveries) == (b"hi", 2)


def test_a_message_that_its_last_consumer_dies_with_is_a_dead_letter(world: World) -> None:
    service = world.service(keep_alive=False, max_deliveries=2)
    put(service, "jobs", b"poison")
    consumer = service.queue("jobs").consumer()
    for _ in range(2):
        take(consumer, 1)  # and its lock ends
    assert consumer.receive(2 * LEASE_MS / 1000) is None
    assert world.dead_letters() == [(b"poison", "delivered 2 times")]


def test_a_flush_raises_the_error_of_acknowledgements_that_failed(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    world.cluster.add_fault(Refuse(ErrorCode.INVALID_RECORD_STATE), api=ApiKey.SHARE_ACKNOWLEDGE, topic="messages-jobs")
    message.ack()
    with pytest.raises(KwireError, match="INVALID_RECORD_STATE"):
        consumer.flush()
    assert consumer.metrics().lease_lost == 1
    consumer.flush()


def test_names_of_topics() -> None:
    options = QueueOptions(backend="share")
    assert topic_of(options, "jobs-1.a") == "messages-jobs-1.a"
    assert topic_of(options, "my_queue") == "messages-my__queue"
    assert topic_of(options, "büro/1") == "messages-b_c3_bcro_2f1"
    with pytest.raises(ConfigurationError, match="shorter"):
        topic_of(options, "x" * 245)


@pytest.mark.parametrize(("version", "has_markers", "expected"), [
    ("4.4", False, "share"), ("4.4", True, "tracker"), ("3.9", False, "tracker"),
])  # fmt: skip
def test_auto_asks_the_cluster(version: str, has_markers: bool, expected: str) -> None:
    with ExitStack() as stack:
        world = World(stack, "auto", version=version)
        if has_markers:
            put(world.service(backend="tracker"), "old", b"hi")
        service = world.service(redelivery_timeout_ms=1_000)
        put(service, "jobs", b"hi")
        assert service.options.backend == expected
        (message,) = take(world.service().queue("jobs").consumer(), 1)
        message.ack()


def test_share_groups_need_a_cluster_that_has_them() -> None:
    with ExitStack() as stack:
        world = World(stack, "share", version="3.9")
        with pytest.raises(ConfigurationError, match=r"upgrade to Kafka 4\.2"):
            put(world.service(), "jobs", b"hi")


def test_share_groups_need_no_tracker(world: World) -> None:
    with pytest.raises(ConfigurationError, match="no tracker"):
        world.service().tracker().run()
