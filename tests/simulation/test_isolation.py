"""The checker finds every kind of anomaly of transactions in histories that were made to contain it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from kwire.errors import DeliveryError
from kwire.producer.futures import RecordMetadata
from kwire.simulation.checker import anomalies_of_transactions
from kwire.simulation.history import History, LogCopy, ReadCopy, RecordId, Resolution, Sent, SentTransaction

TOPIC = "t"


class Story:
    def __init__(self) -> None:
        self.history = History()

    def transaction(self, count: int = 3, *, is_acknowledged: bool = True) -> SentTransaction:
        made = SentTransaction("p", len(self.history.transactions))
        for _ in range(count):
            sent = Sent(RecordId("p", TOPIC, len(self.history.sent)), 0.0, 0, None)
            self.history.add_sent(sent)
            made.records.append(sent.id)
            metadata = RecordMetadata(TOPIC, 0, sent.id.number, 0) if is_acknowledged else None
            error = None if is_acknowledged else DeliveryError("too late", possibly_persisted=False)
            sent.resolutions.append(Resolution(0, 0.0, metadata, error))
        self.history.transactions.append(made)
        return made

    def commit(self, one: SentTransaction) -> SentTransaction:
        one.is_commit_requested = one.is_committed = True
        return one

    def read(self, *records: RecordId, reader: str = "r") -> None:
        values = tuple((offset, id.value(20)) for offset, id in enumerate(records))
        self.history.reads.append(ReadCopy(reader, TOPIC, 0, values))

    def kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in anomalies_of_transactions(self.history)}


def torn(story: Story) -> None:
    story.read(*story.commit(story.transaction()).records[:2])


def torn_although_its_end_is_unknown(story: Story) -> None:
    one = story.transaction()
    one.is_commit_requested = True
    story.read(*one.records[1:])


def torn_for_one_of_two_readers(story: Story) -> None:
    one = story.commit(story.transaction())
    story.read(*one.records)
    story.read(*one.records[:1], reader="other")


def hidden(story: Story) -> None:
    story.commit(story.transaction())
    story.read()


def seen_after_abort(story: Story) -> None:
    one = story.transaction()
    one.is_aborted = True
    story.read(*one.records)


def seen_though_it_was_never_to_be_committed(story: Story) -> None:
    story.read(*story.transaction().records)


def read_twice(story: Story) -> None:
    one = story.commit(story.transaction(2))
    story.read(*one.records, one.records[0])


def read_backwards(story: Story) -> None:
    first, second = story.commit(story.transaction(2)).records
    story.history.reads.append(ReadCopy("r", TOPIC, 0, ((1, second.value(20)), (0, first.value(20)))))


def half_acked(story: Story) -> None:
    story.read(*story.commit(story.transaction(is_acknowledged=False)).records)


def both(story: Story) -> None:
    one = story.commit(story.transaction(0))
    one.is_aborted = True


def left_open(story: Story) -> None:
    story.history.logs.append(LogCopy(TOPIC, UUID(int=1), 0, (), open_from=3))


CASES: list[tuple[Callable[[Story], None], set[str]]] = [
    (torn, {"torn"}),
    (torn_although_its_end_is_unknown, {"torn"}),
    (torn_for_one_of_two_readers, {"torn"}),
    (hidden, {"hidden"}),
    (seen_after_abort, {"seen"}),
    (seen_though_it_was_never_to_be_committed, {"seen"}),
    (read_twice, {"read twice"}),
    (read_backwards, {"read twice"}),
    (half_acked, {"half acked"}),
    (both, {"both"}),
    (left_open, {"left open"}),
]


@pytest.mark.parametrize(("build", "kinds"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_anomalies_are_found(build: Callable[[Story], None], kinds: set[str]) -> None:
    story = Story()
    build(story)
    assert story.kinds() == kinds


def committed_and_read(story: Story) -> None:
    story.read(*story.commit(story.transaction()).records)


def aborted_and_not_read(story: Story) -> None:
    story.transaction().is_aborted = True
    story.read()


def commit_requested_without_a_response(story: Story) -> None:
    """The EndTxn request never got a response."""
    for is_read in (True, False):
        one = story.transaction()
        one.is_commit_requested = True
        story.read(*one.records if is_read else ())


@pytest.mark.parametrize(
    "build",
    [committed_and_read, aborted_and_not_read, commit_requested_without_a_response],
    ids=lambda case: case.__name__,
)
def test_what_was_not_promised_is_no_anomaly(build: Callable[[Story], None]) -> None:
    story = Story()
    build(story)
    assert story.kinds() == set()
