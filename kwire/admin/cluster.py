"""Describe the cluster: DescribeCluster, or Metadata where the brokers are older than Kafka 2.8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kwire.cluster import Broker, LoopThread, Snapshot, ToAny
from kwire.cluster.metadata import NO_NODE
from kwire.errors import UnsupportedVersionError, broker_error
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

_NONE_IS_ALL_SINCE = 1
_AUTO_CREATION_SINCE = 4


@dataclass(frozen=True)
class ClusterDescription:
    """The cluster's id, controller and brokers.

    Brokers before Kafka 0.10 do not send the controller's id, which is -1 then; before 0.10.1 `cluster_id` is None.
    Under KRaft the brokers name one of themselves, which forwards requests to the controller.
    """

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]

    @property
    def controller(self) -> Broker | None:
        return next((broker for broker in self.brokers if broker.id == self.controller_id), None)


def describe_cluster(runtime: LoopThread, timeout: float) -> ClusterDescription:
    try:
        response = runtime.request(ToAny(), DescribeClusterRequest, lambda version: DescribeClusterRequest(), timeout)
    except UnsupportedVersionError:
        return described_by_metadata(snapshot(runtime, [], timeout))
    return described(response)


def described(response: DescribeClusterResponse) -> ClusterDescription:
    if response.error_code:
        raise broker_error(response.error_code, response.error_message, api="DescribeCluster")
    brokers = [Broker(one.broker_id, one.host, one.port, one.rack) for one in response.brokers]
    return ClusterDescription(response.cluster_id, response.controller_id, tuple(sorted(brokers)))


def described_by_metadata(known: Snapshot) -> ClusterDescription:
    controller_id = known.controller_id if known.controller_id in known.brokers else NO_NODE
    return ClusterDescription(known.cluster_id, controller_id, tuple(sorted(known.brokers.values())))


def snapshot(runtime: LoopThread, topics: Sequence[str] | None, timeout: float) -> Snapshot:
    """Request the metadata of these topics (None: of all) from a broker; a topic in error has its code."""
    response = runtime.request(ToAny(), MetadataRequest, lambda version: metadata_request(topics, version), timeout)
    return snapshot_of(response, runtime.clock.now())


def snapshot_of(response: MetadataResponse, now: float) -> Snapshot:
    if response.error_code:
        raise broker_error(response.error_code, api="Metadata")
    return Snapshot().updated(response, now)


def metadata_request(topics: Sequence[str] | None, version: int) -> MetadataRequest:
    """Return a request that creates no topic. Brokers before 0.11 have no field for it, and may create topics."""
    requested = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
    if requested is None and version < _NONE_IS_ALL_SINCE:
        requested = []
    if version < _AUTO_CREATION_SINCE:
        return MetadataRequest(topics=requested)
    return MetadataRequest(topics=requested, allow_auto_topic_creation=False)
