"""A member of a share group for tests: one request at a time, on virtual time, to the leader of each partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire.records import decode_batches, encode_batch
from tests.broker.virtual_cluster import WALL_MS, SentRequest, VirtualCluster

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Ack = tuple[int, int, Sequence[int]]  # first offset, last offset, types


def append(cluster: VirtualCluster, topic: str, values: Sequence[bytes], partition: int = 0, **batch: Any) -> None:
    """Append one batch."""
    raw = encode_batch([(WALL_MS, None, value, ()) for value in values], **batch)
    target = cluster.state.partition(topic, partition)
    target.append(list(decode_batches(raw)), all_replicas=False, now=cluster.now, wall_ms=WALL_MS)


class ShareMember:
    """A member of the group `group`. `epoch` is the member's, `session_epoch` that of its session's next request."""

    def __init__(self, cluster: VirtualCluster, id: str = "m", group: str = "g", *, connection: int = 1) -> None:
        self.cluster = cluster
        self.id = id
        self.group = group
        self.connection = connection
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: dict[str, list[int]] = {}

    def heartbeat(self, *topics: str, epoch: int | None = None, version: int = 1) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=list(topics) or None,
        )  # fmt: skip
        response = self.cluster.request(self.cluster.coordinator(self.group), request, version)
        if not response.error_code:
            self.epoch = response.member_epoch
        if response.assignment is not None:
            names = {topic.id: name for name, topic in self.cluster.state.topics.items()}
            parts = response.assignment.topic_partitions
            self.assigned = {names[part.topic_id]: list(part.partitions) for part in parts}
        return response

    def send_fetch(
        self, topic: str = "t", partition: int | None = 0, *, acks: Sequence[Ack] = (), epoch: int | None = None,
        node: int | None = None, version: int = 2, forget: Sequence[int] = (), **more: Any,
    ) -> SentRequest:  # fmt: skip
        id = self.cluster.state.topics[topic].id
        batches = [
            ShareFetchRequest.Topic.Partition.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acks
        ]
        named = ShareFetchRequest.Topic.Partition(partition_index=partition or 0, acknowledgement_batches=batches)
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, **more}
        request = ShareFetchRequest(
            group_id=self.group, member_id=self.id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            topics=[] if partition is None else [ShareFetchRequest.Topic(topic_id=id, partitions=[named])],
            forgotten_topics_data=(
                [ShareFetchRequest.ForgottenTopic(topic_id=id, partitions=list(forget))] if forget else []
            ),
            **limits,
        )  # fmt: skip
        node = self.cluster.leader(topic, partition or 0) if node is None else node
        if epoch is None:
            self.session_epoch += 1
        return self.cluster.send(node, request, version, connection=self.connection)

    def fetch(self, topic: str = "t", partition: int | None = 0, **more: Any) -> Any:
        return self.send_fetch(topic, partition, **more).response

    def acquire(self, topic: str = "t", partition: int = 0, **more: Any) -> list[tuple[int, int, int]]:
        """Return the acquired (first, last, delivery count) of one partition."""
        return acquired(self.fetch(topic, partition, **more))

    def acknowledge(
        self, *acks: Ack, topic: str = "t", partition: int = 0, epoch: int | None = None, node: int | None = None,
        renews: bool = False, version: int = 2,
    ) -> Any:  # fmt: skip
        """Return the error of the request, or of the partition."""
        id = self.cluster.state.topics[topic].id
        batches = [
            ShareAcknowledgeRequest.Topic.Partition.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acks
        ]
        named = ShareAcknowledgeRequest.Topic.Partition(partition_index=partition, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            topics=[ShareAcknowledgeRequest.Topic(topic_id=id, partitions=[named])],
        )  # fmt: skip
        if version >= 2:
            request.is_renew_ack = renews
        node = self.cluster.leader(topic, partition) if node is None else node
        response = self.cluster.request(node, request, version, connection=self.connection)
        if epoch is None and not response.error_code:
            self.session_epoch += 1
        return response.error_code or response.responses[0].partitions[0].error_code


def results(response: Any) -> list[Any]:
    """Return the results of all partitions in a ShareFetch response."""
    assert response.error_code == 0, response.error_message
    return [partition for topic in response.responses for partition in topic.partitions]


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """Return the acquired (first, last, delivery count) in a ShareFetch response."""
    return [
        (part.first_offset, part.last_offset, part.delivery_count)
        for result in results(response)
        for part in result.acquired_records
    ]
