"""Classic members in consumer groups, and groups that change their type while members run (KIP-848's migration)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kwire.broker.groups import Group, GroupState
from kwire.errors import ErrorCode
from kwire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.broker.consumer_members import GROUP, Members, Parts, all_of, settle
from tests.broker.virtual_cluster import SentRequest

SESSION_MS, REBALANCE_MS = 45_000, 60_000
NAME = "cooperative-sticky"


class ClassicMember:
    """A consumer that speaks the classic protocol: it joins and syncs again when a heartbeat says so."""

    def __init__(self, members: Members, topics: Sequence[str] = ("t",), instance_id: str | None = None) -> None:
        self.members = members
        self.topics = topics
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        self.owned: Parts = set()
        self.error: int = ErrorCode.NONE

    @property
    def node(self) -> int:
        return self.members.cluster.coordinator(GROUP)

    def send_join(self, *, type: str = "consumer") -> SentRequest:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        subscription = ConsumerProtocolSubscription(
            topics=list(self.topics),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            generation_id=self.generation,
        )
        protocol = JoinGroupRequest.Protocol(name=NAME, metadata=encode_versioned(subscription, 3))
        request = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=self.id,
            group_instance_id=self.instance_id, protocol_type=type, protocols=[protocol],
        )  # fmt: skip
        return self.members.cluster.send(self.node, request)

    def joined(self, response: JoinGroupResponse) -> None:
        self.error = response.error_code
        if response.error_code == ErrorCode.NONE:
            self.id, self.generation = response.member_id, response.generation_id

    def join(self) -> None:
        """Join a group where nobody waits, with the id that the coordinator gave."""
        response = self.send_join().response
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = response.member_id
            response = self.send_join().response
        self.joined(response)

    def sync(self, assignments: dict[str, Parts] | None = None) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance_id,
            protocol_type="consumer", protocol_name=NAME,
            assignments=[
                SyncGroupRequest.Assignment(member_id=member_id, assignment=encode_assignment(parts))
                for member_id, parts in (assignments or {}).items()
            ],
        )  # fmt: skip
        response = self.members.cluster.request(self.node, request)
        self.error = response.error_code
        if response.error_code == ErrorCode.NONE:
            self.owned = decode_assignment(response.assignment)
        return response

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance_id
        )
        self.error = self.members.cluster.request(self.node, request).error_code
        return self.error

    def beat(self) -> None:
        """Send a heartbeat, and rejoin if it says so."""
        if self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()

    def leave(self) -> int:
        member = LeaveGroupRequest.Member(member_id=self.id, group_instance_id=self.instance_id)
        response = self.members.cluster.request(self.node, LeaveGroupRequest(group_id=GROUP, members=[member]))
        return response.members[0].error_code


def encode_assignment(parts: Parts) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(parts):
        by_topic.setdefault(topic, []).append(partition)
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic.items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


def decode_assignment(data: bytes) -> Parts:
    message = decode_versioned(ConsumerProtocolAssignment, data)[1]
    return {(topic.topic, partition) for topic in message.assigned_partitions for partition in topic.partitions}


def stable_classic(members: Members, *, instance_id: str | None = None) -> ClassicMember:
    """Return the only member of a stable classic group, which has everything."""
    classic = ClassicMember(members, instance_id=instance_id)
    classic.join()
    classic.sync({classic.id: all_of("t", 4)})
    assert classic.owned == all_of("t", 4)
    return classic


def classic_group(members: Members) -> Group | None:
    return members.cluster.state.groups.get(GROUP)


def types(members: Members) -> list[str]:
    response = members.cluster.request(members.cluster.coordinator(GROUP), ListGroupsRequest())
    return [group.group_type for group in response.groups]


def test_a_consumer_member_upgrades_a_classic_group_and_members_share_its_partitions() -> None:
    members = Members()
    classic = stable_classic(members)
    generation = classic.generation
    new = members.join("new")
    assert types(members) == ["consumer"]
    assert (new.error, new.owned, members.group.epoch) == (ErrorCode.NONE, set(), generation + 1)
    for _ in range(4):
        classic.beat()
        new.beat()
    assert len(classic.owned) == len(new.owned) == 2
    assert classic.owned | new.owned == all_of("t", 4)
    assert classic.generation == new.epoch


def test_a_partition_is_not_given_away_before_the_classic_member_has_rejoined_without_it() -> None:
    members = Members()
    classic = stable_classic(members)
    new = members.join("new")
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    classic.join()  # it still owns everything
    classic.sync()
    assert len(classic.owned) == 2
    new.beat()
    assert new.owned == set()
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS  # it has to report what it revoked
    classic.join()
    new.beat()
    assert len(new.owned) == 2


def test_a_classic_member_joins_a_consumer_group() -> None:
    members = Members()
    new = members.join("new")
    classic = ClassicMember(members)
    classic.join()
    assert (classic.error, classic.generation) == (ErrorCode.NONE, members.group.epoch)
    classic.sync()
    assert classic.owned == set()
    settle(new)
    for _ in range(3):
        classic.beat()
    assert len(classic.owned) == 2


def test_requests_of_a_classic_member_are_checked_against_its_epoch() -> None:
    members = Members()
    members.join("new")
    classic = ClassicMember(members)
    classic.join()
    classic.generation += 1
    assert classic.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert classic.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    classic.id = "nobody"
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    classic.id = "new"  # it speaks the other protocol
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert types(members) == ["consumer"]
    assert classic.leave() == ErrorCode.NONE  # an administrator may remove it, too (KAFKA-18188)
    assert types(members) == ["classic"]


def test_members_of_both_protocols_are_removed_by_one_request() -> None:
    members = Members()
    members.join("new")
    classic = ClassicMember(members)
    classic.join()
    leaving = [LeaveGroupRequest.Member(member_id=member_id) for member_id in ("new", classic.id, "nobody")]
    response = members.cluster.request(
        members.cluster.coordinator(GROUP), LeaveGroupRequest(group_id=GROUP, members=leaving)
    )
    assert [member.error_code for member in response.members] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_members_that_are_no_consumers_do_not_join_a_consumer_group() -> None:
    members = Members()
    members.join("new")
    assert ClassicMember(members).send_join(type="connect").response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_last_consumer_member_that_leaves_makes_the_group_classic_again() -> None:
    members = Members()
    new = members.join("new")
    classic = ClassicMember(members)
    classic.join()
    classic.sync()
    epoch = members.group.epoch
    new.leave()
    group = classic_group(members)
    assert group is not None
    assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, epoch)
    assert types(members) == ["classic"]
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    classic.join()
    assert (classic.error, classic.generation) == (ErrorCode.NONE, epoch + 1)
    classic.sync({classic.id: all_of("t", 4)})
    assert classic.owned == all_of("t", 4)


def test_a_consumer_member_whose_session_expires_downgrades_the_group_too() -> None:
    members = Members()
    members.join("new")
    classic = ClassicMember(members)
    classic.join()
    classic.sync()
    members.cluster.advance(SESSION_MS / 1000 - 1)
    classic.heartbeat()
    members.cluster.advance(2)
    assert types(members) == ["classic"]


def test_a_static_classic_member_replaces_the_last_consumer_member_without_a_rebalance() -> None:
    members = Members()
    new = members.join("new", instance_id="i")
    had = new.owned
    classic = ClassicMember(members, instance_id="i")
    classic.join()
    assert classic.error == ErrorCode.NONE
    group = classic_group(members)
    assert group is not None
    assert group.state is GroupState.STABLE
    classic.sync()
    assert classic.owned == had


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])
def test_the_migration_policy_allows_each_direction(policy: str) -> None:
    up = Members(consumer_group_migration_policy=policy)
    stable_classic(up)
    joined = up.join("new")
    allowed = policy in ("bidirectional", "upgrade")
    assert joined.error == (ErrorCode.NONE if allowed else ErrorCode.GROUP_ID_NOT_FOUND)
    down = Members(consumer_group_migration_policy=policy)
    new = down.join("new")
    classic = ClassicMember(down)
    classic.join()
    new.leave()
    assert types(down) == ["classic" if policy in ("bidirectional", "downgrade") else "consumer"]


@pytest.mark.parametrize("has_waiting", [True, False])
def test_waiting_classic_members_get_a_rebalance_after_the_upgrade(has_waiting: bool) -> None:
    members = Members()
    classic = stable_classic(members)
    waiting = None
    if has_waiting:
        other = ClassicMember(members)
        other.id = other.send_join().response.member_id
        waiting = other.send_join()
        assert waiting.is_pending
    members.join("new")
    if waiting is not None:
        assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_of_other_members_is_not_upgraded() -> None:
    members = Members()
    connect = ClassicMember(members)
    connect.id = connect.send_join(type="connect").response.member_id
    connect.send_join(type="connect")
    assert members.join("new").error == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_of_either_type_becomes_one_of_the_other() -> None:
    members = Members()
    classic = stable_classic(members)
    classic.leave()
    new = members.join("new")
    assert (types(members), new.epoch) == (["consumer"], 2)
    new.leave()
    stable_classic(members)
    assert types(members) == ["classic"]


@pytest.mark.parametrize("missing", ["join", "sync"])
def test_a_classic_member_that_does_not_rejoin_or_sync_is_fenced(missing: str) -> None:
    members = Members()
    new = members.join("new")
    classic = ClassicMember(members)
    classic.join()
    if missing == "join":
        classic.sync()
        new.beat(subscribed_topic_names=["t", "u"])
    for _ in range(REBALANCE_MS // 1000 + 1):
        classic.heartbeat()
        new.beat()
        members.cluster.advance(1)
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    settle(new)
    assert new.owned == all_of("t", 4)


def test_describe_names_the_protocol_of_each_member() -> None:
    members = Members()
    members.join("new")
    ClassicMember(members).join()
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    (group,) = members.cluster.request(members.cluster.coordinator(GROUP), request).groups
    assert sorted(member.member_type for member in group.members) == [0, 1]
