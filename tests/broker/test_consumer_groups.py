"""The coordinator of consumer groups (KIP-848) on virtual time, by encoded requests."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.broker.current_assignment import MemberState
from kwire.errors import ErrorCode
from tests.broker.consumer_members import GROUP, REBALANCE_MS, Members, all_of, settle

SESSION_SECONDS = 45


def test_a_member_joins_and_gets_everything_at_once() -> None:
    members = Members()
    one = members.join("one")
    assert one.epoch == 1
    assert one.owned == all_of("t", 4)
    assert members.group.state_name == "Stable"


def test_the_response_has_the_assignment_only_when_it_is_new() -> None:
    one = Members().join("one")
    first = one.beat(owned=False)
    assert (first.error_code, first.assignment, first.heartbeat_interval_ms) == (0, None, 5000)


def test_a_full_heartbeat_gets_the_assignment_again() -> None:
    one = Members().join("one")
    again = one.beat(rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=["t"])
    assert again.assignment is not None


def test_a_partition_moves_only_after_its_holder_has_reported_that_it_gave_it_up() -> None:
    members = Members()
    one, two = members.join("one"), None
    two = members.join("two")
    assert two.owned == set()
    assert members.group.state_name == "Reconciling"
    one.beat(owned=False)  # it learns that it has to give up two
    assert (len(one.owned), one.epoch) == (2, 1)
    two.beat()
    assert two.owned == set()  # one has not confirmed yet
    one.beat()
    assert one.epoch == 2
    two.beat()
    assert two.owned == all_of("t", 4) - one.owned
    assert members.group.state_name == "Stable"


def test_a_member_that_still_reports_revoked_partitions_stays_in_its_epoch() -> None:
    members = Members()
    one = members.join("one")
    members.join("two")
    everything = one.owned
    one.beat(owned=False)
    one.owned = everything
    one.beat()
    assert one.epoch == 1
    assert members.group.members["one"].current.state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize(
    ("epoch", "fenced"), [(3, True), (1, False), (2, False)], ids=["greater", "previous", "current"]
)
def test_only_the_present_and_the_previous_epoch_are_accepted(epoch: int, fenced: bool) -> None:
    members = Members()
    one = members.join("one")
    one.beat(subscribed_topic_names=["t", "u"])
    assert one.epoch == 2
    one.beat(member_epoch=epoch)
    assert one.error == (ErrorCode.FENCED_MEMBER_EPOCH if fenced else ErrorCode.NONE)


def test_the_previous_epoch_is_fenced_with_partitions_that_the_member_does_not_have() -> None:
    members = Members({"t": 4, "u": 1})
    one = members.join("one")
    one.beat(subscribed_topic_names=["t"], rack_id="r")
    one.beat(subscribed_topic_names=["t", "x"])
    one.owned = {("u", 0)}
    one.beat(member_epoch=one.epoch - 1)
    assert one.error == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_known_member_rejoins_with_epoch_0_and_keeps_its_target() -> None:
    members = Members()
    one = members.join("one")
    one.join()
    assert (one.error, one.owned) == (ErrorCode.NONE, all_of("t", 4))


def test_a_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    members = Members()
    one, two = members.join("one"), members.join("two")
    settle(one, two)
    left = two.leave()
    assert (left.error_code, left.member_epoch) == (0, -1)
    settle(one)
    assert one.owned == all_of("t", 4)


def test_a_member_without_heartbeats_is_fenced_after_the_session_timeout() -> None:
    members = Members()
    one, two = members.join("one"), members.join("two")
    settle(one, two)
    members.cluster.advance(SESSION_SECONDS - 1)
    one.beat()
    members.cluster.advance(2)
    two.beat()
    assert two.error == ErrorCode.UNKNOWN_MEMBER_ID
    settle(one)
    assert one.owned == all_of("t", 4)


def test_a_member_that_does_not_revoke_within_the_rebalance_timeout_is_fenced() -> None:
    members = Members()
    one = members.join("one")
    two = members.join("two")
    one.beat(owned=False)
    for _ in range(REBALANCE_MS // 1000 + 1):
        members.cluster.advance(1)
        one.beat(owned=False)
        two.beat()
    assert one.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert two.owned == all_of("t", 4)


@pytest.mark.parametrize("change", ["create", "partitions", "delete"])
def test_a_change_of_a_subscribed_topic_begins_a_new_epoch(change: str) -> None:
    members = Members({"t": 2})
    one = members.join("one", ["t", "u"])
    state = members.cluster.state
    if change == "create":
        state.create_topic("u", 1)
        expected = {("t", 0), ("t", 1), ("u", 0)}
    elif change == "partitions":
        state.add_partitions(state.topics["t"], 3)
        expected = all_of("t", 3)
    else:
        state.delete_topic(state.topics["t"], 0.0)
        expected = set()
        one.owned = set()
    one.beat()
    assert one.owned == expected
    assert members.group.epoch == 2


def test_a_topic_that_nobody_subscribes_to_changes_nothing() -> None:
    members = Members()
    one = members.join("one")
    members.cluster.state.create_topic("other", 1)
    one.beat()
    assert members.group.epoch == 1


def test_a_topic_created_again_is_revoked_by_its_old_id_and_assigned_by_its_new_one() -> None:
    members = Members({"t": 1})
    one = members.join("one")
    state = members.cluster.state
    old_id = state.topics["t"].id
    state.delete_topic(state.topics["t"], 0.0)
    state.create_topic("t", 1)
    first = one.beat(owned=False)
    assert first.assignment is not None
    assert first.assignment.topic_partitions == []
    one.owned = set()
    one.beat()
    assert one.owned == {("t", 0)}
    assert old_id not in {topic for topic, _ in members.group.holders}


# Static members.


def test_a_static_member_that_left_for_a_while_comes_back_under_a_new_id_to_its_partitions() -> None:
    members = Members()
    one, two = members.join("one", instance_id="i1"), members.join("two", instance_id="i2")
    settle(one, two)
    had, epoch = one.owned, members.group.epoch
    left = one.leave(epoch=-2)
    assert (left.error_code, left.member_epoch) == (0, -2)
    two.beat()
    assert two.owned.isdisjoint(had)
    again = members.join("new", instance_id="i1")
    assert again.owned == had
    assert members.group.epoch == epoch


def test_a_static_member_that_left_for_a_while_is_removed_after_its_session() -> None:
    members = Members()
    one, two = members.join("one", instance_id="i1"), members.join("two")
    settle(one, two)
    one.leave(epoch=-2)
    members.cluster.advance(SESSION_SECONDS - 1)
    two.beat()
    members.cluster.advance(2)
    settle(two)
    assert two.owned == all_of("t", 4)


def test_an_instance_id_in_use_is_not_released() -> None:
    members = Members()
    members.join("one", instance_id="i")
    assert members.join("two", instance_id="i").error == ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_former_member_of_an_instance_is_fenced() -> None:
    members = Members()
    one = members.join("one", instance_id="i")
    one.leave(epoch=-2)
    members.join("two", instance_id="i")
    one.beat()
    assert one.error == ErrorCode.FENCED_INSTANCE_ID


def test_an_unknown_instance_is_an_unknown_member() -> None:
    members = Members()
    one = members.join("one")
    one.beat(instance_id="nobody")
    assert one.error == ErrorCode.UNKNOWN_MEMBER_ID


# Requests that are rejected.


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "(?=a)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_wrong_first_requests_are_rejected(fields: dict[str, Any], code: ErrorCode) -> None:
    good = {
        "member_id": "one", "member_epoch": 0, "rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }  # fmt: skip
    response = Members().send(**{**good, **fields})
    assert response.error_code == code
    assert response.error_message


def test_before_v1_the_coordinator_makes_the_member_id() -> None:
    members = Members()
    response = members.send(
        version=0, member_id="", member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    assert response.error_code == ErrorCode.NONE
    assert response.member_id in members.group.members


def test_a_full_group_rejects_new_members_only() -> None:
    members = Members(consumer_group_max_size=1)
    one = members.join("one")
    assert members.join("two").error == ErrorCode.GROUP_MAX_SIZE_REACHED
    one.beat()
    assert one.error == ErrorCode.NONE


def test_sessions_begin_anew_when_the_coordinator_moves() -> None:
    members = Members()
    one = members.join("one")
    members.cluster.advance(SESSION_SECONDS - 1)
    members.cluster.state.consumer_groups.coordinators_moved([GROUP], members.cluster.now)
    members.cluster.advance(SESSION_SECONDS - 1)
    one.beat()
    assert one.error == ErrorCode.NONE


# Versions.


@pytest.mark.parametrize(("options"), [{"version": "3.9"}, {"version": "4.0", "group_version": 0}])
def test_the_protocol_is_off_in_older_releases_and_at_feature_level_0(options: dict[str, Any]) -> None:
    one = Members(**options).join("one")
    assert one.error == ErrorCode.UNSUPPORTED_VERSION


def test_since_4_4_targets_are_computed_once_in_an_interval() -> None:
    members = Members(version="4.4", consumer_group_assignment_interval_ms=1000)
    one = members.join("one")
    two = members.join("two")
    assert members.group.state_name == "Assigning"
    settle(one, two)
    assert (two.error, two.owned, one.owned) == (ErrorCode.NONE, set(), all_of("t", 4))
    members.cluster.advance(1)
    settle(one, two)
    assert len(one.owned) == len(two.owned) == 2


def test_before_4_4_there_is_no_assignment_interval() -> None:
    members = Members(version="4.3", consumer_group_assignment_interval_ms=1000)
    one, two = members.join("one"), members.join("two")
    settle(one, two)
    assert len(two.owned) == 2


# Subscriptions by regular expression.


def test_a_regular_expression_matches_whole_names_and_follows_new_topics() -> None:
    members = Members({"orders.eu": 1, "orders.us": 1, "xorders.eu": 1})
    one = members.join("one", None, subscribed_topic_regex="orders[.].*")
    assert one.owned == {("orders.eu", 0), ("orders.us", 0)}
    members.cluster.state.create_topic("orders.asia", 1)
    one.beat()
    assert ("orders.asia", 0) in one.owned


def test_names_and_a_regular_expression_add_up() -> None:
    one = Members({"a1": 1, "a2": 1, "b": 1}).join("one", ["b"], subscribed_topic_regex="a.")
    assert one.owned == {("a1", 0), ("a2", 0), ("b", 0)}


def test_an_empty_regular_expression_ends_the_subscription_by_pattern() -> None:
    members = Members({"a1": 1, "b": 1})
    one = members.join("one", ["b"], subscribed_topic_regex="a.")
    one.beat(subscribed_topic_regex="")
    assert one.owned == {("b", 0)}


# Assignors.


def test_the_assignor_is_that_of_most_members() -> None:
    members = Members({"t": 3, "u": 3})
    one = members.join("one", ["t", "u"], server_assignor="range")
    two = members.join("two", ["t", "u"], server_assignor="range")
    members.join("three", ["t", "u"], server_assignor="uniform")
    assert members.group.assignor == "range"
    members.group.members["three"].assignor = "range"
    settle(one, two)
    assert {partition for _, partition in one.owned} == {0}
