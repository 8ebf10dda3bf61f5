"""The records of Kafka's own topics and of KRaft, as JSON with Kafka's names.

The folder's name says which topic a file belongs to. Subscriptions and assignments of the classic consumer protocol are
decoded, too.
"""

from __future__ import annotations

import contextlib
from typing import Any

from kwire.errors import DecodeError
from kwire.protocol import InternalRecord, Message, decode_control_record, decode_internal_record
from kwire.protocol.internal_topics import COORDINATOR_TOPICS, FRAMED_TOPICS
from kwire.protocol.messages.classic_group_records import GroupMetadataValue
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)

INTERNAL_TOPICS = frozenset([*COORDINATOR_TOPICS, *FRAMED_TOPICS])


def control_to_json(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Return a control record as JSON; only its type if kwire does not know more. Raises DecodeError."""
    record = decode_control_record(key or b"", value)
    kind = record.key.to_json(0)["type"] if record.key is not None else None
    if record.value is None:
        return {"type": kind}
    return {"type": kind, "name": type(record.value).__name__, "data": record.value.to_json(record.version)}


def record_to_json(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Return the key and value of a record of an internal topic. Raises DecodeError."""
    record = decode_internal_record(topic, key, value)
    return {"key": _key_to_json(record.key), "value": _value_to_json(record)}


def _key_to_json(key: Message | None) -> dict[str, Any] | None:
    return None if key is None else {"type": _name(key, "Key"), "data": key.to_json(0)}


def _value_to_json(record: InternalRecord) -> dict[str, Any] | None:
    value = record.value
    if value is None:
        return None
    data = value.to_json(record.version)
    if isinstance(value, GroupMetadataValue):
        for member, json_member in zip(value.members, data["members"], strict=True):
            _decode_into(json_member, "subscription", ConsumerProtocolSubscription, member.subscription)
            _decode_into(json_member, "assignment", ConsumerProtocolAssignment, member.assignment)
    return {"type": _name(value, "Value"), "version": record.version, "data": data}


def _decode_into(json_member: dict[str, Any], name: str, cls: type[Message], data: bytes) -> None:
    # Members with another protocol type, such as Connect workers, have other bytes.
    with contextlib.suppress(DecodeError):
        version, message = decode_versioned(cls, data)
        json_member[name] = message.to_json(min(version, cls.VERSIONS.stop - 1))


def _name(message: Message, suffix: str) -> str:
    return type(message).__name__.removesuffix(suffix)
