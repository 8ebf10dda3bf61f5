"""Clusters with queue services, for the tests of queues."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kwire.broker import Cluster
from kwire.queue import Consumer, Message, Service, Tracker
from tests.waiting import wait_until

LEASE_MS = 700


class World:
    """A cluster with services of one backend, and with trackers."""

    def __init__(self, stack: ExitStack, backend: str, **options: Any) -> None:
        self._stack = stack
        self.backend = backend
        chosen: dict[str, Any] = {
            "brokers": 3,
            "group_initial_rebalance_delay_ms": 0,
            "consumer_group_heartbeat_interval_ms": 200,
            "consumer_group_min_heartbeat_interval_ms": 200,
            "share_min_record_lock_ms": 100,
            "share_heartbeat_interval_ms": 200,
            **options,
        }
        self.cluster = stack.enter_context(Cluster(**chosen))

    def service(self, **options: Any) -> Service:
        own: dict[str, Any] = {"redelivery_timeout_ms": LEASE_MS, "backoff_ms": 0, "partitions": 3, **options}
        own.setdefault("backend", self.backend)
        return self._stack.enter_context(Service(self.cluster.bootstrap, **own))

    def tracker(self, service: Service) -> Tracker:
        return self._stack.enter_context(service.tracker())

    def redeliverer(self, service: Service) -> None:
        """Run what delivers messages again whose lease is over, if the brokers do not."""
        if self.backend == "tracker":
            self.tracker(service)

    def dead_letters(self) -> list[tuple[bytes | None, str]]:
        topic = "messages-dead-letters" if self.backend == "tracker" else "dlq.messages"
        partitions = self.cluster.call(lambda state, now: len(state.find_topic(topic).partitions))
        records = [one for index in range(partitions) for one in self.cluster.log(topic, index).records()]
        return [(one.value, (dict(one.headers)["kwire-mq-reason"] or b"").decode()) for one in records]


def begun(world: World, service: Service) -> Consumer:
    """Return a consumer of the queue jobs whose group has its first positions."""
    consumer = service.queue("jobs").consumer()
    group = service.options.queue_group("jobs")
    wait_until(lambda: consumer.receive(0.1) is None and len(world.cluster.committed(group)) == 3)
    return consumer


def take(consumer: Consumer, count: int, seconds: float = 10.0) -> list[Message]:
    """Receive so many messages."""
    messages: list[Message] = []
    while len(messages) < count:
        message = consumer.receive(seconds)
        assert message is not None, f"only {len(messages)} of {count} messages came"
        messages.append(message)
    return messages


def payloads(messages: list[Message]) -> list[bytes | None]:
    return sorted((message.payload for message in messages), key=lambda one: one or b"")


def put(service: Service, queue: str, *values: bytes, **options: Any) -> None:
    with service.queue(queue).producer() as producer:
        for response in [producer.send(value, **options) for value in values]:
            response.result(10)
