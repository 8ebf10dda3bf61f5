"""Records of Kafka's internal topics and control records: the message classes of their keys and values.

    __consumer_offsets     key: int16 type, message             value: int16 version, message
    __transaction_state    the same                             (null: a tombstone)
    __share_group_state    the same
    __cluster_metadata     no key                               value: varints frame (1), type, version; message
    __remote_log_metadata  no key                               the same
    control records        key: int16 version, int16 type       value: int16 version, message; of KRaft's types the
                                                                version is the message's own first field

A type is the API_KEY of its classes. Before Kafka 4.0 the type of a coordinator's key was called its version; keys here
have only version 0. Metadata records of Kafka 2.8, an early access release that no other release can read, are not
supported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct

from kwire.errors import DecodeError, EncodeError
from kwire.protocol.api import message_class
from kwire.protocol.diagnose import decode_prefix
from kwire.protocol.messages import control_records
from kwire.protocol.primitives import read_uvarint, uvarint
from kwire.protocol.schema import Message

__all__ = [
    "COORDINATOR_TOPICS", "FRAMED_TOPICS", "InternalRecord", "decode_control_record", "decode_internal_record",
    "encode_internal_record",
]  # fmt: skip

# {topic: {type: prefix of its key and value class}}
COORDINATOR_TOPICS: Mapping[str, Mapping[int, str]] = {
    "__consumer_offsets": {
        0: "LegacyOffsetCommit",
        1: "OffsetCommit",
        2: "GroupMetadata",
        3: "ConsumerGroupMetadata",
        4: "ConsumerGroupPartitionMetadata",
        5: "ConsumerGroupMemberMetadata",
        6: "ConsumerGroupTargetAssignmentMetadata",
        7: "ConsumerGroupTargetAssignmentMember",
        8: "ConsumerGroupCurrentMemberAssignment",
        9: "ShareGroupPartitionMetadata",
        10: "ShareGroupMemberMetadata",
        11: "ShareGroupMetadata",
        12: "ShareGroupTargetAssignmentMetadata",
        13: "ShareGroupTargetAssignmentMember",
        14: "ShareGroupCurrentMemberAssignment",
        15: "ShareGroupStatePartitionMetadata",
        16: "ConsumerGroupRegularExpression",
        17: "StreamsGroupMetadata",
        19: "StreamsGroupMemberMetadata",
        20: "StreamsGroupTargetAssignmentMetadata",
        21: "StreamsGroupTargetAssignmentMember",
        22: "StreamsGroupCurrentMemberAssignment",
        23: "StreamsGroupTopology",
    },
    "__transaction_state": {0: "TransactionLog"},
    "__share_group_state": {0: "ShareSnapshot", 1: "ShareUpdate"},
}

# {topic: {type: class}}
FRAMED_TOPICS: Mapping[str, Mapping[int, str]] = {
    "__cluster_metadata": {
        0: "RegisterBrokerRecord",
        1: "UnregisterBrokerRecord",
        2: "TopicRecord",
        3: "PartitionRecord",
        4: "ConfigRecord",
        5: "PartitionChangeRecord",
        7: "FenceBrokerRecord",
        8: "UnfenceBrokerRecord",
        9: "RemoveTopicRecord",
        10: "DelegationTokenRecord",
        11: "UserScramCredentialRecord",
        12: "FeatureLevelRecord",
        14: "ClientQuotaRecord",
        15: "ProducerIdsRecord",
        17: "BrokerRegistrationChangeRecord",
        18: "AccessControlEntryRecord",
        19: "RemoveAccessControlEntryRecord",
        20: "NoOpRecord",
        21: "ZkMigrationStateRecord",
        22: "RemoveUserScramCredentialRecord",
        23: "BeginTransactionRecord",
        24: "EndTransactionRecord",
        25: "AbortTransactionRecord",
        26: "RemoveDelegationTokenRecord",
        27: "RegisterControllerRecord",
        28: "ClearElrRecord",
        29: "UnregisterControllerRecord",
    },
    "__remote_log_metadata": {
        0: "RemoteLogSegmentMetadataRecord",
        1: "RemoteLogSegmentMetadataUpdateRecord",
        2: "RemotePartitionDeleteMetadataRecord",
        3: "RemoteLogSegmentMetadataSnapshotRecord",
    },
}

_CONTROL_VALUES = {
    control_records.ABORT: "EndTxnMarker",
    control_records.COMMIT: "EndTxnMarker",
    control_records.LEADER_CHANGE: "LeaderChangeMessage",
    control_records.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    control_records.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    control_records.KRAFT_VERSION: "KRaftVersionRecord",
    control_records.KRAFT_VOTERS: "VotersRecord",
}
_END_OF_TRANSACTION = (control_records.ABORT, control_records.COMMIT)

_INT16 = Struct(">h")
_FRAME_VERSION = 1


@dataclass(slots=True)
class InternalRecord:
    """A decoded record. `version` is that of the value. A tombstone has a key and no value."""

    key: Message | None
    value: Message | None
    version: int = 0


def decode_internal_record(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord:
    """Decode a record of an internal topic. Raises DecodeError with a path that begins with key or value."""
    if topic in COORDINATOR_TOPICS:
        return _decode_coordinator_record(COORDINATOR_TOPICS[topic], key, value)
    if topic not in FRAMED_TOPICS:
        raise DecodeError(f"{topic} is not a known internal topic", path="key", offset=0)
    if value is None:
        raise DecodeError(f"a record of {topic} without a value", path="value", offset=0)
    return _decode_framed_record(FRAMED_TOPICS[topic], value)


def encode_internal_record(record: InternalRecord) -> tuple[bytes | None, bytes | None]:
    """Encode a record as (key, value), the inverse of `decode_internal_record`. Raises EncodeError."""
    if record.key is not None:
        key = _type_of(record.key) + record.key.encode(0)
        value = None if record.value is None else _INT16.pack(record.version) + record.value.encode(record.version)
        return key, value
    if record.value is None or record.value.API_KEY is None:
        raise EncodeError("a record of an internal topic has a key, or a value with a type", path="value")
    frame = b"".join(map(uvarint, (_FRAME_VERSION, record.value.API_KEY, record.version)))
    return None, frame + record.value.encode(record.version)


def decode_control_record(key: bytes, value: bytes | None) -> InternalRecord:
    """Decode a control record. The result's `value` is None for an unknown type. Raises DecodeError."""
    _read_int16(key, "key")
    # As in Kafka, a key of a newer version is read for its type, and unknown types are skipped.
    read: control_records.ControlRecordTypeSchema
    read = decode_prefix(control_records.ControlRecordTypeSchema, key, 0, _INT16.size)[0]
    name = _CONTROL_VALUES.get(read.type)
    if name is None:
        return InternalRecord(read, None)
    if value is None:
        raise DecodeError("a control record without a value", api=name, path="value", offset=0)
    version = _read_int16(value, "value")
    cls = message_class(name)
    known = min(version, cls.VERSIONS.stop - 1)
    start = _INT16.size if read.type in _END_OF_TRANSACTION else 0
    return InternalRecord(read, decode_prefix(cls, value, known, start)[0], known)


def _decode_coordinator_record(types: Mapping[int, str], key: bytes | None, value: bytes | None) -> InternalRecord:
    if key is None:
        raise DecodeError("a record without a key", path="key", offset=0)
    type_ = _read_int16(key, "key")
    name = _class_name(types, type_, "key")
    key_message = message_class(f"{name}Key").decode(key, 0, _INT16.size)
    if value is None:
        return InternalRecord(key_message, None)
    version = _read_int16(value, "value")
    value_class = _class_with_version(f"{name}Value", version)
    return InternalRecord(key_message, value_class.decode(value, version, _INT16.size), version)


def _decode_framed_record(types: Mapping[int, str], value: bytes) -> InternalRecord:
    try:
        frame, pos = read_uvarint(value, 0)
        type_, pos = read_uvarint(value, pos)
        version, pos = read_uvarint(value, pos)
    except (IndexError, ValueError):
        raise DecodeError("not the frame of a metadata record", path="value", offset=0) from None
    if frame != _FRAME_VERSION:
        raise DecodeError(f"a frame of version {frame}, not {_FRAME_VERSION}", path="value", offset=0)
    value_class = _class_with_version(_class_name(types, type_, "value"), version)
    return InternalRecord(None, value_class.decode(value, version, pos), version)


def _read_int16(data: bytes, path: str) -> int:
    """Return the type or version in the two bytes before a key or value."""
    if len(data) < _INT16.size:
        raise DecodeError(f"{len(data)} bytes are too few for a type or version", path=path, offset=0)
    number: int = _INT16.unpack_from(data)[0]
    if number < 0:
        raise DecodeError(f"a type or version of {number}", path=path, offset=0)
    return number


def _class_name(types: Mapping[int, str], type_: int, path: str) -> str:
    if type_ not in types:
        raise DecodeError(f"unknown record type {type_}", path=path, offset=0)
    return types[type_]


def _class_with_version(name: str, version: int) -> type[Message]:
    cls = message_class(name)
    if version not in cls.VERSIONS:
        raise DecodeError("unknown version", api=name, version=version, path="value", offset=0)
    return cls


def _type_of(key: Message) -> bytes:
    if key.API_KEY is None:
        raise EncodeError(f"{type(key).__name__} is not a key of an internal topic", path="key")
    return _INT16.pack(key.API_KEY)
