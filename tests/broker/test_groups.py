"""The classic group coordinator on virtual time, by encoded requests.

`Members` plays the clients: it joins, syncs and sends heartbeats, and remembers ids and generations like a consumer.
"""

from __future__ import annotations

from typing import Any

import pytest

from kwire.broker.groups import GroupState
from kwire.errors import ErrorCode
from kwire.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.virtual_cluster import SentRequest, VirtualCluster

GROUP = "g"
SESSION_MS, REBALANCE_MS = 10_000, 30_000
RANGE = [("range", b"sub")]


class Members:
    """Requests of one group, sent to its coordinator."""

    def __init__(self, **options: Any) -> None:
        self.cluster = VirtualCluster(**options)
        self.cluster.state.create_topic("t", 4)

    @property
    def node(self) -> int:
        return self.cluster.coordinator(GROUP)

    @property
    def state(self) -> GroupState | None:
        group = self.cluster.state.groups.get(GROUP)
        return None if group is None else group.state

    @property
    def size(self) -> int:
        group = self.cluster.state.groups.get(GROUP)
        return 0 if group is None else len(group.members)

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance: str | None = None,
        protocols: list[tuple[str, bytes]] = RANGE,
        type: str = "consumer",
        session_ms: int = SESSION_MS,
        group: str = GROUP,
        client: str = "c",
        node: int | None = None,
    ) -> SentRequest:
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=session_ms, rebalance_timeout_ms=REBALANCE_MS, member_id=member_id,
            group_instance_id=instance, protocol_type=type,
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=data) for name, data in protocols],
        )  # fmt: skip
        return self.cluster.send(node or self.node, request, version, client_id=client)

    def new(self, **more: object) -> SentRequest:
        """Join as a dynamic member: get an id, then join with it."""
        first = self.join(**more).response  # type: ignore[arg-type]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.member_id, **more)  # type: ignore[arg-type]

    def sync(
        self, joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None, *, instance: str | None = None,
        protocol: str | None = "range", generation: int | None = None,
    ) -> SentRequest:  # fmt: skip
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id if generation is None else generation,
            member_id=joined.member_id, group_instance_id=instance, protocol_type="consumer", protocol_name=protocol,
            assignments=[
                SyncGroupRequest.Assignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()
            ],
        )  # fmt: skip
        return self.cluster.send(self.node, request)

    def heartbeat(
        self, joined: JoinGroupResponse, *, instance: str | None = None, generation: int | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=joined.generation_id if generation is None else generation,
            member_id=joined.member_id, group_instance_id=instance,
        )  # fmt: skip
        return self.cluster.request(self.node, request).error_code

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        request = LeaveGroupRequest(
            group_id=GROUP, members=[LeaveGroupRequest.Member(member_id=m, group_instance_id=i) for m, i in members]
        )
        response = self.cluster.request(self.node, request)
        return [member.error_code for member in response.members]

    def commit(
        self, offset: int, *, generation: int = -1, member_id: str = "", topic: str = "t", version: int = 9
    ) -> int:
        topics = [
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.Topic.Partition(
                        partition_index=0, committed_offset=offset, committed_metadata="m"
                    )
                ],
            )
        ]
        request = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
        )
        return self.cluster.request(self.node, request, version).topics[0].partitions[0].error_code

    def committed(self) -> int:
        request = OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0])])
        return self.cluster.request(self.node, request, 7).topics[0].partitions[0].committed_offset

    def stable(self, count: int) -> list[JoinGroupResponse]:
        """Return the JoinGroup responses of `count` members in one stable generation, the leader first."""
        joining = [self.new()]
        self.sync(joining[0].response, {joining[0].response.member_id: b"all"})
        for _ in range(count - 1):
            newcomer = self.new()
            joining = [*[self.join(member.response.member_id) for member in joining], newcomer]
        joined = [member.response for member in joining]
        for member in joined[1:]:
            self.sync(member)
        self.sync(joined[0], {member.member_id: member.member_id.encode() for member in joined})
        assert self.state is GroupState.STABLE
        return joined


def test_two_members_join_sync_and_get_their_assignments() -> None:
    members = Members()
    first = members.new(client="a")
    alone = first.response
    assert (alone.error_code, alone.generation_id, alone.leader) == (0, 1, alone.member_id)
    assert alone.member_id.startswith("a-")
    assert [m.member_id for m in alone.members] == [alone.member_id]
    assert members.sync(alone, {alone.member_id: b"everything"}).response.assignment == b"everything"
    second = members.new(client="b", protocols=[("range", b"two")])
    assert second.is_pending
    assert members.heartbeat(alone) == ErrorCode.REBALANCE_IN_PROGRESS
    leader = members.join(alone.member_id).response
    follower = second.response
    assert (leader.generation_id, follower.generation_id) == (2, 2)
    assert {m.member_id: m.metadata for m in leader.members} == {leader.member_id: b"sub", follower.member_id: b"two"}
    assert follower.members == []
    assert follower.leader == leader.member_id
    waiting = members.sync(follower)
    assert waiting.is_pending
    members.sync(leader, {leader.member_id: b"x", follower.member_id: b"y"})
    assert waiting.response.assignment == b"y"
    assert members.heartbeat(leader) == members.heartbeat(follower) == ErrorCode.NONE


@pytest.mark.parametrize("version", range(10))
def test_join_group_in_every_version(version: int) -> None:
    members = Members()
    joined = members.join(version=version).response
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = members.join(joined.member_id, version=version).response
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id


REFUSED = [
    ("no group id", {"group": ""}, ErrorCode.INVALID_GROUP_ID),
    ("session too short", {"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ("session too long", {"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ("an id that nobody gave out", {"member_id": "me"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ("another type", {"type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("no protocol in common", {"protocols": [("sticky", b"")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("no protocol at all", {"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
]


@pytest.mark.parametrize(("how", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_invalid_joins_are_rejected(how: dict[str, object], error: ErrorCode) -> None:
    members = Members()
    members.stable(1)
    node = members.cluster.coordinator(str(how.get("group", GROUP)))
    assert members.join(**how, node=node).response.error_code == error  # type: ignore[arg-type]


def test_another_broker_returns_not_coordinator() -> None:
    members = Members()
    other = next(id for id in members.cluster.brokers if id != members.node)
    assert members.join(node=other).response.error_code == ErrorCode.NOT_COORDINATOR


def test_a_member_that_waited_for_assignments_expires_after_the_next_rebalance_began() -> None:
    """Its session expired while it waited for the leader: it must not live on without one."""
    members = Members()
    alone = members.new().response
    members.sync(alone, {alone.member_id: b"all"})
    second = members.new()
    leader = members.join(alone.member_id).response
    waiting = members.sync(second.response)
    members.cluster.advance(SESSION_MS / 1000 - 1)
    members.heartbeat(leader)
    members.cluster.advance(2)
    third = members.new()
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert third.is_pending
    members.cluster.advance(SESSION_MS / 1000 + 1)
    assert third.response.error_code == ErrorCode.NONE
    assert members.size == 1


def test_a_full_group_rejects_members() -> None:
    members = Members(group_max_size=1)
    members.stable(1)
    assert members.join().response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_max_groups_is_a_limit() -> None:
    members = Members(max_groups=0)
    assert members.join().response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_protocol_with_most_votes_wins() -> None:
    members = Members()
    first = members.join(version=3, protocols=[("a", b""), ("b", b"")]).response
    joining = [members.join(version=3, protocols=[("b", b""), ("a", b""), ("c", b"")]) for _ in range(2)]
    members.join(first.member_id, version=3, protocols=[("a", b""), ("b", b"")])
    assert {joining.response.protocol_name for joining in joining} == {"b"}


class TestTimeouts:
    def test_a_silent_member_is_removed_after_its_session_timeout(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        members.cluster.advance(SESSION_MS / 1000 - 1)
        assert members.heartbeat(leader) == 0
        members.cluster.advance(2)
        assert members.size == 1
        assert members.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
        assert members.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID
        assert members.join(leader.member_id).response.generation_id == leader.generation_id + 1

    def test_a_member_that_does_not_rejoin_in_time_is_removed(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        waiting = members.join(leader.member_id)  # the leader's rejoin triggers a rebalance
        for _ in range(7):  # the other one sends heartbeats, but does not rejoin
            members.cluster.advance(4)
            assert members.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS
        assert waiting.is_pending
        members.cluster.advance(REBALANCE_MS / 1000 - 28)
        assert [m.member_id for m in waiting.response.members] == [leader.member_id]
        assert members.heartbeat(other) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_waiting_member_does_not_time_out(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        waiting = members.join(leader.member_id)
        for _ in range(5):
            members.cluster.advance(5)
            members.heartbeat(other)
        assert waiting.is_pending  # 25 s, more than its session timeout
        assert members.join(other.member_id).response.error_code == 0
        assert waiting.response.error_code == 0

    def test_a_member_that_does_not_sync_in_time_is_removed(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        joining = [members.join(leader.member_id), members.join(other.member_id)]
        joined = [member.response for member in joining]
        members.sync(joined[0], {})
        for _ in range(8):  # the other one sends heartbeats, but no SyncGroup
            members.cluster.advance(4)
            members.heartbeat(joined[0])
            members.heartbeat(joined[1])
        assert members.heartbeat(joined[1]) == ErrorCode.UNKNOWN_MEMBER_ID
        assert members.heartbeat(joined[0]) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_an_unused_member_id_expires(self) -> None:
        members = Members()
        given = members.join().response.member_id
        members.cluster.advance(SESSION_MS / 1000 + 1)
        assert members.join(given).response.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_pending_member_delays_a_rebalance_until_it_expires(self) -> None:
        members = Members()
        (leader,) = members.stable(1)
        members.join()  # gets an id and never uses it
        waiting = members.join(leader.member_id)
        assert waiting.is_pending
        members.cluster.advance(SESSION_MS / 1000 + 1)
        assert waiting.response.error_code == 0

    def test_a_new_member_that_waits_too_long_is_removed(self) -> None:
        members = Members(new_member_join_timeout_ms=5_000)
        leader, _ = members.stable(2)
        newcomer = members.new()
        members.cluster.advance(4)
        members.heartbeat(leader)
        members.cluster.advance(2)
        assert newcomer.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_initial_delay_collects_members(self) -> None:
        members = Members(group_initial_rebalance_delay_ms=3_000)
        first = members.new()
        members.cluster.advance(2)
        second = members.new()
        members.cluster.advance(2)
        assert first.is_pending  # a member joined, so the delay is extended once
        members.cluster.advance(2.5)
        assert {first.response.generation_id, second.response.generation_id} == {1}
        assert len(first.response.members) == 2


class TestRejoining:
    def test_an_unchanged_follower_triggers_no_rebalance(self) -> None:
        members = Members()
        _, other = members.stable(2)
        again = members.join(other.member_id).response
        assert again.generation_id == other.generation_id
        assert members.state is GroupState.STABLE

    def test_a_changed_follower_triggers_a_rebalance(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        waiting = members.join(other.member_id, protocols=[("range", b"other topics")])
        assert waiting.is_pending
        assert members.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_repeated_join_returns_the_same_generation(self) -> None:
        members = Members()
        joined = members.new().response
        again = members.join(joined.member_id).response
        assert (again.generation_id, again.leader) == (joined.generation_id, joined.member_id)
        assert len(again.members) == 1

    def test_a_second_join_replaces_the_first(self) -> None:
        members = Members()
        leader, _ = members.stable(2)
        first = members.join(leader.member_id)
        second = members.join(leader.member_id)
        assert first.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert second.is_pending

    def test_a_rebalance_during_the_sync_phase_fails_waiting_syncs(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        joining = [members.join(leader.member_id), members.join(other.member_id)]
        waiting = members.sync(joining[1].response)
        members.new()
        assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


class TestChecks:
    @pytest.mark.parametrize(
        ("change", "error"),
        [
            ({"generation": 99}, ErrorCode.ILLEGAL_GENERATION),
            ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({}, ErrorCode.NONE),
        ],
    )
    def test_sync_group_errors(self, change: dict[str, object], error: ErrorCode) -> None:
        members = Members()
        (leader,) = members.stable(1)
        assert members.sync(leader, **change).response.error_code == error  # type: ignore[arg-type]

    def test_heartbeat_errors(self) -> None:
        members = Members()
        (leader,) = members.stable(1)
        assert members.heartbeat(leader, generation=99) == ErrorCode.ILLEGAL_GENERATION
        assert members.heartbeat(leader) == ErrorCode.NONE

    def test_offset_commit_errors(self) -> None:
        members = Members()
        (leader,) = members.stable(1)
        generation, member_id = leader.generation_id, leader.member_id
        assert members.commit(5, generation=generation, member_id=member_id) == ErrorCode.NONE
        assert members.commit(6, generation=generation + 1, member_id=member_id) == ErrorCode.ILLEGAL_GENERATION
        assert members.commit(6, generation=generation, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
        assert (
            members.commit(6) == ErrorCode.UNKNOWN_MEMBER_ID
        )  # a commit without a member id while the group has members
        assert members.committed() == 5
        members.join(member_id)  # the leader's rejoin ends the join phase at once and starts the sync phase
        assert members.commit(6, generation=generation + 1, member_id=member_id) == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_member_may_commit_while_others_join(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        members.join(leader.member_id)
        assert members.commit(7, generation=other.generation_id, member_id=other.member_id) == ErrorCode.NONE


class TestLeaving:
    def test_the_other_members_rebalance(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        assert members.leave((leader.member_id, None)) == [ErrorCode.NONE]
        assert members.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS
        assert members.join(other.member_id).response.leader == other.member_id

    def test_the_last_one_leaves_an_empty_group(self) -> None:
        members = Members()
        (leader,) = members.stable(1)
        assert members.leave((leader.member_id, None)) == [ErrorCode.NONE]
        assert members.state is GroupState.EMPTY
        assert members.leave((leader.member_id, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]

    def test_several_members_leave_at_once_each_with_its_error(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        gone = members.leave((leader.member_id, None), ("stranger", None), (other.member_id, None))
        assert gone == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
        assert members.size == 0

    def test_a_waiting_member_that_leaves_gets_an_error(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        waiting = members.join(leader.member_id)
        members.leave((leader.member_id, None))
        assert waiting.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert members.join(other.member_id).response.error_code == 0

    def test_old_versions_remove_one_member(self) -> None:
        members = Members()
        (leader,) = members.stable(1)
        request = LeaveGroupRequest(group_id=GROUP, member_id=leader.member_id)
        assert members.cluster.request(members.node, request, 2).error_code == ErrorCode.NONE
        assert members.cluster.request(members.node, request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


class TestStaticMembers:
    def stable(self, members: Members, session_ms: int = SESSION_MS) -> list[JoinGroupResponse]:
        """Return the JoinGroup responses of the instances i0 (the leader) and i1."""
        first = members.join(instance="i0", session_ms=session_ms).response
        members.sync(first, {}, instance="i0")
        second = members.join(instance="i1", session_ms=session_ms)
        joined = [members.join(first.member_id, instance="i0", session_ms=session_ms).response, second.response]
        members.sync(joined[1], instance="i1")
        members.sync(joined[0], {member.member_id: member.member_id.encode() for member in joined}, instance="i0")
        assert members.state is GroupState.STABLE
        return joined

    def test_they_join_without_a_member_id(self) -> None:
        members = Members()
        assert members.join(instance="i0").response.member_id.startswith("i0-")

    def test_a_restarted_follower_keeps_its_assignment_without_a_rebalance(self) -> None:
        members = Members()
        _, other = self.stable(members)
        back = members.join(instance="i1").response
        assert (back.error_code, back.generation_id) == (0, other.generation_id)
        assert back.member_id != other.member_id
        assert members.state is GroupState.STABLE
        assert members.sync(back, instance="i1").response.assignment == other.member_id.encode()

    def test_the_former_member_id_is_fenced(self) -> None:
        members = Members()
        _, other = self.stable(members)
        members.join(instance="i1")
        assert members.heartbeat(other, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
        assert members.join(other.member_id, instance="i1").response.error_code == ErrorCode.FENCED_INSTANCE_ID

    @pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
    def test_a_restarted_leader_does_not_assign_again(self, version: int, skips: bool) -> None:
        members = Members()
        leader, _ = self.stable(members)
        back = members.join(instance="i0", version=version).response
        assert back.skip_assignment is skips
        assert back.leader == (back.member_id if skips else leader.member_id)
        assert len(back.members) == (2 if skips else 0)
        assert members.state is GroupState.STABLE

    def test_an_absent_static_member_keeps_its_assignment_for_its_session(self) -> None:
        members = Members()
        leader, other = self.stable(members, session_ms=60_000)
        waiting = members.join(leader.member_id, instance="i0", session_ms=60_000)
        members.cluster.advance(REBALANCE_MS / 1000 + 1)
        assert {m.member_id for m in waiting.response.members} == {leader.member_id, other.member_id}

    def test_its_session_expires(self) -> None:
        members = Members()
        leader, _ = self.stable(members)
        waiting = members.join(leader.member_id, instance="i0")
        members.cluster.advance(SESSION_MS / 1000 + 1)
        assert [m.member_id for m in waiting.response.members] == [leader.member_id]

    def test_it_can_be_removed_by_its_instance_id(self) -> None:
        members = Members()
        self.stable(members)
        assert members.leave(("", "i1"), ("", "nobody")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        assert members.size == 1


class TestOffsets:
    def test_an_empty_group_accepts_commits(self) -> None:
        members = Members()
        assert members.committed() == -1
        assert members.commit(42) == ErrorCode.NONE
        assert members.committed() == 42
        assert members.commit(1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert members.commit(1, generation=3, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize(
        ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
    )
    def test_a_generation_without_a_group_is_an_error(self, version: int, error: ErrorCode) -> None:
        assert Members().commit(1, generation=3, member_id="x", version=version) == error

    @pytest.mark.parametrize(("idle", "kept"), [(3_599, True), (4_300, False)])
    def test_unused_offsets_expire(self, idle: float, kept: bool) -> None:
        members = Members(offsets_retention_ms=3_600_000)
        members.commit(42)
        members.cluster.advance(idle)
        assert (members.committed() == 42) is kept
        assert (members.state is not None) is kept

    def test_offsets_stay_while_the_group_has_members(self) -> None:
        members = Members(offsets_retention_ms=3_600_000)
        (leader,) = members.stable(1)
        members.commit(42, generation=leader.generation_id, member_id=leader.member_id)
        for _ in range(1000):
            members.cluster.advance(9)
            assert members.heartbeat(leader) == 0
        assert members.committed() == 42
        members.leave((leader.member_id, None))
        members.cluster.advance(3_000)
        assert members.committed() == 42
        members.cluster.advance(1_300)
        assert members.committed() == -1

    def test_a_client_may_set_the_retention(self) -> None:
        members = Members()
        topic = OffsetCommitRequest.Topic(
            name="t",
            partitions=[
                OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")
            ],
        )
        request = OffsetCommitRequest(group_id=GROUP, retention_time_ms=10_000, topics=[topic])
        members.cluster.request(members.node, request, 4)
        members.cluster.advance(599)
        assert members.committed() == 1
        members.cluster.advance(2)
        assert members.committed() == -1

    def test_offsets_and_metadata_are_limited(self) -> None:
        members = Members(max_offsets_per_group=0)
        assert members.commit(1) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        members = Members(offset_metadata_max_bytes=0)
        assert members.commit(1) == ErrorCode.OFFSET_METADATA_TOO_LARGE

    @pytest.mark.parametrize(("metadata", "error"), [("\u00e9" * 5, 0), ("\u00e9" * 6, 12), ("\U0001f600" * 3, 12)])
    def test_metadata_is_measured_in_characters_of_java(self, metadata: str, error: int) -> None:
        members = Members(offset_metadata_max_bytes=5)
        partition = OffsetCommitRequest.Topic.Partition(
            partition_index=0, committed_offset=1, committed_metadata=metadata
        )
        topics = [OffsetCommitRequest.Topic(name="t", partitions=[partition])]
        response = members.cluster.request(members.node, OffsetCommitRequest(group_id=GROUP, topics=topics), 9)
        assert response.topics[0].partitions[0].error_code == error

    @pytest.mark.parametrize(("generation", "member_id"), [(-1, "me"), (-2, ""), (-2, "me")])
    def test_an_empty_group_takes_offsets_of_anybody_without_a_generation(
        self, generation: int, member_id: str
    ) -> None:
        members = Members()
        assert members.commit(1, generation=generation, member_id=member_id) == ErrorCode.NONE
        assert members.commit(2, generation=generation, member_id=member_id) == ErrorCode.NONE
        assert members.committed() == 2
        (joined,) = members.stable(1)
        assert members.commit(3, generation=generation, member_id="me") == ErrorCode.UNKNOWN_MEMBER_ID
        assert members.commit(3, generation=-1, member_id=joined.member_id) == ErrorCode.ILLEGAL_GENERATION

    def test_a_topic_that_does_not_exist_has_its_own_error(self) -> None:
        members = Members()
        members.stable(1)
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequest.Topic(name=name, partitions=[partition]) for name in ("t", "nowhere")]
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=9, member_id="me", topics=topics)
        found = members.cluster.request(members.node, request, 9).topics
        assert [topic.partitions[0].error_code for topic in found] == [
            ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]  # fmt: skip

    def test_offsets_of_what_does_not_exist_make_no_group(self) -> None:
        members = Members()
        assert members.commit(1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not list(members.cluster.state.group_registry)

    def test_a_topic_named_twice_loses_no_partition(self) -> None:
        members = Members()
        members.commit(42)
        topics = [OffsetFetchRequest.Topic(name="t", partition_indexes=[index]) for index in (0, 1)]
        found = members.cluster.request(members.node, OffsetFetchRequest(group_id=GROUP, topics=topics), 7).topics
        assert [[one.committed_offset for one in topic.partitions] for topic in found] == [[42], [-1]]

    def test_the_empty_name_is_no_group(self) -> None:
        members = Members()
        node = members.cluster.coordinator("")
        member = LeaveGroupRequest.Member(member_id="me")
        requests: list[Any] = [
            HeartbeatRequest(group_id="", generation_id=1, member_id="me"),
            LeaveGroupRequest(group_id="", members=[member]),
            SyncGroupRequest(group_id="", generation_id=1, member_id="me", assignments=[]),
            OffsetDeleteRequest(group_id="", topics=[]),
            AlterShareGroupOffsetsRequest(group_id="", topics=[]),
        ]
        codes = [members.cluster.request(node, request).error_code for request in requests]
        assert codes == [ErrorCode.INVALID_GROUP_ID] * 5
        assert not list(members.cluster.state.group_registry)

    @pytest.mark.parametrize(("version", "error"), [(4, ErrorCode.NONE), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)])
    def test_sync_group_must_name_the_protocol_since_v5(self, version: int, error: ErrorCode) -> None:
        members = Members()
        (joined,) = members.stable(1)
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]
        )
        assert members.cluster.request(members.node, request, version).error_code == error

    @pytest.mark.parametrize("version", range(11))
    def test_offset_fetch_in_every_version(self, version: int) -> None:
        members = Members()
        members.commit(42)
        topic = members.cluster.state.topics["t"]
        partitions: list[Any]
        if version >= 8:
            group = OffsetFetchRequest.Group(
                group_id=GROUP,
                topics=[OffsetFetchRequest.Group.Topic(name="t", topic_id=topic.id, partition_indexes=[0, 1])],
            )
            request = OffsetFetchRequest(groups=[group])
            response = members.cluster.request(members.node, request, version)
            (found,) = response.groups[0].topics
            partitions = found.partitions
        else:
            request = OffsetFetchRequest(
                group_id=GROUP, topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0, 1])]
            )
            response = members.cluster.request(members.node, request, version)
            partitions = response.topics[0].partitions
        assert [(p.committed_offset, p.metadata, p.error_code) for p in partitions] == [(42, "m", 0), (-1, "", 0)]

    @pytest.mark.parametrize("version", [2, 7, 8, 10])
    def test_null_topics_return_all_offsets(self, version: int) -> None:
        members = Members()
        members.commit(42)
        topics: list[Any]
        if version >= 8:
            request = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=GROUP, topics=None)])
            topics = members.cluster.request(members.node, request, version).groups[0].topics
        else:
            request = OffsetFetchRequest(group_id=GROUP, topics=None)
            topics = members.cluster.request(members.node, request, version).topics
        assert [p.committed_offset for topic in topics for p in topic.partitions] == [42]


class TestMovingCoordinators:
    def test_waiting_members_get_not_coordinator_and_continue_at_the_new_one(self) -> None:
        members = Members()
        leader, other = members.stable(2)
        members.commit(5, generation=leader.generation_id, member_id=leader.member_id)
        waiting = members.join(leader.member_id)
        before = members.node
        members.cluster.state.stop_node(before, members.cluster.now)
        assert waiting.response.error_code == ErrorCode.NOT_COORDINATOR
        assert members.node != before
        joining = [members.join(leader.member_id), members.join(other.member_id)]
        assert {member.response.generation_id for member in joining} == {leader.generation_id + 1}
        assert members.committed() == 5

    def test_sessions_restart(self) -> None:
        members = Members()
        (leader,) = members.stable(1)
        members.cluster.advance(9)
        members.cluster.state.stop_node(members.node, members.cluster.now)
        members.cluster.advance(9)
        assert members.heartbeat(leader) == ErrorCode.NONE
