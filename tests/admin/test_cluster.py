"""Descriptions of a cluster, from DescribeCluster and Metadata responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kwire import Admin
from kwire.admin.cluster import checked_directory, described, described_by_metadata
from kwire.admin.metadata import metadata_request, snapshot_of
from kwire.cluster import Broker, Snapshot
from kwire.errors import AuthorizationError, BrokerError, ConfigurationError, ErrorCode
from kwire.protocol.json import uuid_text
from kwire.protocol.messages.describe_cluster import DescribeClusterResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.cluster.snapshots import metadata, snapshot

BROKERS = tuple(Broker(node, f"host-{node}", 9092) for node in (1, 2, 3))


def test_a_describe_cluster_response() -> None:
    response = DescribeClusterResponse(
        error_code=0,
        cluster_id="c",
        controller_id=2,
        brokers=[DescribeClusterResponse.Broker(broker_id=b.id, host=b.host, port=b.port) for b in reversed(BROKERS)],
    )
    description = described(DescribeClusterResponse.decode(response.encode(2), 2))
    assert (description.cluster_id, description.brokers, description.controller) == ("c", BROKERS, BROKERS[1])


def test_an_error_of_describe_cluster_is_raised() -> None:
    response = DescribeClusterResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not you", cluster_id="", brokers=[]
    )
    with pytest.raises(AuthorizationError, match="not you"):
        described(response)


@pytest.mark.parametrize(("controller_id", "expected"), [(1, BROKERS[0]), (9, None), (-1, None)])
def test_a_description_from_metadata(controller_id: int, expected: Broker | None) -> None:
    description = described_by_metadata(snapshot({}, controller_id=controller_id))
    assert (description.cluster_id, description.brokers, description.controller) == ("test", BROKERS, expected)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("topics", [None, [], ["a", "b"]])
def test_metadata_of_all_or_some_topics_in_every_version(version: int, topics: list[str] | None) -> None:
    request = metadata_request(topics, version)
    decoded = MetadataRequest.decode(request.encode(version), version)
    if topics is None:
        assert decoded.topics == ([] if version == 0 else None)
    else:
        assert [topic.name for topic in decoded.topics or []] == topics
    assert decoded.allow_auto_topic_creation == (version < 4)


def test_a_snapshot_keeps_the_error_code_of_a_topic() -> None:
    known = snapshot_of(metadata({"t": [(1, 0)]}, errors={"u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), 5.0)
    assert isinstance(known, Snapshot)
    assert [(topic.name, topic.error_code) for topic in known.topics.values()] == [("t", 0), ("u", 3)]
    with pytest.raises(BrokerError):
        snapshot_of(MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED), 5.0)


ID = UUID("18fa75ef-894f-46ed-a747-0726a1735060")


@pytest.mark.parametrize("given", [ID, str(ID), ID.hex, uuid_text(ID)])
def test_the_id_of_a_directory_may_be_kafkas_text(given: UUID | str) -> None:
    assert checked_directory(given) == ID


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: a.add_voter("2", ID, {"C": ("h", 1)}), "voter is '2': give its node.id"),
        (
            lambda a: a.add_voter(2, "GPp174", {"C": ("h", 1)}),
            "directory_id is 'GPp174': give a UUID, or the directory",
        ),
        (lambda a: a.add_voter(2, 5, {"C": ("h", 1)}), "directory_id is 5: give a UUID"),
        (lambda a: a.add_voter(2, ID, {"C": "h:1"}), "listeners is {'C': 'h:1'}: give {listener: (host, port)}"),
        (lambda a: a.add_voter(2, ID, {"C": ("h", "1")}), "listeners is {'C': ('h', '1')}: give"),
        (lambda a: a.add_voter(2, ID, {}), "listeners is {}: give"),
        (lambda a: a.add_voter(2, ID, [("C", "h", 1)]), "listeners is [('C', 'h', 1)]: give"),
        (lambda a: a.remove_voter(True, ID), "voter is True: give"),
        (lambda a: a.remove_voter(2, None), "directory_id is None: give"),
        (lambda a: a.unregister_broker(-1), "broker is -1: give"),
        (lambda a: a.unregister_controller(1.5), "controller is 1.5: give"),
    ],
)
def test_wrong_nodes_and_directories_are_refused_before_anything_is_sent(
    call: Callable[[Any], object], said: str
) -> None:
    with Admin("localhost:1") as admin, pytest.raises(ConfigurationError) as refused:
        call(admin.cluster)
    assert said in str(refused.value)
