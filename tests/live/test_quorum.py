"""Voters of a real quorum come and go (KIP-853), and nodes are forgotten, as Kafka's own tools print it."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import UUID

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.configuration import HOST
from brokers.jars import fetch_jars
from brokers.java import java_command
from brokers.process import run_java

from kwire import Admin
from kwire.admin import Quorum
from kwire.cli import main
from kwire.errors import BrokerError, ErrorCode, UnsupportedVersionError
from kwire.protocol.json import uuid_text
from tests.waiting import wait_until

# kafka-tools of this version are not published.
_FORGETS_CONTROLLERS = "4.4.0"


def test_voters_are_added_and_removed_and_a_broker_is_forgotten(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        KafkaCluster(NEWEST, nodes=3, has_dynamic_quorum=True, heap_mb=256) as kafka,
        Admin(kafka.bootstrap) as admin,
    ):
        assert admin.cluster.features()["kraft.version"].level == 1
        directories = directories_of(admin)
        assert voters(admin.cluster.quorum()) == {1}
        admin.cluster.add_voter(2, directories[2], {"CONTROLLER": (HOST, kafka.port(2, "controller"))})
        third = ["3", uuid_text(directories[3])]
        address = f"CONTROLLER={HOST}:{kafka.port(3, 'controller')}"
        command("cluster", "add-voter", *third, address, "-b", kafka.bootstrap, "--dry-run")
        assert voters(admin.cluster.quorum()) == {1, 2}
        command("cluster", "add-voter", *third, address, "-b", kafka.bootstrap)
        assert [json.loads(line)["dry_run"] for line in capfd.readouterr().out.splitlines()] == [True, False]
        wait_until(lambda: voters(admin.cluster.quorum()) == {1, 2, 3})
        found = admin.cluster.quorum()
        assert printed_quorum(kafka) == {
            (one.id, uuid_text(one.directory_id), *(f"{name}://{host}:{port}" for name, host, port in listeners))
            for one in found.voters
            for listeners in [found.listeners[one.id]]
        }
        for call, code in refused_changes(admin, directories):
            with pytest.raises(BrokerError) as refused:
                call()
            assert refused.value.code == code
            assert refused.value.remedy
        admin.cluster.remove_voter(3, uuid_text(directories[3]))
        wait_until(lambda: voters(admin.cluster.quorum()) == {1, 2})
        with pytest.raises(UnsupportedVersionError):
            admin.cluster.unregister_controller(3)
        kafka.stop_node(3, graceful=False)
        assert 3 in brokers(admin)
        admin.cluster.unregister_broker(3)
        wait_until(lambda: 3 not in brokers(admin))
        assert {id for id, *_ in printed_quorum(kafka)} == {1, 2}
        with pytest.raises(BrokerError) as unknown:
            admin.cluster.unregister_broker(3)
        assert unknown.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_controller_is_forgotten() -> None:
    with (
        KafkaCluster(_FORGETS_CONTROLLERS, nodes=2, has_dynamic_quorum=True, heap_mb=256) as kafka,
        Admin(f"{HOST}:{kafka.port(1)}") as admin,
    ):
        assert printed_controllers(kafka) == {1, 2}
        kafka.stop_node(2, graceful=False)
        admin.cluster.unregister_controller(2)
        assert printed_controllers(kafka) == {1}


def voters(quorum: Quorum) -> set[int]:
    return {one.id for one in quorum.voters}


def brokers(admin: Admin) -> set[int]:
    """Return the ids of the registered brokers, whether they run or not."""
    found = admin.cluster.describe(fenced=True)
    return {one.id for one in (*found.brokers, *found.fenced)}


def directories_of(admin: Admin) -> dict[int, UUID]:
    """Return the directories of the controllers that are no voters yet."""
    wait_until(lambda: len(admin.cluster.quorum().observers) == 2)
    return {one.id: one.directory_id for one in admin.cluster.quorum().observers}


def refused_changes(admin: Admin, directories: dict[int, UUID]) -> list[tuple[Any, ErrorCode]]:
    there = {"CONTROLLER": (HOST, 1)}
    return [
        (lambda: admin.cluster.add_voter(2, directories[2], there), ErrorCode.DUPLICATE_VOTER),
        (lambda: admin.cluster.remove_voter(9, directories[2]), ErrorCode.VOTER_NOT_FOUND),
        (lambda: admin.cluster.remove_voter(2, directories[3]), ErrorCode.VOTER_NOT_FOUND),
        (
            lambda: admin.cluster.remove_voter(2, directories[2], cluster_id="another"),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
    ]


def command(*arguments: str) -> None:
    with pytest.raises(SystemExit) as exited:
        main(list(arguments))
    assert not exited.value.code


def printed_quorum(kafka: KafkaCluster) -> set[tuple[int, str, str]]:
    """Return id, directory and address of each voter, as kafka-metadata-quorum prints them."""
    where = ["--bootstrap-server", kafka.bootstrap]
    printed = kafka.run("org.apache.kafka.tools.MetadataQuorumCommand", [*where, "describe", "--status"]).decode()
    (found,) = re.findall(r"^CurrentVoters: *(\[.*)$", printed, re.MULTILINE)
    return {(one["id"], one["directoryId"], *one["endpoints"]) for one in json.loads(found)}


def printed_controllers(kafka: KafkaCluster) -> set[int]:
    """Return the controllers that are registered, as kafka-cluster of the newest published tools prints them."""
    where = ["--bootstrap-controller", f"{HOST}:{kafka.port(1, 'controller')}"]
    command = java_command(
        fetch_jars("kafka", NEWEST), "org.apache.kafka.tools.ClusterTool", ["list-endpoints", *where],
        heap_mb=128, log4j=kafka.directory / "log4j.properties",
    )  # fmt: skip
    printed = run_java(command, timeout_s=60).decode()
    return {int(id) for id in re.findall(r"^(\d+)\s", printed, re.MULTILINE)}
