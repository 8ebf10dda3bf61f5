"""Send the requests of groups: members, committed offsets and descriptions."""

from __future__ import annotations

from typing import Any

from kwire.errors import ErrorCode
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.join_group import JoinGroupRequest
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest
from recording.scene import TOPIC, Scene
from recording.wire import Exchange

# A consumer's subscription to TOPIC, version 0: the metadata of a member in JoinGroup.
_SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\x08recorded" + b"\xff\xff\xff\xff"
_ASSIGNMENT = b"\0\0" + b"\0\0\0\1" + b"\0\x08recorded" + b"\0\0\0\1\0\0\0\0" + b"\xff\xff\xff\xff"


def join_group(scene: Scene, version: int) -> Exchange:
    group = scene.new_name("group")
    exchange = scene.wire.exchange(_join_request(group, ""), version)
    answer: Any = exchange.response
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        exchange = scene.wire.exchange(_join_request(group, answer.member_id), version)
    return exchange


def sync_group(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_sync_request(*_member(scene)), version)


def heartbeat(scene: Scene, version: int) -> Exchange:
    group, generation, member = _stable_member(scene)
    return scene.wire.exchange(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), version)


def leave_group(scene: Scene, version: int) -> Exchange:
    group, _, member = _stable_member(scene)
    if version >= 3:
        request = LeaveGroupRequest(group_id=group, members=[LeaveGroupRequest.Member(member_id=member, reason="done")])
    else:
        request = LeaveGroupRequest(group_id=group, member_id=member)
    return scene.wire.exchange(request, version)


def offset_commit(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(_commit_request(scene, "committed", version), version)


def offset_fetch(scene: Scene, version: int) -> Exchange:
    if version >= 8:
        kind = OffsetFetchRequest.Group.Topic
        topics = [kind(name=TOPIC, topic_id=scene.topic_id, partition_indexes=[0, 1])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="committed", topics=topics)])
    else:
        asked = [OffsetFetchRequest.Topic(name=TOPIC, partition_indexes=[0, 1])]
        request = OffsetFetchRequest(group_id="committed", topics=asked)
    return scene.wire.exchange(request, version)


def offset_delete(scene: Scene, version: int) -> Exchange:
    kind = OffsetDeleteRequest.Topic
    topic = kind(name=TOPIC, partitions=[kind.Partition(partition_index=0)])
    return scene.wire.exchange(OffsetDeleteRequest(group_id=_new_group(scene), topics=[topic]), version)


def list_groups(scene: Scene, version: int) -> Exchange:
    if version == scene.versions(ListGroupsRequest)[0]:
        _stable_member(scene)
    request = ListGroupsRequest(
        states_filter=["Stable", "Empty"] if version >= 4 else [], types_filter=["classic"] if version >= 5 else []
    )
    return scene.wire.exchange(request, version)


def describe_groups(scene: Scene, version: int) -> Exchange:
    group, _, _ = _stable_member(scene)
    return scene.wire.exchange(
        DescribeGroupsRequest(groups=[group], include_authorized_operations=version >= 3), version
    )


def delete_groups(scene: Scene, version: int) -> Exchange:
    return scene.wire.exchange(DeleteGroupsRequest(groups_names=[_new_group(scene)]), version)


def _join_request(group: str, member_id: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.Protocol(name="range", metadata=_SUBSCRIPTION)]
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=member_id,
        protocol_type="consumer", protocols=protocols, reason="to be recorded",
    )  # fmt: skip


def _member(scene: Scene) -> tuple[str, int, str]:
    """Make a group with one member. Return (group, generation, member id)."""
    exchange = join_group(scene, scene.versions(JoinGroupRequest)[-1])
    request: Any = exchange.request
    response: Any = exchange.response
    return request.group_id, response.generation_id, response.member_id


def _sync_request(group: str, generation: int, member: str) -> SyncGroupRequest:
    assignments = [SyncGroupRequest.Assignment(member_id=member, assignment=_ASSIGNMENT)]
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, assignments=assignments,
        protocol_type="consumer", protocol_name="range",
    )  # fmt: skip


def _stable_member(scene: Scene) -> tuple[str, int, str]:
    group, generation, member = _member(scene)
    assert not scene.newest(_sync_request(group, generation, member)).error_code
    return group, generation, member


def _commit_request(scene: Scene, group: str, version: int) -> OffsetCommitRequest:
    kind = OffsetCommitRequest.Topic.Partition
    partitions = [
        kind(partition_index=0, committed_offset=1, committed_metadata="noted"),
        kind(partition_index=1, committed_offset=2, committed_metadata=None if version >= 2 else ""),
    ]
    topic = OffsetCommitRequest.Topic(name=TOPIC, topic_id=scene.topic_id, partitions=partitions)
    return OffsetCommitRequest(group_id=group, topics=[topic])


def _new_group(scene: Scene) -> str:
    """Make a group without members that has committed offsets, and return its name."""
    group = scene.new_name("group")
    version = scene.versions(OffsetCommitRequest)[-1]
    answer = scene.wire.ask(_commit_request(scene, group, version), version)
    assert not any(partition.error_code for partition in answer.topics[0].partitions)
    return group
