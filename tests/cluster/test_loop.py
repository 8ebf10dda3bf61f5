"""Test the event loop on a network in memory and virtual time: discovery, routing, retries, recovery, closing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from kwire.cluster import (
    Broker,
    ClientConfig,
    ClusterView,
    CurrentLeader,
    PendingRequest,
    Route,
    ToAny,
    ToController,
    ToCoordinator,
    ToLeader,
    ToNode,
)
from kwire.cluster.metadata import STEP
from kwire.cluster.requests import Purpose
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConnectError,
    DisconnectedError,
    KwireError,
    NotKafkaError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kwire.net import VirtualClock
from kwire.protocol import Request, Response
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.session import Sasl, SaslServer
from tests.cluster.fake_net import Host, Net
from tests.cluster.snapshots import Leaders, metadata

COORDINATOR = 3


class World:
    """Run three brokers that serve metadata, producer ids and coordinators; a test may change `leaders`."""

    def __init__(self, leaders: dict[str, Leaders] | None = None, **options: Any) -> None:
        self.leaders = leaders if leaders is not None else {"t": [(1, 0), (2, 0)]}
        self.coordinator = COORDINATOR
        self.coordinator_errors: list[int] = []
        self.throttle_ms = 0
        self.absences = 0  # the number of metadata responses without the coordinator
        self.silent: set[type[Request[Any]]] = set()
        self.hosts = {node: Host(self.handle) for node in (1, 2, 3)}
        addresses = {(f"host-{node}", 9092): host for node, host in self.hosts.items()}
        options.setdefault("bootstrap", "host-1:9092")
        self.net = Net(addresses, **options)

    def handle(self, request: Request[Any]) -> Response | None:
        if type(request) in self.silent:
            return None
        match request:
            case MetadataRequest():
                names = {topic.name for topic in request.topics or ()}
                self.absences -= self.absences > 0
                brokers = (1, 2) if self.absences else (1, 2, 3)
                leaders = {name: leaders for name, leaders in self.leaders.items() if name in names}
                return metadata(leaders, brokers=brokers)
            case InitProducerIdRequest():
                return InitProducerIdResponse(
                    error_code=0, producer_id=7, producer_epoch=0, throttle_time_ms=self.throttle_ms
                )
            case FindCoordinatorRequest():
                code = self.coordinator_errors.pop(0) if self.coordinator_errors else 0
                response = FindCoordinatorResponse.Coordinator(
                    key=request.coordinator_keys[0],
                    node_id=self.coordinator,
                    host=f"host-{self.coordinator}",
                    port=9092,
                    error_code=code,
                    error_message=None,
                )
                return FindCoordinatorResponse(coordinators=[response])
        raise AssertionError(request)

    def call(self, route: Route, **options: Any) -> list[Any]:
        """Request a producer id by a route; the returned list gets the result."""
        outcome: list[Any] = []
        self.net.loop.enqueue(
            PendingRequest(
                route, InitProducerIdRequest, build_id, lambda result, now: outcome.append(result), **options
            )
        )
        return outcome

    def requested(self, name: str = "InitProducerId") -> list[int]:
        return [node for node, host in self.hosts.items() for sent in host.names() if sent == name]


def build_id(version: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


class Watcher:
    """A client that only wants topics."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.turns = 0
        self.closed_with: KwireError | None = None

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self.turns += 1
        return []

    def deadline(self) -> float | None:
        return None

    def topics(self) -> Collection[str]:
        return self.names

    def closed(self, error: KwireError) -> None:
        self.closed_with = error


@pytest.mark.parametrize(
    ("route", "node"),
    [
        (ToNode(2), 2),
        (ToLeader("t", 1), 2),
        (ToController(), 1),
        (ToCoordinator("group"), COORDINATOR),
        (ToCoordinator("id", "transaction"), COORDINATOR),
    ],
)
def test_routes(route: Route, node: int) -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    outcome = world.call(route)
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], InitProducerIdResponse)
    assert world.requested() == [node]


def test_any_bootstrap_address_suffices() -> None:
    world = World(bootstrap="gone:1,host-2:9092")
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome, seconds=1.0)
    assert isinstance(outcome[0], InitProducerIdResponse)


def test_an_address_that_drops_packets_does_not_delay_the_next() -> None:
    world = World(bootstrap="host-1:9092,host-2:9092")
    world.hosts[1].swallows_packets = True
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome, seconds=1.0)
    assert isinstance(outcome[0], InitProducerIdResponse)


def test_the_coordinator_is_remembered_until_it_is_forgotten() -> None:
    world = World()
    world.net.loop.add(Watcher())
    route = ToCoordinator("group")
    for expected in (1, 1, 2):
        outcome = world.call(route)
        world.net.run(partial(bool, outcome))
        assert len(world.requested("FindCoordinator")) == expected
        if expected == 1 and len(world.requested()) == 2:
            world.net.loop.forget_coordinator(route)


@pytest.mark.parametrize("route", [ToCoordinator("group"), ToNode(1)])
def test_a_broker_that_throttles_gets_the_next_request_later(route: Route) -> None:
    """KIP-219. A wait that is longer than the request's timeout does not make it fail."""
    world = World()
    world.net.loop.add(Watcher())
    world.throttle_ms = 5_000
    outcome = world.call(route)
    world.net.run(lambda: outcome)
    world.throttle_ms = 0
    began = world.net.clock.now()
    other = world.call(route, timeout_ms=2_000)
    own = world.call(route, timeout_ms=2_000, connection="leave")
    world.net.run(lambda: own, seconds=1.0)
    assert isinstance(own[0], InitProducerIdResponse)
    world.net.rest(3.0)
    assert other == []
    world.net.run(lambda: other)
    assert isinstance(other[0], InitProducerIdResponse)
    assert 4.9 < world.net.clock.now() - began < 5.5


def test_a_coordinator_that_is_not_ready_is_requested_again_with_back_off() -> None:
    world = World()
    world.coordinator_errors = [15, 14, 15]
    world.net.loop.add(Watcher())
    outcome = world.call(ToCoordinator("group"))
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], InitProducerIdResponse)
    assert len(world.requested("FindCoordinator")) == 4


def test_a_coordinator_missing_in_the_metadata_is_requested_again_with_back_off() -> None:
    world = World()
    world.absences = 4
    world.net.loop.add(Watcher("t"))
    outcome = world.call(ToCoordinator("group"))
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], InitProducerIdResponse)
    assert world.requested() == [COORDINATOR]
    assert len(world.requested("FindCoordinator")) < 10
    assert world.absences == 0


def test_a_coordinator_that_never_comes_is_the_cause_of_the_timeout() -> None:
    world = World()
    world.coordinator_errors = [15] * 1_000
    world.net.loop.add(Watcher())
    outcome = world.call(ToCoordinator("group"), timeout_ms=2_000)
    world.net.run(lambda: outcome, seconds=3.0)
    assert isinstance(outcome[0], RequestTimeoutError)
    assert isinstance(outcome[0].__cause__, BrokerError)
    assert "COORDINATOR_NOT_AVAILABLE" in str(outcome[0])


def test_a_lookup_that_no_retry_mends_fails_what_waits_for_it() -> None:
    world = World()
    world.coordinator_errors = [30]  # GROUP_AUTHORIZATION_FAILED
    world.net.loop.add(Watcher())
    outcome = world.call(ToCoordinator("group"))
    world.net.run(lambda: outcome, seconds=1.0)
    assert isinstance(outcome[0], AuthorizationError)
    assert len(world.requested("FindCoordinator")) == 1


def test_a_coordinator_that_died_is_looked_up_again() -> None:
    """The brokers name it until they notice; then its successor is used at once."""
    world = World()
    world.net.loop.add(Watcher("t"))
    outcome = world.call(ToCoordinator("group"))
    world.net.run(partial(bool, outcome))
    world.hosts[COORDINATOR].is_up = False
    world.net.run(lambda: world.net.loop.unreachable_since(COORDINATOR) is not None)
    outcome = world.call(ToCoordinator("group"))
    world.net.rest(2.0)
    assert not outcome
    assert 2 < len(world.requested("FindCoordinator")) < 20
    world.coordinator = 2
    world.net.run(partial(bool, outcome), seconds=2.0)
    assert isinstance(outcome[0], InitProducerIdResponse)
    assert 2 in world.requested()


def test_metadata_is_requested_once_for_the_topics_that_clients_want() -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    world.net.run(lambda: world.net.loop.snapshot.leader("t", 1) == 2)
    before = len(world.requested("Metadata"))
    assert world.net.rest(100.0) < 10, "an idle loop sleeps"
    assert len(world.requested("Metadata")) == before


def test_a_lost_leader_causes_a_metadata_request_and_is_probed_until_it_is_back() -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    outcome = world.call(ToNode(2))
    world.net.run(lambda: outcome)
    world.hosts[2].is_up = False
    world.leaders["t"] = [(1, 0), (3, 1)]
    world.net.run(lambda: world.net.loop.snapshot.leader("t", 1) == 3, seconds=1.0)
    assert isinstance(world.net.loop.view("general").failure(2), DisconnectedError | ConnectError)
    world.net.rest(30.0)
    before = len(world.requested("Metadata"))
    world.hosts[2].is_up = True
    world.net.run(lambda: world.net.loop.view("general").failure(2) is None, seconds=2.0)
    world.net.run(lambda: len(world.requested("Metadata")) > before, seconds=1.0)


def test_requests_that_may_be_repeated_survive_a_broken_connection() -> None:
    for may_retry, kind in ((True, InitProducerIdResponse), (False, DisconnectedError)):
        world = World()
        world.net.loop.add(Watcher())
        world.silent.add(InitProducerIdRequest)
        outcome = world.call(ToNode(1), may_retry=may_retry)
        world.net.run(world.requested)
        world.hosts[1].is_up = False
        world.net.loop.turn(0.0)
        world.hosts[1].is_up = True
        world.silent.clear()
        world.net.run(partial(bool, outcome))
        assert isinstance(outcome[0], kind)


def test_a_request_without_a_response_times_out() -> None:
    world = World()
    world.silent.add(InitProducerIdRequest)
    outcome = world.call(ToAny(), timeout_ms=1_500)
    world.net.run(lambda: outcome, seconds=2.0)
    assert isinstance(outcome[0], RequestTimeoutError)


def test_an_unused_connection_authenticates_again_at_once_for_its_next_request() -> None:
    world = World(sasl=Sasl("PLAIN", "alice", "secret"))
    for host in world.hosts.values():
        host.sasl = SaslServer({"alice": "secret"}, session_lifetime_ms=10_000)
    first = world.call(ToNode(2))
    world.net.run(lambda: first)
    world.net.rest(40.0)  # the authentication was renewed once, since it was used, and has ended since then
    start, second = world.net.clock.now(), world.call(ToNode(2))
    world.net.run(lambda: second)
    assert isinstance(second[0], InitProducerIdResponse)
    assert world.net.clock.now() - start < 0.1
    assert world.net.rest(60.0) < 20
    assert world.hosts[2].connections == 1


@pytest.mark.parametrize("pause", [0.5, 3.0, 30.0])
def test_an_authentication_is_renewed_in_time_again_and_again(pause: float) -> None:
    world = World(sasl=Sasl("PLAIN", "alice", "secret"))
    for host in world.hosts.values():
        host.sasl = SaslServer({"alice": "secret"}, session_lifetime_ms=10_000)
    for _ in range(40):
        outcome = world.call(ToNode(2))
        world.net.run(partial(bool, outcome))
        assert isinstance(outcome[0], InitProducerIdResponse)
        world.net.rest(pause)
    assert world.hosts[2].connections == 1  # the broker cuts one whose authentication has ended


class Ticking(VirtualClock):
    """Advance by three milliseconds with every read of the clock, as if work took time."""

    def now(self) -> float:
        self.advance(0.003)
        return super().now()


def test_a_deadline_that_passes_during_a_turn_is_handled_without_a_sleep() -> None:
    late = []
    for timeout_ms in range(1_000, 1_100):  # the wake-up after 1,060 is before, after or during a turn
        world = World(clock=Ticking())
        world.silent.add(InitProducerIdRequest)
        outcome = world.call(ToAny(), timeout_ms=timeout_ms)
        world.net.run(partial(bool, outcome), seconds=5.0)
        late.append(world.net.clock.now() - timeout_ms / 1000)
    assert max(late) < 0.2, f"{sum(one > 0.2 for one in late)} of {len(late)} were received a second too late"


@pytest.mark.parametrize(
    ("route", "reason"),
    [
        (ToNode(9), "no broker 9, but 1, 2, 3"),
        (ToLeader("t", 7), "no t-7"),
        (ToLeader("headless", 0), "headless-0 has no leader"),
    ],
)
def test_a_request_without_a_reachable_broker_fails_with_the_reason(route: Route, reason: str) -> None:
    world = World({"t": [(1, 0)], "headless": [(-1, 0)]})
    outcome = world.call(route, timeout_ms=2_000)
    world.net.run(lambda: outcome, seconds=3.0)
    assert reason in str(outcome[0])


def test_a_call_to_a_leader_makes_its_topic_wanted() -> None:
    world = World()
    outcome = world.call(ToLeader("t", 1))
    world.net.run(lambda: outcome, seconds=2.0)
    assert world.requested() == [2]


def test_no_broker_at_all_is_a_timeout_that_names_the_last_failure() -> None:
    world = World(bootstrap="gone:1,also-gone:2")
    outcome = world.call(ToAny(), timeout_ms=3_000)
    world.net.run(lambda: outcome, seconds=4.0)
    assert isinstance(outcome[0], RequestTimeoutError)
    assert isinstance(outcome[0].__cause__, ConnectError)


def test_brokers_that_close_each_connection_at_its_first_request_have_failed_all_the_time() -> None:
    """Such a connection is ready before: a timeout that comes then names the failure, too."""
    world = World()
    for host in world.hosts.values():
        host.closes_on_requests = True
    view, seen, outcomes = world.net.loop.view("general"), list[KwireError | None](), [world.call(ToAny())]

    def look() -> bool:
        if outcomes[-1]:
            outcomes.append(world.call(ToAny()))
        seen.append(view.connection_error)
        return len(outcomes) > 4

    world.net.run(lambda: view.connection_error)
    world.net.run(look)
    assert {type(error) for error in seen} == {DisconnectedError}
    for host in world.hosts.values():
        host.closes_on_requests = False
    world.net.run(lambda: outcomes[-1])
    assert isinstance(outcomes[-1][0], InitProducerIdResponse)
    assert view.connection_error is None


def test_a_timeout_after_a_failed_attempt_names_that() -> None:
    """The last attempt has only the time that is left, which alone says little."""
    world = World()
    world.hosts[1].closes_on_requests = True
    outcome = world.call(ToAny(), timeout_ms=2_000, may_retry=True)
    world.net.run(lambda: world.net.loop.view("general").connection_error)
    world.hosts[1].closes_on_requests = False
    world.silent |= {InitProducerIdRequest, MetadataRequest}
    world.net.run(lambda: outcome, seconds=3.0)
    assert isinstance(outcome[0], RequestTimeoutError)
    assert isinstance(outcome[0].__cause__, DisconnectedError)
    assert "the last failure was: the peer closed the connection" in str(outcome[0])


@pytest.mark.parametrize("cause", [AuthenticationError("wrong password"), NotKafkaError("HTTP")])
def test_a_permanent_bootstrap_error_ends_the_wait(cause: Any) -> None:
    world = World(bootstrap="host-1:9092,host-2:9092")
    for host in world.hosts.values():
        host.refuses = cause
    outcome = world.call(ToAny(), timeout_ms=30_000)
    world.net.run(lambda: outcome, seconds=2.0)
    assert outcome == [cause]
    assert world.net.loop.view("general").has_fatal_error


def test_the_wait_continues_while_one_address_may_recover() -> None:
    world = World(bootstrap="host-1:9092,gone:1")
    world.hosts[1].refuses = AuthenticationError("wrong password")
    outcome = world.call(ToAny(), timeout_ms=2_000)
    world.net.run(lambda: outcome, seconds=3.0)
    assert isinstance(outcome[0], RequestTimeoutError)


def test_an_api_that_the_broker_lacks() -> None:
    world = World()
    world.hosts[1].apis = {3: range(0, 13)}
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], UnsupportedVersionError)


def test_brokers_before_api_versions_are_connected_without_it_from_then_on() -> None:
    world = World(bootstrap="host-1:9092")
    for host in world.hosts.values():
        host.closes_on_api_versions = True
        host.apis = {3: range(0, 1), 0: range(0, 1)}
    world.net.loop.add(Watcher("t"))
    world.net.run(lambda: world.net.loop.snapshot.leader("t", 1) == 2)
    connections = world.hosts[1].connections
    assert connections == 5, "two with ApiVersions, a probe without, one more with, and the one that stays"
    assert not world.net.loop.is_ready(1, "general")
    world.net.run(lambda: world.net.loop.is_ready(1, "general"))
    assert world.net.loop.view("general").version(1, ProduceRequest) == 0
    assert world.hosts[1].connections == connections + 1, "the bootstrap connection's experience counts"


def test_a_broker_that_stops_during_the_handshake_does_not_count_as_old_for_ever() -> None:
    world = World(bootstrap="host-1:9092")
    world.hosts[1].closes_on_api_versions = True
    world.net.loop.add(Watcher("t"))
    world.net.run(lambda: world.hosts[1].cut_short == 2)
    world.hosts[1].closes_on_api_versions = False
    world.hosts[1].apis = {}  # still starting: it rejects the requests of old brokers too
    world.net.run(lambda: world.hosts[1].connections == 3)
    world.hosts[1].apis = {0: range(3, 13), 3: range(0, 13)}
    world.net.run(lambda: world.net.loop.snapshot.leader("t", 0) == 1)
    world.net.run(lambda: world.net.loop.is_ready(1, "general"))
    assert world.net.loop.view("general").version(1, ProduceRequest) == 12


def test_a_newer_broker_whose_handshakes_ended_does_not_count_as_old() -> None:
    """A broker that starts behind a load balancer must not get records without sequences and duplicate them."""
    world = World(bootstrap="host-1:9092")
    world.hosts[1].closes_on_api_versions = True
    world.net.loop.add(Watcher("t"))
    world.net.run(lambda: world.hosts[1].cut_short == 2)
    world.hosts[1].closes_on_api_versions = False
    outcome = world.call(ToAny())
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], InitProducerIdResponse)
    world.net.run(lambda: world.net.loop.is_ready(1, "general"))
    assert world.net.loop.view("general").version(1, ProduceRequest) == 12


def test_no_broker_counts_as_old_in_a_cluster_with_api_versions() -> None:
    world = World(bootstrap="host-1:9092")
    world.hosts[2].closes_on_api_versions = True
    world.net.loop.add(Watcher("t"))
    world.call(ToNode(2), timeout_ms=60_000)
    world.net.run(lambda: world.hosts[2].cut_short == 5)
    assert not world.hosts[2].received


class Learner(Watcher):
    """Want a topic only from its own turn on, as a producer does with a record."""

    def __init__(self) -> None:
        super().__init__("t")
        self.comes: list[str] = []

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self.names = (*self.names, *self.comes)
        self.comes.clear()
        return []


def test_a_topic_that_a_client_adds_in_its_turn_is_requested_without_another_event() -> None:
    world = World({"t": [(1, 0)], "u": [(2, 0)]})
    learner = Learner()
    world.net.loop.add(learner)
    world.net.run(lambda: world.net.loop.snapshot.leader("t", 0) == 1)
    world.net.rest(5.0)
    learner.comes.append("u")
    world.net.loop.wakeup()
    world.net.loop.turn(0.0)
    world.net.run(lambda: world.net.loop.snapshot.leader("u", 0) == 2, seconds=0.5)
    assert len(world.requested("Metadata")) == 2


def test_a_leader_named_by_a_broker_is_used_without_a_metadata_request() -> None:
    world = World()
    world.hosts[4] = world.net.hosts["host-4", 9094] = Host(world.handle)
    world.net.loop.add(Watcher("t"))
    world.net.run(lambda: world.net.loop.snapshot.topics)
    topic = world.net.loop.snapshot.topics["t"]
    before = len(world.requested("Metadata"))
    news = world.net.loop.update_leaders([CurrentLeader("t", topic.id, 0, 4, 9)], [Broker(4, "host-4", 9094)])
    assert news == {("t", 0)}
    outcome = world.call(ToLeader("t", 0))
    world.net.run(lambda: outcome)
    assert world.requested() == [4]
    assert len(world.requested("Metadata")) == before


def test_a_large_metadata_response_is_processed_over_several_turns() -> None:
    world = World({"t": [(1, 0)] * 5 * STEP})
    watcher = Watcher("t")
    world.net.loop.add(watcher)
    world.net.run(lambda: world.requested("Metadata"))
    turns = watcher.turns
    world.net.run(lambda: "t" in world.net.loop.snapshot.topics)
    assert watcher.turns >= turns + 4
    assert world.net.clock.now() == 0.0, "the loop slept though there was work"
    assert world.net.loop.snapshot.leader("t", 5 * STEP - 1) == 1


def test_a_broker_with_a_new_address_gets_a_new_connection() -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    outcome = world.call(ToNode(2))
    world.net.run(lambda: outcome)
    world.net.hosts["elsewhere", 1] = Host(world.handle)

    def handle(request: Request[Any]) -> Response | None:
        response = metadata({"t": [(1, 0), (2, 0)]})
        response.brokers[1].host, response.brokers[1].port = "elsewhere", 1
        return response

    for host in world.hosts.values():
        host.handler = handle
    world.net.loop.request_metadata("a test")
    world.net.run(lambda: world.net.loop.snapshot.brokers[2].host == "elsewhere")
    outcome = world.call(ToNode(2))
    world.net.run(lambda: outcome)
    assert world.net.hosts["elsewhere", 1].names() == ["InitProducerId"]


def test_closing_resolves_what_waits_and_what_is_in_flight() -> None:
    world = World()
    watcher = Watcher("t")
    world.net.loop.add(watcher)
    world.silent.add(InitProducerIdRequest)
    in_flight = world.call(ToNode(1))
    world.net.run(world.requested)
    waiting = world.call(ToLeader("unknown", 0))
    world.net.loop.turn(0.0)
    error = ClosedError("closed")
    world.net.loop.close(error)
    world.net.loop.close(error)
    assert isinstance(in_flight[0], DisconnectedError)
    assert (waiting, watcher.closed_with, world.net.selector.is_closed) == ([error], error, True)
    assert isinstance(world.call(ToAny())[0], ClosedError)


def test_only_a_request_that_was_not_written_can_be_withdrawn() -> None:
    world = World()
    world.net.loop.add(Watcher("t"))
    world.silent.add(InitProducerIdRequest)
    results: list[Any] = []
    waiting, written = (
        PendingRequest(route, InitProducerIdRequest, build_id, lambda result, now: results.append(result))
        for route in (ToLeader("unknown", 0), ToNode(1))
    )
    world.net.loop.enqueue(waiting)
    world.net.loop.enqueue(written)
    world.net.run(world.requested)
    view = world.net.loop.view("general")
    assert [view.withdraw(pending) for pending in (waiting, written, waiting)] == [True, False, False]
    world.net.loop.close(ClosedError("closed"))
    assert [type(result) for result in results] == [DisconnectedError]


def test_a_request_that_is_repeated_cannot_be_withdrawn() -> None:
    """The broker may have the first one."""
    world = World()
    world.net.loop.add(Watcher("t"))
    world.silent.add(InitProducerIdRequest)
    pending = PendingRequest(ToNode(2), InitProducerIdRequest, build_id, lambda result, now: None, may_retry=True)
    world.net.loop.enqueue(pending)
    world.net.run(world.requested)
    world.hosts[2].is_up = False
    world.net.run(lambda: world.net.loop.unreachable_since(2) is not None)
    assert not world.net.loop.view("general").withdraw(pending)


def test_posted_actions_run_in_order_also_at_the_end() -> None:
    world = World()
    seen: list[int] = []
    actions: list[Callable[[], object]] = [lambda: seen.append(1), lambda: seen.append(2)]
    for action in actions:
        world.net.loop.post(action)
    world.net.loop.turn(0.0)
    world.net.loop.post(lambda: seen.append(3))
    world.net.loop.close(ClosedError("closed"))
    assert seen == [1, 2, 3]


class _Asker(Watcher):
    """A client that sends one request in its turn."""

    def __init__(self, log: list[str], *names: str) -> None:
        super().__init__(*names)
        self.log = log
        self.is_to_send = False

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self.log.append("client")
        if not self.is_to_send:
            return []
        self.is_to_send = False
        return [PendingRequest(ToNode(1), FindCoordinatorRequest, _find, lambda result, now: None)]


def _find(version: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])


def test_a_turn_writes_then_handles_responses_then_requests_metadata_then_sends_waiting_calls_then_new_ones() -> None:
    world, log = World(), list[str]()
    loop, hosts = world.net.loop, world.hosts
    sender = _Asker(log, "t")
    loop.add(sender)
    ready = world.call(ToNode(1))
    world.net.run(lambda: ready and loop.snapshot.leader("t", 1) == 2)
    world.net.rest(1.0)
    hosts[1].handler = lambda request: handle(request)

    def handle(request: Request[Any]) -> Response | None:
        log.append(type(request).__name__.removesuffix("Request"))
        return world.handle(request)

    def on_response(result: object, now: float) -> None:
        log.append("response")
        sender.is_to_send = True  # in the same turn: clients run after responses
        loop.request_metadata("a test")
        loop.enqueue(PendingRequest(ToNode(1), InitProducerIdRequest, build_id, lambda result, now: None))

    loop.post(lambda: log.append("posted"))
    loop.enqueue(PendingRequest(ToNode(1), InitProducerIdRequest, build_id, on_response))
    log.clear()
    loop.turn(0.0)  # sends the call
    assert log == ["posted", "client"], "what is queued in a turn is written by the next one"
    log.clear()
    loop.turn(0.0)
    assert log == ["InitProducerId", "response", "client"], "written, and the response handled, before the clients"
    log.clear()
    loop.turn(0.0)
    assert log[:3] == ["Metadata", "InitProducerId", "FindCoordinator"], "in which order the turn before queued them"


def _note(outcomes: list[Any], result: Any, now: float) -> None:
    outcomes.append(result)


class _Sender(Watcher):
    """A client that sends one request to node 1 on each call of `send`."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.wishes: list[list[Any]] = []

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        wishes, self.wishes = self.wishes, []
        return [
            PendingRequest(ToNode(1), InitProducerIdRequest, build_id, partial(_note, outcome)) for outcome in wishes
        ]

    def send(self) -> list[Any]:
        self.wishes.append([])
        return self.wishes[-1]


@pytest.mark.parametrize("slow", [MetadataRequest, FindCoordinatorRequest])
@pytest.mark.parametrize("purpose", ["produce", "fetch", "coordinator"])
def test_produce_requests_do_not_wait_behind_a_slow_response_to_another_request(
    slow: type[Request[Any]], purpose: Purpose
) -> None:
    world, sender = World(), _Sender("t")
    world.net.loop.add(sender, purpose)
    before = sender.send()
    world.net.run(lambda: before)
    world.net.rest(1.0)
    world.silent.add(slow)
    count = len(world.requested(slow.__name__.removesuffix("Request")))
    world.net.loop.request_metadata("a test")
    world.call(ToCoordinator("group"))
    world.net.run(lambda: len(world.requested(slow.__name__.removesuffix("Request"))) > count)
    world.net.loop.post(lambda: None)  # else the loop sleeps
    outcome = sender.send()
    world.net.run(lambda: outcome, seconds=0.1)
    assert isinstance(outcome[0], InitProducerIdResponse)


def test_metadata_does_not_wait_behind_slow_produce_responses() -> None:
    world, sender = World(), _Sender("t")
    world.net.loop.add(sender, "produce")
    before = sender.send()
    world.net.run(lambda: before)
    world.net.rest(1.0)
    world.silent.add(InitProducerIdRequest)
    sender.send()
    world.net.run(lambda: len(world.requested()) == 2)
    world.leaders["t"] = [(3, 1), (3, 1)]
    world.net.loop.post(lambda: world.net.loop.request_metadata("a test"))
    world.net.run(lambda: world.net.loop.snapshot.leader("t", 0) == 3, seconds=0.5)
    assert world.net.loop.snapshot.leader("t", 0) == 3


def test_only_the_connection_of_the_needed_purpose_is_opened() -> None:
    world, sender = World(), _Sender("t")
    loop, hosts = world.net.loop, world.hosts
    loop.add(sender, "produce")
    outcome = sender.send()
    world.net.run(lambda: outcome)
    assert [host.connections for host in hosts.values()] == [2, 0, 0], "one to bootstrap, one for what is produced"
    for route in (ToAny(), ToAny()):
        outcome = world.call(route)
        world.net.run(partial(bool, outcome))
    loop.request_metadata("a test")
    world.net.rest(1.0)
    assert [host.connections for host in hosts.values()] == [2, 0, 0], "the connection to bootstrap serves all the rest"
    outcome = world.call(ToCoordinator("group"))
    world.net.run(partial(bool, outcome))
    assert [host.connections for host in hosts.values()] == [2, 0, 1], "a coordinator may make others wait"
    metrics = loop.metrics()
    assert metrics.connections == 3
    assert metrics.brokers[1].connections == metrics.brokers[3].connections == 1


def test_each_client_has_its_own_connection_to_join_groups() -> None:
    """A JoinGroup waits at the coordinator for the other members: it must not hold up a heartbeat or their own."""
    world = World()
    loop, host = world.net.loop, world.hosts[COORDINATOR]
    other = loop.make_client(world.net.config)
    loop.join(other)
    loop.add(Watcher())
    route = ToCoordinator("group")
    outcome = world.call(route)
    world.net.run(partial(bool, outcome))
    assert host.connections == 1
    outcome = world.call(route, connection="join")
    world.net.run(partial(bool, outcome))
    assert host.connections == 2
    done: list[Any] = []
    other.enqueue(
        PendingRequest(route, InitProducerIdRequest, build_id, lambda result, now: done.append(0), connection="join")
    )
    world.net.run(partial(bool, done))
    assert host.connections == 3
    other.leave(ClosedError("over"))
    world.net.rest(1.0)
    assert loop.metrics().brokers[COORDINATOR].connections == 2


def test_a_failed_broker_is_probed_on_the_connection_that_was_lost() -> None:
    world, sender = World(), _Sender("t")
    loop, hosts = world.net.loop, world.hosts
    loop.add(sender, "produce")
    outcome = sender.send()
    world.net.run(lambda: outcome)
    hosts[1].is_up = False
    world.net.run(lambda: loop.unreachable_since(1) is not None)
    hosts[1].is_up = True
    world.net.run(lambda: loop.unreachable_since(1) is None)
    assert loop.view("produce").failure(1) is None
    assert loop.is_ready(1, "produce")


# -- several clients on one loop


def test_a_removed_client_gets_each_of_its_results_once_and_the_others_stay() -> None:
    world = World()
    loop = world.net.loop
    client = loop.make_client(world.net.config)
    loop.join(client)
    staying, leaving = Watcher("t"), Watcher("u")
    loop.add(staying)
    client.add(leaving)
    world.net.run(lambda: loop.is_ready(2, "general"))
    world.silent.add(InitProducerIdRequest)
    results: list[tuple[str, Any]] = []

    def note(name: str, result: Response | KwireError | None, now: float) -> None:
        results.append((name, result))

    routes: dict[str, Route] = {"in flight": ToNode(2), "waiting": ToLeader("nowhere", 0)}
    calls = {
        name: PendingRequest(route, InitProducerIdRequest, build_id, partial(note, name))
        for name, route in routes.items()
    }
    for call in calls.values():
        client.enqueue(call)
    world.net.run(lambda: world.requested())
    client.leave(ClosedError("the client was closed"))
    assert [(name, type(result)) for name, result in results] == [
        ("waiting", ClosedError),
        ("in flight", DisconnectedError),
    ]
    assert (calls["waiting"].was_written, calls["in flight"].was_written) == (False, True)
    assert isinstance(leaving.closed_with, ClosedError)
    assert staying.closed_with is None
    world.net.rest(40.0)  # until its connection ends without a response
    assert len(results) == 2
    world.silent.clear()
    outcome = world.call(ToNode(2))
    world.net.run(lambda: outcome)
    assert outcome[0].producer_id == 7


def test_requests_of_a_removed_client_fail() -> None:
    world = World()
    client = world.net.loop.make_client(world.net.config)
    world.net.loop.join(client)
    client.leave(ClosedError("the client was closed"))
    late, results = Watcher("t"), list[Any]()
    client.add(late)
    client.enqueue(
        PendingRequest(ToNode(2), InitProducerIdRequest, build_id, lambda result, now: results.append(result))
    )
    assert isinstance(late.closed_with, ClosedError)
    assert isinstance(results[0], ClosedError)


def test_each_client_has_its_own_fetch_connections_that_end_with_it() -> None:
    world = World()
    loop = world.net.loop
    client = loop.make_client(world.net.config)
    loop.join(client)
    loop.add(Watcher("t"), "fetch")
    client.add(Watcher("t"), "fetch")
    world.net.run(lambda: loop.view("fetch").is_ready(2) and client.view("fetch").is_ready(2))
    assert world.hosts[2].connections == 2
    client.leave(ClosedError("the client was closed"))
    assert not client.view("fetch").is_ready(2)
    assert loop.view("fetch").is_ready(2)
    world.net.rest(5.0)
    assert world.hosts[2].connections == 2


class Greedy(Watcher):
    """Send as many requests to broker 2 as may be in flight, and count them."""

    def __init__(self) -> None:
        super().__init__("t")
        self.sent = 0

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if not view.is_ready(2):
            return []
        self.sent += (count := view.capacity(2))
        return [
            PendingRequest(ToNode(2), InitProducerIdRequest, build_id, lambda result, now: None) for _ in range(count)
        ]


def test_clients_that_want_all_of_a_connection_take_turns() -> None:
    world = World(max_in_flight=1)
    loop = world.net.loop
    greedy = []
    for _ in range(2):
        client = loop.make_client(world.net.config)
        loop.join(client)
        greedy.append(Greedy())
        client.add(greedy[-1], "produce")
    world.net.run(lambda: sum(one.sent for one in greedy) >= 20)
    assert min(one.sent for one in greedy) >= 5


@pytest.mark.parametrize("may_create", [True, False])
def test_each_client_says_whether_topics_may_be_created(may_create: bool) -> None:
    world = World(allow_auto_create_topics=not may_create)
    client = world.net.loop.make_client(ClientConfig("host-1:9092", allow_auto_create_topics=may_create))
    world.net.loop.join(client)
    client.add(Watcher("new"))
    client.view("general").allow_topic_creation("new")
    world.net.rest(2.0)
    requests = [one for host in world.hosts.values() for one in host.received if isinstance(one, MetadataRequest)]
    assert any(one.allow_auto_topic_creation for one in requests if one.topics) == may_create
