"""When metadata is asked for: a state machine on virtual time."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from random import Random

import pytest

from kwire.cluster import Broker, CurrentLeader
from kwire.cluster.metadata import STEP, MetadataStatus, MetadataUpdater
from kwire.errors import DisconnectedError, ErrorCode
from kwire.net.backoff import Backoff
from tests.cluster.snapshots import metadata

MAX_AGE = 300.0


def updater() -> MetadataUpdater:
    return MetadataUpdater(max_age_ms=300_000, backoff=Backoff(100, 1_000), random=Random(1))


def settled(topics: dict[str, list[tuple[int, int]]]) -> MetadataUpdater:
    one = updater()
    one.set_topics(topics.keys())
    one.start()
    is_taken = one.handle_response(metadata(topics), 10.0)
    while not is_taken:
        is_taken = one.continue_update()
    return one


def test_the_first_request_is_due_at_once_and_only_one_is_in_flight() -> None:
    one = updater()
    assert one.due_at == 0.0
    one.start()
    assert one.due_at == inf


def test_then_only_age_makes_it_due() -> None:
    one = settled({"t": [(1, 0)]})
    assert one.due_at == 10.0 + MAX_AGE


def test_a_new_topic_is_asked_for_at_once() -> None:
    one = settled({"t": [(1, 0)]})
    one.set_topics({"t", "new"})
    assert one.due_at <= 10.0
    one.start()
    assert [topic.name for topic in one.request(12).topics or ()] == ["new", "t"]


def test_a_topic_wanted_while_a_request_is_in_flight_is_asked_for_next() -> None:
    one = updater()
    one.set_topics({"a"})
    one.start()
    one.set_topics({"a", "b"})
    one.handle_response(metadata({"a": [(1, 0)]}), 5.0)
    assert one.due_at <= 5.0


@pytest.mark.parametrize(
    ("answer", "is_settled"),
    [
        (metadata({"t": [(1, 0), (2, 0)]}), True),
        (metadata({"t": [(1, 0), (-1, 0)]}), False),
        (metadata(errors={"t": ErrorCode.LEADER_NOT_AVAILABLE}), False),
        (metadata(errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), False),
        (metadata(errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}), True),
        (metadata({"other": [(1, 0)]}), False),
    ],
)
def test_unsettled_topics_are_asked_for_again_with_back_off(answer: object, is_settled: bool) -> None:
    one = updater()
    one.set_topics({"t"})
    one.start()
    one.handle_response(answer, 5.0)  # type: ignore[arg-type]
    assert one.due_at > 5.0
    assert (one.due_at <= 5.2) is not is_settled


def test_back_off_grows_with_failures_and_ends_with_success() -> None:
    one = updater()
    one.set_topics({"t"})
    now, pauses = 0.0, []
    for _ in range(8):
        one.start()
        one.failed(now)
        pauses.append(one.due_at - now)
        now = one.due_at
    assert all(later > earlier for earlier, later in pairwise(pauses[:4]))
    assert max(pauses) <= 1.2
    one.start()
    one.handle_response(metadata({"t": [(1, 0)]}), now)
    one.request_refresh("a test")
    assert one.due_at <= now + 0.1


def test_versions_differ_in_what_they_can_ask() -> None:
    one = settled({"t": [(1, 0)]})
    one.start()
    assert one.request(12).allow_auto_topic_creation is False
    assert one.request(0).topics == one.request(12).topics


def test_status_tells_whom_is_asked_and_when_again() -> None:
    one = updater()
    assert one.status == MetadataStatus(None, 0.0, 0.0, "first", None)
    one.start(2, 5.0)
    assert one.status[:2] == (2, 5.0)
    lost = DisconnectedError("lost")
    one.failed(6.0, lost)
    status = one.status
    assert (status.asked_node, status.reason, status.last_error) == (None, "the last request failed", lost)
    assert 6.0 < status.next_at < 6.2


def test_an_answer_that_takes_several_steps_is_seen_at_its_end_and_hints_given_meanwhile_are_kept() -> None:
    count = 3 * STEP
    one = settled({"t": [(1, 5)] * count})
    before = one.snapshot
    one.start()
    assert not one.handle_response(metadata({"t": [(2, 6)] * count}), 20.0)
    assert (one.snapshot, one.update_steps is not None, one.due_at) == (before, True, inf)
    topic = before.topics["t"]
    hints = [CurrentLeader("t", topic.id, 0, 3, 6), CurrentLeader("t", topic.id, 1, 4, 7)]
    assert one.update_leaders(hints, [Broker(4, "host-4", 9094)]) == {("t", 0), ("t", 1)}
    assert [one.snapshot.leader("t", index) for index in (0, 1, 2)] == [3, 4, 1]
    while not one.continue_update():
        assert one.snapshot.leader("t", count - 1) == 1
    # Of the same epoch is no news after the answer, of a newer one it is.
    assert [one.snapshot.leader("t", index) for index in (0, 1, 2)] == [2, 4, 2]
    assert (one.snapshot.brokers[4].host, one.snapshot.at, one.update_steps) == ("host-4", 20.0, None)
    one.start()
    assert not one.handle_response(metadata({"t": [(1, 8)] * count}), 30.0)
    while not one.continue_update():
        pass
    assert one.snapshot.leader("t", 1) == 1, "hints are for the answer that they met"


def names(one: MetadataUpdater, version: int = 12) -> tuple[list[str | None], bool]:
    """What the next request asks for, and whether it lets brokers create that."""
    one.start()
    request = one.request(version)
    return [topic.name for topic in request.topics or ()], request.allow_auto_topic_creation


def test_a_topic_that_may_be_created_is_asked_for_alone_until_it_was_seen() -> None:
    one = settled({"t": [(1, 0)]})
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    assert one.due_at == 0.0
    assert names(one) == (["new"], True)
    assert one.handle_response(metadata({"new": [(2, 0)]}), 20.0)
    assert (one.snapshot.leader("t", 0), one.snapshot.leader("new", 0)) == (1, 2)
    assert one.due_at == 10.0 + MAX_AGE, "the others are as old as before"
    one.allow_creation("new")
    one.request_refresh("a test")
    assert names(one) == (["new", "t"], False)
    one.handle_response(metadata({"t": [(1, 0)]}, errors={"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), 30.0)
    assert names(one) == (["new", "t"], False), "it was deleted: no refresh creates it again"


def test_a_topic_that_is_not_there_yet_is_asked_for_with_the_others_and_alone_by_turns() -> None:
    one = settled({"t": [(1, 0)]})
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    missing = {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    for _ in range(2):
        assert names(one) == (["new"], True)
        one.handle_response(metadata(errors=missing), 20.0)
        assert 20.0 < one.due_at < 21.5
        assert names(one) == (["new", "t"], False)
        one.handle_response(metadata({"t": [(1, 0)]}, errors=missing), 21.0)


def test_what_was_to_be_refreshed_anyway_follows_at_once() -> None:
    one = settled({"t": [(1, 0)]})
    one.request_refresh("a leader was lost")
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    assert names(one) == (["new"], True)
    one.handle_response(metadata({"new": [(2, 0)]}), 20.0)
    assert one.due_at == 20.0
    assert names(one) == (["new", "t"], False)


def test_a_failed_request_for_a_new_topic_is_made_again() -> None:
    one = updater()
    one.allow_creation("new")
    one.set_topics({"new", "t"})
    assert names(one) == (["new"], True)
    one.failed(5.0)
    assert 5.0 < one.due_at < 5.2
    assert names(one) == (["new"], True)
