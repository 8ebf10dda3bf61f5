"""The checker finds every kind of anomaly in histories that were made to contain it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from kwire.errors import DeliveryError, KwireError, TopicError
from kwire.producer.futures import RecordMetadata
from kwire.simulation.checker import Checker, Promises
from kwire.simulation.history import History, LogCopy, RecordId, Resolution, Sent

TOPIC = "t"
FIRST_ID, SECOND_ID = UUID(int=1), UUID(int=2)
BEST = Promises(is_idempotent=True, is_ordered=True, acks=-1, delivers=True)


class Story:
    """Records 0, 1, 2... of producer p, and how they resolved."""

    def __init__(self) -> None:
        self.history = History()
        self.promises = BEST
        self.buffered = 0

    def send(self, *, partition: int | None = 0, key: bytes | None = None) -> Sent:
        number = len(self.history.sent)
        sent = Sent(RecordId("p", TOPIC, number), float(number), partition, key)
        self.history.add_sent(sent)
        return sent

    def acknowledge(self, sent: Sent, offset: int, partition: int = 0) -> None:
        self._resolve(sent, RecordMetadata(TOPIC, partition, offset, 0), None)

    def fail(self, sent: Sent, error: KwireError) -> None:
        self._resolve(sent, None, error)

    def store(self, *values: bytes | None, partition: int = 0, topic: str = TOPIC, id: UUID = FIRST_ID) -> None:
        self.history.logs.append(LogCopy(topic, id, partition, tuple(enumerate(values))))

    def send_and_store(self, count: int) -> list[Sent]:
        """Send, acknowledge and store records in order."""
        records = [self.send() for _ in range(count)]
        for offset, sent in enumerate(records):
            self.acknowledge(sent, offset)
        self.store(*map(value, records))
        return records

    def kinds(self) -> set[str]:
        checker = Checker(self.history, {"p": self.promises}, {"p": self.buffered})
        return {anomaly.kind for anomaly in checker.anomalies()}

    def _resolve(self, sent: Sent, metadata: RecordMetadata | None, error: KwireError | None) -> None:
        sent.resolutions.append(Resolution(self.history.resolved_count, 10.0, metadata, error))
        self.history.resolved_count += 1


def value(sent: Sent) -> bytes:
    return sent.id.value(30)


def surely_not_stored(partition: int = 0) -> DeliveryError:
    return DeliveryError("too late", possibly_persisted=False, topic=TOPIC, partition=partition)


def perhaps_stored(partition: int = 0) -> DeliveryError:
    return DeliveryError("too late", possibly_persisted=True, topic=TOPIC, partition=partition)


def unresolved(story: Story) -> None:
    story.send_and_store(2)
    story.send()


def resolved_twice(story: Story) -> None:
    story.acknowledge(story.send_and_store(2)[0], 0)


def out_of_order(story: Story) -> None:
    first, second = story.send(), story.send()
    story.acknowledge(first, 1)
    story.acknowledge(second, 0)
    story.store(value(second), value(first))


def resolutions_out_of_order(story: Story) -> None:
    first, second = story.send(), story.send()
    story.acknowledge(second, 1)
    story.acknowledge(first, 0)
    story.store(value(first), value(second))


def failures_out_of_order(story: Story) -> None:
    """Failures resolve in order too."""
    story.promises = replace(BEST, delivers=False)
    first, second = story.send(), story.send()
    story.acknowledge(second, 0)
    story.fail(first, surely_not_stored())
    story.store(value(second))


def lost(story: Story) -> None:
    first, second = story.send(), story.send()
    story.acknowledge(first, 0)
    story.acknowledge(second, 1)
    story.store(value(first))


def duplicate(story: Story) -> None:
    sent = story.send()
    story.acknowledge(sent, 0)
    story.store(value(sent), value(sent))


def duplicate_in_another_partition(story: Story) -> None:
    sent = story.send(partition=None)
    story.acknowledge(sent, 0)
    story.store(value(sent))
    story.store(value(sent), partition=1)


def duplicate_of_what_was_given_up(story: Story) -> None:
    story.promises = replace(BEST, delivers=False)
    sent = story.send()
    story.fail(sent, perhaps_stored())
    story.store(value(sent), value(sent))


def wrong_offset(story: Story) -> None:
    first, second = story.send(), story.send()
    story.acknowledge(first, 0)
    story.acknowledge(second, 7)
    story.store(value(first), value(second))


def false_alarm(story: Story) -> None:
    story.promises = replace(BEST, delivers=False)
    sent = story.send()
    story.fail(sent, surely_not_stored())
    story.store(value(sent))


def false_alarm_of_another_kind(story: Story) -> None:
    """An error that says nothing about storing says that nothing was stored."""
    story.promises = replace(BEST, delivers=False)
    sent = story.send()
    story.fail(sent, TopicError("unknown", code=3, topic=TOPIC, partition=0))
    story.store(value(sent))


def misplaced(story: Story) -> None:
    sent = story.send(partition=0)
    story.acknowledge(sent, 0, partition=1)
    story.store(value(sent), partition=1)


def foreign(story: Story) -> None:
    story.store(b"who is this")


def given_up(story: Story) -> None:
    story.fail(story.send(), surely_not_stored())


def buffer(story: Story) -> None:
    story.send_and_store(1)
    story.buffered = 40


def flush(story: Story) -> None:
    story.history.flushes_requested = 2
    story.history.flushes_done = 1


CASES: list[tuple[Callable[[Story], None], set[str]]] = [
    (unresolved, {"unresolved"}),
    (resolved_twice, {"resolved twice"}),
    (out_of_order, {"order"}),
    (resolutions_out_of_order, {"resolution order"}),
    (failures_out_of_order, {"resolution order"}),
    (lost, {"lost", "offset"}),
    (duplicate, {"duplicate"}),
    (duplicate_in_another_partition, {"duplicate"}),
    (duplicate_of_what_was_given_up, {"duplicate"}),
    (wrong_offset, {"offset"}),
    (false_alarm, {"false alarm"}),
    (false_alarm_of_another_kind, {"false alarm"}),
    (misplaced, {"misplaced"}),
    (foreign, {"foreign"}),
    (given_up, {"given up"}),
    (buffer, {"buffer"}),
    (flush, {"flush"}),
]


@pytest.mark.parametrize(("build", "kinds"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_anomalies_are_found(build: Callable[[Story], None], kinds: set[str]) -> None:
    story = Story()
    build(story)
    assert story.kinds() == kinds


def nothing(story: Story) -> None:
    pass


def all_well(story: Story) -> None:
    story.send_and_store(5)


def given_up_and_stored(story: Story) -> None:
    """It failed as possibly stored, and is stored."""
    story.promises = replace(BEST, delivers=False)
    sent = story.send()
    story.fail(sent, perhaps_stored())
    story.store(value(sent))


def partitioned_in_different_ways(story: Story) -> None:
    """Such records may overtake each other."""
    unkeyed, explicit = story.send(partition=None), story.send(partition=0)
    story.acknowledge(explicit, 0)
    story.acknowledge(unkeyed, 1)
    story.store(value(explicit), value(unkeyed))


def two_topics_of_one_name(story: Story) -> None:
    """A record in a deleted topic and in its successor was stored once in each."""
    sent = story.send()
    story.acknowledge(sent, 0)
    story.store(value(sent))
    story.store(value(sent), id=SECOND_ID)


def repeated_without_idempotence(story: Story) -> None:
    story.promises = replace(BEST, is_idempotent=False)
    first, second = story.send(), story.send()
    story.acknowledge(first, 2)
    story.acknowledge(second, 1)
    story.store(value(first), value(second), value(first))


def lost_with_its_leader(story: Story) -> None:
    story.promises = replace(BEST, is_idempotent=False, acks=1)
    sent = story.send()
    story.acknowledge(sent, 0)
    story.history.truncated[sent.id] += 1
    story.store()


def sent_with_acks_0(story: Story) -> None:
    story.promises = replace(BEST, is_idempotent=False, acks=0)
    story.acknowledge(story.send(), -1)
    story.store()


@pytest.mark.parametrize(
    "build",
    [
        nothing, all_well, given_up_and_stored, partitioned_in_different_ways, two_topics_of_one_name,
        repeated_without_idempotence, lost_with_its_leader, sent_with_acks_0,
    ],
    ids=lambda case: case.__name__,
)  # fmt: skip
def test_what_was_not_promised_is_no_anomaly(build: Callable[[Story], None]) -> None:
    story = Story()
    build(story)
    assert story.kinds() == set()


def test_acks_1_may_lose_only_records_that_were_lost_with_a_leader() -> None:
    story = Story()
    lost_with_its_leader(story)
    story.history.truncated.clear()
    assert story.kinds() == {"lost", "offset"}
