"""The cluster itself: brokers, features, the quorum of its controllers, and what is wrong with it.

DescribeCluster, or Metadata where the brokers are older than Kafka 2.8; ApiVersions and UpdateFeatures; DescribeQuorum;
AddRaftVoter, RemoveRaftVoter; UnregisterBroker, UnregisterController.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from kwire.admin.noun import Noun, check_code, checked_name, checked_names, checked_node, one_of
from kwire.cluster import Broker, Snapshot, ToAny
from kwire.cluster.metadata import NO_NODE
from kwire.cluster.waiting import blocking
from kwire.errors import ConfigurationError, UnsupportedVersionError, broker_error
from kwire.protocol.json import uuid_from_text
from kwire.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kwire.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kwire.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kwire.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kwire.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from kwire.protocol.messages.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kwire.version import VERSION

_METADATA_LOG = "__cluster_metadata"
_FENCED_SINCE = 2  # DescribeCluster
_CHANGES: Mapping[str, int] = {"upgrade": UPGRADE, "downgrade": SAFE_DOWNGRADE, "unsafe-downgrade": UNSAFE_DOWNGRADE}
_KINDS_SINCE = 1  # UpdateFeatures
_KAFKAS_TEXT = 22  # characters of an id in base64
_PORTS = 65_536


@dataclass(frozen=True)
class ClusterDescription:
    """The cluster's id, controller and brokers.

    Brokers before Kafka 0.10 do not send the controller's id, which is -1 then; before 0.10.1 `cluster_id` is None.
    Under KRaft the brokers name one of themselves, which forwards requests to the controller. `fenced` are registered
    brokers that take no part, where they were asked for.
    """

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    fenced: tuple[Broker, ...] = ()

    @property
    def controller(self) -> Broker | None:
        return next((broker for broker in self.brokers if broker.id == self.controller_id), None)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the cluster (KIP-584), such as metadata.version.

    level      the finalized level, 0 where the feature is off
    supported  the lowest and highest level that the broker has, None where it does not know the feature
    """

    name: str
    level: int
    supported: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or an observer of the metadata log. Times are milliseconds since 1970, -1 where they are unknown."""

    id: int
    directory_id: UUID
    log_end: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum of the controllers (KRaft). `listeners` has the addresses of the voters, from Kafka 3.9."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: Mapping[int, tuple[tuple[str, str, int], ...]]


class ClusterAdmin(Noun):
    """What both faces share."""

    async def _describe(self, *, fenced: bool = False, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, its brokers, the controller; with `fenced` the fenced brokers too (Kafka 4.0)."""
        deadline = self._deadline(timeout)

        def build(version: int) -> DescribeClusterRequest:
            if fenced and version < _FENCED_SINCE:
                raise UnsupportedVersionError("the brokers do not list fenced brokers", remedy="this needs Kafka 4.0")
            return DescribeClusterRequest(include_fenced_brokers=fenced)

        try:
            response = await self._ask(ToAny(), DescribeClusterRequest, build, deadline)
        except UnsupportedVersionError:
            if fenced:
                raise
            return described_by_metadata(await self._snapshot([], deadline))
        return described(response)

    async def _metadata(self, topics: Sequence[str] | None = None, *, timeout: float | None = None) -> Snapshot:
        """Request topics, partitions and their leaders from a broker; of all topics if `topics` is None.

        A topic that does not exist is in the result with its error_code, and is not created.
        """
        names = None if topics is None else checked_names("topics", topics)
        return await self._snapshot(names, self._deadline(timeout))

    async def _features(self, *, timeout: float | None = None) -> dict[str, Feature]:
        """Return the features that the cluster has finalized and that a broker supports, by name (Kafka 2.7)."""
        response: ApiVersionsResponse = await self._ask(
            ToAny(),
            ApiVersionsRequest,
            lambda version: ApiVersionsRequest(client_software_name="kwire", client_software_version=VERSION),
            self._deadline(timeout),
        )
        check_code(response.error_code, "ApiVersions")
        levels = {one.name: one.max_version_level for one in response.finalized_features}
        supported = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
        names = sorted(levels.keys() | supported.keys())
        return {name: Feature(name, levels.get(name, 0), supported.get(name)) for name in names}

    async def _set_feature(
        self, name: str, level: int, *, change: str = "upgrade", dry_run: bool = False, timeout: float | None = None
    ) -> None:
        """Set the level of a feature; level 0 turns it off.

        change   "upgrade", "downgrade", or "unsafe-downgrade", which may lose metadata
        dry_run  have the controller only check it (Kafka 3.3)
        """
        checked_name("name", name)
        kind = one_of("change", change, _CHANGES)
        if isinstance(level, bool) or not isinstance(level, int) or level < 0:
            raise ConfigurationError(f"level is {level!r}", remedy="give a whole number, 0 to turn the feature off")
        deadline = self._deadline(timeout)

        def build(version: int) -> UpdateFeaturesRequest:
            if version < _KINDS_SINCE and (dry_run or kind == UNSAFE_DOWNGRADE):
                raise UnsupportedVersionError(
                    "the brokers have neither a dry run nor unsafe downgrades", remedy="this needs Kafka 3.3"
                )
            update = UpdateFeaturesRequest.FeatureUpdate(feature=name, max_version_level=level)
            if version < _KINDS_SINCE:
                update.allow_downgrade = kind != UPGRADE
            else:
                update.upgrade_type = kind
            return UpdateFeaturesRequest(
                timeout_ms=self._broker_timeout_ms(deadline), feature_updates=[update], validate_only=dry_run
            )

        def parse(response: UpdateFeaturesResponse) -> None:
            check_code(response.error_code, "UpdateFeatures", response.error_message, resource=f"feature {name}")
            for one in response.results:
                check_code(one.error_code, "UpdateFeatures", one.error_message, resource=f"feature {one.feature}")

        await self._controlled(UpdateFeaturesRequest, build, parse, deadline)

    async def _quorum(self, *, timeout: float | None = None) -> Quorum:
        """Return leader, voters and observers of the metadata log, and how far each is (KRaft, Kafka 3.3)."""
        partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
        topic = DescribeQuorumRequest.Topic(topic_name=_METADATA_LOG, partitions=[partition])
        return await self._controlled(
            DescribeQuorumRequest, lambda version: DescribeQuorumRequest(topics=[topic]), _quorum,
            self._deadline(timeout), route=ToAny(),
        )  # fmt: skip

    async def _add_voter(
        self,
        voter: int,
        directory_id: UUID | str,
        listeners: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Make a controller a voter of the quorum (Kafka 3.9): its id, its directory, `{listener: (host, port)}`.

        The directory's id is in its meta.properties; `quorum().observers` have it too.
        """
        checked_node("voter", voter)
        directory = checked_directory(directory_id)
        if cluster_id is not None:
            checked_name("cluster_id", cluster_id)
        addresses = _addresses(listeners)
        deadline = self._deadline(timeout)

        def build(version: int) -> AddRaftVoterRequest:
            return AddRaftVoterRequest(
                cluster_id=cluster_id, timeout_ms=self._broker_timeout_ms(deadline), voter_id=voter,
                voter_directory_id=directory, listeners=addresses,
            )  # fmt: skip

        def parse(response: AddRaftVoterResponse) -> None:
            check_code(response.error_code, "AddRaftVoter", response.error_message, resource=f"voter {voter}")

        await self._controlled(AddRaftVoterRequest, build, parse, deadline)

    async def _remove_voter(
        self, voter: int, directory_id: UUID | str, *, cluster_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Take a voter out of the quorum (Kafka 3.9)."""
        checked_node("voter", voter)
        directory = checked_directory(directory_id)
        if cluster_id is not None:
            checked_name("cluster_id", cluster_id)

        def parse(response: RemoveRaftVoterResponse) -> None:
            check_code(response.error_code, "RemoveRaftVoter", response.error_message, resource=f"voter {voter}")

        await self._controlled(
            RemoveRaftVoterRequest,
            lambda version: RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter, voter_directory_id=directory),
            parse,
            self._deadline(timeout),
        )

    async def _unregister_broker(self, broker: int, *, timeout: float | None = None) -> None:
        """Have the controller forget a broker that is down for good (KRaft)."""
        checked_node("broker", broker)

        def parse(response: UnregisterBrokerResponse) -> None:
            check_code(response.error_code, "UnregisterBroker", response.error_message, resource=f"broker {broker}")

        await self._controlled(
            UnregisterBrokerRequest, lambda version: UnregisterBrokerRequest(broker_id=broker), parse,
            self._deadline(timeout),
        )  # fmt: skip

    async def _unregister_controller(self, controller: int, *, timeout: float | None = None) -> None:
        """Have the cluster forget a controller that is down for good (Kafka 4.4)."""
        checked_node("controller", controller)

        def parse(response: UnregisterControllerResponse) -> None:
            check_code(
                response.error_code, "UnregisterController", response.error_message, resource=f"controller {controller}"
            )

        await self._controlled(
            UnregisterControllerRequest, lambda version: UnregisterControllerRequest(controller_id=controller), parse,
            self._deadline(timeout),
        )  # fmt: skip

    async def _explain(self, *, timeout: float | None = None) -> list[str]:
        """Return what is wrong with the cluster, a line for each finding; an empty list is good news."""
        deadline = self._deadline(timeout)
        known = await self._snapshot(None, deadline)
        return findings(known)


class AdminCluster(ClusterAdmin):
    """`Admin.cluster`, for threads."""

    describe = blocking(ClusterAdmin._describe)
    metadata = blocking(ClusterAdmin._metadata)
    features = blocking(ClusterAdmin._features)
    set_feature = blocking(ClusterAdmin._set_feature)
    quorum = blocking(ClusterAdmin._quorum)
    add_voter = blocking(ClusterAdmin._add_voter)
    remove_voter = blocking(ClusterAdmin._remove_voter)
    unregister_broker = blocking(ClusterAdmin._unregister_broker)
    unregister_controller = blocking(ClusterAdmin._unregister_controller)
    explain = blocking(ClusterAdmin._explain)


def findings(known: Snapshot) -> list[str]:
    """Return what a snapshot of all topics shows to be wrong: the controller, leaders, replicas."""
    found: list[str] = []
    if known.controller_id not in known.brokers:
        found.append("no broker is named as the controller: nothing can be created or moved")
    for topic in sorted(known.topics.values(), key=lambda one: one.name):
        if topic.error_code:
            found.append(f"topic {topic.name}: {broker_error(topic.error_code).name}")
        for index, partition in enumerate(topic.partitions):
            where = f"{topic.name}-{index}"
            if partition.leader == NO_NODE:
                found.append(f"{where} has no leader: it is offline; its replicas are {_ids(partition.replicas)}")
                continue
            behind = [node for node in partition.replicas if node not in partition.isr]
            if behind:
                found.append(f"{where} is under-replicated: {_ids(behind)} of {_ids(partition.replicas)} not in sync")
            if partition.replicas and partition.leader != partition.replicas[0]:
                preferred = partition.replicas[0]
                found.append(f"{where} is led by {partition.leader}, not by its preferred leader {preferred}")
    return found


def _ids(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))


def checked_directory(id: UUID | str) -> UUID:
    """Return the id of a directory, which may be Kafka's text of it."""
    if isinstance(id, UUID):
        return id
    with suppress(TypeError, ValueError):
        return UUID(id) if len(id) > _KAFKAS_TEXT else uuid_from_text(id)
    raise ConfigurationError(
        f"directory_id is {id!r:.60}",
        remedy="give a UUID, or the directory.id of meta.properties, such as 'GPp174lPRu2nRwcmoXNQYA'",
    )


def _addresses(listeners: Mapping[str, tuple[str, int]]) -> list[AddRaftVoterRequest.Listener]:
    """Return the listeners of a controller for a request. Raises ConfigurationError."""
    found = []
    try:
        for name, (host, port) in listeners.items():
            if not (isinstance(name, str) and isinstance(host, str) and type(port) is int and 0 < port < _PORTS):
                raise ValueError
            found.append(AddRaftVoterRequest.Listener(name=name, host=host, port=port))
    except (AttributeError, TypeError, ValueError):
        found = []
    if not found:
        raise ConfigurationError(
            f"listeners is {listeners!r:.80}", remedy='give {listener: (host, port)}: {"CONTROLLER": ("kafka-3", 9093)}'
        )
    return found


def described(response: DescribeClusterResponse) -> ClusterDescription:
    check_code(response.error_code, "DescribeCluster", response.error_message)
    found = [(Broker(one.broker_id, one.host, one.port, one.rack), one.is_fenced) for one in response.brokers]
    brokers = tuple(sorted(broker for broker, is_fenced in found if not is_fenced))
    fenced = tuple(sorted(broker for broker, is_fenced in found if is_fenced))
    return ClusterDescription(response.cluster_id, response.controller_id, brokers, fenced)


def described_by_metadata(known: Snapshot) -> ClusterDescription:
    controller_id = known.controller_id if known.controller_id in known.brokers else NO_NODE
    return ClusterDescription(known.cluster_id, controller_id, tuple(sorted(known.brokers.values())))


def _quorum(response: DescribeQuorumResponse) -> Quorum:
    check_code(response.error_code, "DescribeQuorum", response.error_message)
    partition = response.topics[0].partitions[0]
    check_code(partition.error_code, "DescribeQuorum", partition.error_message)

    def replicas(found: list[DescribeQuorumResponse.Topic.Partition.Replica]) -> tuple[QuorumReplica, ...]:
        return tuple(
            QuorumReplica(
                one.replica_id, one.replica_directory_id, one.log_end_offset, one.last_fetch_timestamp,
                one.last_caught_up_timestamp,
            )
            for one in found
        )  # fmt: skip

    listeners = {
        node.node_id: tuple((one.name, one.host, one.port) for one in node.listeners) for node in response.nodes
    }
    return Quorum(
        partition.leader_id, partition.leader_epoch, partition.high_watermark, replicas(partition.current_voters),
        replicas(partition.observers), listeners,
    )  # fmt: skip
