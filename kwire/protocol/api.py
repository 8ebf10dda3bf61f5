"""Every API of Kafka by number and name, and the classes of its messages, imported on first use."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from kwire.protocol.schema import Message, Request, Response


class ApiKey(IntEnum):
    """The API keys of Kafka up to 4.4, including those that 4.0 removed (4 to 7).

    The names are those of the messages: CREATE_TOPICS is CreateTopicsRequest in messages/create_topics.py.
    Kafka renamed two: ALTER_PARTITION was AlterIsr, LIST_CONFIG_RESOURCES was ListClientMetricsResources.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94

    @property
    def api_name(self) -> str:
        """Kafka's name: CreateTopics."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Api(NamedTuple):
    """An API: its number, its name such as "Metadata", its classes, and the versions that kwire knows."""

    key: ApiKey
    name: str
    request: "type[Request[Any]]"
    response: "type[Response]"
    versions: range


_KEYS_BY_NAME = {key.api_name: key for key in ApiKey}

# Messages that are not in the file of their API: former names, and those that are neither request nor response.
# Each name in _COORDINATORS is a pair of classes, ...Key and ...Value.
_OTHERS: Mapping[str, Sequence[str]] = {
    "aborted_txn": ["AbortedTxn"],
    "alter_isr": ["AlterIsrRequest", "AlterIsrResponse"],
    "consumer_protocol": ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment"],
    "control_records": [
        "ControlRecordTypeSchema", "EndTxnMarker", "LeaderChangeMessage", "SnapshotHeaderRecord",
        "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord",
    ],
    "default_principal_data": ["DefaultPrincipalData"],
    "list_client_metrics_resources": ["ListClientMetricsResourcesRequest", "ListClientMetricsResourcesResponse"],
    "metadata_access_records": [
        "DelegationTokenRecord", "UserScramCredentialRecord", "ClientQuotaRecord", "AccessControlEntryRecord",
        "RemoveAccessControlEntryRecord", "RemoveUserScramCredentialRecord", "RemoveDelegationTokenRecord",
    ],
    "metadata_broker_records": [
        "RegisterBrokerRecord", "UnregisterBrokerRecord", "FenceBrokerRecord", "UnfenceBrokerRecord",
        "BrokerRegistrationChangeRecord", "RegisterControllerRecord", "UnregisterControllerRecord",
    ],
    "metadata_cluster_records": [
        "FeatureLevelRecord", "ProducerIdsRecord", "NoOpRecord", "ZkMigrationStateRecord", "BeginTransactionRecord",
        "EndTransactionRecord", "AbortTransactionRecord",
    ],
    "metadata_topic_records": [
        "TopicRecord", "PartitionRecord", "ConfigRecord", "PartitionChangeRecord", "RemoveTopicRecord",
        "ClearElrRecord",
    ],
    "producer_snapshot": ["ProducerSnapshot"],
    "quorum_state": ["QuorumStateData"],
    "remote_log_records": [
        "RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataUpdateRecord",
        "RemotePartitionDeleteMetadataRecord", "RemoteLogSegmentMetadataSnapshotRecord",
    ],
}  # fmt: skip
_COORDINATORS: Mapping[str, Sequence[str]] = {
    "classic_group_records": ["LegacyOffsetCommit", "OffsetCommit", "GroupMetadata"],
    "consumer_group_records": [
        "ConsumerGroupMetadata", "ConsumerGroupPartitionMetadata", "ConsumerGroupMemberMetadata",
        "ConsumerGroupTargetAssignmentMetadata", "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupCurrentMemberAssignment", "ConsumerGroupRegularExpression",
    ],
    "share_group_records": [
        "ShareGroupPartitionMetadata", "ShareGroupMemberMetadata", "ShareGroupMetadata",
        "ShareGroupTargetAssignmentMetadata", "ShareGroupTargetAssignmentMember",
        "ShareGroupCurrentMemberAssignment", "ShareGroupStatePartitionMetadata",
    ],
    "share_state_records": ["ShareSnapshot", "ShareUpdate"],
    "streams_group_records": [
        "StreamsGroupMetadata", "StreamsGroupMemberMetadata", "StreamsGroupTargetAssignmentMetadata",
        "StreamsGroupTargetAssignmentMember", "StreamsGroupCurrentMemberAssignment", "StreamsGroupTopology",
    ],
    "transaction_log": ["TransactionLog"],
}  # fmt: skip

# {message: file in messages/}
OTHER_MESSAGES: Mapping[str, str] = {
    **{name: file for file, names in _OTHERS.items() for name in names},
    **{f"{name}{part}": file for file, names in _COORDINATORS.items() for name in names for part in ("Key", "Value")},
}


@cache
def api(key: int | str) -> Api:
    """Return the API with this number or name, such as "Metadata". Raises UnsupportedVersionError if there is none."""
    try:
        api_key = _KEYS_BY_NAME[key] if isinstance(key, str) else ApiKey(key)
    except (KeyError, ValueError):
        raise UnsupportedVersionError(f"there is no API {key!r}") from None
    name = api_key.api_name
    request, response = message_class(f"{name}Request"), message_class(f"{name}Response")
    return Api(api_key, name, request, response, request.VERSIONS)  # type: ignore[arg-type]


@cache
def message_class(name: str) -> "type[Message]":
    """Return the class of a message by its Kafka name, such as "MetadataRequest". Raises UnsupportedVersionError."""
    api_name = name.removesuffix("Request").removesuffix("Response")
    file = OTHER_MESSAGES.get(name)
    if file is None and api_name != name and api_name in _KEYS_BY_NAME:
        file = _KEYS_BY_NAME[api_name].name.lower()
    if file is not None:
        module_name = f"kwire.protocol.messages.{file}"
        try:
            found: type[Message] = getattr(import_module(module_name), name)
            return found
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
    raise UnsupportedVersionError(f"there is no message {name!r}")
