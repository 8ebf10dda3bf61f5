"""The offset lookup on virtual time: batched by leader, retried while it may help, in bounded time."""

from __future__ import annotations

import pytest

from kwire.consumer.offsets import AtTimestamp, FoundOffset, OffsetRequest, is_start_offset
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
from tests.cluster.snapshots import snapshot
from tests.consumer.world import Key, World

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


class Asking:
    """Wants whose answers are kept in `found`."""

    def __init__(self, *asked: tuple[str, int, int], timeout: float | None = 10.0, **options: object) -> None:
        self.world = World(**options)  # type: ignore[arg-type]
        self.found: dict[tuple[Key, int], FoundOffset | KwireError] = {}
        self.count = 0
        self.want(*asked, timeout=timeout)

    def want(self, *asked: tuple[str, int, int], timeout: float | None = 10.0) -> list[OffsetRequest]:
        wants = []
        for topic, partition, timestamp in asked:

            def done(
                result: FoundOffset | KwireError, now: float, key: object = ((topic, partition), timestamp)
            ) -> None:
                self.found[key] = result  # type: ignore[index]
                self.count += 1

            wants.append(OffsetRequest(topic, partition, timestamp, done, timeout))
        self.world.lookup.want(wants)
        return wants

    def failure(self) -> KwireError:
        (result,) = self.found.values()
        assert isinstance(result, KwireError)
        return result


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_wants_of_a_leader_share_a_request(version: int, isolation: str) -> None:
    asking = Asking(("t", 0, EARLIEST), ("t", 1, 77), ("t", 2, LATEST), isolation=isolation)
    asking.world.view.versions[ListOffsetsRequest] = version
    first, second = asking.world.turn()
    assert (first.node, first.timestamps) == (1, {T0: EARLIEST, T1: 77})
    assert (second.node, second.timestamps) == (2, {T2: LATEST})
    assert first.request.isolation_level == (1 if isolation == "read_committed" and version >= 2 else 0)
    assert first.request.topics[0].partitions[0].current_leader_epoch == (7 if version >= 4 else -1)
    first.answer_offsets({T0: [3], T1: [5, 2]} if version == 0 else {T0: 3, T1: 5})
    second.answer_offsets({T2: [9]} if version == 0 else {T2: 9})
    offsets = {key: found.offset for (key, _), found in asking.found.items() if isinstance(found, FoundOffset)}
    assert offsets == {T0: 3, T1: 5, T2: 9}
    assert asking.world.lookup.topics() == set()
    assert asking.world.lookup.deadline() is None


def test_two_questions_about_one_partition_go_in_two_requests() -> None:
    asking = Asking(("t", 0, EARLIEST), ("t", 0, LATEST), ("t", 1, LATEST))
    first, second = asking.world.turn()
    assert (first.timestamps, second.timestamps) == ({T0: EARLIEST, T1: LATEST}, {T0: LATEST})
    first.answer_offsets({T0: 1, T1: 2})
    second.answer_offsets({T0: 3})
    assert asking.count == 3


def test_no_record_that_young() -> None:
    asking = Asking(("t", 0, 77))
    asking.world.turn_one().answer_offsets({T0: -1})
    assert asking.found == {(T0, 77): FoundOffset(-1)}


def test_v0_without_a_segment_that_old_means_the_start() -> None:
    asking = Asking(("t", 0, 77))
    asking.world.view.versions[ListOffsetsRequest] = 0
    asking.world.turn_one().answer_offsets({T0: []})
    second = asking.world.turn_one()
    assert second.timestamps == {T0: EARLIEST}
    second.answer_offsets({T0: [12]})
    assert asking.found == {(T0, 77): FoundOffset(12)}


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
def test_what_passes_is_asked_again(code: ErrorCode) -> None:
    asking = Asking(("t", 0, LATEST))
    asking.world.turn_one().answer_offsets({}, codes={T0: code})
    assert asking.world.turn() == []
    assert len(asking.world.view.refreshes) == 1
    asking.world.view.snapshot = snapshot({"t": [(3, 8)]})
    again = asking.world.until_deadline()[0]
    assert again.node == 3
    again.answer_offsets({T0: 9})
    assert asking.found == {(T0, LATEST): FoundOffset(9)}


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, BrokerError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerError),
    ],
)
def test_what_does_not_pass_fails_at_once(code: ErrorCode, cls: type[Exception]) -> None:
    asking = Asking(("t", 0, LATEST), ("t", 1, LATEST))
    asking.world.turn_one().answer_offsets({T1: 4}, codes={T0: code})
    assert type(asking.found[T0, LATEST]) is cls
    assert asking.found[T1, LATEST] == FoundOffset(4)


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
def test_a_request_that_failed(error: KwireError, is_retried: bool) -> None:
    asking = Asking(("t", 0, LATEST))
    asking.world.turn_one().fail(error)
    if is_retried:
        assert asking.found == {}
        assert asking.world.turn(0.2)[0].timestamps == {T0: LATEST}
    else:
        assert asking.failure() is error


def test_a_partition_that_the_broker_left_out_is_asked_for_again() -> None:
    asking = Asking(("t", 0, LATEST), ("t", 1, LATEST))
    asking.world.turn_one().answer_offsets({T1: 4}, leave_out=[T0])
    assert asking.world.turn(0.2)[0].timestamps == {T0: LATEST}


def test_a_want_expires_and_tells_what_it_waited_for() -> None:
    asking = Asking(("t", 0, LATEST), timeout=3.0)
    asking.world.view.down = {1}
    asking.world.view.connection_error = ConnectError("refused")
    assert asking.world.turn() == []
    asking.world.turn(2.9)
    assert asking.found == {}
    asking.world.until_deadline()
    error = asking.failure()
    assert isinstance(error, RequestTimeoutError)
    assert error.__cause__ is asking.world.view.connection_error


def test_a_want_whose_leader_is_down_tells_what_is_wrong_with_it() -> None:
    asking = Asking(("t", 0, LATEST), timeout=3.0)
    asking.world.view.down, asking.world.view.failures = {1}, {1: ConnectError("refused")}
    asking.world.turn()
    asking.world.until_deadline()
    assert asking.failure().__cause__ is asking.world.view.failures[1]


def test_a_want_that_expires_does_not_cut_off_its_request() -> None:
    asking = Asking(("t", 0, LATEST), timeout=3.0)
    sent = asking.world.turn_one()
    assert sent.call.timeout_ms is None
    asking.world.turn(3.0)
    assert isinstance(asking.failure(), RequestTimeoutError)
    sent.answer_offsets({T0: 9})
    assert asking.count == 1


def test_a_want_without_timeout_waits_for_the_leader() -> None:
    asking = Asking(("t", 0, LATEST), timeout=None)
    asking.world.view.snapshot = snapshot({"t": [(-1, 7)]})
    assert asking.world.turn() == []
    assert asking.world.turn(3600.0) == []
    asking.world.view.snapshot = snapshot({"t": [(2, 8)]})
    assert asking.world.turn_one().node == 2


@pytest.mark.parametrize("timeout", [2.0, 10.0, None])
def test_an_unknown_topic_fails_in_time(timeout: float | None) -> None:
    asking = Asking(("t", 0, LATEST), timeout=timeout)
    asking.world.view.snapshot = snapshot({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    start = asking.world.now
    asking.world.turn()
    asking.world.until_deadline()
    assert asking.world.now - start == min(timeout or 5.0, 5.0)
    assert isinstance(asking.failure(), TopicError)


def test_a_broker_that_keeps_disowning_a_partition() -> None:
    asking = Asking(("t", 0, LATEST), timeout=None)
    start = asking.world.now
    while not asking.found:
        for sent in asking.world.turn(0.5):
            sent.answer_offsets({}, codes={T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert 5.0 <= asking.world.now - start <= 7.0
    assert isinstance(asking.failure(), TopicError)


def test_hopeless_trouble_fails_those_who_wait_for_an_answer() -> None:
    asking = Asking(("t", 0, LATEST))
    asking.world.view.down, asking.world.view.has_fatal_error = {1, 2, 3}, True
    asking.world.view.connection_error = AuthenticationError("no")
    asking.world.turn()
    assert asking.failure() is asking.world.view.connection_error


def test_the_end_resolves_everything_and_what_comes_after() -> None:
    asking = Asking(("t", 0, LATEST), ("t", 1, LATEST), timeout=None)
    error = ClosedError("over")
    asking.world.lookup.closed(error)
    asking.want(("t", 2, LATEST))
    assert list(asking.found.values()) == [error] * 3
    assert asking.count == 3


def test_a_dropped_want_is_not_answered() -> None:
    asking = Asking()
    (want,) = asking.want(("t", 0, LATEST))
    sent = asking.world.turn_one()
    asking.world.lookup.drop(want)
    sent.answer_offsets({T0: 9})
    assert asking.found == {}


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (0, True), (2**62, True), ("earliest", True), ("latest", True), (AtTimestamp(0), True),
        (-1, False), (True, False), (1.0, False), ("newest", False), (None, False), (b"latest", False),
    ],
)  # fmt: skip
def test_what_is_an_offset(value: object, is_one: bool) -> None:
    assert is_start_offset(value) is is_one


@pytest.mark.parametrize("wrong", [-1, 1.5, "now", None])
def test_what_is_no_time(wrong: int) -> None:
    with pytest.raises(ConfigurationError):
        AtTimestamp(wrong)
