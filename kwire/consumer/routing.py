"""The leader of a partition, or the error for a partition without one."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kwire.cluster.metadata import NO_ID, NO_NODE, Snapshot
from kwire.errors import PERMANENT_TOPIC_CODES, BrokerError, ErrorCode, broker_error


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition. Without one `node` is -1, and `error` says why, unless an election is in progress.

    An unknown topic may just have been created, so the caller decides how long to wait. With `is_permanent` waiting
    does not help.
    """

    node: int
    leader_epoch: int = -1
    topic_id: UUID | None = None
    error: BrokerError | None = None
    is_permanent: bool = False


_NOT_KNOWN_YET = LeaderAndEpoch(NO_NODE)


def leader_of(snapshot: Snapshot, topic: str, partition: int) -> LeaderAndEpoch:
    metadata = snapshot.topics.get(topic)
    if metadata is None:
        return _NOT_KNOWN_YET
    if metadata.error_code in PERMANENT_TOPIC_CODES:
        error = broker_error(metadata.error_code, api="Metadata", topic=topic)
        return LeaderAndEpoch(NO_NODE, error=error, is_permanent=True)
    if 0 <= partition < len(metadata.partitions):
        found = metadata.partitions[partition]
        # A leader without an address cannot be reached before the next metadata.
        if found.leader not in snapshot.brokers:
            return _NOT_KNOWN_YET
        return LeaderAndEpoch(found.leader, found.leader_epoch, None if metadata.id == NO_ID else metadata.id)
    if metadata.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return LeaderAndEpoch(NO_NODE, error=no_such_topic(topic))
    if metadata.error_code or not metadata.partitions:
        return _NOT_KNOWN_YET
    return LeaderAndEpoch(NO_NODE, error=no_such_partition(topic, partition, len(metadata.partitions)))


def no_such_topic(topic: str) -> BrokerError:
    return broker_error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no topic {topic!r} that this client may see",
        remedy="create it, or check its name, the cluster, and the right to Describe it",
        topic=topic,
    )


def no_such_partition(topic: str, partition: int, count: int) -> BrokerError:
    return broker_error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"the topic has {count} partition{'s' if count != 1 else ''}",
        remedy=f"partitions are numbered from 0 to {count - 1}",
        topic=topic,
        partition=partition,
    )
