"""Several listeners: which address each client gets, what each demands, and what survives a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme

import kwire
from kwire.broker import Cluster, Listener
from kwire.errors import ConfigurationError
from kwire.protocol import ApiKey
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import encode_batch
from tests.broker.client import Client
from tests.broker.conftest import StartCluster


def addresses(text: str) -> dict[int, tuple[str, int]]:
    pairs = [address.rpartition(":") for address in text.split(",")]
    return {id: (host, int(port)) for id, (host, _, port) in enumerate(pairs, 1)}


def told(client: Client, topic_id: Any = None) -> list[dict[int, tuple[str, int]]]:
    """Return the addresses that Metadata, DescribeCluster and FindCoordinator name."""
    metadata = client.request(MetadataRequest(topics=[]))
    cluster = client.request(DescribeClusterRequest(include_cluster_authorized_operations=False))
    (coordinator,) = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators
    return [
        {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers},
        {broker.broker_id: (broker.host, broker.port) for broker in cluster.brokers},
        {coordinator.node_id: (coordinator.host, coordinator.port)},
    ]


def test_each_client_gets_the_addresses_of_its_listener(start: StartCluster) -> None:
    cluster = start(2, listeners={"OUT": Listener(), "PROXIED": Listener(host="proxy", listen_host="127.0.0.1",
                                                                        advertised_ports=[7001, 7002])})  # fmt: skip
    outside = addresses(cluster.bootstrap_of("OUT"))
    assert addresses(cluster.bootstrap_of("PLAINTEXT")) == cluster.brokers
    assert addresses(cluster.bootstrap_of("PROXIED")) == {1: ("proxy", 7001), 2: ("proxy", 7002)}
    assert not set(outside.values()) & set(cluster.brokers.values())
    for expected in (dict(cluster.brokers), outside):
        client = Client(expected[1])
        metadata, described, coordinator = told(client)
        assert metadata == described == expected
        assert coordinator.items() <= expected.items()
        client.close()


def test_a_leader_is_named_by_the_address_of_the_listener(start: StartCluster) -> None:
    cluster = start(2, default_replication_factor=1, topics={"t": 1}, listeners={"OUT": Listener()})
    outside = addresses(cluster.bootstrap_of("OUT"))
    leader = cluster.leader("t")
    client = Client(outside[3 - leader])
    topic_id = cluster.call(lambda state, now: state.find_topic("t").id)
    data = ProduceRequest.Topic.Partition(index=0, records=encode_batch([(1, None, b"v", ())]))
    produce = ProduceRequest(
        acks=1, timeout_ms=100, topic_data=[ProduceRequest.Topic(name="t", topic_id=topic_id, partition_data=[data])]
    )
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=0,
        topics=[FetchRequest.Topic(topic="t", topic_id=topic_id, partitions=[
            FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=100),
        ])],
    )  # fmt: skip
    for response in (client.request(produce, 13), client.request(fetch, 17)):
        (node,) = response.node_endpoints
        assert (node.node_id, (node.host, node.port)) == (leader, outside[leader])
    client.close()


def test_a_listener_has_its_own_security(start: StartCluster, tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, certificate = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    server = kwire.Tls(cert_file=str(certificate))
    cluster = start(
        1, topics={"t": 1}, sasl={"me": "secret"},
        listeners={
            "OPEN": Listener(), "SAFE": Listener(host="localhost", tls=server, sasl=True),
        },
    )  # fmt: skip
    sasl = kwire.Sasl("PLAIN", "me", "secret")
    clients: list[tuple[str, Any, str, str]] = [
        (cluster.bootstrap, {"sasl": sasl}, "SASL_PLAINTEXT", "User:me"),
        (cluster.bootstrap_of("OPEN"), {}, "OPEN", "User:ANONYMOUS"),
        (cluster.bootstrap_of("SAFE"), {"sasl": sasl, "tls": kwire.Tls(ca_file=str(ca))}, "SAFE", "User:me"),
    ]
    for number, (bootstrap, options, listener, principal) in enumerate(clients):
        cluster.clear_request_log()
        with kwire.Producer(bootstrap, **options) as producer:
            assert producer.send("t", b"v").result(timeout=60).offset == number
        (record,) = cluster.request_log(api=ApiKey.PRODUCE)
        assert (record.listener, record.principal) == (listener, principal)


def test_listeners_keep_their_ports_in_a_restart(start: StartCluster) -> None:
    cluster = start(2, listeners={"OUT": Listener()})
    before = addresses(cluster.bootstrap_of("OUT"))
    cluster.stop(1)
    refused = Client(before[1])
    assert refused.cause is not None
    refused.close()
    cluster.restart(1)
    assert addresses(cluster.bootstrap_of("OUT")) == before
    client = Client(before[1])
    assert told(client)[0] == before
    client.close()


def test_a_wrong_address_is_told_until_it_is_mended(start: StartCluster) -> None:
    cluster = start(1, topics={"t": 1})
    right = cluster.brokers[1]
    cluster.advertise(1, "127.0.0.1", 1)  # nothing listens there
    client = Client(right)
    assert told(client)[0] == {1: ("127.0.0.1", 1)}
    cluster.advertise(1, *right)
    assert told(client)[0] == {1: right}
    client.close()


@pytest.mark.parametrize(
    ("listeners", "says"),
    [
        ({"out": Listener()}, "called 'out'"),
        ({"PLAINTEXT": Listener()}, "two listeners are called PLAINTEXT"),
        ({"OUT": Listener(sasl=True)}, "no users"),
        ({"OUT": Listener(ports=[1, 2])}, "2 ports, with 1 brokers"),
        ({"OUT": Listener(ports=[70_000])}, "the port 70000"),
        ({"OUT": "127.0.0.1:0"}, "listener OUT is"),
    ],
)
def test_listeners_that_cannot_be(listeners: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Cluster(1, listeners=listeners)


def test_a_listener_that_does_not_exist(start: StartCluster) -> None:
    with pytest.raises(ConfigurationError, match="listeners are PLAINTEXT"):
        start(1).bootstrap_of("OUT")
