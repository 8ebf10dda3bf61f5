"""Metadata responses and snapshots for tests, in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kwire.cluster.metadata import Snapshot
from kwire.protocol.messages.metadata import MetadataResponse

Leaders = Sequence[tuple[int, int]]  # (leader, leader epoch) of partition 0, 1, ...


def metadata(
    topics: Mapping[str, Leaders] | None = None,
    *,
    brokers: Sequence[int] = (1, 2, 3),
    errors: Mapping[str, int] | None = None,
    ids: Mapping[str, UUID] | None = None,
    controller_id: int = 1,
) -> MetadataResponse:
    """A response of newest version: broker n is at host-n:9092."""
    topic_data = [
        MetadataResponse.Topic(
            error_code=0,
            name=name,
            topic_id=(ids or {}).get(name, UUID(int=len(name) + 1000)),
            partitions=[
                MetadataResponse.Topic.Partition(
                    error_code=0 if leader >= 0 else 5,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=epoch,
                    replica_nodes=list(brokers),
                    isr_nodes=list(brokers),
                )
                for index, (leader, epoch) in enumerate(leaders)
            ],
        )
        for name, leaders in (topics or {}).items()
    ]
    topic_data += [
        MetadataResponse.Topic(error_code=code, name=name, partitions=[]) for name, code in (errors or {}).items()
    ]
    return MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=node, host=f"host-{node}", port=9092) for node in brokers],
        controller_id=controller_id,
        cluster_id="test",
        topics=topic_data,
    )


def snapshot(topics: Mapping[str, Leaders] | None = None, **options: object) -> Snapshot:
    return Snapshot().updated(metadata(topics, **options), 1.0)  # type: ignore[arg-type]
