"""Send the requests of groups whose members the broker assigns: those of KIP-848, share groups, groups of Streams."""

from __future__ import annotations

import time
from typing import Any

from kwire.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kwire.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kwire.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from recording.scene import TOPIC, Scene
from recording.wire import Exchange

_MEMBER = "cmVjb3JkZWQtbWVtYmVyIQ"  # 16 bytes, in URL-safe base64 as Kafka writes its UUIDs
_LEAVES = -1
_GROUP_RESOURCE = 32
_ACCEPT, _RELEASE = 1, 2
_PATIENCE_S = 30


def consumer_group_heartbeat(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_join_consumer_group(scene.new_name("group")), version)


def consumer_group_describe(scene: Scene, version: int) -> Exchange:
    group = scene.new_name("group")
    assert not scene.newest(_join_consumer_group(group)).error_code
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    return scene.wire.exchange(request, version)


def streams_group_heartbeat(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_join_streams_group(scene.new_name("streams")), version)


def streams_group_describe(scene: Scene, version: int) -> Exchange:
    group = scene.new_name("streams")
    assert not scene.newest(_join_streams_group(group)).error_code
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    return scene.wire.exchange(request, version)


def share_group_heartbeat(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_share_heartbeat(scene.new_name("share")), version)


def share_group_describe(scene: Scene, version: int) -> Exchange:
    group, _ = _acquiring_group(scene)
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    return scene.wire.exchange(request, version)


def share_fetch(scene: Scene, version: int) -> Exchange:
    """Acknowledge two records, and acquire the next batch."""
    group, epoch = _acquiring_group(scene)
    return scene.wire.exchange(_fetch_request(scene, group, epoch, acknowledges=True), version)


def share_acknowledge(scene: Scene, version: int) -> Exchange:
    group, epoch = _acquiring_group(scene)
    kind = ShareAcknowledgeRequest.Topic.Partition
    batch = kind.AcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[_ACCEPT, _RELEASE])
    partition = kind(partition_index=0, acknowledgement_batches=[batch])
    topic = ShareAcknowledgeRequest.Topic(topic_id=scene.topic_id, partitions=[partition])
    request = ShareAcknowledgeRequest(group_id=group, member_id=_MEMBER, share_session_epoch=epoch, topics=[topic])
    return scene.wire.exchange(request, version)


def describe_share_group_offsets(scene: Scene, version: int) -> Exchange:
    group, _ = _acquiring_group(scene)
    kind = DescribeShareGroupOffsetsRequest.Group
    groups = [kind(group_id=group, topics=[kind.Topic(topic_name=TOPIC, partitions=[0, 1])])]
    return scene.wire.exchange(DescribeShareGroupOffsetsRequest(groups=groups), version)


def alter_share_group_offsets(scene: Scene, version: int) -> Exchange:
    kind = AlterShareGroupOffsetsRequest.Topic
    topic = kind(topic_name=TOPIC, partitions=[kind.Partition(partition_index=0, start_offset=1)])
    return scene.wire.exchange(AlterShareGroupOffsetsRequest(group_id=_empty_group(scene), topics=[topic]), version)


def delete_share_group_offsets(scene: Scene, version: int) -> Exchange:
    topics = [DeleteShareGroupOffsetsRequest.Topic(topic_name=TOPIC)]
    return scene.wire.exchange(DeleteShareGroupOffsetsRequest(group_id=_empty_group(scene), topics=topics), version)


def _join_consumer_group(group: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=_MEMBER, member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC], server_assignor="uniform", topic_partitions=[],
    )  # fmt: skip


def _join_streams_group(group: str) -> StreamsGroupHeartbeatRequest:
    topology = StreamsGroupHeartbeatRequest.Topology
    subtopology = topology.Subtopology(
        subtopology_id="0", source_topics=[TOPIC], source_topic_regex=[], state_changelog_topics=[],
        repartition_sink_topics=[], repartition_source_topics=[], copartition_groups=[],
    )  # fmt: skip
    return StreamsGroupHeartbeatRequest(
        group_id=group, member_id=_MEMBER, member_epoch=0, endpoint_information_epoch=0, rebalance_timeout_ms=10_000,
        topology=topology(epoch=1, subtopologies=[subtopology]), active_tasks=[], standby_tasks=[], warmup_tasks=[],
        process_id="p", client_tags=[],
    )  # fmt: skip


def _share_heartbeat(group: str, epoch: int = 0) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=_MEMBER, member_epoch=epoch,
        subscribed_topic_names=None if epoch == _LEAVES else [TOPIC],
    )  # fmt: skip


def _acquiring_group(scene: Scene) -> tuple[str, int]:
    """Make a share group with one member that has acquired records. Return it and the epoch of its next fetch."""
    group = scene.new_name("share")
    _read_from_the_beginning(scene, group)
    give_up_at = time.monotonic() + _PATIENCE_S
    member_epoch = session_epoch = 0
    while time.monotonic() < give_up_at:
        heartbeat = scene.newest(_share_heartbeat(group, member_epoch))
        assert not heartbeat.error_code, heartbeat
        member_epoch = heartbeat.member_epoch
        response: Any = scene.newest(_fetch_request(scene, group, session_epoch))
        assert not response.error_code, response
        session_epoch += 1
        if any(partition.acquired_records for topic in response.responses for partition in topic.partitions):
            return group, session_epoch
    raise TimeoutError(f"{group} acquired nothing in {_PATIENCE_S} s")


def _empty_group(scene: Scene) -> str:
    """Make a share group that has read and has no member now."""
    group, _ = _acquiring_group(scene)
    assert not scene.newest(_share_heartbeat(group, _LEAVES)).error_code
    return group


def _read_from_the_beginning(scene: Scene, group: str) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name="share.auto.offset.reset", config_operation=0, value="earliest")
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config])], validate_only=False
    )
    assert not scene.newest(request).responses[0].error_code


def _fetch_request(scene: Scene, group: str, epoch: int, *, acknowledges: bool = False) -> ShareFetchRequest:
    kind = ShareFetchRequest.Topic.Partition
    batch = kind.AcknowledgementBatch(first_offset=0, last_offset=1, acknowledge_types=[_ACCEPT, _RELEASE])
    partition = kind(partition_index=0, acknowledgement_batches=[batch] if acknowledges else [])
    return ShareFetchRequest(
        group_id=group, member_id=_MEMBER, share_session_epoch=epoch, max_wait_ms=500, min_bytes=1, max_records=1,
        batch_size=1, topics=[ShareFetchRequest.Topic(topic_id=scene.topic_id, partitions=[partition])],
        forgotten_topics_data=[],
    )  # fmt: skip
