"""CreateTopics and DeleteTopics on virtual time: routes, requests, retries and results."""

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
DISCONNECTED = DisconnectedError("gone")


def create(*topics: NewTopic, timeout: float = 30.0) -> CreateTopics:
    return CreateTopics({topic.name: topic for topic in topics}, timeout=timeout, **BACKOFF)  # type: ignore[arg-type]


def delete(*names: str, timeout: float = 30.0) -> DeleteTopics:
    return DeleteTopics({name: name for name in names}, timeout=timeout, **BACKOFF)  # type: ignore[arg-type]


def created(codes: Mapping[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.Topic(
                name=name, error_code=code, topic_id=ID, num_partitions=3, replication_factor=2,
                error_message="message of the broker" if code else None,
            )
            for name, code in codes.items()
        ]
    )  # fmt: skip


def deleted(codes: Mapping[str, int]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[DeleteTopicsResponse.Topic(name=name, error_code=code) for name, code in codes.items()]
    )


class Driver:
    """Drive an operation; every request and response is encoded and decoded in `version`."""

    def __init__(self, operation: Operation[Any, Any], version: int) -> None:
        self.operation = operation
        self.version = version
        self.now = 100.0
        self.route: type[ToController | ToAny] = ToController
        self.view = FakeView(snapshot({}))

    def send(self, seconds: float = 0.0) -> Any:
        """Return the request that is due now, or None."""
        self.now += seconds
        calls = self.operation.turn(self.now, self.view)
        if not calls:
            return None
        (self.call,) = calls
        assert isinstance(self.call.route, self.route)
        request = self.call.build(self.version)
        return type(request).decode(request.encode(self.version), self.version)

    def respond(self, result: Response | KwireError) -> None:
        if isinstance(result, Response):
            result = type(result).decode(result.encode(self.version), self.version)
        self.call.on_done(result, self.now)

    @property
    def results(self) -> dict[str, Any]:
        return dict(self.operation.future.result(0))


@pytest.mark.parametrize("version", range(8))
def test_create_in_every_version(version: int) -> None:
    driver = Driver(
        create(
            NewTopic("a", 3, 2, {"cleanup.policy": "compact", "retention.ms": None}),
            NewTopic("b", assignments={0: [1, 2], 1: [2, 1]}),
        ),
        version,
    )
    request = driver.send()
    first, second = request.topics
    assert (first.name, first.num_partitions, first.replication_factor) == ("a", 3, 2)
    assert [(one.name, one.value) for one in first.configs] == [("cleanup.policy", "compact"), ("retention.ms", None)]
    assert [(one.partition_index, one.broker_ids) for one in second.assignments] == [(0, [1, 2]), (1, [2, 1])]
    assert (request.timeout_ms, request.validate_only) == (29_000, False)
    driver.respond(created({"b": 0, "a": 0}))
    expected = CreatedTopic("a", ID if version >= 7 else None, 3 if version >= 5 else -1, 2 if version >= 5 else -1)
    assert list(driver.results) == ["a", "b"]
    assert driver.results["a"] == expected
    assert (driver.send(), driver.operation.deadline()) == (None, None)


@pytest.mark.parametrize("version", range(7))
def test_delete_in_every_version(version: int) -> None:
    driver = Driver(delete("a", "b"), version)
    request = driver.send()
    assert [topic.name for topic in request.topics] == (["a", "b"] if version >= 6 else [])
    assert request.topic_names == ([] if version >= 6 else ["a", "b"])
    driver.respond(deleted({"a": 0, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
    assert driver.results["a"] is None
    assert isinstance(driver.results["b"], TopicError)


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
    driver = Driver(create(NewTopic("a"), NewTopic("b")), 7)
    driver.send()
    driver.respond(created({"a": code, "b": 0}))
    error = driver.results["a"]
    assert isinstance(error, BrokerError)
    assert type(error) is cls
    assert (error.code, error.where["topic"], "message of the broker" in str(error)) == (code, "a", True)
    assert isinstance(driver.results["b"], CreatedTopic)


RETRIED = [
    created({"a": ErrorCode.NOT_CONTROLLER}),
    created({"a": ErrorCode.THROTTLING_QUOTA_EXCEEDED}),
    created({}),
    DISCONNECTED,
    RequestTimeoutError("silent"),
]


@pytest.mark.parametrize("response", RETRIED, ids=range(len(RETRIED)))
def test_a_retriable_error_repeats_the_request_for_the_resources_without_a_result(
    response: Response | KwireError,
) -> None:
    driver = Driver(create(NewTopic("a"), NewTopic("b")), 7)
    driver.send()
    if isinstance(response, CreateTopicsResponse):
        response = created({topic.name: topic.error_code for topic in response.topics} | {"b": 0})
    driver.respond(response)
    assert driver.send() is None
    assert len(driver.view.refreshes) == 1, "the controller may have moved"
    deadline = driver.operation.deadline()
    assert deadline is not None
    request = driver.send(deadline - driver.now)
    expected = ["a"] if isinstance(response, CreateTopicsResponse) else ["a", "b"]
    assert [topic.name for topic in request.topics] == expected
    assert request.timeout_ms < 29_000
    driver.respond(created(dict.fromkeys(expected, 0)))
    assert list(driver.results) == ["a", "b"]


@pytest.mark.parametrize(
    "first_result", [DISCONNECTED, created({"a": ErrorCode.REQUEST_TIMED_OUT})], ids=["lost", "slow"]
)
def test_an_existing_topic_may_come_from_an_attempt_without_a_response(first_result: Response | KwireError) -> None:
    driver = Driver(create(NewTopic("a")), 7)
    driver.send()
    driver.respond(first_result)
    driver.send(1.0)
    driver.respond(created({"a": ErrorCode.TOPIC_ALREADY_EXISTS}))
    assert "an earlier attempt" in str(driver.results["a"])


def test_a_topic_deleted_by_an_attempt_without_a_response_counts_as_deleted() -> None:
    driver = Driver(delete("a"), 6)
    driver.send()
    driver.respond(DISCONNECTED)
    driver.send(1.0)
    driver.respond(deleted({"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
    assert driver.results == {"a": None}


@pytest.mark.parametrize(
    "error", [AuthenticationError("no"), UnsupportedVersionError("no"), ClosedError("over"), EncodeError("no")]
)
def test_an_error_that_is_not_retriable_fails_at_once(error: KwireError) -> None:
    driver = Driver(create(NewTopic("a")), 7)
    driver.send()
    driver.respond(error)
    assert driver.operation.future.exception(0) is error


def test_a_timeout_names_the_last_error() -> None:
    driver = Driver(create(NewTopic("a"), timeout=3.0), 7)
    while not driver.operation.future.done():
        if driver.send():
            driver.respond(created({"a": ErrorCode.NOT_CONTROLLER}))
        deadline = driver.operation.deadline()
        driver.now = driver.now + 0.1 if deadline is None else deadline
    assert driver.now <= 103.2
    error = driver.operation.future.exception(0)
    assert isinstance(error, RequestTimeoutError)
    assert "NOT_CONTROLLER" in str(error)
    assert "for a;" in str(error)


def test_a_resource_that_gets_no_result_in_time_hides_no_other() -> None:
    driver = Driver(create(NewTopic("slow"), NewTopic("a"), NewTopic("b b"), NewTopic("late"), timeout=3.0), 7)
    driver.send()
    codes = {"slow": ErrorCode.THROTTLING_QUOTA_EXCEEDED, "late": ErrorCode.REQUEST_TIMED_OUT}
    driver.respond(created(codes | {"a": 0, "b b": ErrorCode.INVALID_TOPIC_EXCEPTION}))
    driver.send(3.0)
    results = driver.results
    assert list(results) == ["slow", "a", "b b", "late"]
    assert (results["a"].partitions, results["b b"].code) == (3, ErrorCode.INVALID_TOPIC_EXCEPTION)
    for name, code in codes.items():
        assert isinstance(results[name], RequestTimeoutError)
        assert f"for {name};" in str(results[name])
        assert results[name].__cause__.code == code


def test_a_lost_right_to_connect_hides_no_result() -> None:
    driver = Driver(create(NewTopic("slow"), NewTopic("a")), 7)
    driver.send()
    driver.respond(created({"slow": ErrorCode.THROTTLING_QUOTA_EXCEEDED, "a": 0}))
    driver.view.connection_error, driver.view.has_fatal_error = AuthenticationError("no"), True
    driver.send(2.0)
    assert driver.results["a"].name == "a"
    assert driver.results["slow"] is driver.view.connection_error


@pytest.mark.parametrize(("timeout", "request_timeout_ms"), [(60.0, 59_000), (2.0, 1_500), (0.01, 8)])
def test_the_timeout_of_the_request_is_shorter_than_the_callers(timeout: float, request_timeout_ms: int) -> None:
    driver = Driver(create(NewTopic("a"), timeout=timeout), 7)
    assert driver.send().timeout_ms == request_timeout_ms
    assert driver.call.timeout_ms == int(timeout * 1000)


def test_a_timeout_without_a_response_has_the_connection_error_as_cause() -> None:
    driver = Driver(create(NewTopic("a"), timeout=3.0), 7)
    driver.view.connection_error = ConnectError("refused")
    driver.send()
    driver.send(3.0)
    error = driver.operation.future.exception(0)
    assert isinstance(error, RequestTimeoutError)
    assert error.__cause__ is driver.view.connection_error
    driver.respond(DISCONNECTED)


def test_requests_wait_for_the_first_metadata() -> None:
    driver = Driver(create(NewTopic("a"), timeout=3.0), 7)
    driver.view.snapshot = Snapshot()
    assert (driver.send(), driver.operation.deadline()) == (None, 103.0)
    driver.view.snapshot = snapshot({})
    assert driver.send() is not None


def test_without_a_known_controller_any_broker_gets_the_request() -> None:
    driver = Driver(create(NewTopic("a")), 7)
    driver.view.snapshot = snapshot({}, controller_id=-1)
    driver.route = ToAny
    assert driver.send() is not None
    driver.respond(UnsupportedVersionError("older than CreateTopics"))
    assert isinstance(driver.operation.future.exception(0), UnsupportedVersionError)


def test_a_fatal_connection_error_fails_at_once() -> None:
    driver = Driver(create(NewTopic("a")), 7)
    driver.view.connection_error, driver.view.has_fatal_error = AuthenticationError("no"), True
    assert driver.send() is None
    assert driver.operation.future.exception(0) is driver.view.connection_error


def test_a_closed_client_fails_its_operations() -> None:
    driver = Driver(create(NewTopic("a")), 7)
    driver.operation.closed(ClosedError("over"))
    assert isinstance(driver.operation.future.exception(0), ClosedError)
    assert driver.send() is None


def test_an_operation_without_resources_is_done_at_once() -> None:
    driver = Driver(create(), 7)
    assert (driver.results, driver.send(), driver.operation.topics()) == ({}, None, ())


@pytest.mark.parametrize(("version", "is_possible"), [(0, False), (3, False), (4, True), (7, True)])
def test_default_numbers_need_create_topics_v4(version: int, is_possible: bool) -> None:
    driver = Driver(create(NewTopic("a")), version)
    if is_possible:
        assert driver.send().topics[0].num_partitions == -1
    else:
        with pytest.raises(UnsupportedVersionError):
            driver.send()


def test_validate_only_before_v1_raises_and_creates_nothing() -> None:
    operation = create(NewTopic("a", 1, 1))
    operation.validate_only = True
    with pytest.raises(UnsupportedVersionError):
        Driver(operation, 0).send()
    assert Driver(operation, 1).operation.build_request({"t": NewTopic("a", 1, 1)}, 1_000, 1).encode(1)


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
def test_an_invalid_new_topic_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        NewTopic(**wrong)
