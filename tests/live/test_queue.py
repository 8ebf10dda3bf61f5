"""Queues on real brokers: with a tracker on Kafka 2.8 and 4.3, on share groups on 4.3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from brokers.cluster import KafkaCluster

from kwire.queue import Consumer, Message, Service

LEASE_MS = 3_000
PATIENCE_S = 60.0
_SHARE = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module", params=["2.8.2 tracker", "4.3.1 tracker", "4.3.1 share"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    version, backend = request.param.split()
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(version, settings=_SHARE if version.startswith("4") else {}))
        made = Service(
            cluster.bootstrap, backend=backend, redelivery_timeout_ms=LEASE_MS, backoff_ms=0, partitions=3,
            max_deliveries=3,
        )  # fmt: skip
        stack.enter_context(made)
        if backend == "tracker":
            stack.enter_context(made.tracker())
        yield made


def take(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    for _ in range(count):
        message = consumer.receive(PATIENCE_S)
        assert message is not None, f"only {len(messages)} of {count} messages came"
        messages.append(message)
    return messages


def put(service: Service, queue: str, count: int) -> None:
    with service.queue(queue).producer() as producer:
        for response in producer.send_many([b"%d" % number for number in range(count)]):
            response.result(PATIENCE_S)


def test_messages_come_once_and_released_ones_again(service: Service) -> None:
    put(service, "jobs", 100)
    with service.queue("jobs").consumer() as consumer:
        for message in take(consumer, 100):
            if message.payload == b"7":
                message.release()
            else:
                message.ack()
        (again,) = take(consumer, 1)
        assert (again.payload, again.deliveries) == (b"7", 2)
        again.ack()
        consumer.flush()
        assert consumer.receive(2 * LEASE_MS / 1000) is None
        assert consumer.metrics().lease_lost == 0


def test_a_message_is_kept_alive_and_a_dead_letter_goes_back(service: Service) -> None:
    put(service, "slow", 1)
    with service.queue("slow").consumer() as consumer:
        (message,) = take(consumer, 1)
        assert consumer.receive(2 * LEASE_MS / 1000) is None
        message.nack("not today")
        (letter,) = service.dead_letters("slow")
        assert (letter.payload, letter.reason) == (b"0", "not today")
        assert service.redrive("slow") == 1
        (again,) = take(consumer, 1)
        assert (again.payload, again.deliveries, again.id) == (b"0", 1, message.id)
        again.ack()


def test_a_poison_message_is_a_dead_letter_after_three_deliveries(service: Service) -> None:
    put(service, "poison", 1)
    with service.queue("poison").consumer() as consumer:
        for delivery in (1, 2, 3):
            (message,) = take(consumer, 1)
            assert message.deliveries == delivery
            message.release()
        assert consumer.receive(LEASE_MS / 1000) is None
    assert [one.reason for one in service.dead_letters("poison")] == ["delivered 3 times"]
