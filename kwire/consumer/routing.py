"""Where a partition's leader is, and, where there is none, why: the typed errors of routing."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kwire.cluster.metadata import NO_ID, NO_NODE, Snapshot
from kwire.errors import BrokerError, ErrorCode, broker_error

# A topic that metadata does not know is no error at once: it may just have been created, and brokers hear of it one
# after another. How long to put up with it is the caller's to decide; with these it is of no use.
_LASTING = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


class LeaderAndEpoch(NamedTuple):
    """`node` is -1 when a request has nowhere to go; then `error` says why, if anything is known of the topic at all.

    `is_lasting`: waiting will not help. A partition between two leaders is neither an error nor lasting.
    """

    node: int
    leader_epoch: int = -1
    topic_id: UUID | None = None
    error: BrokerError | None = None
    is_lasting: bool = False


_UNKNOWN_YET = LeaderAndEpoch(NO_NODE)


def leader_of(snapshot: Snapshot, topic: str, partition: int) -> LeaderAndEpoch:
    known = snapshot.topics.get(topic)
    if known is None:
        return _UNKNOWN_YET
    if known.error_code in _LASTING:
        return LeaderAndEpoch(NO_NODE, error=broker_error(known.error_code, topic=topic), is_lasting=True)
    if 0 <= partition < len(known.partitions):
        found = known.partitions[partition]
        # A leader that has no address among the brokers cannot be reached: as good as none, until the next metadata.
        if found.leader not in snapshot.brokers:
            return _UNKNOWN_YET
        return LeaderAndEpoch(found.leader, found.leader_epoch, None if known.id == NO_ID else known.id)
    if known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return LeaderAndEpoch(NO_NODE, error=no_such_topic(topic))
    if known.error_code or not known.partitions:
        return _UNKNOWN_YET
    return LeaderAndEpoch(NO_NODE, error=no_such_partition(topic, partition, len(known.partitions)))


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
