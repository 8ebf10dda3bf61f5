"""The consumer protocol: a version in two bytes, and newer versions read up to the known fields."""

import pytest

from kwire.errors import DecodeError
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)

SUBSCRIPTION = ConsumerProtocolSubscription(topics=["t"], user_data=b"u")


def test_round_trip() -> None:
    data = encode_versioned(SUBSCRIPTION, 0)
    assert data == bytes.fromhex("0000 00000001 0001 74 00000001 75")
    assert decode_versioned(ConsumerProtocolSubscription, data) == (0, SUBSCRIPTION)


def test_a_newer_version_is_read_up_to_the_known_fields() -> None:
    data = bytes.fromhex("0009") + SUBSCRIPTION.encode(3) + b"what version 9 added"
    assert decode_versioned(ConsumerProtocolSubscription, data) == (9, SUBSCRIPTION)
    assignment = ConsumerProtocolAssignment(assigned_partitions=[])
    assert decode_versioned(ConsumerProtocolAssignment, encode_versioned(assignment, 1)) == (1, assignment)


BAD = [
    ("", "no version"),
    ("00", "no version"),
    ("ffff", "version of -1"),
    ("0000 0000", "bytes are needed"),
    ("0000 ffffffff", "null"),
]


@pytest.mark.parametrize(("text", "reason"), BAD)
def test_bad_bytes(text: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_versioned(ConsumerProtocolSubscription, bytes.fromhex(text))
