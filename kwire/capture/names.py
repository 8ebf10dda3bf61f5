"""What a message names: topics, partitions, groups, members, transactions, by the fields of Kafka's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TOPIC_ID = "topic id"
# Field -> what it names.
LABELS = {
    "groupId": "group", "transactionalId": "transaction", "v3AndBelowTransactionalId": "transaction", "topic": "topic",
    "topicId": TOPIC_ID, "coordinatorKeys": "key", "key": "key", "mechanism": "mechanism", "groups": "group",
    "groupsNames": "group", "clientSoftwareName": "client", "memberId": "member", "subscribedTopicNames": "topic",
    "topicNames": "topic",
}  # fmt: skip


def names_in(value: Any, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield (what, name) of what a message names, such as ("topic", "orders")."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                if within in LABELS and item:
                    yield LABELS[within], item
            else:
                yield from names_in(item, within)
    elif isinstance(value, dict):
        for name, inner in value.items():
            kind = "topic" if name == "name" and "topic" in within.lower() else LABELS.get(name)
            if isinstance(inner, str):
                if kind is not None and inner and inner != NO_ID:
                    yield kind, inner
            elif isinstance(inner, list | dict):
                yield from names_in(inner, name)


def topic_ids(value: Any) -> Iterator[str]:
    """Yield the topic ids in a message as JSON."""
    return (name for kind, name in names_in(value) if kind == TOPIC_ID)


_PARTITIONS = {"partition", "partitionIndex"}


def partitions_in(value: Any, within: str = "") -> Iterator[int]:
    """Yield the partitions that a message names."""
    if isinstance(value, list):
        for item in value:
            if isinstance(item, int):
                if within in ("partitions", "partitionIndexes"):
                    yield item
            else:
                yield from partitions_in(item, within)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, int):
                if name in _PARTITIONS or (name == "index" and within in ("partitionData", "partitionResponses")):
                    yield inner
            elif isinstance(inner, list | dict):
                yield from partitions_in(inner, name)


def values_of(value: Any, names: frozenset[str]) -> Iterator[Any]:
    """Yield the values of all fields with one of the names, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from values_of(item, names)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in names and not isinstance(inner, list | dict):
                yield inner
            else:
                yield from values_of(inner, names)
