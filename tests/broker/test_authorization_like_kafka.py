"""What a client without rights gets from a real broker and from the embedded one, API by API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any
from uuid import UUID

import pytest
from brokers.cluster import NEWEST, KafkaCluster
from brokers.configuration import USERS

from kwire.broker import Cluster
from kwire.broker.authorizer import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kwire.protocol import api
from kwire.protocol.fields import REQUIRED, Array, default_of
from kwire.protocol.json import camel_case, from_json, to_json, uuid_text
from kwire.protocol.messages.create_acls import CreateAclsRequest
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.delete_acls import DeleteAclsRequest
from kwire.session import Sasl
from tests.broker.client import Client
from tests.broker.comparison import RETRIABLE
from tests.waiting import wait_for, wait_until

pytestmark = pytest.mark.live

_SUPER_USERS = "User:ANONYMOUS;User:bob"
_TOPIC, _GROUP, _ID = "t", "g", "x"
_NOT_THERE = {"name": "new", "numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
_PARTITION = {"partitionIndex": 0}
_TOPIC_RESOURCE = {"resourceType": 2, "resourceName": _TOPIC}
_BROKER_RESOURCE = {"resourceType": 4, "resourceName": "1"}
_GROUP_RESOURCE = {"resourceType": 32, "resourceName": _GROUP}
_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"

# Name, version, request as JSON. The topic t exists, nothing else does.
_CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("Fetch", 12, {"maxWaitMs": 0, "minBytes": 0, "topics": [
        {"topic": _TOPIC, "partitions": [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}]}]}),
    ("Fetch", 12, {"maxWaitMs": 0, "minBytes": 0, "topics": [
        {"topic": "new", "partitions": [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}]}]}),
    ("ListOffsets", 9, {"replicaId": -1, "topics": [
        {"name": _TOPIC, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]}),
    ("Metadata", 9, {"topics": [{"name": _TOPIC}, {"name": "new"}], "allowAutoTopicCreation": False,
                     "includeTopicAuthorizedOperations": True, "includeClusterAuthorizedOperations": True}),
    ("Metadata", 12, {"topics": None, "includeTopicAuthorizedOperations": True}),
    ("Metadata", 12, {"topics": [{"name": "auto"}], "allowAutoTopicCreation": True}),
    ("OffsetCommit", 9, {"groupId": _GROUP, "topics": [
        {"name": _TOPIC, "partitions": [{**_PARTITION, "committedOffset": 1, "committedMetadata": ""}]}]}),
    ("OffsetFetch", 7, {"groupId": _GROUP, "topics": [{"name": _TOPIC, "partitionIndexes": [0]}]}),
    ("OffsetFetch", 9, {"groups": [{"groupId": _GROUP, "topics": [{"name": _TOPIC, "partitionIndexes": [0]}]}]}),
    ("OffsetFetch", 9, {"groups": [{"groupId": _GROUP, "topics": None}]}),
    ("FindCoordinator", 4, {"keyType": 0, "coordinatorKeys": [_GROUP]}),
    ("FindCoordinator", 4, {"keyType": 1, "coordinatorKeys": [_ID]}),
    ("FindCoordinator", 6, {"keyType": 2, "coordinatorKeys": [f"{_GROUP}:{_MEMBER}:0"]}),
    ("JoinGroup", 9, {"groupId": _GROUP, "sessionTimeoutMs": 10000, "memberId": "", "protocolType": "consumer",
                      "protocols": []}),
    ("SyncGroup", 5, {"groupId": _GROUP, "generationId": 1, "memberId": "m", "protocolType": "consumer",
                      "protocolName": "range", "assignments": []}),
    ("Heartbeat", 4, {"groupId": _GROUP, "generationId": 1, "memberId": "m"}),
    ("LeaveGroup", 5, {"groupId": _GROUP, "members": [{"memberId": "m"}]}),
    ("DescribeGroups", 5, {"groups": [_GROUP], "includeAuthorizedOperations": True}),
    ("ListGroups", 5, {}),
    ("DeleteGroups", 2, {"groupsNames": ["none"]}),
    ("OffsetDelete", 0, {"groupId": _GROUP, "topics": [{"name": _TOPIC, "partitions": [_PARTITION]}]}),
    ("CreateTopics", 7, {"topics": [_NOT_THERE], "validateOnly": True, "timeoutMs": 5000}),
    ("DeleteTopics", 6, {"topics": [{"name": "new"}], "timeoutMs": 5000}),
    ("DeleteRecords", 2, {"topics": [{"name": _TOPIC, "partitions": [{**_PARTITION, "offset": 0}]}]}),
    ("CreatePartitions", 3, {"topics": [{"name": _TOPIC, "count": 3, "assignments": None}], "validateOnly": True,
                              "timeoutMs": 5000}),
    ("DescribeConfigs", 4, {"resources": [_TOPIC_RESOURCE, _BROKER_RESOURCE, _GROUP_RESOURCE]}),
    ("IncrementalAlterConfigs", 1, {"resources": [
        {**resource, "configs": []} for resource in (_TOPIC_RESOURCE, _BROKER_RESOURCE, _GROUP_RESOURCE)],
        "validateOnly": True}),
    ("InitProducerId", 5, {"transactionalId": None, "transactionTimeoutMs": 1000}),
    ("InitProducerId", 5, {"transactionalId": _ID, "transactionTimeoutMs": 1000}),
    ("AddPartitionsToTxn", 3, {"v3AndBelowTransactionalId": _ID, "v3AndBelowProducerId": 1_000_000,
                               "v3AndBelowProducerEpoch": 0,
                               "v3AndBelowTopics": [{"name": _TOPIC, "partitions": [0]}]}),
    ("AddPartitionsToTxn", 5, {"transactions": [
        {"transactionalId": _ID, "producerId": 1_000_000, "producerEpoch": 0,
         "topics": [{"name": _TOPIC, "partitions": [0]}]}]}),
    ("AddOffsetsToTxn", 4, {"transactionalId": _ID, "producerId": 1_000_000, "producerEpoch": 0, "groupId": _GROUP}),
    ("EndTxn", 4, {"transactionalId": _ID, "producerId": 1_000_000, "producerEpoch": 0, "committed": True}),
    ("TxnOffsetCommit", 4, {"transactionalId": _ID, "groupId": _GROUP, "producerId": 1_000_000, "producerEpoch": 0,
                            "topics": [{"name": _TOPIC, "partitions": [
                                {**_PARTITION, "committedOffset": 1, "committedMetadata": ""}]}]}),
    ("WriteTxnMarkers", 1, {"markers": [
        {"producerId": 1_000_000, "producerEpoch": 0, "transactionResult": False, "coordinatorEpoch": 0,
         "topics": [{"name": "new", "partitionIndexes": [0]}]}]}),
    ("DescribeProducers", 0, {"topics": [{"name": _TOPIC, "partitionIndexes": [0]}]}),
    ("DescribeTransactions", 0, {"transactionalIds": ["none"]}),
    ("ListTransactions", 1, {}),
    ("OffsetForLeaderEpoch", 4, {"replicaId": -1, "topics": [
        {"topic": _TOPIC, "partitions": [{"partition": 0, "leaderEpoch": 0}]}]}),
    ("DescribeCluster", 1, {"includeClusterAuthorizedOperations": True}),
    ("ConsumerGroupHeartbeat", 1, {"groupId": "g848", "memberId": _MEMBER, "memberEpoch": 5,
                                   "rebalanceTimeoutMs": -1}),
    ("ConsumerGroupHeartbeat", 1, {"groupId": "g848", "memberId": _MEMBER, "memberEpoch": 5,
                                   "rebalanceTimeoutMs": 1000, "subscribedTopicNames": [_TOPIC],
                                   "topicPartitions": []}),
    ("ConsumerGroupDescribe", 1, {"groupIds": ["g848"], "includeAuthorizedOperations": True}),
    ("ShareGroupHeartbeat", 1, {"groupId": "gs", "memberId": _MEMBER, "memberEpoch": 5,
                                "subscribedTopicNames": [_TOPIC]}),
    ("ShareGroupDescribe", 1, {"groupIds": ["gs"], "includeAuthorizedOperations": True}),
    ("ShareFetch", 1, {"groupId": "gs", "memberId": _MEMBER, "shareSessionEpoch": 7, "maxWaitMs": 0, "minBytes": 0,
                       "maxBytes": 1, "maxRecords": 1, "batchSize": 1}),
    ("ShareAcknowledge", 1, {"groupId": "gs", "memberId": _MEMBER, "shareSessionEpoch": 7}),
    ("DescribeShareGroupOffsets", 0, {"groups": [
        {"groupId": "gs", "topics": [{"topicName": _TOPIC, "partitions": [0]}]}]}),
    ("DeleteShareGroupOffsets", 0, {"groupId": "gs", "topics": [{"topicName": _TOPIC}]}),
    ("DescribeTopicPartitions", 0, {"topics": [{"name": _TOPIC}, {"name": "new"}]}),
    ("AlterConfigs", 2, {"resources": [
        {**resource, "configs": []} for resource in (_TOPIC_RESOURCE, _BROKER_RESOURCE, _GROUP_RESOURCE)],
        "validateOnly": True}),
    ("ListConfigResources", 1, {"resourceTypes": [2]}),
    ("ElectLeaders", 2, {"topicPartitions": [{"topic": _TOPIC, "partitions": [0]}], "timeoutMs": 5000}),
    ("AlterPartitionReassignments", 1, {"topics": [
        {"name": _TOPIC, "partitions": [{**_PARTITION, "replicas": None}]}], "timeoutMs": 5000}),
    ("ListPartitionReassignments", 0, {"topics": None, "timeoutMs": 5000}),
    ("DescribeLogDirs", 4, {"topics": []}),
    ("AlterReplicaLogDirs", 2, {"dirs": [{"path": "/nowhere", "topics": [{"name": _TOPIC, "partitions": [0]}]}]}),
    ("DescribeQuorum", 2, {"topics": [{"topicName": "__cluster_metadata", "partitions": [_PARTITION]}]}),
    ("UpdateFeatures", 2, {"featureUpdates": [{"feature": "group.version", "maxVersionLevel": 1, "upgradeType": 1}],
                           "validateOnly": True, "timeoutMs": 5000}),
    ("UnregisterBroker", 0, {"brokerId": 99}),
    ("DescribeAcls", 3, {"resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1,
                         "principalFilter": None, "hostFilter": None, "operation": 1, "permissionType": 1}),
    ("CreateAcls", 3, {"creations": [
        {"resourceType": 2, "resourceName": "", "principal": "User:a", "host": "*", "operation": 3,
         "permissionType": 3}]}),
    ("DeleteAcls", 3, {"filters": [
        {"resourceTypeFilter": 2, "resourceNameFilter": "no", "principalFilter": None, "hostFilter": None,
         "operation": 1, "permissionType": 1}]}),
]  # fmt: skip
_ALL = Operation.ALL
# What alice may do: operation, resource type, name, pattern type.
_RIGHTS: dict[str, list[tuple[int, int, str, int]]] = {
    "nothing": [],
    "topics": [
        (_ALL, ResourceType.TOPIC, _TOPIC, PatternType.LITERAL),
        (_ALL, ResourceType.TOPIC, "ne", PatternType.PREFIXED),
    ],
    "groups and transactions": [
        (_ALL, ResourceType.GROUP, "g", PatternType.PREFIXED),
        (_ALL, ResourceType.TRANSACTIONAL_ID, _ID, PatternType.LITERAL),
    ],
    "reading": [
        (Operation.READ, ResourceType.TOPIC, _TOPIC, PatternType.LITERAL),
        (Operation.READ, ResourceType.GROUP, "*", PatternType.LITERAL),
    ],
    "the cluster": [(_ALL, ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)],
}


class Side:
    """One of the two brokers, as its administrator bob and as alice."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.bob = Client(address, sasl=Sasl("PLAIN", "bob", USERS["bob"]))
        self.alice = Client(address, sasl=Sasl("PLAIN", "alice", USERS["alice"]))
        topic = CreateTopicsRequest.Topic(name=_TOPIC, num_partitions=1, replication_factor=1)
        self.bob.request(CreateTopicsRequest(topics=[topic]))
        # The coordinators' topics exist, and have leaders, once these have succeeded.
        for wanted in ("FindCoordinator", "OffsetFetch", "InitProducerId", "DescribeShareGroupOffsets"):
            for name, version, body in _CASES:
                if name == wanted:
                    self._ask(self.bob, name, version, body)

    def close(self) -> None:
        self.bob.close()
        self.alice.close()

    def grant(self, rights: list[tuple[int, int, str, int]]) -> None:
        """Replace alice's rights. Wait until the broker knows: it learns from the controller a moment later."""
        everything = DeleteAclsRequest.Filter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        self.bob.request(DeleteAclsRequest(filters=[everything]))
        canary = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "canary", PatternType.LITERAL)
        self._until_canary(0)
        creations = [
            CreateAclsRequest.Creation(
                resource_type=type, resource_name=name, resource_pattern_type=pattern, principal="User:alice", host="*",
                operation=operation, permission_type=Permission.ALLOW,
            )
            for operation, type, name, pattern in [*rights, canary]
        ]  # fmt: skip
        self.bob.request(CreateAclsRequest(creations=creations))
        self._until_canary(1)

    def _until_canary(self, wanted: int) -> None:
        """Wait until the broker has, or has not, the rule of the topic canary."""
        body = {"resourceTypeFilter": 2, "resourceNameFilter": "canary", "patternTypeFilter": 3,
                "principalFilter": None, "hostFilter": None, "operation": 1, "permissionType": 1}  # fmt: skip
        request = _request("DescribeAcls", 3, body)
        wait_until(lambda: len(self.bob.request(request, 3).resources) == wanted)

    def errors(self, name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Return each error code and each set of operations of alice's response, by its place."""
        return self._ask(self.alice, name, version, body)

    @staticmethod
    def _ask(client: Client, name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        request = _request(name, version, body)

        def ask() -> dict[str, Any]:
            response = client.request(request, version)
            assert response is not None, client.cause
            return dict(_errors(to_json(response, type(response), version), name))

        return wait_for(ask, lambda found: not any(code in RETRIABLE for code in found.values()))


def _request(name: str, version: int, body: dict[str, Any]) -> Any:
    return from_json(api(name).request, _complete(api(name).request, body), version)


def _complete(cls: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a request with the fields that it leaves out."""
    complete = dict(body)
    for field in cls.FIELDS:
        name = camel_case(field.name)
        value = complete.get(name)
        if isinstance(field.type, Array) and isinstance(value, list) and hasattr(field.type.element, "FIELDS"):
            complete[name] = [_complete(field.type.element, item) for item in value]
        elif name not in complete and field.tag is None:
            default = default_of(field)
            if default is REQUIRED:
                default = [] if isinstance(field.type, Array) else 0
            complete[name] = uuid_text(default) if isinstance(default, UUID) else default
    return complete


def _errors(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _errors(item, f"{path}.{index}")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name.lower().endswith(("errorcode", "operations")):
                yield f"{path}.{name}", item
            else:
                yield from _errors(item, f"{path}.{name}")


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, ...]]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": _SUPER_USERS,
        "delegation.token.secret.key": "not a secret",
        "auto.create.topics.enable": "true",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    embedded = Cluster(1, version="4.3", sasl=dict(USERS), authorizer=True, super_users=_SUPER_USERS)
    with KafkaCluster(NEWEST, sasl=True, settings=settings) as real, embedded:
        host, port = real.addresses("sasl").split(":")
        addresses = [(host, int(port)), embedded.brokers[1]]
        with ExitStack() as stack:
            yield tuple(stack.enter_context(closing(Side(address))) for address in addresses)
        assert not embedded.failures


@pytest.fixture(scope="module", params=list(_RIGHTS))
def rights(request: pytest.FixtureRequest, sides: tuple[Side, ...]) -> str:
    for side in sides:
        side.grant(_RIGHTS[request.param])
    name: str = request.param
    return name


@pytest.mark.parametrize(("name", "version", "body"), _CASES, ids=lambda value: str(value)[:60])
def test_errors_are_kafkas(rights: str, sides: tuple[Side, ...], name: str, version: int, body: dict[str, Any]) -> None:
    real, embedded = (side.errors(name, version, body) for side in sides)
    assert embedded == real, f"with rights on {rights}, {name} v{version} {json.dumps(body)}"
