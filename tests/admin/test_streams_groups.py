"""Groups of Kafka Streams, as StreamsGroupDescribe has them."""

from __future__ import annotations

from kwire.admin import GroupMember, StreamsTasks, Subtopology
from kwire.admin.groups import _streams_group
from kwire.protocol.messages.streams_group_describe import StreamsGroupDescribeResponse
from kwire.protocol.messages.streams_group_heartbeat import StreamsTaskIds

Described = StreamsGroupDescribeResponse.Group
TopicInfo = Described.Topology.Subtopology.TopicInfo


def tasks(**partitions: list[int]) -> list[StreamsTaskIds]:
    return [StreamsTaskIds(subtopology_id=id, partitions=found) for id, found in partitions.items()]


def topic(name: str) -> TopicInfo:
    return TopicInfo(name=name, partitions=2, replication_factor=1, topic_configs=[])


def test_members_have_tasks_and_the_group_a_topology() -> None:
    now = Described.Member.Assignment(active_tasks=tasks(b=[1, 0], a=[0]), standby_tasks=tasks(a=[1]), warmup_tasks=[])
    then = Described.Member.Assignment(active_tasks=tasks(a=[0]), standby_tasks=[], warmup_tasks=tasks(b=[1]))
    member = Described.Member(
        member_id="m", member_epoch=3, instance_id=None, rack_id="r", client_id="c", client_host="/h",
        topology_epoch=1, process_id="p", user_endpoint=None, client_tags=[], task_offsets=[], task_end_offsets=[],
        assignment=now, target_assignment=then, is_classic=False,
    )  # fmt: skip
    part = Described.Topology.Subtopology(
        subtopology_id="a", source_topics=["in"], repartition_sink_topics=["sink"],
        state_changelog_topics=[topic("changes")], repartition_source_topics=[topic("middle")],
    )  # fmt: skip
    described = Described(
        error_code=0, group_id="g", group_state="Stable", group_epoch=5, assignment_epoch=4,
        topology=Described.Topology(epoch=1, subtopologies=[part]), members=[member], assignor_name="sticky",
    )  # fmt: skip
    for version in (0, 1):
        encoded = StreamsGroupDescribeResponse(groups=[described]).encode(version)
        group = _streams_group("g", StreamsGroupDescribeResponse.decode(encoded, version), False)
        assert (group.id, group.type, group.state, group.epoch, group.assignment_epoch) == (
            "g",
            "streams",
            "Stable",
            5,
            4,
        )
        assert group.assignor == ("sticky" if version else "")
        assert (group.topology, group.topology_epoch) == (
            (Subtopology("a", ("in",), ("middle",), ("sink",), ("changes",)),),
            1,
        )
        assert group.members == (
            GroupMember(
                "m", "c", "/h", None, "r", 3,
                tasks=StreamsTasks((("a", 0), ("b", 0), ("b", 1)), (("a", 1),)),
                target_tasks=StreamsTasks(active=(("a", 0),), warmup=(("b", 1),)),
            ),
        )  # fmt: skip


def test_a_group_without_a_topology() -> None:
    described = Described(
        error_code=0, group_id="g", group_state="Empty", group_epoch=1, assignment_epoch=1, topology=None, members=[]
    )
    group = _streams_group("g", StreamsGroupDescribeResponse(groups=[described]), False)
    assert (group.topology, group.topology_epoch, group.members) == ((), -1, ())
