"""The checker of queues finds what it says, in histories that are written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kwire.consumer import ConsumerRecord
from kwire.queue.envelope import Envelope
from kwire.queue.markers import Identity, Marker, MarkerType, encode_marker
from kwire.simulation.queue_checker import QueueChecker, QueuePromises
from kwire.simulation.queue_history import Behaviour, QueueHistory

START, END, KEEP_ALIVE, RELEASE, _ = MarkerType
TOPIC_ID = UUID(int=1)


class World:
    """A history with one message, `m` at offset 0 of partition 0, that is sent, marked, and handed out to `c.0`."""

    def __init__(self, **promises: Any) -> None:
        self.history = QueueHistory()
        given = {"is_transactional": False, "timeout_ms": 1_000, "max_processing_ms": 9_000, "max_deliveries": 2}
        self.promises = QueuePromises(**{**given, **promises})
        self.history.sending(0.0, "p.0", "m", Behaviour(), 5)
        self.history.sent["m"].is_stored = True
        self.markers = 0
        self.record("messages", b"m....", 0, 0.1, Envelope("m").headers())
        self.mark(START, 0, 0.2, after=1_000)
        self.commit(1, 0.3)
        self.history.add(0.4, "handed", "c.0", "m", (0, 0), 1)

    def record(self, topic: str, value: bytes, offset: int, at: float, headers: Any = ()) -> None:
        self.history.records.append(ConsumerRecord(topic, 0, offset, round(at * 1000), 1, None, value, headers))

    def mark(self, kind: MarkerType, number: int, at: float, *, after: int = 0, is_tracker: bool = False) -> None:
        marker = Marker(kind, Identity(TOPIC_ID, 0, number), after)
        if is_tracker:
            self.history.by_tracker.add((0, self.markers))
        self.record("markers", encode_marker(marker), self.markers, at)
        self.markers += 1

    def commit(self, offset: int, at: float) -> None:
        self.history.commits[0].append((at, offset))

    def again(self, at: float, *, kind: str = "acked") -> None:
        """Redeliver the message at a time, as offset 1, and hand it out to another consumer."""
        self.record("messages", b"m....", 1, at, Envelope("m", first_at=100, deliveries=1).headers())
        self.mark(END, 0, at, is_tracker=True)
        self.mark(START, 1, at + 0.1, after=1_000)
        self.commit(2, at + 0.2)
        self.history.add(at + 0.3, "handed", "c.1", "m", (0, 1), 2)
        self.history.add(at + 0.4, kind, "c.1", "m", (0, 1), 2)

    def kinds(self) -> set[str]:
        return {one.kind for one in QueueChecker(self.history, self.promises).anomalies()}


def test_a_message_that_is_acknowledged_is_no_anomaly() -> None:
    world = World()
    world.history.add(0.5, "acked", "c.0", "m", (0, 0), 1)
    assert world.kinds() == set()


def test_a_message_that_nobody_acknowledged_is_lost() -> None:
    assert World().kinds() == {"lost"}


@pytest.mark.parametrize(("kind", "at"), [("killed", 0.5), ("ended", 0.5), ("released", 0.5)])
def test_a_duplicate_after_a_crash_or_a_release_is_counted(kind: str, at: float) -> None:
    world = World(is_gentle=True)
    world.history.add(at, kind, "c.0", "m" if kind == "released" else "", (0, 0), 1)
    world.again(2.0)
    checker = QueueChecker(world.history, world.promises)
    assert checker.anomalies() == []
    assert checker.causes == {"release" if kind == "released" else "crash": 1}


def test_a_duplicate_without_a_cause_is_found() -> None:
    world = World(is_gentle=True)
    world.again(2.0)
    assert world.kinds() == {"duplicate"}


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_duplicate_after_a_start_without_a_commit_is_no_anomaly_at_least_once(is_transactional: bool) -> None:
    """A consumer dies between START and commit. The next one reads the record again, after its redelivery."""
    world = World(is_gentle=True, is_transactional=is_transactional)
    world.history.events[:] = [one for one in world.history.events if one.kind != "handed"]
    world.again(1.25)
    world.mark(START, 0, 1.27, after=1_000)
    world.history.add(1.3, "handed", "c.2", "m", (0, 0), 1)
    world.history.add(1.4, "acked", "c.2", "m", (0, 0), 1)
    world.mark(END, 0, 1.41)
    world.history.events.sort(key=lambda one: one.at)
    assert ("duplicate" in world.kinds()) is is_transactional


@pytest.mark.parametrize("is_transactional", [True, False])
def test_two_redeliveries_of_a_record_explain_two_copies_at_least_once(is_transactional: bool) -> None:
    """A consumer died between START and commit; the next one read the record again, and its lease ended, too."""
    world = World(is_transactional=is_transactional, is_gentle=True, max_deliveries=5)
    world.history.events.clear()
    for copy, at in ((1, 2.0), (2, 4.0)):
        if copy == 2:
            world.mark(START, 0, at - 1.5, after=1_000)
        world.record("messages", b"m....", copy, at, Envelope("m", first_at=100, deliveries=1).headers())
        world.mark(END, 0, at, is_tracker=True)
    world.commit(3, 4.0)
    for copy, at in ((1, 5.0), (2, 6.0)):
        world.mark(START, copy, at - 0.5, after=1_000)
        world.history.add(at, "handed", f"c.{copy}", "m", (0, copy), 2)
        world.history.add(at + 0.1, "acked", f"c.{copy}", "m", (0, copy), 2)
    assert world.kinds() == ({"duplicate"} if is_transactional else set())


@pytest.mark.parametrize(("second_start", "is_transactional", "is_found"), [
    (1.3, False, False), (1.1, False, True), (1.3, True, True),
])  # fmt: skip
def test_a_second_start_after_the_lease_explains_a_duplicate_at_least_once(
    second_start: float, is_transactional: bool, is_found: bool
) -> None:
    """A consumer dies between START and commit. The next one reads the record again while a tracker redelivers it."""
    world = World(is_gentle=True, is_transactional=is_transactional)
    world.history.events[:] = [one for one in world.history.events if one.kind != "handed"]
    world.mark(START, 0, second_start, after=1_000)
    world.history.add(1.35, "handed", "c.0", "m", (0, 0), 1)
    world.again(1.4)
    assert ("duplicate" in world.kinds()) is is_found


def test_a_redelivery_before_the_deadline_is_found() -> None:
    world = World()
    world.again(1.0)
    assert "redelivered early" in world.kinds()


def test_a_redelivery_that_a_second_start_overtook_is_not_early() -> None:
    """The lease of the first START was over when the tracker decided; that of the second one it had not read."""
    world = World()
    world.mark(START, 0, 1.5, after=1_000)
    world.again(1.501)
    assert world.kinds() == set()


def test_a_redelivery_before_the_deadline_of_a_second_start_is_found() -> None:
    world = World()
    world.mark(START, 0, 0.5, after=1_000)
    world.again(1.3)
    assert "redelivered early" in world.kinds()


@pytest.mark.parametrize(("released_at", "is_found"), [(0.9, True), (1.5, False)])
def test_a_redelivery_that_a_late_release_overtook_is_not_early(released_at: float, is_found: bool) -> None:
    """The lease was over when the tracker decided; the RELEASE was on its way. One that it has read moves the time."""
    world = World()
    world.mark(RELEASE, 0, released_at, after=1_000)
    world.again(1.501)
    assert ("redelivered early" in world.kinds()) is is_found


def test_a_record_that_is_read_again_after_its_redelivery_is_explained() -> None:
    """Its consumer died between START and commit; another got the redelivered message first, and then the record."""
    world = World()
    world.history.events.clear()
    world.again(1.5)
    world.mark(START, 0, 2.0, after=1_000)
    world.history.add(2.1, "handed", "c.1", "m", (0, 0), 1)
    world.history.add(2.2, "acked", "c.1", "m", (0, 0), 1)
    assert world.kinds() == set()
    world.promises = replace(world.promises, is_transactional=True)
    assert "mode" in world.kinds()


def test_a_redelivery_after_the_end_is_found() -> None:
    world = World()
    world.history.add(0.5, "acked", "c.0", "m", (0, 0), 1)
    world.mark(END, 0, 0.6)
    world.again(2.0)
    assert "redelivered twice" in world.kinds()


def test_an_acknowledgement_after_the_redelivery_is_found() -> None:
    world = World()
    world.again(2.0)
    world.history.add(2.1, "acked", "c.0", "m", (0, 0), 1)
    assert "acked too late" in world.kinds()


def test_an_acknowledgement_of_a_second_lease_is_in_time() -> None:
    """The first consumer died without a commit: the record was redelivered, and read again by another consumer."""
    world = World()
    world.again(2.0)
    world.mark(START, 0, 2.5)
    world.history.add(2.6, "handed", "c.1", "m", (0, 0), 1)
    world.history.add(2.7, "acked", "c.1", "m", (0, 0), 1)
    world.mark(END, 0, 2.7)
    assert "acked too late" not in world.kinds()


def test_a_message_that_is_not_marked_or_not_committed_is_found() -> None:
    world = World()
    world.history.add(0.5, "acked", "c.0", "m", (0, 0), 1)
    world.history.commits.clear()
    assert world.kinds() == {"untracked"}
    world.commit(1, 0.3)
    world.history.records = [one for one in world.history.records if one.topic != "markers"]
    assert world.kinds() == {"untracked"}


def test_q62_a_transaction_excludes_a_message_that_was_redelivered_before_it_was_handed_out() -> None:
    for is_transactional in (False, True):
        world = World(is_transactional=is_transactional)
        world.mark(END, 0, 1.5, is_tracker=True)
        world.history.add(2.0, "handed", "c.1", "m", (0, 0), 1)
        world.history.add(2.1, "acked", "c.1", "m", (0, 0), 1)
        world.promises = QueuePromises(is_transactional, 1_000, 9_000, 2, rereads=not is_transactional)
        assert ("mode" in world.kinds()) == is_transactional


def test_q72_more_deliveries_than_allowed_are_found() -> None:
    world = World(max_deliveries=1)
    world.again(2.0)
    assert "delivered too often" in world.kinds()


def test_q60_a_message_that_its_producer_stored_twice_is_found() -> None:
    world = World()
    world.history.add(0.5, "acked", "c.0", "m", (0, 0), 1)
    world.record("messages", b"m....", 1, 0.2, Envelope("m", first_at=100).headers())  # a tracker's
    assert world.kinds() == set()
    world.record("messages", b"m....", 2, 0.2, Envelope("m").headers())
    assert world.kinds() == {"stored twice"}


def test_another_payload_is_found() -> None:
    world = World()
    world.history.add(0.5, "acked", "c.0", "m", (0, 0), 1)
    world.history.check("c.0", "m", b"other", (("n", b"m"),), 0.4)
    world.history.check("c.0", "n", b"other", (), 0.4)
    assert len(world.history.unexpected) == 2
    assert world.kinds() == {"unexpected"}
