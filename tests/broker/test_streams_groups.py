"""Groups of Kafka Streams on virtual time: tasks, standby tasks, timers, internal topics, and what prevents tasks.

`test_streams_groups_like_kafka` compares the same responses with a real broker; a Streams program is in
`test_streams_program`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kwire.broker.streams_assignor import MemberSpec, Tasks, assign
from kwire.broker.streams_group import StreamsGroup
from kwire.errors import ErrorCode
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kwire.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsTaskIds,
)
from tests.broker.virtual_cluster import VirtualCluster

Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology
TopicInfo = Subtopology.TopicInfo

GROUP = "g"
REBALANCE_MS = 30_000
SESSION_SECONDS = 45


def info(name: str, partitions: int = 0) -> TopicInfo:
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=[])


def subtopology(id: str, *sources: str, **more: Any) -> Subtopology:
    fields: dict[str, Any] = {
        "source_topic_regex": [], "state_changelog_topics": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "copartition_groups": [], **more,
    }  # fmt: skip
    return Subtopology(subtopology_id=id, source_topics=list(sources), **fields)


STATELESS = (subtopology("0", "t"),)
STATEFUL = (subtopology("0", "t", state_changelog_topics=[info("g-store-changelog")]),)


def ids(tasks: Iterable[tuple[str, int]]) -> list[StreamsTaskIds]:
    return [StreamsTaskIds(subtopology_id=id, partitions=[partition]) for id, partition in sorted(tasks)]


def read(tasks: list[StreamsTaskIds] | None) -> set[tuple[str, int]]:
    return {(one.subtopology_id, partition) for one in tasks or () for partition in one.partitions}


class Group:
    """A cluster of one broker, and a group there."""

    def __init__(self, topics: dict[str, int] | None = None, **options: Any) -> None:
        self.cluster = VirtualCluster(1, **options)
        for name, partitions in (topics if topics is not None else {"t": 4}).items():
            self.cluster.state.create_topic(name, partitions)

    @property
    def state(self) -> StreamsGroup:
        group = self.cluster.state.streams_groups.get(GROUP)
        assert group is not None
        return group

    def join(self, id: str, subtopologies: Iterable[Subtopology] = STATELESS, **more: Any) -> Member:
        member = Member(self, id)
        member.beat(
            topology=Topology(epoch=0, subtopologies=list(subtopologies)), rebalance_timeout_ms=REBALANCE_MS,
            **{"process_id": f"process-{id}", "client_tags": [], **more},
        )  # fmt: skip
        return member


class Member:
    """A member that obeys: it takes over and gives up what the coordinator says, and reports it with the next beat."""

    def __init__(self, group: Group, id: str) -> None:
        self.group = group
        self.id = id
        self.epoch = 0
        self.active: set[tuple[str, int]] = set()
        self.standby: set[tuple[str, int]] = set()
        self.error: int = ErrorCode.NONE
        self.statuses: list[tuple[int, str]] = []

    def beat(self, **more: Any) -> StreamsGroupHeartbeatResponse:
        fields = {
            "member_epoch": self.epoch, "endpoint_information_epoch": 0, "active_tasks": ids(self.active),
            "standby_tasks": ids(self.standby), "warmup_tasks": [], **more,
        }  # fmt: skip
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self.id, **fields)
        response = self.group.cluster.request(1, request)
        self.error = response.error_code
        if self.error:
            return response
        self.epoch = response.member_epoch
        self.statuses = [(one.status_code, one.status_detail) for one in response.status or ()]
        if response.active_tasks is not None:
            self.active, self.standby = read(response.active_tasks), read(response.standby_tasks)
        return response

    def leave(self) -> None:
        self.beat(member_epoch=-1)


def settle(*members: Member) -> None:
    """Let each member take all its steps."""
    for _ in range(4):
        for member in members:
            member.beat()


def test_tasks_are_divided_and_move_as_little_as_they_must() -> None:
    group = Group()
    a = group.join("a")
    assert a.active == {("0", 0), ("0", 1), ("0", 2), ("0", 3)}
    b = group.join("b")
    assert b.active == set()  # a has not given any up
    a_before = a.active
    settle(a, b)
    assert len(a.active) == len(b.active) == 2
    assert a.active < a_before
    c = group.join("c")
    before = a.active, b.active
    settle(a, b, c)
    assert sorted(len(one.active) for one in (a, b, c)) == [1, 1, 2]
    assert a.active <= before[0]
    assert b.active <= before[1]
    assert group.state.state_name == "Stable"


def test_a_task_is_given_to_another_member_only_after_it_was_given_up() -> None:
    group = Group({"t": 2})
    a, b = group.join("a"), group.join("b")
    a.beat()
    given_up = {("0", 0), ("0", 1)} - a.active
    assert len(given_up) == 1
    b.beat()
    assert b.active == set()
    a.beat(active_tasks=ids(a.active | given_up))  # it still has it
    b.beat()
    assert b.active == set()
    a.beat()
    b.beat()
    assert b.active == given_up


def test_a_member_that_does_not_give_a_task_up_is_fenced_after_its_rebalance_timeout() -> None:
    group = Group({"t": 2})
    a, b = group.join("a"), group.join("b")
    held = a.active
    for _ in range(4):
        a.beat(active_tasks=ids(held))
        group.cluster.advance(REBALANCE_MS / 1000 / 3 + 1)
        b.beat()
    a.beat()
    assert a.error == ErrorCode.UNKNOWN_MEMBER_ID
    settle(b)
    assert b.active == held


def test_a_member_without_heartbeats_is_fenced_after_its_session() -> None:
    group = Group({"t": 2})
    a, b = group.join("a"), group.join("b")
    settle(a, b)
    for _ in range(2):
        group.cluster.advance(SESSION_SECONDS * 0.6)
        b.beat()
    settle(b)
    assert len(b.active) == 2
    a.beat()
    assert a.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_standby_tasks_are_on_other_processes_and_their_process_takes_over() -> None:
    group = Group({"t": 4, "g-store-changelog": 4}, streams_standby_replicas=1)
    a, b = group.join("a", STATEFUL), group.join("b", STATEFUL)
    settle(a, b)
    assert (len(a.active), len(b.active)) == (2, 2)
    assert (a.standby, b.standby) == (b.active, a.active)
    a.leave()
    settle(b)
    assert len(b.active) == 4
    assert b.standby == set()
    c = group.join("c", STATEFUL, process_id="process-b")
    settle(b, c)
    assert len(c.active) == 2
    assert b.standby | c.standby == set()  # one process, which would be lost as a whole


def test_a_task_moves_to_the_member_that_has_its_state() -> None:
    left = {  # by a member that had the tasks 0 and 1
        "b": MemberSpec("b", Tasks(frozenset({("0", 2)}), frozenset({("0", 1)}))),
        "c": MemberSpec("c", Tasks(frozenset({("0", 3)}), frozenset({("0", 0)}))),
    }
    after = assign(left, {"0": 4}, frozenset({"0"}), 0)
    assert after["b"].active == {("0", 2), ("0", 1)}
    assert after["c"].active == {("0", 3), ("0", 0)}


@pytest.mark.parametrize(("members", "partitions"), [(1, 5), (3, 4), (4, 3), (5, 17)])
def test_every_task_has_one_owner_and_the_counts_differ_by_one(members: int, partitions: int) -> None:
    specs = {f"m{number}": MemberSpec(f"p{number}") for number in range(members)}
    for _ in range(3):
        found = assign(specs, {"0": partitions, "1": 2}, frozenset({"1"}), 1)
        active = [task for tasks in found.values() for task in tasks.active]
        assert len(active) == len(set(active)) == partitions + 2
        sizes = [len(tasks.active) for tasks in found.values()]
        assert max(sizes) - min(sizes) <= 1
        standby = [task for tasks in found.values() for task in tasks.standby]
        assert sorted(standby) == ([("1", 0), ("1", 1)] if members > 1 else [])
        assert not any(tasks.active & tasks.standby for tasks in found.values())
        specs = {id: MemberSpec(specs[id].process, tasks) for id, tasks in found.items()}
    assert assign(specs, {"0": partitions, "1": 2}, frozenset({"1"}), 1) == found


def test_internal_topics_are_created_and_then_there_are_tasks() -> None:
    group = Group({"t": 3})
    both = (
        subtopology("0", "t", repartition_sink_topics=["g-repartition"]),
        subtopology(
            "1", repartition_source_topics=[info("g-repartition", 2)], state_changelog_topics=[info("g-changelog")]
        ),
    )  # fmt: skip
    a = group.join("a", both)
    assert a.active == set()
    assert [code for code, _ in a.statuses] == [3]
    assert group.state.state_name == "NotReady"
    a.beat()
    assert a.active == {("0", 0), ("0", 1), ("0", 2), ("1", 0), ("1", 1)}
    assert a.statuses == []
    assert len(group.cluster.state.topics["g-changelog"].partitions) == 2


def copartitioned(*sources: int, repartition: int | None = None) -> Subtopology:
    group = Subtopology.CopartitionGroup(
        source_topics=list(sources), source_topic_regex=[],
        repartition_source_topics=[] if repartition is None else [0],
    )  # fmt: skip
    return subtopology(
        "0", "t", "u", copartition_groups=[group],
        repartition_source_topics=[] if repartition is None else [info("g-repartition", repartition)],
    )  # fmt: skip


def test_a_copartition_group_of_a_topic_that_is_not_there_is_refused() -> None:
    group = Group({"t": 3, "u": 5})
    assert group.join("a", (copartitioned(2),)).error == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert group.join("b", (copartitioned(-1),)).error == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_repartition_topic_gets_the_partitions_of_what_it_is_joined_with() -> None:
    group = Group({"t": 3, "u": 5})
    upstream = subtopology("1", "t", repartition_sink_topics=["g-repartition"])
    group.join("a", (copartitioned(1, repartition=0), upstream))
    assert len(group.cluster.state.topics["g-repartition"].partitions) == 5


@pytest.mark.parametrize(
    ("topics", "subtopologies", "status", "names"),
    [
        ({}, STATELESS, 1, "t"),
        ({"t": 3, "u": 4}, (copartitioned(0, 1),), 2, "t=3, u=4"),
        ({"t": 3, "g-store-changelog": 4}, STATEFUL, 2, "expected 3, found 4"),
    ],
)
def test_a_status_says_why_there_are_no_tasks(
    topics: dict[str, int], subtopologies: Iterable[Subtopology], status: int, names: str
) -> None:
    group = Group(topics)
    a = group.join("a", subtopologies)
    ((code, detail),) = a.statuses
    assert code == status
    assert names in detail
    assert (a.active, group.state.state_name) == (set(), "NotReady")


def test_tasks_follow_topics_that_grow() -> None:
    group = Group({"t": 1})
    a = group.join("a")
    group.cluster.state.add_partitions(group.cluster.state.topics["t"], 3)
    a.beat()
    assert a.active == {("0", 0), ("0", 1), ("0", 2)}


def test_the_shutdown_of_an_application_reaches_every_member() -> None:
    group = Group()
    a, b = group.join("a"), group.join("b")
    a.beat(shutdown_application=True)
    b.beat()
    assert [code for code, _ in b.statuses] == [4]


def test_a_member_commits_with_its_epoch_only() -> None:
    group = Group({"t": 1})
    a = group.join("a")

    def commit(member: str, epoch: int) -> int:
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=7, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member,
            topics=[OffsetCommitRequest.Topic(name="t", partitions=[partition])],
        )  # fmt: skip
        return group.cluster.request(1, request, 9).topics[0].partitions[0].error_code

    assert commit("a", a.epoch) == ErrorCode.NONE
    assert commit("a", a.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("b", a.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    a.leave()
    assert commit("", -1) == ErrorCode.NONE


def test_brokers_before_4_2_have_no_such_groups() -> None:
    group = Group(version="4.1")
    assert group.join("a").error == ErrorCode.UNSUPPORTED_VERSION
    request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
    (described,) = group.cluster.request(1, request).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
