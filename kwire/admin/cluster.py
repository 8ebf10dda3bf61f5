"""What a cluster consists of: DescribeCluster, or Metadata where the brokers are older than Kafka 2.8."""

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
    """`controller_id` is -1, `cluster_id` None where the brokers do not tell (before Kafka 0.10, before 0.10.1).

    Under KRaft brokers answer one of themselves as the controller: whom to send to, not who decides.
    """

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]

    @property
    def controller(self) -> Broker | None:
        return next((broker for broker in self.brokers if broker.id == self.controller_id), None)


def describe_cluster(runtime: LoopThread, timeout: float) -> ClusterDescription:
    try:
        answer = runtime.ask(ToAny(), DescribeClusterRequest, lambda version: DescribeClusterRequest(), timeout)
    except UnsupportedVersionError:
        return described_by_metadata(snapshot(runtime, [], timeout))
    return described(answer)


def described(answer: DescribeClusterResponse) -> ClusterDescription:
    if answer.error_code:
        raise broker_error(answer.error_code, answer.error_message, api="DescribeCluster")
    brokers = [Broker(one.broker_id, one.host, one.port, one.rack) for one in answer.brokers]
    return ClusterDescription(answer.cluster_id, answer.controller_id, tuple(sorted(brokers)))


def described_by_metadata(known: Snapshot) -> ClusterDescription:
    controller_id = known.controller_id if known.controller_id in known.brokers else NO_NODE
    return ClusterDescription(known.cluster_id, controller_id, tuple(sorted(known.brokers.values())))


def snapshot(runtime: LoopThread, topics: Sequence[str] | None, timeout: float) -> Snapshot:
    """Metadata of these topics (None: of all), fresh from a broker; a topic in error has its code."""
    answer = runtime.ask(ToAny(), MetadataRequest, lambda version: metadata_request(topics, version), timeout)
    return snapshot_of(answer, runtime.clock.now())


def snapshot_of(answer: MetadataResponse, now: float) -> Snapshot:
    if answer.error_code:
        raise broker_error(answer.error_code, api="Metadata")
    return Snapshot().updated(answer, now)


def metadata_request(topics: Sequence[str] | None, version: int) -> MetadataRequest:
    """Asks without creating: brokers that cannot be told so (before 0.11) may create a topic that is named."""
    wanted = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
    if wanted is None and version < _NONE_IS_ALL_SINCE:
        wanted = []
    if version < _AUTO_CREATION_SINCE:
        return MetadataRequest(topics=wanted)
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
