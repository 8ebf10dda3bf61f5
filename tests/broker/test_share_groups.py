"""Members of share groups: epochs, assignments, sessions, and the APIs that describe and delete groups."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.broker.share_assignor import assign
from kwire.errors import ErrorCode
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from tests.broker.share_client import ShareMember
from tests.broker.virtual_cluster import VirtualCluster

SESSION_SECONDS = 45


def make_cluster(**topics: int) -> VirtualCluster:
    cluster = VirtualCluster(1)
    for name, partitions in (topics or {"t": 2}).items():
        cluster.state.create_topic(name, partitions)
    return cluster


def describe(cluster: VirtualCluster, group: str = "g") -> Any:
    (found,) = cluster.request(
        1, ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    ).groups
    return found


class TestHeartbeats:
    def test_a_member_has_its_assignment_with_its_first_heartbeat(self) -> None:
        member = ShareMember(make_cluster())
        response = member.heartbeat("t")
        assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 1)
        assert response.heartbeat_interval_ms == 5000
        assert member.assigned == {"t": [0, 1]}

    def test_a_heartbeat_without_news_has_no_assignment(self) -> None:
        member = ShareMember(make_cluster())
        member.heartbeat("t")
        assert member.heartbeat().assignment is None

    def test_a_second_member_takes_over_partitions(self) -> None:
        cluster = make_cluster(t=4)
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.heartbeat("t")
        two.heartbeat("t")
        assert one.epoch == 1
        one.heartbeat()
        assert (one.epoch, two.epoch) == (2, 2)
        assert sorted(one.assigned["t"] + two.assigned["t"]) == [0, 1, 2, 3]
        assert len(one.assigned["t"]) == 2

    def test_more_members_than_partitions_share_them(self) -> None:
        cluster = make_cluster(t=1)
        members = [ShareMember(cluster, f"m{i}") for i in range(3)]
        for member in members:
            member.heartbeat("t")
        assert [member.assigned for member in members] == [{"t": [0]}] * 3

    def test_a_new_partition_and_a_new_topic_are_assigned_with_the_next_heartbeat(self) -> None:
        cluster = make_cluster(t=1)
        member = ShareMember(cluster)
        member.heartbeat("t", "later")
        cluster.state.add_partitions(cluster.state.topics["t"], 2)
        cluster.state.create_topic("later", 1)
        member.heartbeat()
        assert member.assigned == {"t": [0, 1], "later": [0]}

    def test_a_topic_that_was_created_anew_is_assigned_anew(self) -> None:
        cluster = make_cluster(t=1)
        member = ShareMember(cluster)
        member.heartbeat("t")
        cluster.state.delete_topic(cluster.state.topics["t"], cluster.now)
        topic = cluster.state.create_topic("t", 1)
        (assigned,) = member.heartbeat().assignment.topic_partitions
        assert assigned.topic_id == topic.id

    def test_a_changed_subscription_changes_the_assignment(self) -> None:
        member = ShareMember(make_cluster(t=1, u=1))
        member.heartbeat("t")
        assert member.heartbeat("u").member_epoch == 2
        assert member.assigned == {"u": [0]}

    def test_a_lost_response_is_repeated(self) -> None:
        cluster = make_cluster()
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.heartbeat("t")
        two.heartbeat("t")
        assert one.heartbeat().member_epoch == 2
        assert one.heartbeat(epoch=1).error_code == ErrorCode.NONE
        two.heartbeat(epoch=-1)
        assert one.heartbeat().member_epoch == 3
        assert one.heartbeat(epoch=1).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_member_that_rejoins_keeps_its_place(self) -> None:
        member = ShareMember(make_cluster())
        member.heartbeat("t")
        assert member.heartbeat("t", epoch=0).member_epoch == 1

    def test_a_session_without_heartbeats_ends(self) -> None:
        cluster = make_cluster()
        member = ShareMember(cluster)
        member.heartbeat("t")
        cluster.advance(SESSION_SECONDS - 1)
        assert member.heartbeat().error_code == ErrorCode.NONE
        cluster.advance(SESSION_SECONDS)
        assert member.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert describe(cluster).group_state == "Empty"

    def test_the_session_timeout_is_the_groups(self) -> None:
        cluster = make_cluster()
        cluster.state.group_configs.alter("g", {"share.session.timeout.ms": "50000"})
        member = ShareMember(cluster)
        member.heartbeat("t")
        cluster.advance(SESSION_SECONDS + 1)
        assert member.heartbeat().error_code == ErrorCode.NONE

    def test_a_leaving_member_gives_its_partitions_to_the_others(self) -> None:
        cluster = make_cluster()
        one, two = ShareMember(cluster, "one"), ShareMember(cluster, "two")
        one.heartbeat("t")
        two.heartbeat("t")
        response = two.heartbeat(epoch=-1)
        assert (response.error_code, response.member_epoch) == (0, -1)
        one.heartbeat()
        assert one.assigned == {"t": [0, 1]}

    @pytest.mark.parametrize(
        ("member", "epoch", "topics", "code"),
        [
            ("", 0, ["t"], ErrorCode.INVALID_REQUEST),
            ("m" * 37, 0, ["t"], ErrorCode.INVALID_REQUEST),
            ("m", -2, ["t"], ErrorCode.INVALID_REQUEST),
            ("m", 0, [], ErrorCode.INVALID_REQUEST),
            ("m", 1, ["t"], ErrorCode.GROUP_ID_NOT_FOUND),
            ("m", -1, ["t"], ErrorCode.GROUP_ID_NOT_FOUND),
        ],
    )
    def test_invalid_heartbeats(self, member: str, epoch: int, topics: list[str], code: int) -> None:
        assert ShareMember(make_cluster(), member).heartbeat(*topics, epoch=epoch).error_code == code

    def test_an_unknown_member_and_a_wrong_epoch(self) -> None:
        cluster = make_cluster()
        member = ShareMember(cluster)
        member.heartbeat("t")
        assert ShareMember(cluster, "x").heartbeat(epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert member.heartbeat(epoch=7).error_code == ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_full_group(self) -> None:
        cluster = VirtualCluster(1, share_group_max_size=1)
        ShareMember(cluster, "one").heartbeat("t")
        assert ShareMember(cluster, "two").heartbeat("t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_share_groups_can_be_off(self) -> None:
        cluster = VirtualCluster(1, share_version=0)
        assert ShareMember(cluster).heartbeat("t").error_code == ErrorCode.UNSUPPORTED_VERSION


class TestGroups:
    def test_describe(self) -> None:
        cluster = make_cluster()
        ShareMember(cluster).heartbeat("t")
        found = describe(cluster)
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
        assert found.assignor_name == "simple"
        (member,) = found.members
        assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("m", 1, ["t"])
        (assigned,) = member.assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
        assert describe(cluster, "x").error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_list_by_type(self) -> None:
        cluster = make_cluster()
        ShareMember(cluster).heartbeat("t")
        (found,) = cluster.request(1, ListGroupsRequest(states_filter=[], types_filter=["Share"])).groups
        assert (found.group_id, found.group_type, found.protocol_type, found.group_state) == (
            "g", "share", "share", "Stable",
        )  # fmt: skip
        assert not cluster.request(1, ListGroupsRequest(states_filter=[], types_filter=["classic"])).groups

    def test_only_an_empty_group_can_be_deleted(self) -> None:
        cluster = make_cluster()
        member = ShareMember(cluster)
        member.heartbeat("t")
        request = DeleteGroupsRequest(groups_names=["g"])
        assert cluster.request(1, request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        member.heartbeat(epoch=-1)
        assert cluster.request(1, request).results[0].error_code == ErrorCode.NONE
        assert describe(cluster).error_code == ErrorCode.GROUP_ID_NOT_FOUND


class TestSimpleAssignor:
    """Scenarios of Kafka's SimpleAssignorTest."""

    def test_partitions_are_balanced_over_all_topics(self) -> None:
        subscriptions = {member: frozenset({"t", "u"}) for member in ("a", "b")}
        result = assign(subscriptions, {"t": 3, "u": 2}, {})
        assert sorted(len(assigned) for assigned in result.values()) == [2, 3]
        assert set().union(*result.values()) == {("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)}

    def test_each_member_has_a_partition_when_there_are_more_members(self) -> None:
        members = [f"m{i}" for i in range(7)]
        result = assign(dict.fromkeys(members, frozenset({"t"})), {"t": 3}, {})
        assert {len(assigned) for assigned in result.values()} <= {1, 2}
        shared = [sum(("t", index) in assigned for assigned in result.values()) for index in range(3)]
        assert shared == [3, 3, 3]

    def test_a_new_member_moves_no_more_than_balance_needs(self) -> None:
        one = assign({"a": frozenset({"t"})}, {"t": 6}, {})
        two = assign(dict.fromkeys("ab", frozenset({"t"})), {"t": 6}, one)
        three = assign(dict.fromkeys("abc", frozenset({"t"})), {"t": 6}, two)
        assert two["a"] < one["a"]
        assert [len(two["a"] & three["a"]), len(two["b"] & three["b"])] == [2, 2]
        assert [len(three[member]) for member in "abc"] == [2, 2, 2]

    def test_different_subscriptions_are_balanced_by_topic(self) -> None:
        result = assign(
            {"a": frozenset({"t"}), "b": frozenset({"u"}), "c": frozenset({"t", "u"})}, {"t": 4, "u": 4}, {}
        )
        assert [len(result[member]) for member in "abc"] == [2, 2, 4]

    def test_a_deleted_topic_and_no_topic(self) -> None:
        assert assign({"a": frozenset({"t"})}, {}, {"a": {("t", 0)}}) == {"a": set()}
        assert assign({"a": frozenset()}, {"t": 1}, {}) == {"a": set()}
