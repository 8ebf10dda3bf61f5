"""The partitions of a topic, asked for on virtual time."""

from __future__ import annotations

import pytest

from kwire.cluster import Snapshot
from kwire.consumer.offsets import FoundOffset, OffsetsQuery, PartitionsQuery
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    ClosedError,
    ConnectError,
    ErrorCode,
    RequestTimeoutError,
    TopicError,
)
from kwire.protocol.messages.list_offsets import LATEST
from tests.cluster.snapshots import metadata
from tests.consumer.world import FakeView, World

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def known_at(at: float, **options: object) -> Snapshot:
    return Snapshot().updated(metadata(**options), at)  # type: ignore[arg-type]


def query(timeout: float = 30.0) -> PartitionsQuery:
    return PartitionsQuery("t", timeout=timeout, unknown_topic_timeout_ms=5_000)


def test_only_metadata_newer_than_the_question_counts() -> None:
    asked, view = query(), FakeView(known_at(9.0, topics={"t": [(1, 0)]}))
    assert asked.turn(10.0, view) == []
    assert (asked.topics(), len(view.refreshes)) == (("t",), 1)
    assert not asked.future.done()
    view.snapshot = known_at(10.5, topics={"t": [(1, 0), (-1, 0), (2, 0)]})
    asked.turn(10.5, view)
    assert (asked.future.result(0), asked.topics(), asked.deadline()) == (3, (), None)


@pytest.mark.parametrize(
    ("code", "timeout", "seconds", "cls"),
    [
        (UNKNOWN, 30.0, 5.0, TopicError),
        (UNKNOWN, 2.0, 2.0, TopicError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 30.0, 0.5, AuthorizationError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, 30.0, 0.5, TopicError),
        (ErrorCode.LEADER_NOT_AVAILABLE, 7.0, 7.0, RequestTimeoutError),
    ],
)
def test_a_topic_that_is_not_to_be_had(code: ErrorCode, timeout: float, seconds: float, cls: type[Exception]) -> None:
    asked, view = query(timeout), FakeView()
    now = 10.0
    asked.turn(now, view)
    view.snapshot = known_at(10.2, errors={"t": code})
    while not asked.future.done():
        now += 0.5
        asked.turn(now, view)
    assert now == 10.0 + seconds
    assert isinstance(asked.future.exception(0), cls)


def test_no_metadata_at_all() -> None:
    asked, view = query(3.0), FakeView(connection_error=ConnectError("refused"))
    asked.turn(10.0, view)
    assert asked.deadline() == 13.0
    asked.turn(13.0, view)
    error = asked.future.exception(0)
    assert isinstance(error, RequestTimeoutError)
    assert error.__cause__ is view.connection_error


def test_no_hope() -> None:
    asked = query()
    asked.turn(10.0, FakeView(connection_error=AuthenticationError("no"), has_fatal_error=True))
    assert isinstance(asked.future.exception(0), AuthenticationError)


def test_the_end() -> None:
    asked = query()
    asked.closed(ClosedError("over"))
    asked.closed(ClosedError("over again"))
    assert isinstance(asked.future.exception(0), ClosedError)


def test_offsets_of_many_are_all_or_the_first_error() -> None:
    world = World()
    whole = OffsetsQuery(world.lookup, {("t", 0): LATEST, ("t", 2): LATEST}, 10.0)
    first, second = world.turn()
    first.answer_offsets({("t", 0): 4})
    assert not whole.future.done()
    second.answer_offsets({("t", 2): 6})
    assert whole.future.result(0) == {("t", 0): FoundOffset(4), ("t", 2): FoundOffset(6)}
    failed = OffsetsQuery(world.lookup, {("t", 0): LATEST, ("t", 2): LATEST}, 10.0)
    first, second = world.turn()
    first.answer_offsets({}, codes={("t", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    second.answer_offsets({("t", 2): 6})
    assert isinstance(failed.future.exception(0), AuthorizationError)
    assert OffsetsQuery(world.lookup, {}, 10.0).future.result(0) == {}
