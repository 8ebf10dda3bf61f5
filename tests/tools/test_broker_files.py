"""What tools/brokers writes and fetches for each version, without a JVM: property files, coordinates, free ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from brokers.configuration import Node, Plan, listeners, login_file, needs_login_file, server_properties
from brokers.jars import coordinates, version_numbers
from brokers.probe import brokers_known, free_ports

DIRECTORY = Path("/data")


def properties(
    version: str, *, nodes: int = 1, tls: bool = False, sasl: bool = False, relayed: bool = False
) -> dict[str, str]:
    """The settings of the first of `nodes` nodes."""
    chosen = listeners(version, tls=tls, sasl=sasl, relayed=relayed)
    names = [*chosen, "controller", "relay"]
    made = [
        Node(id, DIRECTORY, {name: 1_000 * id + place for place, name in enumerate(names)})
        for id in range(1, nodes + 1)
    ]
    text = server_properties(Plan(version, made, chosen, 4, zookeeper_port=2181), made[0])
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(
    ("version", "expected", "absent"),
    [
        ("4.3.1", {"process.roles": "broker,controller", "node.id": "1"}, "zookeeper.connect"),
        ("3.9.1", {"controller.quorum.voters": "1@127.0.0.1:1001"}, "share.coordinator.state.topic.min.isr"),
        ("2.8.2", {"zookeeper.connect": "127.0.0.1:2181", "broker.id": "1"}, "process.roles"),
        ("0.11.0.3", {"listeners": "PLAINTEXT://127.0.0.1:1000"}, "node.id"),
        ("0.8.2.2", {"host.name": "127.0.0.1", "port": "1000"}, "listeners"),
    ],
)
def test_settings_that_each_version_knows(version: str, expected: dict[str, str], absent: str) -> None:
    settings = properties(version)
    assert settings | expected == settings
    assert absent not in settings
    assert settings["num.partitions"] == "4"


@pytest.mark.parametrize(("nodes", "copies"), [(1, "1"), (3, "3"), (5, "3")])
def test_internal_topics_are_copied_as_often_as_there_are_nodes(nodes: int, copies: str) -> None:
    assert properties("4.3.1", nodes=nodes)["offsets.topic.replication.factor"] == copies


def test_passwords_are_written_as_java_reads_them() -> None:
    settings = properties("4.3.1", sasl=True)
    assert 'user_bob="bob\'s \\u00fcnicode"' in settings["listener.name.sasl.plain.sasl.jaas.config"]


def test_users_of_an_old_broker_are_in_a_file_of_its_jvm() -> None:
    settings = properties("1.1.1", sasl=True)
    assert settings["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    assert not any("jaas" in name for name in settings)
    assert needs_login_file("1.1.1")
    assert not needs_login_file("2.8.2")
    assert 'user_bob="bob\'s ünicode"' in login_file()


def test_a_relayed_listener_is_advertised_where_the_relay_is() -> None:
    settings = properties("4.3.1", relayed=True)
    assert "RELAYED://127.0.0.1:1001" in settings["listeners"]
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1000,RELAYED://127.0.0.1:1003"
    with pytest.raises(ValueError, match=r"0\.10\.2"):
        listeners("0.8.2.2", tls=False, sasl=False, relayed=True)


@pytest.mark.parametrize(("version", "kind"), [("2.8.2", "tls"), ("0.8.2.2", "sasl"), ("0.8.2.2", "tls")])
def test_listeners_that_a_version_cannot_have(version: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind.upper()} listeners need Kafka"):
        listeners(version, tls=kind == "tls", sasl=kind == "sasl")


@pytest.mark.parametrize(
    ("artifact", "version", "first", "others"),
    [
        ("kafka", "4.3.1", "org.apache.kafka:kafka_2.13:4.3.1", "kafka-tools"),
        ("kafka", "0.11.0.3", "org.apache.kafka:kafka_2.12:0.11.0.3", "jaxb-api"),
        ("kafka", "0.8.2.2", "org.apache.kafka:kafka_2.11:0.8.2.2", ""),
        ("kafka_2.13", "4.3.1", "org.apache.kafka:kafka_2.13:4.3.1", ""),
    ],
)
def test_what_is_fetched(artifact: str, version: str, first: str, others: str) -> None:
    wanted = coordinates(artifact, version)
    assert wanted[0] == first
    assert others in " ".join(wanted[1:])


def test_a_version_that_is_unknown_says_where_to_add_it() -> None:
    with pytest.raises(SystemExit, match="_BROKERS"):
        coordinates("kafka", "9.0.0")


def test_versions_compare_by_number() -> None:
    assert version_numbers("0.11.0.3") > version_numbers("0.8.2.2")


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_nobody_is_up_on_a_free_port() -> None:
    with pytest.raises(ConnectionRefusedError):
        brokers_known("127.0.0.1", free_ports(1)[0])
