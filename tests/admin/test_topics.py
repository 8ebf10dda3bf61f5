"""Creating and deleting topics on virtual time: whom, what, how often, and what is made of each answer."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kwire.admin.operation import Operation
from kwire.admin.topics import CreatedTopic, CreateTopics, DeleteTopics, NewTopic
from kwire.cluster import Backoff, Snapshot, ToAny, ToController
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    DisconnectedError,
    EncodeError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.protocol.messages.create_topics import CreateTopicsResponse
from kwire.protocol.messages.delete_topics import DeleteTopicsResponse
from kwire.protocol.schema import Response
from tests.cluster.snapshots import snapshot
from tests.consumer.world import FakeView

BACKOFF = {"backoff": Backoff(100, 1_000), "random": Random(5)}
ID = UUID(int=77)
DISAPPEARED = DisconnectedError("gone")


def create(*topics: NewTopic, timeout: float = 30.0) -> CreateTopics:
    return CreateTopics({topic.name: topic for topic in topics}, timeout=timeout, **BACKOFF)  # type: ignore[arg-type]


def delete(*names: str, timeout: float = 30.0) -> DeleteTopics:
    return DeleteTopics({name: name for name in names}, timeout=timeout, **BACKOFF)  # type: ignore[arg-type]


def created(codes: Mapping[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.Topic(
                name=name, error_code=code, topic_id=ID, num_partitions=3, replication_factor=2,
                error_message="said the broker" if code else None,
            )
            for name, code in codes.items()
        ]
    )  # fmt: skip


def deleted(codes: Mapping[str, int]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[DeleteTopicsResponse.Topic(name=name, error_code=code) for name, code in codes.items()]
    )


class Turns:
    """Drives an operation; every request and answer goes through the bytes of `version`."""

    def __init__(self, operation: Operation[Any, Any], version: int) -> None:
        self.operation = operation
        self.version = version
        self.now = 100.0
        self.route: type[ToController | ToAny] = ToController
        self.view = FakeView(snapshot({}))

    def ask(self, seconds: float = 0.0) -> Any:
        """The request that is due now; None if none is."""
        self.now += seconds
        calls = self.operation.turn(self.now, self.view)
        if not calls:
            return None
        (self.call,) = calls
        assert isinstance(self.call.route, self.route)
        request = self.call.build(self.version)
        return type(request).decode(request.encode(self.version), self.version)

    def answer(self, result: Response | KwireError) -> None:
        if isinstance(result, Response):
            result = type(result).decode(result.encode(self.version), self.version)
        self.call.on_done(result, self.now)

    @property
    def outcomes(self) -> dict[str, Any]:
        return dict(self.operation.future.result(0))


@pytest.mark.parametrize("version", range(8))
def test_create_in_every_version(version: int) -> None:
    turns = Turns(
        create(
            NewTopic("a", 3, 2, {"cleanup.policy": "compact", "retention.ms": None}),
            NewTopic("b", assignments={0: [1, 2], 1: [2, 1]}),
        ),
        version,
    )
    request = turns.ask()
    first, second = request.topics
    assert (first.name, first.num_partitions, first.replication_factor) == ("a", 3, 2)
    assert [(one.name, one.value) for one in first.configs] == [("cleanup.policy", "compact"), ("retention.ms", None)]
    assert [(one.partition_index, one.broker_ids) for one in second.assignments] == [(0, [1, 2]), (1, [2, 1])]
    assert (request.timeout_ms, request.validate_only) == (29_000, False)
    turns.answer(created({"b": 0, "a": 0}))
    told = CreatedTopic("a", ID if version >= 7 else None, 3 if version >= 5 else -1, 2 if version >= 5 else -1)
    assert list(turns.outcomes) == ["a", "b"]
    assert turns.outcomes["a"] == told
    assert (turns.ask(), turns.operation.deadline()) == (None, None)


@pytest.mark.parametrize("version", range(7))
def test_delete_in_every_version(version: int) -> None:
    turns = Turns(delete("a", "b"), version)
    request = turns.ask()
    assert [topic.name for topic in request.topics] == (["a", "b"] if version >= 6 else [])
    assert request.topic_names == ([] if version >= 6 else ["a", "b"])
    turns.answer(deleted({"a": 0, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
    assert turns.outcomes["a"] is None
    assert isinstance(turns.outcomes["b"], TopicError)


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, BrokerError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.POLICY_VIOLATION, BrokerError),
    ],
)
def test_each_topic_has_its_own_error(code: ErrorCode, cls: type[Exception]) -> None:
    turns = Turns(create(NewTopic("a"), NewTopic("b")), 7)
    turns.ask()
    turns.answer(created({"a": code, "b": 0}))
    error = turns.outcomes["a"]
    assert isinstance(error, BrokerError)
    assert type(error) is cls
    assert (error.code, error.where["topic"], "said the broker" in str(error)) == (code, "a", True)
    assert isinstance(turns.outcomes["b"], CreatedTopic)


PASSING = [
    created({"a": ErrorCode.NOT_CONTROLLER}),
    created({"a": ErrorCode.THROTTLING_QUOTA_EXCEEDED}),
    created({}),
    DISAPPEARED,
    RequestTimeoutError("silent"),
]


@pytest.mark.parametrize("answer", PASSING, ids=range(len(PASSING)))
def test_what_passes_is_asked_again_for_what_is_open(answer: Response | KwireError) -> None:
    turns = Turns(create(NewTopic("a"), NewTopic("b")), 7)
    turns.ask()
    if isinstance(answer, CreateTopicsResponse):
        answer = created({topic.name: topic.error_code for topic in answer.topics} | {"b": 0})
    turns.answer(answer)
    assert turns.ask() is None
    assert len(turns.view.refreshes) == 1, "the controller may be another by now"
    deadline = turns.operation.deadline()
    assert deadline is not None
    request = turns.ask(deadline - turns.now)
    expected = ["a"] if isinstance(answer, CreateTopicsResponse) else ["a", "b"]
    assert [topic.name for topic in request.topics] == expected
    assert request.timeout_ms < 29_000
    turns.answer(created(dict.fromkeys(expected, 0)))
    assert list(turns.outcomes) == ["a", "b"]


@pytest.mark.parametrize("doubt", [DISAPPEARED, created({"a": ErrorCode.REQUEST_TIMED_OUT})], ids=["lost", "slow"])
def test_a_topic_that_an_unanswered_attempt_may_have_created(doubt: Response | KwireError) -> None:
    turns = Turns(create(NewTopic("a")), 7)
    turns.ask()
    turns.answer(doubt)
    turns.ask(1.0)
    turns.answer(created({"a": ErrorCode.TOPIC_ALREADY_EXISTS}))
    assert "an earlier attempt" in str(turns.outcomes["a"])


def test_a_topic_that_an_unanswered_attempt_has_deleted_is_deleted() -> None:
    turns = Turns(delete("a"), 6)
    turns.ask()
    turns.answer(DISAPPEARED)
    turns.ask(1.0)
    turns.answer(deleted({"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
    assert turns.outcomes == {"a": None}


@pytest.mark.parametrize(
    "error", [AuthenticationError("no"), UnsupportedVersionError("no"), ClosedError("over"), EncodeError("no")]
)
def test_what_does_not_pass_fails_at_once(error: KwireError) -> None:
    turns = Turns(create(NewTopic("a")), 7)
    turns.ask()
    turns.answer(error)
    assert turns.operation.future.exception(0) is error


def test_it_ends_in_time_and_says_what_it_met() -> None:
    turns = Turns(create(NewTopic("a"), timeout=3.0), 7)
    while not turns.operation.future.done():
        if turns.ask():
            turns.answer(created({"a": ErrorCode.NOT_CONTROLLER}))
        deadline = turns.operation.deadline()
        turns.now = turns.now + 0.1 if deadline is None else deadline
    assert turns.now <= 103.2
    error = turns.operation.future.exception(0)
    assert isinstance(error, RequestTimeoutError)
    assert "NOT_CONTROLLER" in str(error)
    assert "for a;" in str(error)


@pytest.mark.parametrize(("timeout", "controllers_ms"), [(60.0, 59_000), (2.0, 1_500), (0.01, 8)])
def test_the_controller_has_less_time_than_the_caller(timeout: float, controllers_ms: int) -> None:
    turns = Turns(create(NewTopic("a"), timeout=timeout), 7)
    assert turns.ask().timeout_ms == controllers_ms
    assert turns.call.timeout_ms == int(timeout * 1000)


def test_no_answer_at_all() -> None:
    turns = Turns(create(NewTopic("a"), timeout=3.0), 7)
    turns.view.connection_error = ConnectError("refused")
    turns.ask()
    turns.ask(3.0)
    error = turns.operation.future.exception(0)
    assert isinstance(error, RequestTimeoutError)
    assert error.__cause__ is turns.view.connection_error
    turns.answer(DISAPPEARED)


def test_before_any_metadata_it_waits() -> None:
    turns = Turns(create(NewTopic("a"), timeout=3.0), 7)
    turns.view.snapshot = Snapshot()
    assert (turns.ask(), turns.operation.deadline()) == (None, 103.0)
    turns.view.snapshot = snapshot({})
    assert turns.ask() is not None


def test_without_a_known_controller_any_broker_is_asked() -> None:
    turns = Turns(create(NewTopic("a")), 7)
    turns.view.snapshot = snapshot({}, controller_id=-1)
    turns.route = ToAny
    assert turns.ask() is not None
    turns.answer(UnsupportedVersionError("older than CreateTopics"))
    assert isinstance(turns.operation.future.exception(0), UnsupportedVersionError)


def test_no_hope() -> None:
    turns = Turns(create(NewTopic("a")), 7)
    turns.view.connection_error, turns.view.has_fatal_error = AuthenticationError("no"), True
    assert turns.ask() is None
    assert turns.operation.future.exception(0) is turns.view.connection_error


def test_the_end() -> None:
    turns = Turns(create(NewTopic("a")), 7)
    turns.operation.closed(ClosedError("over"))
    assert isinstance(turns.operation.future.exception(0), ClosedError)
    assert turns.ask() is None


def test_nothing_to_do() -> None:
    turns = Turns(create(), 7)
    assert (turns.outcomes, turns.ask(), turns.operation.topics()) == ({}, None, ())


@pytest.mark.parametrize(("version", "is_possible"), [(0, False), (3, False), (4, True), (7, True)])
def test_the_brokers_defaults_are_newer_than_the_api(version: int, is_possible: bool) -> None:
    turns = Turns(create(NewTopic("a")), version)
    if is_possible:
        assert turns.ask().topics[0].num_partitions == -1
    else:
        with pytest.raises(UnsupportedVersionError):
            turns.ask()


def test_a_check_that_the_broker_cannot_do_must_not_create() -> None:
    operation = create(NewTopic("a", 1, 1))
    operation.validate_only = True
    with pytest.raises(UnsupportedVersionError):
        Turns(operation, 0).ask()
    assert Turns(operation, 1).operation.request([NewTopic("a", 1, 1)], 1_000, 1).encode(1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": None},
        {"name": "a", "partitions": 0},
        {"name": "a", "replication_factor": -2},
        {"name": "a", "partitions": 1, "assignments": {0: [1]}},
    ],
    ids=str,
)
def test_wrong_topics(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        NewTopic(**wrong)
