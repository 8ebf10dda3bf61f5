"""The coordinator of consumer groups (KIP-848) on virtual time, by encoded requests."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.broker.cluster import served_versions
from kwire.broker.current_assignment import MemberState
from kwire.broker.offsets import OffsetAndMetadata
from kwire.errors import BrokerError, ConfigurationError, ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.consumer_members import GROUP, REBALANCE_MS, Members, all_of, settle

SESSION_SECONDS = 45


def test_a_member_joins_and_gets_everything_at_once() -> None:
    members = Members()
    one = members.join("one")
    assert one.epoch == 2  # a group begins at epoch 1
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
    one.beat(owned=False)  # it learns that it has to revoke two
    assert (len(one.owned), one.epoch) == (2, 2)
    two.beat()
    assert two.owned == set()  # one has not confirmed yet
    one.beat()
    assert one.epoch == 3
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
    assert one.epoch == 2
    assert members.group.members["one"].current.state is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.parametrize(
    ("epoch", "fenced"), [(4, True), (2, False), (3, False), (1, True)], ids=["greater", "previous", "current", "older"]
)
def test_only_the_present_and_the_previous_epoch_are_accepted(epoch: int, fenced: bool) -> None:
    members = Members()
    one = members.join("one")
    one.beat(subscribed_topic_names=["t", "u"])
    assert one.epoch == 3
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
    assert members.group.epoch == 3


def test_a_topic_that_nobody_subscribes_to_changes_nothing() -> None:
    members = Members()
    one = members.join("one")
    members.cluster.state.create_topic("other", 1)
    one.beat()
    assert members.group.epoch == 2


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


def test_since_4_3_targets_are_computed_once_in_an_interval() -> None:
    members = Members(version="4.3", consumer_group_assignment_interval_ms=1000)
    one = members.join("one")
    two = members.join("two")
    assert members.group.state_name == "Assigning"
    settle(one, two)
    assert (two.error, two.owned, one.owned) == (ErrorCode.NONE, set(), all_of("t", 4))
    members.cluster.advance(1)
    settle(one, two)
    assert len(one.owned) == len(two.owned) == 2


def test_before_4_3_there_is_no_assignment_interval() -> None:
    members = Members(version="4.2", consumer_group_assignment_interval_ms=1000)
    one, two = members.join("one"), members.join("two")
    settle(one, two)
    assert len(two.owned) == 2


@pytest.mark.parametrize(("version", "epoch"), [("4.0", 1), ("4.2", 1), ("4.3", 2), ("4.4", 2)])
def test_since_4_3_groups_begin_at_epoch_1(version: str, epoch: int) -> None:
    assert Members(version=version).join("one").epoch == epoch


@pytest.mark.parametrize(("version", "assignment_epoch"), [("4.3", 2), ("4.4", 3)])
def test_since_4_4_the_assignment_epoch_of_an_empty_group_is_its_epoch(version: str, assignment_epoch: int) -> None:
    members = Members(version=version)
    members.join("one").leave()
    assert (members.group.epoch, members.group.assignment_epoch) == (3, assignment_epoch)


@pytest.mark.parametrize(("version", "bumps"), [("4.3", False), ("4.4", True)])
def test_since_4_4_another_assignor_begins_a_new_epoch(version: str, bumps: bool) -> None:
    members = Members(version=version)
    one = members.join("one")
    before = members.group.epoch
    one.beat(server_assignor="range")
    assert members.group.epoch == before + bumps


@pytest.mark.parametrize(("version", "code"), [("4.1", ErrorCode.FENCED_MEMBER_EPOCH), ("4.2", ErrorCode.NONE)])
def test_since_4_2_a_known_member_may_rejoin(version: str, code: ErrorCode) -> None:
    members = Members(version=version)
    one = members.join("one")
    one.beat(subscribed_topic_names=["t", "u"])
    one.join()
    assert one.error == code


@pytest.mark.parametrize(("version", "is_revoked"), [("4.1", False), ("4.2", True)])
def test_since_4_2_partitions_of_topics_without_subscription_are_revoked_before_the_next_targets(
    version: str, is_revoked: bool
) -> None:
    members = Members({"t": 1, "u": 1}, version=version)
    one = members.join("one", ["t", "u"])
    group = members.group
    group.members["one"].topics = frozenset({"t"})
    one.beat(owned=False)
    assert (one.owned == {("t", 0)}) == is_revoked


@pytest.mark.parametrize(
    ("release", "api", "versions"),
    [
        ("3.6", ApiKey.CONSUMER_GROUP_HEARTBEAT, range(0)),
        ("3.9", ApiKey.CONSUMER_GROUP_HEARTBEAT, range(1)),
        ("4.0", ApiKey.CONSUMER_GROUP_HEARTBEAT, range(2)),
        ("4.0", ApiKey.OFFSET_COMMIT, range(2, 10)),
        ("4.4", ApiKey.TXN_OFFSET_COMMIT, range(7)),
        ("4.3", ApiKey.TXN_OFFSET_COMMIT, range(6)),
    ],
)
def test_a_release_serves_its_versions(release: str, api: ApiKey, versions: range) -> None:
    assert served_versions({}, release=release)[api] == versions


@pytest.mark.parametrize("options", [{"version": "9.9"}, {"version": 4.0}, {"consumer_group_migration_policy": "x"}])
def test_wrong_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Members(**options)


# As an administrator sees them.


def listed(members: Members, **filters: list[str]) -> list[tuple[str, str]]:
    request = ListGroupsRequest(**filters)
    return [(group.group_type, group.group_state) for group in members.cluster.request(1, request).groups]


def test_groups_are_listed_by_type_and_state() -> None:
    members = Members()
    members.join("one")
    assert listed(members) == [("consumer", "Stable")]
    assert listed(members, types_filter=["Consumer"], states_filter=["stable"]) == [("consumer", "Stable")]
    assert listed(members, types_filter=["classic"]) == listed(members, states_filter=["Empty"]) == []


def test_only_an_empty_group_can_be_deleted() -> None:
    members = Members()
    one = members.join("one")
    request = DeleteGroupsRequest(groups_names=[GROUP])
    assert members.cluster.request(1, request).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    one.leave()
    assert members.cluster.request(1, request).results[0].error_code == ErrorCode.NONE
    assert listed(members) == []


def test_offsets_of_subscribed_topics_cannot_be_deleted() -> None:
    members = Members({"t": 1, "u": 1})
    members.join("one", ["t"])
    offsets = members.cluster.state.offsets
    topics = []
    for name in ("t", "u"):
        offsets.commit(GROUP, (name, 0), OffsetAndMetadata(1, -1, "", at=0.0))
        partition = OffsetDeleteRequest.Topic.Partition(partition_index=0)
        topics.append(OffsetDeleteRequest.Topic(name=name, partitions=[partition]))
    response = members.cluster.request(1, OffsetDeleteRequest(group_id=GROUP, topics=topics))
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert set(offsets.of(GROUP)) == {("t", 0)}


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_describe_groups_does_not_know_consumer_groups(version: int, code: ErrorCode) -> None:
    members = Members()
    members.join("one")
    (group,) = members.cluster.request(1, DescribeGroupsRequest(groups=[GROUP]), version).groups
    assert (group.error_code, group.group_state) == (code, "Dead")


def test_describe_shows_epochs_and_both_assignments() -> None:
    members = Members({"t": 2})
    members.join("one", rack_id="r", instance_id="i")
    members.join("two")
    members.group.members["one"].topics = frozenset({"t"})
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP, "none"], include_authorized_operations=False)
    group, missing = members.cluster.request(1, request).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    shown = {member.member_id: member for member in group.members}
    assert (shown["one"].rack_id, shown["one"].instance_id, shown["one"].member_epoch) == ("r", "i", 2)
    assert shown["one"].assignment.topic_partitions[0].partitions == [0, 1]
    assert [len(member.target_assignment.topic_partitions[0].partitions) for member in group.members] == [1, 1]
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_configs_of_a_group_replace_the_brokers() -> None:
    members = Members()
    configs = members.cluster.state.group_configs
    configs.alter(GROUP, {"consumer.heartbeat.interval.ms": "6000", "consumer.session.timeout.ms": "50000"})
    one = members.join("one")
    assert one.beat().heartbeat_interval_ms == 6000
    members.cluster.advance(49)
    one.beat()
    members.cluster.advance(51)
    one.beat()
    assert one.error == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "configs",
    [
        {"consumer.session.timeout.ms": "44999"},
        {"consumer.session.timeout.ms": "60001"},
        {"consumer.heartbeat.interval.ms": "4999"},
        {"consumer.heartbeat.interval.ms": "15001"},
        {"consumer.heartbeat.interval.ms": "x"},
        {"consumer.assignment.interval.ms": "15001"},
        {"consumer.nothing": "1"},
    ],
)
def test_wrong_group_configs_are_rejected(configs: dict[str, str]) -> None:
    with pytest.raises(BrokerError):
        Members().cluster.state.group_configs.alter(GROUP, configs)


# Commits and fetches of offsets.


def commit(members: Members, member_id: str, epoch: int, partition: int = 0, *, version: int = 10) -> int:
    topic = members.cluster.state.topics["t"]
    requested = OffsetCommitRequest.Topic.Partition(
        partition_index=partition, committed_offset=5, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member_id,
        topics=[OffsetCommitRequest.Topic(name="t", topic_id=topic.id, partitions=[requested])],
    )  # fmt: skip
    response = members.cluster.request(members.cluster.coordinator(GROUP), request, version)
    return response.topics[0].partitions[0].error_code


def shared(**options: Any) -> tuple[Members, int, int]:
    """Return a group whose member "one" is at epoch 3 (2 before 4.3), a partition that it kept, and one of "two"."""
    members = Members(**options)
    one, two = members.join("one"), members.join("two")
    settle(one, two)
    return members, min(one.owned)[1], min(two.owned)[1]


def test_since_4_3_an_older_epoch_commits_partitions_that_the_member_has_had_since() -> None:
    members, kept, others = shared(version="4.3")
    assert commit(members, "one", 3, kept) == ErrorCode.NONE
    assert commit(members, "one", 2, kept) == ErrorCode.NONE
    assert commit(members, "one", 2, others) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(members, "two", 2, others) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(members, "one", 1, kept) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(members, "one", 4, kept) == ErrorCode.STALE_MEMBER_EPOCH


def test_before_4_3_only_the_present_epoch_commits() -> None:
    members, kept, _ = shared(version="4.2")
    assert commit(members, "one", 2, kept) == ErrorCode.NONE
    assert commit(members, "one", 1, kept) == ErrorCode.STALE_MEMBER_EPOCH


def test_strangers_commit_only_to_an_empty_group() -> None:
    members, *_ = shared()
    assert commit(members, "nobody", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(members, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    for member_id in ("one", "two"):
        members.send(member_id=member_id, member_epoch=-1)
    assert commit(members, "", -1) == ErrorCode.NONE


def test_consumer_members_need_version_9_of_offset_commit() -> None:
    members, kept, _ = shared()
    assert commit(members, "one", 3, kept, version=8) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("one", 3, ErrorCode.NONE),
        ("one", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offset_fetch_checks_the_member_if_it_is_named(member_id: str | None, epoch: int, code: ErrorCode) -> None:
    members, _, _ = shared()
    requested = OffsetFetchRequest.Group(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
    request = OffsetFetchRequest(groups=[requested])
    (group,) = members.cluster.request(members.cluster.coordinator(GROUP), request, 9).groups
    assert group.error_code == code


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (5, 3, ErrorCode.NONE),
        (5, 2, ErrorCode.NONE),
        (5, 1, ErrorCode.ILLEGAL_GENERATION),
        (6, 1, ErrorCode.STALE_MEMBER_EPOCH),
        (6, 4, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_transactional_commits_have_the_same_rule(version: int, epoch: int, code: ErrorCode) -> None:
    members, kept, _ = shared()
    state, node = members.cluster.state, members.cluster.coordinator("x")
    started = members.cluster.request(node, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000))
    partition = TxnOffsetCommitRequest.Topic.Partition(
        partition_index=kept, committed_offset=1, committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x", group_id=GROUP, producer_id=started.producer_id, producer_epoch=started.producer_epoch,
        generation_id_or_member_epoch=epoch, member_id="one",
        topics=[TxnOffsetCommitRequest.Topic(name="t", topic_id=state.topics["t"].id, partitions=[partition])],
    )  # fmt: skip
    response = members.cluster.request(members.cluster.coordinator(GROUP), request, version)
    assert response.topics[0].partitions[0].error_code == code


def test_offsets_of_topics_without_subscription_expire_in_a_living_group() -> None:
    members = Members({"t": 1, "u": 1}, offsets_retention_ms=60_000, offsets_retention_check_ms=10_000)
    one = members.join("one", ["t", "u"])
    offsets = members.cluster.state.offsets
    for topic in ("t", "u"):
        offsets.commit(GROUP, (topic, 0), OffsetAndMetadata(1, -1, "", at=0.0))
    one.beat(subscribed_topic_names=["t"])
    for _ in range(8):
        members.cluster.advance(10)
        one.beat()
    assert set(offsets.of(GROUP)) == {("t", 0)}


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
