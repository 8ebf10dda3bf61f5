"""Groups of Kafka Streams in the embedded broker respond as those of Kafka 4.3: the same requests go to both.

A case yields the relevant fields of the responses, with names of topics and groups replaced. They must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from brokers.cluster import KafkaCluster

from kwire.broker import Cluster
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from kwire.protocol.messages.streams_group_heartbeat import (
    StreamsEndpoint,
    StreamsGroupHeartbeatRequest,
    StreamsTaskIds,
)
from tests.broker.comparison import Side, codes, results_by_side
from tests.waiting import wait_for

pytestmark = pytest.mark.live

GROUP_RESOURCE = 32
Topology = StreamsGroupHeartbeatRequest.Topology
Subtopology = Topology.Subtopology
TopicInfo = Subtopology.TopicInfo


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    settings = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
    with KafkaCluster("4.3.1", settings=settings) as real, Cluster(1, version="4.3") as embedded:
        host, port = real.bootstrap.split(":")
        pair = Side(host, int(port)), Side(*embedded.brokers[1])
        yield pair
        for side in pair:
            side.client.close()
        assert not embedded.failures


def info(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    """Return an internal topic. Underscores in the names of configs stand for dots."""
    chosen = [TopicInfo.Config(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=chosen)


def subtopology(id: str, *sources: str, **more: Any) -> Subtopology:
    fields: dict[str, Any] = {
        "source_topic_regex": [], "state_changelog_topics": [], "repartition_sink_topics": [],
        "repartition_source_topics": [], "copartition_groups": [], **more,
    }  # fmt: skip
    return Subtopology(subtopology_id=id, source_topics=list(sources), **fields)


def tasks(**partitions: list[int]) -> list[StreamsTaskIds]:
    return [StreamsTaskIds(subtopology_id=id.lstrip("_"), partitions=found) for id, found in partitions.items()]


def shown(found: list[Any] | None) -> Any:
    return None if found is None else sorted((one.subtopology_id, sorted(one.partitions)) for one in found)


class Group:
    """One group of Kafka Streams on one side."""

    def __init__(self, side: Side, *partitions: int) -> None:
        self.side = side
        self.id = side.case
        self.topics = [side.topic(count)[0] for count in partitions]
        self._until_coordinator_knows()

    def _until_coordinator_knows(self) -> None:
        """Wait until a member gets tasks, and delete the group: Kafka's coordinators learn of topics a moment later."""
        if self.topics:
            wait_for(self._probe, lambda response: not response[4])
            deleted = self.side.request(DeleteGroupsRequest(groups_names=[self.id]), 2)
            assert codes(deleted.results) == [0]

    def _probe(self) -> Any:
        response = self.join("probe")
        self.beat("probe", -1)
        return response

    def text(self, text: str | None) -> str:
        """Return a text without the name of the group. Kafka lists missing topics in the order of a hash table."""
        before, missing, names = (text or "").replace(self.id, "GROUP").partition("topics are missing: ")
        return before + missing + ", ".join(sorted(names.split(", ")))

    def topology(self, *subtopologies: Subtopology, epoch: int = 0) -> Topology:
        return Topology(epoch=epoch, subtopologies=list(subtopologies))

    def beat(self, member: str, epoch: int, **more: Any) -> Any:
        """Send a heartbeat. Return (code, message, epoch, tasks of three kinds, statuses, endpoints)."""
        fields = {"endpoint_information_epoch": 0, "group_id": self.id, **more}
        request = StreamsGroupHeartbeatRequest(member_id=member, member_epoch=epoch, **fields)
        response = self.side.until_coordinated(lambda: self.side.request(request, 0))
        statuses = response.status
        endpoints = response.partitions_by_user_endpoint
        return (
            response.error_code, self.text(response.error_message), response.member_epoch,
            (shown(response.active_tasks), shown(response.standby_tasks), shown(response.warmup_tasks)),
            statuses if statuses is None else [(one.status_code, self.text(one.status_detail)) for one in statuses],
            response.heartbeat_interval_ms, response.acceptable_recovery_lag_legacy, response.task_offset_interval_ms,
            response.endpoint_information_epoch,
            endpoints if endpoints is None else sorted(
                (
                    one.user_endpoint.host, one.user_endpoint.port,
                    [(self.text(part.topic), sorted(part.partitions)) for part in one.active_partitions],
                    [(self.text(part.topic), sorted(part.partitions)) for part in one.standby_partitions],
                )
                for one in endpoints
            ),
        )  # fmt: skip

    def join(self, member: str, *subtopologies: Subtopology, epoch: int = 0, **more: Any) -> Any:
        found = subtopologies or (subtopology("0", *self.topics),)
        fields = {
            "rebalance_timeout_ms": 60_000, "process_id": f"process-{member}", "client_tags": [],
            "topology": self.topology(*found, epoch=epoch), "active_tasks": [], "standby_tasks": [],
            "warmup_tasks": [], **more,
        }  # fmt: skip
        return self.beat(member, 0, **fields)

    def owns(self, member: str, epoch: int, **active: list[int]) -> Any:
        return self.beat(member, epoch, active_tasks=tasks(**active), standby_tasks=[], warmup_tasks=[])

    def describe(self) -> Any:
        request = StreamsGroupDescribeRequest(group_ids=[self.id], include_authorized_operations=True)
        (group,) = self.side.request(request, 0).groups
        topology = group.topology
        return (
            group.error_code, self.text(group.error_message), group.group_state, group.group_epoch,
            group.assignment_epoch, group.authorized_operations,
            None if topology is None else (
                topology.epoch,
                [
                    (
                        one.subtopology_id, [self.text(name) for name in one.source_topics],
                        one.repartition_sink_topics,
                        [
                            (self.text(topic.name), topic.partitions, topic.replication_factor,
                             [(config.key, config.value) for config in topic.topic_configs])
                            for topic in (*one.state_changelog_topics, *one.repartition_source_topics)
                        ],
                    )
                    for one in topology.subtopologies or ()
                ],
            ),
            sorted(
                (
                    member.member_id, member.member_epoch, member.instance_id or "", member.rack_id or "",
                    member.client_host, member.topology_epoch, member.process_id, member.user_endpoint is None,
                    [(tag.key, tag.value) for tag in member.client_tags], member.task_offsets, member.is_classic,
                    shown(member.assignment.active_tasks), shown(member.assignment.standby_tasks),
                    shown(member.target_assignment.active_tasks), shown(member.target_assignment.standby_tasks),
                )
                for member in group.members
            ),
        )  # fmt: skip

    def listed(self) -> Any:
        found = self.side.request(ListGroupsRequest(states_filter=[], types_filter=["streams"]), 5).groups
        return [(one.protocol_type, one.group_state, one.group_type) for one in found if one.group_id == self.id]

    def delete(self) -> list[int]:
        return codes(self.side.request(DeleteGroupsRequest(groups_names=[self.id]), 2).results)

    def commit(self, member: str, epoch: int) -> int:
        partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=7, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.id, generation_id_or_member_epoch=epoch, member_id=member,
            topics=[OffsetCommitRequest.Topic(name=self.topics[0], partitions=[partition])],
        )  # fmt: skip
        return self.side.request(request, 9).topics[0].partitions[0].error_code

    def fetch(self, member: str | None, epoch: int) -> Any:
        topic = OffsetFetchRequest.Group.Topic(name=self.topics[0], partition_indexes=[0])
        requested = OffsetFetchRequest.Group(group_id=self.id, member_id=member, member_epoch=epoch, topics=[topic])
        (group,) = self.side.request(OffsetFetchRequest(groups=[requested]), 9).groups
        return group.error_code, [p.committed_offset for t in group.topics for p in t.partitions]

    def partitions(self, *names: str) -> Any:
        """Return how many partitions each topic has once there is one."""
        requested = [MetadataRequest.Topic(name=name) for name in names]
        request = MetadataRequest(topics=requested, allow_auto_topic_creation=False)
        response = wait_for(lambda: self.side.request(request, 12), lambda found: not any(codes(found.topics)))
        return [len(topic.partitions) for topic in response.topics]


# The cases.


def refused(side: Side) -> Iterator[Any]:
    group = Group(side, 1)
    wrong: dict[str, dict[str, Any]] = {
        "instance": {"instance_id": ""}, "rack": {"rack_id": ""}, "timeout": {"rebalance_timeout_ms": -1},
        "topology": {"topology": None}, "active": {"active_tasks": None}, "standby": {"standby_tasks": None},
        "warmup": {"warmup_tasks": None}, "process": {"process_id": None}, "empty process": {"process_id": ""},
        "owned": {"active_tasks": tasks(_0=[0])},
    }  # fmt: skip
    for name, fields in wrong.items():
        yield name, group.join("m", **fields)[:3]
    yield "member", group.join("")[:3]
    yield "epochs", [group.beat("m", epoch)[:3] for epoch in (-3, -2, -1, 1)]
    yield "static", group.beat("m", -2, instance_id="i")[:3], group.join("m", instance_id="i")[:3]
    yield "group", group.join("m", group_id="")[:2]
    yield "nobody", group.describe(), group.delete(), group.listed()
    regex = subtopology("0", group.topics[0], source_topic_regex=["a.*"])
    yield "regex", group.join("m", regex)[:3]
    twice = subtopology("0", group.topics[0], state_changelog_topics=[info("log", 3)])
    yield "changelog", group.join("m", twice)[:3]


def one_member(side: Side) -> Iterator[Any]:
    group = Group(side, 3)
    yield "join", group.join("m"), group.describe(), group.listed()
    epoch = group.describe()[7][0][1]
    yield "beats", group.beat("m", epoch), group.owns("m", epoch, _0=[0, 1, 2])
    yield "again", group.join("m")
    yield "epochs", [group.beat("m", one)[:3] for one in (epoch - 1, epoch + 1)], group.beat("n", epoch)[:3]
    yield "busy", group.delete()
    yield "commits", group.commit("m", epoch), group.commit("m", epoch - 1), group.commit("n", epoch)
    yield (
        "fetches",
        group.fetch("m", epoch),
        group.fetch("m", epoch - 1),
        group.fetch("n", epoch),
        group.fetch(None, -1),
    )
    yield "leave", group.beat("m", -1)[:3], group.describe(), group.beat("m", -1)[:3], group.listed()
    yield "fetches", group.fetch(None, -1), group.commit("", -1)
    yield "delete", group.delete(), group.describe()[:2], group.listed()


def members_share(side: Side) -> Iterator[Any]:
    group = Group(side, 4)
    first = group.join("a")
    yield "first", first
    second = group.join("b")
    yield "second", second[:2], second[3:], group.describe()[2:5]
    beat = group.beat("a", first[2])
    yield "gives up", beat[:3], len(beat[3][0][0][1]), beat[4:], group.describe()[2:5]
    kept = beat[3][0][0][1]
    yield "waits", group.beat("b", second[2]), group.owns("a", beat[2], _0=[0, 1, 2, 3])
    done = group.owns("a", beat[2], _0=kept)
    yield "done", done
    got = group.beat("b", second[2])
    yield "gets", got[:3], len(got[3][0][0][1]), group.describe()[2:5]
    yield "leave", group.beat("a", -1)[:3], group.describe()[2:5]
    all_of_it = group.beat("b", got[2])
    yield "all", all_of_it, group.describe()[2:5]


def internal_topics(side: Side) -> Iterator[Any]:
    group = Group(side, 3)
    store, repartition = f"{group.id}-store-changelog", f"{group.id}-by-key-repartition"
    both = (
        subtopology("0", group.topics[0], repartition_sink_topics=[repartition]),
        subtopology(
            "1", repartition_source_topics=[info(repartition, cleanup_policy="delete")],
            state_changelog_topics=[info(store, cleanup_policy="compact")],
        ),
    )  # fmt: skip
    first = group.join("m", *both)
    yield "join", first, group.describe()[2:5]
    yield "made", group.partitions(repartition, store)
    ready = wait_for(lambda: group.beat("m", group.describe()[7][0][1]), lambda found: not found[4])
    described = group.describe()
    yield "ready", ready[:2], sorted(described[7][0][11]), described[2], described[6]


def statuses(side: Side) -> Iterator[Any]:
    group = Group(side, 2)
    missing = subtopology("0", group.topics[0], f"{group.id}-b", f"{group.id}-a")
    yield "missing", group.join("m", missing), group.describe()[2:5]
    yield "leave", group.beat("m", -1)[:3], group.delete()
    yield "epoch 1", group.join("m", epoch=1)
    yield "stale", group.join("n", epoch=0)[2:5]
    yield "newer", group.join("n", epoch=2)[:5]
    other = subtopology("0", group.topics[0], state_changelog_topics=[info(f"{group.id}-c-changelog")])
    yield "other", group.join("n", other, epoch=1)[:3]
    epoch = group.describe()[7][0][1]
    stop = group.beat("m", epoch, shutdown_application=True)
    yield "shutdown", stop[4], group.beat("n", group.describe()[7][1][1])[4]


def endpoints(side: Side) -> Iterator[Any]:
    group = Group(side, 2)
    here = StreamsEndpoint(host="here", port=1234)
    joined = group.join("m", user_endpoint=here, rack_id="r")
    yield "join", joined
    yield "known", group.beat("m", joined[2], endpoint_information_epoch=joined[8])
    yield "asks", group.beat("m", joined[2], endpoint_information_epoch=-1)
    yield "describe", group.describe()


def partition_counts(side: Side) -> Iterator[Any]:
    group = Group(side, 2, 3)
    copartitioned = Subtopology.CopartitionGroup(
        source_topics=[0, 1], source_topic_regex=[], repartition_source_topics=[]
    )
    both = subtopology("0", *group.topics, copartition_groups=[copartitioned])
    yield "copartitioned", group.join("m", both)[2:5], group.beat("m", -1)[:3], group.delete()
    store = subtopology("0", group.topics[0], state_changelog_topics=[info(group.topics[1])])
    yield "changelog", group.join("m", store)[2:5], group.beat("m", -1)[:3], group.delete()
    joined = Subtopology.CopartitionGroup(source_topics=[0], source_topic_regex=[], repartition_source_topics=[0])
    repartition = f"{group.id}-repartition"
    free = (
        subtopology("0", group.topics[1], repartition_sink_topics=[repartition]),
        subtopology(
            "1", group.topics[0], repartition_source_topics=[info(repartition)], copartition_groups=[joined]
        ),
    )  # fmt: skip
    yield "joined", group.join("m", *free)[2:5], group.partitions(repartition)
    fixed = f"{group.id}-fixed"
    wrong = subtopology("1", group.topics[0], repartition_source_topics=[info(fixed, 7)], copartition_groups=[joined])
    upstream = subtopology("0", group.topics[1], repartition_sink_topics=[fixed])
    yield "leave", group.beat("m", -1)[:3], group.delete()
    yield "fixed", group.join("m", upstream, wrong)[2:4], group.describe()[2:5]


def standby_tasks(side: Side) -> Iterator[Any]:
    group = Group(side, 2)
    config = IncrementalAlterConfigsRequest.Resource.Config(
        name="streams.num.standby.replicas", config_operation=0, value="1"
    )
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=GROUP_RESOURCE, resource_name=group.id, configs=[config]
    )
    (altered,) = side.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
    yield altered.error_code
    changelog = f"{group.id}-store-changelog"
    stateful = subtopology("0", group.topics[0], state_changelog_topics=[info(changelog)])
    group.join("a", stateful)
    group.partitions(changelog)
    group.beat("a", -1)
    ready = wait_for(lambda: group.join("a", stateful), lambda found: not found[4])
    yield "alone", ready[3:5]
    group.join("b", stateful)
    for _ in range(3):
        for place, member in enumerate("ab"):
            described = group.describe()[7][place]
            epoch = described[1]
            active, standby = (
                [StreamsTaskIds(subtopology_id=id, partitions=p) for id, p in described[at]] for at in (11, 12)
            )
            group.beat(member, epoch, active_tasks=active, standby_tasks=standby, warmup_tasks=[])
    found = group.describe()
    counts = [[len(task) for task in (member[11], member[12], member[13], member[14])] for member in found[7]]
    yield "two", found[2], counts, [member[11] for member in found[7]] == [member[12] for member in reversed(found[7])]


CASES = [refused, one_member, members_share, internal_topics, statuses, endpoints, partition_counts, standby_tasks]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_respond_alike(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> None:
    real, embedded = results_by_side(sides, case)
    assert embedded == real
