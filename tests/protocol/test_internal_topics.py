"""Records of internal topics: bytes of a real broker (Kafka 4.3.1), and invalid ones."""

from functools import partial
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.errors import DecodeError, EncodeError
from kwire.protocol import Message, internal_topics, message_class
from kwire.protocol.internal_topics import (
    COORDINATOR_TOPICS,
    FRAMED_TOPICS,
    InternalRecord,
    decode_control_record,
    decode_internal_record,
    encode_internal_record,
)
from kwire.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from kwire.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kwire.protocol.messages.control_records import (
    ControlRecordTypeSchema,
    EndTxnMarker,
    LeaderChangeMessage,
    SnapshotFooterRecord,
)
from kwire.protocol.messages.metadata_broker_records import BrokerRegistrationChangeRecord
from kwire.protocol.messages.metadata_cluster_records import BeginTransactionRecord
from kwire.protocol.messages.transaction_log import TransactionLogKey, TransactionLogValue
from tests.protocol.samples import random_message

OFFSETS, TRANSACTIONS, METADATA = "__consumer_offsets", "__transaction_state", "__cluster_metadata"
Case = tuple[str, str | None, str | None, Message | None, Message | None, int]

TABLE: list[Case] = [
    (OFFSETS, "00010009672d636c617373696300017400000000",
     "0004000000000000000a0000000001000001a1fe3f6ef40100100feb16eab8aa48b39bf6790aff511bc5",
     OffsetCommitKey(group="g-classic", topic="t", partition=0),
     OffsetCommitValue(offset=10, leader_epoch=0, metadata="", commit_timestamp=1795266932468,
                       topic_id=UUID("0feb16ea-b8aa-48b3-9bf6-790aff511bc5")), 4),
    (OFFSETS, "0006000a672d636f6e73756d6572", "000000000002010008000001a1fe3f6f6b",
     ConsumerGroupTargetAssignmentMetadataKey(group_id="g-consumer"),
     ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=1795266932587), 0),
    (OFFSETS, "0008000a672d636f6e73756d6572001630463072646d3548513032415a696d46453235413567", None,
     ConsumerGroupCurrentMemberAssignmentKey(group_id="g-consumer", member_id="0F0rdm5HQ02AZimFE25A5g"), None, 0),
    (TRANSACTIONS, "000000027478",
     "0001000000000000000000000000ea600401000001a1fe3f628b000001a1fe3f625f0100080000000000000000",
     TransactionLogKey(transactional_id="tx"),
     TransactionLogValue(producer_id=0, producer_epoch=0, transaction_timeout_ms=60000, transaction_status=4,
                         transaction_partitions=[], transaction_last_update_timestamp_ms=1795266929291,
                         transaction_start_timestamp_ms=1795266929247, previous_producer_id=0), 1),
    (METADATA, None, "01170001001212426f6f747374726170207265636f726473",
     None, BeginTransactionRecord(name="Bootstrap records"), 0),
    (METADATA, None, "01110000000001000000000000000b010001ff",
     None, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=-1), 0),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda case: type(case[4] or case[3]).__name__)
def test_table(case: Case) -> None:
    topic, key_text, value_text, key, value, version = case
    data = tuple(None if text is None else bytes.fromhex(text) for text in (key_text, value_text))
    record = InternalRecord(key, value, version)
    assert decode_internal_record(topic, *data) == record
    assert encode_internal_record(record) == data


CONTROL = [
    ("00000000", "000000000005", 0, EndTxnMarker(coordinator_epoch=5)),
    ("00000001", "000000000005", 1, EndTxnMarker(coordinator_epoch=5)),
    ("00000001", "000100000005aabb", 1, EndTxnMarker(coordinator_epoch=5)),  # a newer version: what is known of it
    ("00010001", "000000000005", 1, EndTxnMarker(coordinator_epoch=5)),
    ("00000002", "00000000000102000000010002000000010000", 2, LeaderChangeMessage(
        version=0, leader_id=1, voters=[LeaderChangeMessage.Voter(voter_id=1)],
        granting_voters=[LeaderChangeMessage.Voter(voter_id=1)])),
    ("00000004", "000000", 4, SnapshotFooterRecord(version=0)),
    ("00000009", "00", 9, None),
    ("00000009", None, 9, None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "type_", "expected"), CONTROL)
def test_control_records(key: str, value: str | None, type_: int, expected: Message | None) -> None:
    record = decode_control_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert record.key == ControlRecordTypeSchema(type=type_)
    assert record.value == expected


BAD = [
    # topic, key, value, where the fault is, what is said of it
    (OFFSETS, None, "0000", "key", "without a key"),
    (OFFSETS, "00", None, "key", "1 bytes are too few"),
    (OFFSETS, "ffff", None, "key", "a type or version of -1"),
    (OFFSETS, "0012", None, "key", "unknown record type 18"),
    (OFFSETS, "0002000161ff", None, None, "left over"),
    (OFFSETS, "0002000161", "00", "value", "1 bytes are too few"),
    (OFFSETS, "0002000161", "0009", "value", "unknown version"),
    (OFFSETS, "0002000161", "0001ffff", "protocol_type", "null"),
    (METADATA, None, None, "value", "without a value"),
    (METADATA, None, "", "value", "not the frame"),
    (METADATA, None, "0080", "value", "not the frame"),
    (METADATA, None, "000200", "value", "a frame of version 0"),
    (METADATA, None, "010600", "value", "unknown record type 6"),
    (METADATA, None, "010209", "value", "unknown version"),
    ("topic", "00", "00", "key", "not a known internal topic"),
]


@pytest.mark.parametrize(("topic", "key", "value", "path", "reason"), BAD)
def test_an_invalid_record_raises_with_the_reason(
    topic: str, key: str | None, value: str | None, path: str | None, reason: str
) -> None:
    data = [None if text is None else bytes.fromhex(text) for text in (key, value)]
    with pytest.raises(DecodeError, match=reason) as caught:
        decode_internal_record(topic, *data)
    assert caught.value.where.get("path") == path


BAD_CONTROL = [("0000", ""), ("", ""), ("00000001", None), ("00000001", "0000"), ("00000001", "00"), ("ffff0001", "")]


@pytest.mark.parametrize(("key", "value"), BAD_CONTROL)
def test_an_invalid_control_record_raises(key: str, value: str | None) -> None:
    with pytest.raises(DecodeError):
        decode_control_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@pytest.mark.parametrize("record", [
    InternalRecord(None, None), InternalRecord(None, SnapshotFooterRecord(version=0)),
    InternalRecord(EndTxnMarker(coordinator_epoch=1), None),
], ids=repr)  # fmt: skip
def test_a_record_that_cannot_be_encoded_raises(record: InternalRecord) -> None:
    with pytest.raises(EncodeError):
        encode_internal_record(record)


@given(st.sampled_from([*COORDINATOR_TOPICS, *FRAMED_TOPICS]), st.binary(max_size=40), st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_decode_error(topic: str, key: bytes, value: bytes) -> None:
    for leading in (b"", b"\0\1", b"\0\5", b"\1\3\0"):
        for read in (partial(decode_internal_record, topic), decode_control_record):
            try:
                record = read(leading + key, leading + value)
            except DecodeError:
                continue
            assert isinstance(record, InternalRecord)


def test_types_are_the_keys_of_their_classes() -> None:
    for topic, types in COORDINATOR_TOPICS.items():
        for type_, name in types.items():
            assert message_class(f"{name}Key").API_KEY == message_class(f"{name}Value").API_KEY == type_, topic
            assert list(message_class(f"{name}Key").VERSIONS) == [0]
    for topic, types in FRAMED_TOPICS.items():
        for type_, name in types.items():
            assert type_ == message_class(name).API_KEY, topic


def test_every_value_of_every_topic_round_trips() -> None:
    random = Random(4)
    for topic, types in COORDINATOR_TOPICS.items():
        for name in types.values():
            key = random_message(message_class(f"{name}Key"), 0, random)
            for version in message_class(f"{name}Value").VERSIONS:
                value = random_message(message_class(f"{name}Value"), version, random)
                record = InternalRecord(key, value, version)
                assert decode_internal_record(topic, *encode_internal_record(record)) == record


def test_null_for_a_tagged_struct_is_a_zero_byte() -> None:
    null = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, client_id="", client_host="", subscribed_topic_names=[],
        subscribed_topic_regex=None, server_assignor=None, classic_member_metadata=None,
    )  # fmt: skip
    assert null.encode(0).hex().endswith("01 00 01 00".replace(" ", ""))
    assert ConsumerGroupMemberMetadataValue.decode(null.encode(0), 0) == null
    with pytest.raises(DecodeError, match="neither 01 nor 00"):
        ConsumerGroupMemberMetadataValue.decode(null.encode(0)[:-1] + b"\xff", 0)


def test_exported_names() -> None:
    assert all(hasattr(internal_topics, name) for name in internal_topics.__all__)
