"""Batches into a ProduceRequest and its response into an answer per partition: what differs between the versions.

v0-v1 carry message sets of magic 0, v2 of magic 1, v3 and later record batches (KIP-98); zstd needs v7 (KIP-110);
v13 names topics by id (KIP-516). From v10 on a broker that leads no more says who does (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kwire.cluster import Broker, LeaderHint, Snapshot
from kwire.errors import KwireError, UnsupportedVersionError
from kwire.producer.batch import Batch
from kwire.producer.settings import ProducerSettings
from kwire.protocol.messages.produce import ProduceRequest, ProduceResponse
from kwire.records import Compression

_TOPIC_IDS_SINCE = 13
_ZSTD_SINCE = 7
SEQUENCES_SINCE = 3
_TIMESTAMPS_SINCE = 2
REFUSES_NOTHING_SINCE = max(SEQUENCES_SINCE, _ZSTD_SINCE)  # for such a version `refusal` need not be asked


PartitionAnswer = ProduceResponse.Topic.Partition


def magic(version: int) -> int:
    """The record format that a version of Produce carries."""
    if version >= SEQUENCES_SINCE:
        return 2
    return 1 if version >= _TIMESTAMPS_SINCE else 0


def names_topics(version: int) -> bool:
    """Whether a request says a topic's name, which a topic created again has too, and not its id."""
    return version < _TOPIC_IDS_SINCE


def version_limit(*, has_ids: bool) -> int | None:
    """The highest version to use: topic ids are on the wire from v13, and must be known then."""
    return None if has_ids else _TOPIC_IDS_SINCE - 1


def refusal(batch: Batch, version: int, settings: ProducerSettings) -> KwireError | None:
    """Why a broker of this version cannot take the batch."""
    where = {"api": "Produce", "version": version, "topic": batch.topic, "partition": batch.partition}
    if version < SEQUENCES_SINCE and (batch.is_sequenced or settings.idempotence):
        return UnsupportedVersionError(
            "the broker is too old for an idempotent producer",
            remedy="some brokers of this cluster are from before 0.11: upgrade them, or set idempotence=False",
            **where,
        )
    if settings.codec is Compression.ZSTD and version < _ZSTD_SINCE:
        return UnsupportedVersionError(
            "the broker is too old for zstd", remedy="use lz4, snappy or gzip, or brokers from 2.1", **where
        )
    if version < SEQUENCES_SINCE and batch.run.has_headers:
        return UnsupportedVersionError(
            "the broker is too old for record headers", remedy="send without headers, or use brokers from 0.11", **where
        )
    return None


def build_request(
    batches: Iterable[Batch], version: int, ids: Snapshot, settings: ProducerSettings, acks: int, timeout_ms: int
) -> ProduceRequest:
    """One request of many partitions; the records are not copied. `timeout_ms` is for the replicas to follow."""
    by_topic: dict[str, list[ProduceRequest.Topic.Partition]] = {}
    form, codec, level = magic(version), settings.codec, settings.compression_level
    for batch in batches:
        data = ProduceRequest.Topic.Partition(index=batch.run.partition, records=batch.encode(form, codec, level))
        partitions = by_topic.get(batch.topic)
        if partitions is None:
            by_topic[batch.topic] = [data]
        else:
            partitions.append(data)
    topic_data: list[ProduceRequest.Topic] = []
    for topic, partitions in by_topic.items():
        if version >= _TOPIC_IDS_SINCE:
            topic_data.append(ProduceRequest.Topic(topic_id=ids.topics[topic].id, partition_data=partitions))
        else:
            topic_data.append(ProduceRequest.Topic(name=topic, partition_data=partitions))
    return ProduceRequest(
        transactional_id=settings.transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=topic_data,
    )


def leader_hints(response: ProduceResponse, version: int, ids: Snapshot) -> tuple[list[LeaderHint], list[Broker]]:
    """Who leads the partitions that the broker refused, and the addresses of those; for `View.learn_leaders`."""
    names = _names(version, ids)
    hints = [
        LeaderHint(name, ids.topics[name].id, answer.index, leader.leader_id, leader.leader_epoch)
        for topic in response.responses
        if (name := names.get(topic.topic_id, topic.name)) in ids.topics
        for answer in topic.partition_responses
        if answer.error_code and (leader := answer.current_leader).leader_id >= 0
    ]
    return hints, [Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


def partition_answers(
    response: ProduceResponse, version: int, topics: Iterable[str], ids: Snapshot
) -> dict[tuple[str, int], PartitionAnswer]:
    """The answers by (topic, partition). `ids` is the snapshot that the request for these topics was built with."""
    names: dict[int, str] = {}
    if version >= _TOPIC_IDS_SINCE:
        for name in topics:
            names[ids.topics[name].id.int] = name  # the hash of a UUID itself is made in Python
    answers: dict[tuple[str, int], PartitionAnswer] = {}
    for topic in response.responses:
        name = names.get(topic.topic_id.int, topic.name)
        for answer in topic.partition_responses:
            answers[name, answer.index] = answer
    return answers


def _names(version: int, ids: Snapshot) -> dict[UUID, str]:
    return {topic.id: topic.name for topic in ids.topics.values()} if version >= _TOPIC_IDS_SINCE else {}
