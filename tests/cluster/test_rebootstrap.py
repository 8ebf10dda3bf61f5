"""Going back to the bootstrap addresses (KIP-899, KIP-1102, KIP-1242), on a network in memory and virtual time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kwire.cluster import ToAny, ToCoordinator, ToLeader, ToNode
from kwire.errors import ErrorCode, RequestTimeoutError
from kwire.net import VirtualClock
from kwire.protocol import Request, Response
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.session.handshake import BrokerHandshake
from tests.cluster.fake_net import APIS, Host
from tests.cluster.test_loop import Watcher, World

V13 = {**APIS, 3: range(14)}


def moved(world: World) -> None:
    """Let the three brokers end, and have three others, on new ports, behind the bootstrap name."""
    others = {node: Host(world.handle) for node in (1, 2, 3)}

    def handle(request: Request[Any]) -> Response | None:
        response = world.handle(request)
        if isinstance(response, MetadataResponse):
            for broker in response.brokers:
                broker.port = 19092
        return response

    for node, host in world.hosts.items():
        host.is_up = False
        others[node].handler = handle
        world.net.hosts[f"host-{node}", 19092] = others[node]
    world.net.hosts["bootstrap", 9092] = others[1]


def port_of_2(world: World) -> int | None:
    broker = world.net.loop.snapshot.brokers.get(2)
    return broker and broker.port


def started(apis: Mapping[int, range] = APIS, **options: Any) -> World:
    """Return a world whose client has used every broker, by a bootstrap name that leads to broker 1."""
    world = World(bootstrap="bootstrap:9092", **options)
    for host in world.hosts.values():
        host.apis = apis
    world.net.hosts["bootstrap", 9092] = world.hosts[1]
    world.net.loop.add(Watcher("t"))
    outcomes = [world.call(ToNode(node)) for node in (1, 2, 3)]
    world.net.run(lambda: all(outcomes))
    return world


def test_brokers_that_all_moved_are_found_by_the_bootstrap_name() -> None:
    world = started()
    moved(world)
    outcome = world.call(ToLeader("t", 1), timeout_ms=5_000, may_retry=True)
    world.net.run(lambda: outcome)
    assert not isinstance(outcome[0], Exception), outcome
    assert port_of_2(world) == 19092


def test_without_recovery_only_known_brokers_are_tried() -> None:
    world = started(metadata_recovery_strategy="none")
    moved(world)
    outcome = world.call(ToAny(), timeout_ms=5_000, may_retry=True)
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], RequestTimeoutError)
    assert world.net.hosts["bootstrap", 9092].connections == 0
    for host in world.hosts.values():
        host.is_up = True
    outcome = world.call(ToLeader("t", 1), may_retry=True)
    world.net.run(lambda: outcome)
    assert not isinstance(outcome[0], Exception), outcome


@pytest.mark.parametrize("trigger_ms", [20_000, 300_000])
def test_brokers_that_take_connections_and_send_no_metadata(trigger_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """As behind a load balancer that lost the cluster: no connection fails, so that only time can tell."""
    world = started(
        metadata_recovery_rebootstrap_trigger_ms=trigger_ms, request_timeout_ms=600_000, metadata_max_age_ms=10_000
    )
    moved(world)
    for host in world.hosts.values():
        host.is_up = True
        host.handler = lambda request: None
    with caplog.at_level(logging.WARNING, "kwire.cluster"):
        world.net.run(lambda: port_of_2(world) == 19092, seconds=400)
    waited = world.net.clock.now()
    assert trigger_ms / 1000 + 9 <= waited <= trigger_ms / 1000 + 12
    assert "no broker sent metadata for" in caplog.text
    outcome = world.call(ToLeader("t", 1))
    world.net.run(lambda: outcome)
    assert not isinstance(outcome[0], Exception), outcome


def test_brokers_that_come_back_after_an_outage_are_found_although_the_bootstrap_address_is_gone() -> None:
    world = started(metadata_recovery_rebootstrap_trigger_ms=1_000)
    world.net.hosts["bootstrap", 9092] = Host(world.handle, is_up=False)
    for host in world.hosts.values():
        host.is_up = False
    outcome = world.call(ToLeader("t", 1), timeout_ms=60_000, may_retry=True)
    world.net.rest(4.0)
    assert not outcome
    world.hosts[2].is_up = True
    world.net.run(lambda: outcome)
    assert not isinstance(outcome[0], Exception), outcome


def test_a_client_that_needs_no_metadata_does_not_begin_again() -> None:
    world = started(metadata_recovery_rebootstrap_trigger_ms=1_000)
    connections = world.net.hosts["bootstrap", 9092].connections
    world.net.rest(20.0)
    assert world.net.hosts["bootstrap", 9092].connections == connections


def test_a_metadata_response_may_ask_for_it_and_keeps_what_is_known_of_topics() -> None:
    world = started(apis=V13)
    before = world.net.loop.snapshot
    coordinated = world.call(ToCoordinator("g"))
    world.net.run(lambda: coordinated)
    moved(world)
    for host in world.hosts.values():
        host.is_up = True

    def refuse(request: Request[Any]) -> Response | None:
        if isinstance(request, MetadataRequest):
            return MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return world.handle(request)

    for host in world.hosts.values():
        host.handler = refuse
    snapshots = []
    world.net.loop.observe(lambda event: snapshots.append(world.net.loop.snapshot))
    world.net.loop.request_metadata("a test")
    world.net.run(lambda: port_of_2(world) == 19092)
    assert all("t" in snapshot.topics for snapshot in snapshots)
    assert all(snapshot.topics["t"].id == before.topics["t"].id for snapshot in snapshots)
    world.coordinator = 2
    outcome = world.call(ToCoordinator("g"))
    world.net.run(lambda: outcome)
    assert world.net.hosts["host-2", 19092].names().count("InitProducerId") == 1


def test_a_metadata_error_is_no_empty_cluster() -> None:
    world = started(apis=V13, metadata_recovery_strategy="none")
    answered = []

    def refuse(request: Request[Any]) -> Response | None:
        if isinstance(request, MetadataRequest):
            answered.append(request)
            return MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return world.handle(request)

    for host in world.hosts.values():
        host.handler = refuse
    world.net.loop.request_metadata("a test")
    world.net.run(lambda: len(answered) > 3)
    assert set(world.net.loop.snapshot.brokers) == {1, 2, 3}
    assert "REBOOTSTRAP_REQUIRED" in str(world.net.loop.metadata_status().last_error)


def test_an_address_that_another_cluster_took_is_refused_in_the_handshake() -> None:
    world = started(metadata_cluster_check=True)
    moved(world)
    others = [Host(world.handle, identity=("another", node)) for node in (1, 2, 3)]
    for node, other in enumerate(others, 1):
        world.net.hosts[f"host-{node}", 9092] = other
    outcome = world.call(ToLeader("t", 1), may_retry=True)
    world.net.run(lambda: outcome)
    assert not isinstance(outcome[0], Exception), outcome
    assert world.net.hosts["host-2", 19092].names().count("InitProducerId") == 1
    assert not any(other.received for other in others), "the other cluster got nothing"
    assert any(other.connections for other in others)


def test_advertised_addresses_of_another_cluster_cause_no_storm() -> None:
    """Nobody mends them: the bootstrap address is good, and each broker that it names belongs to another cluster."""
    clock = VirtualClock()
    world = World(bootstrap="bootstrap:9092", metadata_cluster_check=True, clock=clock)
    bootstrap = world.net.hosts["bootstrap", 9092] = Host(world.handle)
    for node, host in world.hosts.items():
        host.identity = ("another", node)
    world.net.loop.add(Watcher("t"))
    outcome = world.call(ToNode(2), timeout_ms=300_000, may_retry=True)
    world.net.run(lambda: outcome, seconds=400)
    assert isinstance(outcome[0], RequestTimeoutError)
    assert "REBOOTSTRAP_REQUIRED" in str(outcome[0])
    assert bootstrap.connections < 20
    assert sum(host.connections for host in world.hosts.values()) < 700  # a probe a second for each that failed


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
@pytest.mark.parametrize(("identity", "is_refused"), [(("test", 2), False), (("test", 3), True), (("other", 2), True)])
def test_what_a_client_says_of_the_broker(identity: tuple[str, int], is_refused: bool, strategy: str) -> None:
    world = started(metadata_cluster_check=True, metadata_recovery_strategy=strategy)
    world.hosts[2].identity = identity
    world.hosts[2].is_up = False
    world.net.rest(0.01)
    world.hosts[2].is_up = True
    outcome = world.call(ToNode(2), timeout_ms=3_000, may_retry=True)
    world.net.run(lambda: outcome)
    assert isinstance(outcome[0], Exception) is (is_refused and strategy == "rebootstrap")


@pytest.mark.parametrize(
    ("target", "is_refused"),
    [
        ((None, -1), False), (("test", 2), False), ((None, 3), False), (("other", 2), True), (("test", 3), True),
        (("test", -1), True),
    ],
)  # fmt: skip
def test_what_a_broker_compares(target: tuple[str | None, int], is_refused: bool) -> None:
    """As `clusterIdOrNodeIdIsInvalid` in KafkaApis of Kafka 4.4."""
    broker = BrokerHandshake({18: range(6)}, None, "client", {}, ("test", 2))
    request = ApiVersionsRequest(
        client_software_name="kwire", client_software_version="1", cluster_id=target[0], node_id=target[1]
    )
    code = broker.api_versions(request, 5).error_code
    assert code == (ErrorCode.REBOOTSTRAP_REQUIRED if is_refused else 0)
