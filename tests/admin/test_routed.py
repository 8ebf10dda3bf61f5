"""`RoutedRequests` with a coordinator that moves, loads, hangs up or is silent: virtual time, no sockets."""

from __future__ import annotations

from random import Random
from typing import Any

from kwire.admin.routed import NextRequest, RoutedRequests
from kwire.cluster import Backoff, PendingRequest, Snapshot, ToCoordinator, ToLeader
from kwire.errors import (
    BrokerError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    TopicError,
    broker_error,
)
from kwire.protocol import Response
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kwire.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.cluster.snapshots import metadata, snapshot
from tests.consumer.world import FakeView


class View:
    """A cluster whose coordinators are forgotten when the state machine says so."""

    connection_error: KwireError | None = None

    def __init__(self) -> None:
        self.forgotten: list[ToCoordinator] = []

    def forget_coordinator(self, route: ToCoordinator) -> None:
        self.forgotten.append(route)


def parse(group: str, response: DeleteGroupsResponse, in_doubt: bool) -> str:
    code = response.results[0].error_code
    if code:
        raise broker_error(code, group=group)
    return "again" if in_doubt else "once"


def requests(*groups: str, timeout: float = 10.0) -> RoutedRequests[str, str]:
    return RoutedRequests(
        {group: ToCoordinator(group) for group in groups},
        DeleteGroupsRequest,
        lambda group, version: DeleteGroupsRequest(groups_names=[group]),
        parse,
        timeout=timeout,
        backoff=Backoff(100, 1_000),
        random=Random(1),
    )


def response(code: int = 0) -> Response:
    return DeleteGroupsResponse(results=[DeleteGroupsResponse.Result(group_id="g", error_code=code)])


def turn(machine: RoutedRequests[str, str], view: Any, now: float) -> list[PendingRequest]:
    return machine.turn(now, view)


def test_a_moved_coordinator_is_looked_up_again() -> None:
    machine, view = requests("g"), View()
    (first,) = turn(machine, view, 0.0)
    first.on_done(response(ErrorCode.NOT_COORDINATOR), 0.0)
    assert turn(machine, view, 0.0) == [], "not before the back-off"
    assert view.forgotten == [ToCoordinator("g")]
    deadline = machine.deadline()
    assert deadline is not None
    (second,) = turn(machine, view, deadline)
    second.on_done(response(), deadline)
    assert machine.future.result(0) == {"g": "once"}


def test_a_coordinator_that_loads_is_not_looked_up_again() -> None:
    machine, view = requests("g"), View()
    (first,) = turn(machine, view, 0.0)
    first.on_done(response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0.0)
    (second,) = turn(machine, view, 1.0)
    second.on_done(response(), 1.0)
    assert view.forgotten == []


def test_a_lost_connection_leaves_the_group_in_doubt() -> None:
    machine, view = requests("g"), View()
    (first,) = turn(machine, view, 0.0)
    first.on_done(DisconnectedError("cut"), 0.0)
    (second,) = turn(machine, view, 1.0)
    second.on_done(response(), 1.0)
    assert machine.future.result(0) == {"g": "again"}


def test_each_group_has_its_own_result() -> None:
    machine, view = requests("a", "b", "a"), View()
    first, second = turn(machine, view, 0.0)
    first.on_done(response(), 0.0)
    second.on_done(response(ErrorCode.NON_EMPTY_GROUP), 0.0)
    results = machine.future.result(0)
    assert list(results) == ["a", "b"]
    assert isinstance(results["b"], BrokerError)


def test_a_partition_that_fresh_metadata_lacks_is_an_error_of_its_own() -> None:
    keys = [("t", 0), ("t", 77), ("never", 0)]
    machine: RoutedRequests[tuple[str, int], str] = RoutedRequests(
        {key: ToLeader(*key) for key in keys}, DeleteRecordsRequest,
        lambda key, version: DeleteRecordsRequest(topics=[], timeout_ms=1),
        lambda key, response, in_doubt: "done", timeout=10.0, backoff=Backoff(100, 1_000), random=Random(1),
    )  # fmt: skip
    view = FakeView(snapshot({"t": [(1, 7)]}))
    (known,) = machine.turn(100.0, view)
    known.on_done(DeleteRecordsResponse(topics=[]), 100.0)
    assert view.refreshes, "the partitions may be new"
    assert (machine.deadline() or 0) > 100.0, "the loop waits"
    view.snapshot = Snapshot().updated(
        metadata({"t": [(1, 7)]}, errors={"never": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), 101.0
    )
    assert machine.turn(101.0, view) == []
    found = machine.future.result(0)
    assert found.pop(("t", 0)) == "done"
    assert [type(error) for error in found.values()] == [TopicError, TopicError]
    assert "1 partition" in str(found["t", 77])
    assert "no topic 'never'" in str(found["never", 0])


def test_a_partition_that_was_added_meanwhile_is_found() -> None:
    machine: RoutedRequests[tuple[str, int], str] = RoutedRequests(
        {("t", 1): ToLeader("t", 1)}, DeleteRecordsRequest,
        lambda key, version: DeleteRecordsRequest(topics=[], timeout_ms=1),
        lambda key, response, in_doubt: "done", timeout=10.0, backoff=Backoff(100, 1_000), random=Random(1),
    )  # fmt: skip
    view = FakeView(snapshot({"t": [(1, 7)]}))
    assert machine.turn(100.0, view) == []
    view.snapshot = Snapshot().updated(metadata({"t": [(1, 7), (2, 7)]}), 101.0)
    (sent,) = machine.turn(101.0, view)
    assert sent.route == ToLeader("t", 1)


def test_a_silent_coordinator_keeps_no_other_group_from_its_next_request() -> None:
    def is_after(error: KwireError) -> bool:
        return isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_ID_NOT_FOUND

    machine: RoutedRequests[str, str] = RoutedRequests(
        {group: ToCoordinator(group) for group in ("silent", "other", "failed")}, DeleteGroupsRequest,
        lambda group, version: DeleteGroupsRequest(groups_names=[group]), parse,
        timeout=5.0, backoff=Backoff(100, 1_000), random=Random(1),
        others=[NextRequest(
            DescribeGroupsRequest, lambda group, version: DescribeGroupsRequest(groups=[group]),
            lambda group, response, in_doubt: "described", is_after,
        )],
    )  # fmt: skip
    view: Any = View()
    silent, other, failed = machine.turn(0.0, view)
    other.on_done(response(ErrorCode.GROUP_ID_NOT_FOUND), 1.0)
    failed.on_done(response(ErrorCode.NON_EMPTY_GROUP), 1.0)
    (second,) = machine.turn(1.0, view)
    assert (second.api, second.route) == (DescribeGroupsRequest, ToCoordinator("other"))
    second.on_done(DescribeGroupsResponse(groups=[]), 1.0)
    assert not machine.future.done()
    silent.on_done(RequestTimeoutError("no response"), 5.0)
    results = machine.future.result(0)
    assert results["other"] == "described"
    assert isinstance(results["failed"], BrokerError)
    assert isinstance(results["silent"], RequestTimeoutError)


def test_a_request_that_follows_a_response_replaces_those_that_follow_errors() -> None:
    def delete(group: str, version: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=[group])

    def follow(group: str, response: Response, in_doubt: bool) -> NextRequest:
        return NextRequest(DeleteGroupsRequest, delete, parse, at_most=1)

    def describe(group: str, version: int) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=[group])

    machine: RoutedRequests[str, str] = RoutedRequests(
        {"g": ToCoordinator("g")}, DescribeGroupsRequest, describe, follow, timeout=5.0, backoff=Backoff(100, 1_000),
        random=Random(1), others=[NextRequest(DescribeGroupsRequest, describe, parse, lambda error: True)],
    )  # fmt: skip
    view: Any = View()
    (first,) = machine.turn(0.0, view)
    first.on_done(DescribeGroupsResponse(groups=[]), 1.0)
    (second,) = machine.turn(1.0, view)
    assert (first.at_most, second.api, second.at_most) == (None, DeleteGroupsRequest, 1)
    second.on_done(response(ErrorCode.GROUP_ID_NOT_FOUND), 1.0)
    assert isinstance(machine.future.result(0)["g"], BrokerError)


def test_an_error_that_several_names_share_names_each() -> None:
    shared = RequestTimeoutError("no response in time", api="DeleteGroups")
    shared.__cause__ = DisconnectedError("cut")
    routes = {"g": ToCoordinator("g"), "x": ToCoordinator("x", "transaction")}
    machine: RoutedRequests[str, str] = RoutedRequests(
        routes, DeleteGroupsRequest, lambda group, version: DeleteGroupsRequest(groups_names=[group]), parse,
        timeout=5.0, backoff=Backoff(100, 1_000), random=Random(1),
    )  # fmt: skip
    view: Any = View()
    for sent in machine.turn(0.0, view):
        sent.on_done(shared, 5.0)
    assert machine.turn(5.0, view) == []
    results = machine.future.result(0)
    assert [str(one).rpartition("[")[2] for one in results.values()] == [
        "DeleteGroups, group g]", "DeleteGroups, transactional id x]",
    ]  # fmt: skip
    assert "group" not in shared.where
    assert all(isinstance(one, RequestTimeoutError) and one.__cause__ is not None for one in results.values())


def test_a_silent_coordinator_is_a_timeout_with_the_last_error() -> None:
    machine, view = requests("g", timeout=5.0), View()
    (first,) = turn(machine, view, 0.0)
    first.on_done(response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0.0)
    assert turn(machine, view, 5.0) == []
    error = machine.future.result(0)["g"]
    assert isinstance(error, RequestTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)


def test_no_groups_are_done_at_once() -> None:
    assert requests().future.result(0) == {}
