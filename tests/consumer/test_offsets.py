"""ListOffsets and the partitions of a topic on virtual time: grouped by leader, retried, in bounded time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kwire.cluster import Snapshot
from kwire.consumer.offsets import (
    Ago,
    AtTimestamp,
    FoundOffset,
    Offset,
    OffsetRequest,
    OffsetsQuery,
    PartitionsQuery,
    is_start_offset,
    list_offsets_timestamp,
)
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    DisconnectedError,
    ErrorCode,
    KwireError,
    RequestTimeoutError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.protocol.messages.list_offsets import EARLIEST, LATEST, ListOffsetsRequest
from tests.cluster.snapshots import metadata, snapshot
from tests.consumer.world import FakeView, Key, World

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


class Requests:
    """Wants whose responses are kept in `found`."""

    def __init__(self, *query: tuple[str, int, int], timeout: float | None = 10.0, **options: object) -> None:
        self.world = World(**options)  # type: ignore[arg-type]
        self.found: dict[tuple[Key, int], FoundOffset | KwireError] = {}
        self.count = 0
        self.add(*query, timeout=timeout)

    def add(self, *query: tuple[str, int, int], timeout: float | None = 10.0) -> list[OffsetRequest]:
        added = []
        for topic, partition, timestamp in query:

            def done(
                result: FoundOffset | KwireError, now: float, key: object = ((topic, partition), timestamp)
            ) -> None:
                self.found[key] = result  # type: ignore[index]
                self.count += 1

            added.append(OffsetRequest(topic, partition, timestamp, done, timeout))
        self.world.offset_fetcher.add(added)
        return added

    def failure(self) -> KwireError:
        (result,) = self.found.values()
        assert isinstance(result, KwireError)
        return result


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_offset_requests_of_a_leader_share_a_request(version: int, isolation: str) -> None:
    requests = Requests(("t", 0, EARLIEST), ("t", 1, 77), ("t", 2, LATEST), isolation=isolation)
    requests.world.view.versions[ListOffsetsRequest] = version
    first, second = requests.world.turn()
    assert (first.node, first.timestamps) == (1, {T0: EARLIEST, T1: 77})
    assert (second.node, second.timestamps) == (2, {T2: LATEST})
    assert first.request.isolation_level == (1 if isolation == "read_committed" and version >= 2 else 0)
    assert first.request.topics[0].partitions[0].current_leader_epoch == (7 if version >= 4 else -1)
    first.respond_offsets({T0: [3], T1: [5, 2]} if version == 0 else {T0: 3, T1: 5})
    second.respond_offsets({T2: [9]} if version == 0 else {T2: 9})
    offsets = {key: found.offset for (key, _), found in requests.found.items() if isinstance(found, FoundOffset)}
    assert offsets == {T0: 3, T1: 5, T2: 9}
    assert requests.world.offset_fetcher.topics() == set()
    assert requests.world.offset_fetcher.deadline() is None


def test_two_offset_requests_of_one_partition_go_in_two_requests() -> None:
    requests = Requests(("t", 0, EARLIEST), ("t", 0, LATEST), ("t", 1, LATEST))
    first, second = requests.world.turn()
    assert (first.timestamps, second.timestamps) == ({T0: EARLIEST, T1: LATEST}, {T0: LATEST})
    first.respond_offsets({T0: 1, T1: 2})
    second.respond_offsets({T0: 3})
    assert requests.count == 3


def test_a_timestamp_without_a_younger_record_has_no_offset() -> None:
    requests = Requests(("t", 0, 77))
    requests.world.turn_one().respond_offsets({T0: -1})
    assert requests.found == {(T0, 77): FoundOffset(-1)}


def test_v0_without_an_older_segment_returns_the_log_start() -> None:
    requests = Requests(("t", 0, 77))
    requests.world.view.versions[ListOffsetsRequest] = 0
    requests.world.turn_one().respond_offsets({T0: []})
    second = requests.world.turn_one()
    assert second.timestamps == {T0: EARLIEST}
    second.respond_offsets({T0: [12]})
    assert requests.found == {(T0, 77): FoundOffset(12)}


PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


@pytest.mark.parametrize("code", PASSING)
def test_retriable_codes_are_retried(code: ErrorCode) -> None:
    requests = Requests(("t", 0, LATEST))
    requests.world.turn_one().respond_offsets({}, codes={T0: code})
    assert requests.world.turn() == []
    assert len(requests.world.view.refreshes) == 1
    requests.world.view.snapshot = snapshot({"t": [(3, 8)]})
    again = requests.world.until_deadline()[0]
    assert again.node == 3
    again.respond_offsets({T0: 9})
    assert requests.found == {(T0, LATEST): FoundOffset(9)}


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, BrokerError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerError),
    ],
)
def test_other_codes_fail_at_once(code: ErrorCode, cls: type[Exception]) -> None:
    requests = Requests(("t", 0, LATEST), ("t", 1, LATEST))
    requests.world.turn_one().respond_offsets({T1: 4}, codes={T0: code})
    assert type(requests.found[T0, LATEST]) is cls
    assert requests.found[T1, LATEST] == FoundOffset(4)


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (DisconnectedError("gone"), True),
        (RequestTimeoutError("silent"), True),
        (AuthenticationError("no"), False),
        (UnsupportedVersionError("no"), False),
        (ClosedError("over"), False),
    ],
)
def test_a_failed_request_is_retried_if_its_error_is_retriable(error: KwireError, is_retried: bool) -> None:
    requests = Requests(("t", 0, LATEST))
    requests.world.turn_one().fail(error)
    if is_retried:
        assert requests.found == {}
        assert requests.world.turn(0.2)[0].timestamps == {T0: LATEST}
    else:
        assert requests.failure() is error


def test_a_partition_missing_in_the_response_is_requested_again() -> None:
    requests = Requests(("t", 0, LATEST), ("t", 1, LATEST))
    requests.world.turn_one().respond_offsets({T1: 4}, leave_out=[T0])
    assert requests.world.turn(0.2)[0].timestamps == {T0: LATEST}


def test_an_expired_offset_request_names_the_last_error() -> None:
    requests = Requests(("t", 0, LATEST), timeout=3.0)
    requests.world.view.down = {1}
    requests.world.view.connection_error = ConnectError("refused")
    assert requests.world.turn() == []
    requests.world.turn(2.9)
    assert requests.found == {}
    requests.world.until_deadline()
    error = requests.failure()
    assert isinstance(error, RequestTimeoutError)
    assert error.__cause__ is requests.world.view.connection_error


def test_an_expired_offset_request_names_the_connection_error_of_the_leader() -> None:
    requests = Requests(("t", 0, LATEST), timeout=3.0)
    requests.world.view.down, requests.world.view.failures = {1}, {1: ConnectError("refused")}
    requests.world.turn()
    requests.world.until_deadline()
    assert requests.failure().__cause__ is requests.world.view.failures[1]


def test_an_expired_offset_request_leaves_its_request_in_flight() -> None:
    requests = Requests(("t", 0, LATEST), timeout=3.0)
    sent = requests.world.turn_one()
    assert sent.call.timeout_ms is None
    requests.world.turn(3.0)
    assert isinstance(requests.failure(), RequestTimeoutError)
    sent.respond_offsets({T0: 9})
    assert requests.count == 1


def test_an_offset_request_without_timeout_waits_for_the_leader() -> None:
    requests = Requests(("t", 0, LATEST), timeout=None)
    requests.world.view.snapshot = snapshot({"t": [(-1, 7)]})
    assert requests.world.turn() == []
    assert requests.world.turn(3600.0) == []
    requests.world.view.snapshot = snapshot({"t": [(2, 8)]})
    assert requests.world.turn_one().node == 2


@pytest.mark.parametrize("timeout", [2.0, 10.0, None])
def test_an_unknown_topic_fails_in_time(timeout: float | None) -> None:
    requests = Requests(("t", 0, LATEST), timeout=timeout)
    requests.world.view.snapshot = snapshot({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    start = requests.world.now
    requests.world.turn()
    requests.world.until_deadline()
    assert requests.world.now - start == min(timeout or 5.0, 5.0)
    assert isinstance(requests.failure(), TopicError)


def test_a_partition_that_stays_unknown_to_its_leader() -> None:
    requests = Requests(("t", 0, LATEST), timeout=None)
    start = requests.world.now
    while not requests.found:
        for sent in requests.world.turn(0.5):
            sent.respond_offsets({}, codes={T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert 5.0 <= requests.world.now - start <= 7.0
    assert isinstance(requests.failure(), TopicError)


def test_a_fatal_connection_error_fails_offset_requests_with_a_timeout() -> None:
    requests = Requests(("t", 0, LATEST))
    requests.world.view.down, requests.world.view.has_fatal_error = {1, 2, 3}, True
    requests.world.view.connection_error = AuthenticationError("no")
    requests.world.turn()
    assert requests.failure() is requests.world.view.connection_error


def test_closing_fails_offset_requests_and_later_ones() -> None:
    requests = Requests(("t", 0, LATEST), ("t", 1, LATEST), timeout=None)
    error = ClosedError("over")
    requests.world.offset_fetcher.closed(error)
    requests.add(("t", 2, LATEST))
    assert list(requests.found.values()) == [error] * 3
    assert requests.count == 3


def test_a_cancelled_offset_request_gets_no_result() -> None:
    requests = Requests()
    (request,) = requests.add(("t", 0, LATEST))
    sent = requests.world.turn_one()
    requests.world.offset_fetcher.cancel(request)
    sent.respond_offsets({T0: 9})
    assert requests.found == {}


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (0, True), (2**62, True), ("earliest", True), ("latest", True), (AtTimestamp(0), True),
        (Offset(5, 2), True), (Ago(hours=1), True), ("committed", False), (2**63, False),
        ("max_timestamp", True), ("earliest_pending_upload", True), ([], False),
        (-1, False), (True, False), (1.0, False), ("newest", False), (None, False), (b"latest", False),
    ],
)  # fmt: skip
def test_valid_and_invalid_start_offsets(value: object, is_one: bool) -> None:
    assert is_start_offset(value) is is_one


@pytest.mark.parametrize("wrong", [(-1,), (True,), ("5",), (5, -1), (5, 2**31), (5, 0, b"m"), (2**63,)])
def test_an_invalid_offset_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError):
        Offset(*wrong)


def test_ago_takes_a_timedelta_or_its_parts() -> None:
    assert Ago(hours=1, minutes=30) == Ago(timedelta(seconds=5400)) == Ago(days=1 / 16)
    assert list_offsets_timestamp(Ago(seconds=1.5), 10_000) == 8_500
    assert list_offsets_timestamp(Ago(days=1), 10_000) == 0, "not before 1970: -1 has another meaning"


@pytest.mark.parametrize(
    "wrong",
    [{}, {"hours": 0}, {"hours": -1}, {"hours": "1"}, {"duration": 5}, {"duration": timedelta(1), "hours": 1},
     {"days": 1e12}],
    ids=str,
)  # fmt: skip
def test_an_invalid_ago_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Ago(**wrong)


@pytest.mark.parametrize("wrong", [-1, 1.5, "now", None, True, 2**63])
def test_an_invalid_timestamp_is_refused(wrong: int) -> None:
    with pytest.raises(ConfigurationError):
        AtTimestamp(wrong)


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def known_at(at: float, **options: object) -> Snapshot:
    return Snapshot().updated(metadata(**options), at)  # type: ignore[arg-type]


def partitions_query(timeout: float = 30.0) -> PartitionsQuery:
    return PartitionsQuery("t", timeout=timeout, unknown_topic_timeout_ms=5_000)


def test_only_metadata_newer_than_the_query_counts() -> None:
    query, view = partitions_query(), FakeView(known_at(9.0, topics={"t": [(1, 0)]}))
    assert query.turn(10.0, view) == []
    assert (query.topics(), len(view.refreshes)) == (("t",), 1)
    assert not query.future.done()
    view.snapshot = known_at(10.5, topics={"t": [(1, 0), (-1, 0), (2, 0)]})
    query.turn(10.5, view)
    assert (query.future.result(0), query.topics(), query.deadline()) == (3, (), None)


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
def test_a_topic_with_an_error_fails_the_query(
    code: ErrorCode, timeout: float, seconds: float, cls: type[Exception]
) -> None:
    query, view = partitions_query(timeout), FakeView()
    now = 10.0
    query.turn(now, view)
    view.snapshot = known_at(10.2, errors={"t": code})
    while not query.future.done():
        now += 0.5
        query.turn(now, view)
    assert now == 10.0 + seconds
    assert isinstance(query.future.exception(0), cls)


def test_a_query_without_metadata_times_out() -> None:
    query, view = partitions_query(3.0), FakeView(connection_error=ConnectError("refused"))
    query.turn(10.0, view)
    assert query.deadline() == 13.0
    query.turn(13.0, view)
    error = query.future.exception(0)
    assert isinstance(error, RequestTimeoutError)
    assert error.__cause__ is view.connection_error


def test_a_fatal_connection_error_fails_the_query() -> None:
    query = partitions_query()
    query.turn(10.0, FakeView(connection_error=AuthenticationError("no"), has_fatal_error=True))
    assert isinstance(query.future.exception(0), AuthenticationError)


def test_a_closed_client_fails_the_query() -> None:
    query = partitions_query()
    query.closed(ClosedError("over"))
    query.closed(ClosedError("over again"))
    assert isinstance(query.future.exception(0), ClosedError)


def test_an_offsets_query_gets_all_offsets_or_the_first_error() -> None:
    world = World()
    whole = OffsetsQuery(world.offset_fetcher, {("t", 0): LATEST, ("t", 2): LATEST}, 10.0)
    first, second = world.turn()
    first.respond_offsets({("t", 0): 4})
    assert not whole.future.done()
    second.respond_offsets({("t", 2): 6})
    assert whole.future.result(0) == {("t", 0): FoundOffset(4), ("t", 2): FoundOffset(6)}
    failed = OffsetsQuery(world.offset_fetcher, {("t", 0): LATEST, ("t", 2): LATEST}, 10.0)
    first, second = world.turn()
    first.respond_offsets({}, codes={("t", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    second.respond_offsets({("t", 2): 6})
    assert isinstance(failed.future.exception(0), AuthorizationError)
    empty = OffsetsQuery(world.offset_fetcher, {}, 10.0)
    assert empty.future.result(0) == empty.results.result(0) == {}


def test_an_offsets_query_keeps_the_error_of_each_partition() -> None:
    world = World()
    query = OffsetsQuery(world.offset_fetcher, {("t", 0): LATEST, ("t", 2): LATEST}, 10.0)
    first, second = world.turn()
    first.respond_offsets({}, codes={("t", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert not query.results.done()
    second.respond_offsets({("t", 2): 6})
    found = query.results.result(0)
    assert list(found) == [("t", 0), ("t", 2)]
    assert found["t", 2] == FoundOffset(6)
    assert isinstance(found["t", 0], AuthorizationError)


def test_a_closed_client_fails_an_offsets_query() -> None:
    world = World()
    query = OffsetsQuery(world.offset_fetcher, {("t", 0): LATEST, ("t", 2): LATEST}, 10.0)
    world.offset_fetcher.closed(ClosedError("over"))
    assert isinstance(query.results.exception(0), ClosedError)
    assert isinstance(query.future.exception(0), ClosedError)
