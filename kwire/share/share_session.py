"""The share session with one broker: which partitions it has there, and the epoch of the next request (KIP-932).

    epoch 0      opens the session, and closes one that the broker may still have; carries no acknowledgements
    1, 2, ...    go on; after the largest int32 comes 1
    epoch -1     closes it; carries the last acknowledgements, and the broker releases what else is acquired

ShareFetch and ShareAcknowledge share the epoch, so one request of either kind may be in flight. Kafka's class is
ShareSessionHandler. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from kwire.errors import ErrorCode
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.share.acknowledgements import AcknowledgementBatch, Acknowledgements, SharePartition

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# After these the broker has no such session: the next request opens one.
REOPEN_CODES = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What one ShareFetch says about the session: its epoch, the partitions in it, and those to forget."""

    epoch: int
    topics: Mapping[SharePartition, list[AcknowledgementBatch]]
    forgotten: Collection[SharePartition]

    def request_topics(self) -> list[ShareFetchRequest.Topic]:
        topics: dict[UUID, ShareFetchRequest.Topic] = {}
        for (topic_id, partition), batches in self.topics.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchRequest.Topic(topic_id=topic_id, partitions=[])
            topic.partitions.append(
                ShareFetchRequest.Topic.Partition(
                    partition_index=partition,
                    acknowledgement_batches=[
                        ShareFetchRequest.Topic.Partition.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=types
                        )
                        for first, last, types in batches
                    ],
                )
            )
        return list(topics.values())

    def request_forgotten(self) -> list[ShareFetchRequest.ForgottenTopic]:
        partitions: dict[UUID, list[int]] = {}
        for topic_id, partition in self.forgotten:
            partitions.setdefault(topic_id, []).append(partition)
        return [
            ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=each)
            for topic_id, each in partitions.items()
        ]


def acknowledge_topics(
    acknowledgements: Mapping[SharePartition, Acknowledgements],
) -> list[ShareAcknowledgeRequest.Topic]:
    """Return the topics of a ShareAcknowledge request."""
    topics: dict[UUID, ShareAcknowledgeRequest.Topic] = {}
    for (topic_id, partition), each in acknowledgements.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeRequest.Topic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            ShareAcknowledgeRequest.Topic.Partition(
                partition_index=partition,
                acknowledgement_batches=[
                    ShareAcknowledgeRequest.Topic.Partition.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=types
                    )
                    for first, last, types in each.batches()
                ],
            )
        )
    return list(topics.values())


class ShareSession:
    """The session with one broker. The caller sends what `fetch` and `acknowledge` return, one at a time."""

    __slots__ = ("_partitions", "epoch")

    def __init__(self) -> None:
        self.epoch = OPEN_EPOCH  # of the next request
        self._partitions: dict[SharePartition, None] = {}  # that the broker has, once it has the last request

    @property
    def is_open(self) -> bool:
        """Return whether the next request goes on with a session: only then may it carry acknowledgements."""
        return self.epoch != OPEN_EPOCH

    @property
    def partitions(self) -> Collection[SharePartition]:
        return self._partitions.keys()

    def has_stale(self, wanted: Collection[SharePartition]) -> bool:
        """Return whether the broker has partitions to forget."""
        return any(key not in wanted for key in self._partitions)

    def fetch(
        self, wanted: Collection[SharePartition], acknowledgements: Mapping[SharePartition, Acknowledgements]
    ) -> SessionChange:
        """Return what the next ShareFetch says, so that the session then has the `wanted` partitions.

        A partition that is sent for its acknowledgements alone becomes part of the session, too; the fetch after
        this one forgets it. The first request, which opens the session, must have no acknowledgements.
        """
        assert self.is_open or not acknowledgements, "the opening request carries no acknowledgements"
        topics: dict[SharePartition, list[AcknowledgementBatch]] = {
            key: [] for key in wanted if key not in self._partitions
        }
        for key, each in acknowledgements.items():
            topics[key] = each.batches()
        forgotten = [key for key in self._partitions if key not in wanted and key not in acknowledgements]
        for key in forgotten:
            del self._partitions[key]
        self._partitions.update(dict.fromkeys(topics))
        return SessionChange(self.epoch, topics, forgotten)

    def sent(self) -> None:
        """Count a request that the broker has responded to, also with another error than those of `REOPEN_CODES`."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        """Open a new session with the next request: the broker has none, or may not have the last request."""
        self.epoch = OPEN_EPOCH
        self._partitions.clear()
