"""Descriptions of a cluster, from DescribeCluster and Metadata responses."""

from __future__ import annotations

import pytest

from kwire.admin.cluster import described, described_by_metadata
from kwire.admin.metadata import metadata_request, snapshot_of
from kwire.cluster import Broker, Snapshot
from kwire.errors import AuthorizationError, BrokerError, ErrorCode
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
