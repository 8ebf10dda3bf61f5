"""Send the requests of administration: access rules, quotas, users, tokens, replicas, features, the quorum."""

from __future__ import annotations

from uuid import UUID

from brokers.configuration import HOST, USERS

from kwire.protocol.messages.add_raft_voter import AddRaftVoterRequest
from kwire.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kwire.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kwire.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kwire.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kwire.protocol.messages.create_acls import CreateAclsRequest
from kwire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kwire.protocol.messages.delete_acls import DeleteAclsRequest
from kwire.protocol.messages.describe_acls import DescribeAclsRequest
from kwire.protocol.messages.describe_client_quotas import EXACT, DescribeClientQuotasRequest
from kwire.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kwire.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kwire.protocol.messages.describe_quorum import DescribeQuorumRequest
from kwire.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kwire.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kwire.protocol.messages.elect_leaders import ElectLeadersRequest
from kwire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kwire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kwire.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kwire.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from kwire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kwire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from kwire.protocol.messages.unregister_controller import UnregisterControllerRequest
from kwire.protocol.messages.update_features import UpdateFeaturesRequest
from recording.scene import TOPIC, Scene, wait_for
from recording.wire import Exchange, Wire

_RESOURCE_TOPIC, _ANY = 2, 1
_READ, _ALLOW = 3, 3
_LITERAL, _PREFIXED = 3, 4
_NO_SUCH_NODE = 99
_HOUR_MS = 3_600_000
_DIRECTORY = UUID(int=7)


# -- access rules


def create_acls(scene: Scene, version: int) -> Exchange:
    creation = CreateAclsRequest.Creation(
        resource_type=_RESOURCE_TOPIC, resource_name="ruled", principal="User:alice", host="*", operation=_READ,
        permission_type=_ALLOW,
    )  # fmt: skip
    if version >= 1:
        creation.resource_pattern_type = _PREFIXED
    return scene.wire.exchange(CreateAclsRequest(creations=[creation]), version)


def describe_acls(scene: Scene, version: int) -> Exchange:
    scene.newest(
        CreateAclsRequest(
            creations=[
                CreateAclsRequest.Creation(
                    resource_type=_RESOURCE_TOPIC, resource_name="described", principal="User:bob", host="10.0.0.1",
                    operation=_READ, permission_type=_ALLOW,
                )
            ]
        )
    )  # fmt: skip
    request = DescribeAclsRequest(
        resource_type_filter=_RESOURCE_TOPIC, resource_name_filter=None, principal_filter="User:bob", host_filter=None,
        operation=_ANY, permission_type=_ANY,
    )  # fmt: skip
    if version >= 1:
        request.pattern_type_filter = _ANY
    return scene.wire.exchange(request, version)


def delete_acls(scene: Scene, version: int) -> Exchange:
    wanted = DeleteAclsRequest.Filter(
        resource_type_filter=_RESOURCE_TOPIC, resource_name_filter="described", principal_filter=None,
        host_filter=None, operation=_ANY, permission_type=_ANY,
    )  # fmt: skip
    if version >= 1:
        wanted.pattern_type_filter = _LITERAL
    return scene.wire.exchange(DeleteAclsRequest(filters=[wanted]), version)


# -- quotas and users


def alter_client_quotas(scene: Scene, version: int) -> Exchange:
    entity = AlterClientQuotasRequest.Entry.Entity
    op = AlterClientQuotasRequest.Entry.Op(key="producer_byte_rate", value=1e6, remove=False)
    entities = [
        entity(entity_type="user", entity_name="alice"),
        entity(entity_type="client-id", entity_name=None),
    ]
    entry = AlterClientQuotasRequest.Entry(entity=entities, ops=[op])
    return scene.wire.exchange(AlterClientQuotasRequest(entries=[entry], validate_only=False), version)


def describe_client_quotas(scene: Scene, version: int) -> Exchange:
    component = DescribeClientQuotasRequest.Component(entity_type="user", match_type=EXACT, match="alice")
    return scene.wire.exchange(DescribeClientQuotasRequest(components=[component], strict=False), version)


def alter_user_scram_credentials(scene: Scene, version: int) -> Exchange:
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name="carol", mechanism=1, iterations=4_096, salt=b"some salt", salted_password=bytes(32)
    )
    return scene.wire.exchange(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), version)


def describe_user_scram_credentials(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(DescribeUserScramCredentialsRequest(users=None), version)


# -- delegation tokens: only for clients that have authenticated


class _Alice:
    """A connection with SASL, on which alice has authenticated."""

    def __init__(self, scene: Scene) -> None:
        self.wire = Wire(HOST, scene.cluster.port(1, "sasl"))
        self.scene = scene

    def __enter__(self) -> _Alice:
        self.wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        secret = b"\0alice\0" + USERS["alice"].encode()
        assert not self.wire.ask(SaslAuthenticateRequest(auth_bytes=secret), 0).error_code
        return self

    def __exit__(self, *exc: object) -> None:
        self.wire.__exit__(*exc)

    def token(self) -> bytes:
        request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=_HOUR_MS)
        created = self.wire.ask(request, self.scene.versions(CreateDelegationTokenRequest)[-1])
        assert not created.error_code
        hmac = bytes(created.hmac)
        version = self.scene.versions(DescribeDelegationTokenRequest)[-1]

        def is_known() -> bool:
            described = self.wire.ask(DescribeDelegationTokenRequest(owners=None), version)
            return hmac in [bytes(token.hmac) for token in described.tokens]

        wait_for(is_known, "delegation token")
        return hmac


def create_delegation_token(scene: Scene, version: int) -> Exchange:
    renewer = CreateDelegationTokenRequest.Renewer(principal_type="User", principal_name="bob")
    with _Alice(scene) as alice:
        return alice.wire.exchange(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=_HOUR_MS), version)


def renew_delegation_token(scene: Scene, version: int) -> Exchange:
    with _Alice(scene) as alice:
        request = RenewDelegationTokenRequest(hmac=alice.token(), renew_period_ms=_HOUR_MS)
        return alice.wire.exchange(request, version)


def expire_delegation_token(scene: Scene, version: int) -> Exchange:
    with _Alice(scene) as alice:
        request = ExpireDelegationTokenRequest(hmac=alice.token(), expiry_time_period_ms=-1)
        return alice.wire.exchange(request, version)


def describe_delegation_token(scene: Scene, version: int) -> Exchange:
    owner = DescribeDelegationTokenRequest.Owner(principal_type="User", principal_name="alice")
    with _Alice(scene) as alice:
        return alice.wire.exchange(DescribeDelegationTokenRequest(owners=[owner]), version)


# -- partitions and directories


def describe_topic_partitions(scene: Scene, version: int) -> Exchange:
    topic = DescribeTopicPartitionsRequest.Topic(name=TOPIC)
    request = DescribeTopicPartitionsRequest(topics=[topic], response_partition_limit=1)
    return scene.wire.exchange(request, version)


def alter_partition_reassignments(scene: Scene, version: int) -> Exchange:
    partition = AlterPartitionReassignmentsRequest.Topic.Partition(partition_index=0, replicas=[1])
    topic = AlterPartitionReassignmentsRequest.Topic(name=TOPIC, partitions=[partition])
    return scene.wire.exchange(AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[topic]), version)


def list_partition_reassignments(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None), version)


def elect_leaders(scene: Scene, version: int) -> Exchange:
    topic = ElectLeadersRequest.Topic(topic=TOPIC, partitions=[0])
    return scene.wire.exchange(ElectLeadersRequest(topic_partitions=[topic], timeout_ms=10_000), version)


def describe_log_dirs(scene: Scene, version: int) -> Exchange:
    topic = DescribeLogDirsRequest.Topic(topic=TOPIC, partitions=[0, 1])
    return scene.wire.exchange(DescribeLogDirsRequest(topics=[topic]), version)


def alter_replica_log_dirs(scene: Scene, version: int) -> Exchange:
    """Move a replica to the directory where it is."""
    path = scene.newest(DescribeLogDirsRequest(topics=None)).results[0].log_dir
    topic = AlterReplicaLogDirsRequest.Dir.Topic(name=TOPIC, partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequest.Dir(path=path, topics=[topic])])
    return scene.wire.exchange(request, version)


# -- the cluster


def list_config_resources(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(ListConfigResourcesRequest(), version)


def update_features(scene: Scene, version: int) -> Exchange:
    """Ask for a feature that no broker has."""
    update = UpdateFeaturesRequest.FeatureUpdate(feature="no.such.feature", max_version_level=1)
    return scene.wire.exchange(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), version)


def describe_quorum(scene: Scene, version: int) -> Exchange:
    partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    topic = DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=[partition])
    return scene.wire.exchange(DescribeQuorumRequest(topics=[topic]), version)


def add_raft_voter(scene: Scene, version: int) -> Exchange:
    listener = AddRaftVoterRequest.Listener(name="controller", host=HOST, port=9)
    request = AddRaftVoterRequest(
        cluster_id="another cluster", timeout_ms=10_000, voter_id=_NO_SUCH_NODE, voter_directory_id=_DIRECTORY,
        listeners=[listener],
    )  # fmt: skip
    return scene.wire.exchange(request, version)


def remove_raft_voter(scene: Scene, version: int) -> Exchange:
    request = RemoveRaftVoterRequest(
        cluster_id="another cluster", voter_id=_NO_SUCH_NODE, voter_directory_id=_DIRECTORY
    )
    return scene.wire.exchange(request, version)


def unregister_broker(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(UnregisterBrokerRequest(broker_id=_NO_SUCH_NODE), version)


def unregister_controller(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(UnregisterControllerRequest(controller_id=_NO_SUCH_NODE), version)
