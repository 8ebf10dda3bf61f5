"""kafkatest's ShareConsumerTest: share groups while members and brokers come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from brokers.cluster import NEWEST, KafkaCluster

from tests.live.system.conftest import make_topic
from tests.live.system.handlers import Event
from tests.live.system.services import KWIRE, PATIENCE_S, Service, VerifiableProducer

Run = Callable[[Any], Any]
pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("brokers", [NEWEST], indirect=True)]
PARTITIONS = 3
Offset = tuple[int, int]


class VerifiableShareConsumer(Service):
    """The members of one share group. `acknowledged` counts what was acknowledged, by (partition, offset).

    `unsure` has what a member acknowledged without a response: a broker that stops may have done it, so that the record
    does not come again. `killed` has what each killed member had consumed: a broker may have its last words,
    of which it could not tell.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, members: int, mode: str) -> None:
        super().__init__(cluster)
        self.topic, self.members, self.mode = topic, members, mode
        self.started: set[int] = set()
        self.ended: set[int] = set()
        self.consumed: dict[int, list[Offset]] = {}  # by the present process of each member
        self.acknowledged: dict[Offset, int] = {}
        self.unsure: set[Offset] = set()
        self.killed: list[list[Offset]] = []

    def start_node(self, index: int) -> None:
        self.ended.discard(index)
        self.started.discard(index)
        command = [
            *KWIRE, "verifiable-share-consumer", "--bootstrap-server", self.cluster.bootstrap, "--topic", self.topic,
            "--group-id", self.topic, "--acknowledgement-mode", self.mode, "--offset-reset-strategy", "earliest",
        ]  # fmt: skip
        consumed = self.consumed[index] = []  # by this process: the one before may have lines in its pipe
        self.launch(index, command, lambda event: self._handle(index, consumed, event))

    def end(self, index: int, *, clean: bool = True, timeout_s: float = PATIENCE_S) -> None:
        super().end(index, clean=clean, timeout_s=timeout_s)
        if not clean:
            self.killed.append(self.consumed[index])

    def missing(self, stored: set[Offset]) -> list[Offset]:
        """Return what is not acknowledged, as far as anybody can know."""
        return sorted(stored - self.acknowledged.keys() - self.unsure - {one for of in self.killed for one in of})

    def start(self) -> None:
        for index in range(self.members):
            self.start_node(index)
        for index in range(self.members):
            self.await_started(index)

    def await_started(self, index: int) -> None:
        """Wait until a member has begun: before that a signal ends it without a word."""
        self.wait_until(lambda: index in self.started, f"member {index} has started")

    def _handle(self, index: int, consumed: list[Offset], event: Event) -> None:
        name = event["name"]
        if name == "startup_complete":
            self.started.add(index)
        elif name == "shutdown_complete":
            self.ended.add(index)
        elif name == "records_consumed":
            found = [(one["partition"], offset) for one in event["partitions"] for offset in one["offsets"]]
            assert len(found) == event["count"]
            consumed += found
        elif name == "offsets_acknowledged":
            seen = set(consumed)
            for one in event["partitions"]:
                for offset in one["offsets"]:
                    key = one["partition"], offset
                    assert key in seen, f"acknowledged {key}, which this member did not consume"
                    if event["success"]:
                        self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
                    else:
                        self.unsure.add(key)

    def total_acknowledged(self) -> int:
        return len(self.acknowledged)

    def await_acknowledged(self, number: int = 1) -> None:
        goal = self.total_acknowledged() + number
        self.wait_until(lambda: self.total_acknowledged() >= goal, f"{number} more acknowledged", 120)


@pytest.fixture
def topic(brokers: KafkaCluster) -> str:
    return make_topic(brokers, "share", PARTITIONS)


def finish(consumer: VerifiableShareConsumer, producer: VerifiableProducer, *, is_calm: bool) -> None:
    """Every record was acknowledged, without a response only where a broker or a member was; none twice in calm."""
    producer.stop_all()

    def missing() -> list[Offset]:
        return consumer.missing(set(producer.acked.values()))

    try:
        consumer.wait_until(lambda: not missing(), "all records acknowledged", 120)
    except AssertionError as error:
        raise AssertionError(f"{len(missing())} are not, such as {missing()[:10]}") from error
    if is_calm:
        assert consumer.unsure == set()
    consumer.stop_all()
    assert consumer.ended == set(range(consumer.members))
    if is_calm:
        assert {key for key, count in consumer.acknowledged.items() if count > 1} == set()


@pytest.mark.short
@pytest.mark.parametrize("mode", ["sync"])
def test_share_multiple_consumers(brokers: KafkaCluster, run: Run, topic: str, mode: str) -> None:
    consumer = run(VerifiableShareConsumer(brokers, topic, 3, mode))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    consumer.start()
    consumer.await_acknowledged(1000)
    finish(consumer, producer, is_calm=True)


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_share_consumer_failure(brokers: KafkaCluster, run: Run, topic: str, mode: str, clean: bool) -> None:
    consumer = run(VerifiableShareConsumer(brokers, topic, 3, mode))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    consumer.start()
    consumer.await_acknowledged(200)
    for index in range(3):
        consumer.end(index, clean=clean)
        consumer.await_acknowledged()
        consumer.start_node(index)
        consumer.await_started(index)
        consumer.await_acknowledged(200)
    finish(consumer, producer, is_calm=clean)


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_broker_failure(brokers: KafkaCluster, run: Run, topic: str, mode: str, clean: bool) -> None:
    consumer = run(VerifiableShareConsumer(brokers, topic, 2, mode))
    producer = run(VerifiableProducer(brokers, topic))
    producer.start()
    consumer.start()
    consumer.await_acknowledged(200)
    for node in brokers.node_ids:
        brokers.stop_node(node, graceful=clean)
        consumer.await_acknowledged(200)
        brokers.start_node(node)
        consumer.await_acknowledged(200)
    finish(consumer, producer, is_calm=False)
