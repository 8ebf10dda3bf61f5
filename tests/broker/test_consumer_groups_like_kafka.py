"""Consumer groups of the embedded broker respond as those of Kafka 4.3: each case sends the same requests to both.

A case yields the relevant fields of the responses, with topic names in the place of ids. They must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kwire.broker import Cluster
from kwire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kwire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)
from kwire.protocol.messages.create_partitions import CreatePartitionsRequest
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.describe_groups import DescribeGroupsRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.join_group import JoinGroupRequest
from kwire.protocol.messages.leave_group import LeaveGroupRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.offset_commit import OffsetCommitRequest
from kwire.protocol.messages.offset_delete import OffsetDeleteRequest
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.comparison import Side, codes, results_by_side
from tests.waiting import wait_for

pytestmark = pytest.mark.live

GROUP_RESOURCE = 32


@pytest.fixture(scope="module")
def sides(real_kafka: tuple[str, int]) -> Iterator[tuple[Side, Side]]:
    with Cluster(1, version="4.3") as embedded:
        pair = Side(*real_kafka), Side(*embedded.brokers[1])
        yield pair
        for side in pair:
            side.client.close()
        assert not embedded.failures


class Group:
    """One consumer group on one side."""

    def __init__(self, side: Side, *partitions: int, group: str | None = None) -> None:
        self.side = side
        self.id = group or side.case
        made = [side.topic(count) for count in partitions]
        self.topics = [name for name, _ in made]
        self.ids = dict(made)
        self.names = {id: f"t{place}" for place, (_, id) in enumerate(made)}
        self._until_coordinator_knows(partitions)

    def _until_coordinator_knows(self, partitions: tuple[int, ...]) -> None:
        """Wait until a member gets all, and delete the group: Kafka's coordinators learn of topics a moment later."""
        expected = [(f"t{place}", list(range(count))) for place, count in enumerate(partitions)]
        if expected:
            wait_for(self._probe, lambda response: response[4] == expected)
            deleted = self.side.request(DeleteGroupsRequest(groups_names=[self.id]), 2)
            assert codes(deleted.results) == [0]

    def _probe(self) -> Any:
        response = self.join("m")
        self.beat("m", -1)
        return response

    def parts(self, *parts: tuple[int, Iterable[int]]) -> list[Any]:
        """Return partitions of topics, which are given by their place."""
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(
                topic_id=self.ids[self.topics[place]], partitions=list(numbers)
            )
            for place, numbers in parts
        ]

    def beat(self, member: str, epoch: int, *owned: tuple[int, Iterable[int]], version: int = 1, **more: Any) -> Any:
        """Send a heartbeat that reports these partitions. Return (code, message, epoch, interval, assignment)."""
        fields = {"topic_partitions": self.parts(*owned), **more}
        request = ConsumerGroupHeartbeatRequest(group_id=self.id, member_id=member, member_epoch=epoch, **fields)
        response = self.side.until_coordinated(lambda: self.side.request(request, version))
        assigned = None
        if response.assignment is not None:
            parts = response.assignment.topic_partitions
            assigned = sorted((self.names.get(part.topic_id), sorted(part.partitions)) for part in parts)
        message = (response.error_message or "").replace(self.id, "GROUP")
        for name in self.topics:
            message = message.replace(name, "TOPIC")
        return response.error_code, message, response.member_epoch, response.heartbeat_interval_ms, assigned

    def join(self, member: str, *, topics: list[str] | None = None, **more: Any) -> Any:
        names = self.topics if topics is None else topics
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, **more}
        return self.beat(member, 0, **fields)

    def describe(self, version: int = 1) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[self.id], include_authorized_operations=True)
        (group,) = self.side.request(request, version).groups

        def shown(assignment: Any) -> Any:
            parts = assignment.topic_partitions
            return sorted((self.topics.index(part.topic_name), sorted(part.partitions)) for part in parts)

        return (
            group.error_code, (group.error_message or "").replace(self.id, "GROUP"), group.group_state,
            group.group_epoch, group.assignment_epoch, group.assignor_name, group.authorized_operations,
            sorted(
                (
                    member.member_id, member.instance_id, member.rack_id, member.member_epoch, member.client_id,
                    member.client_host, len(member.subscribed_topic_names), member.subscribed_topic_regex,
                    shown(member.assignment), shown(member.target_assignment), member.member_type,
                )
                for member in group.members
            ),
        )  # fmt: skip

    def commit(self, member: str, epoch: int, *, version: int = 9, partition: int = 0, place: int = 0) -> int:
        name = self.topics[place]
        requested = OffsetCommitRequest.Topic.Partition(
            partition_index=partition, committed_offset=7, committed_metadata=""
        )
        topic = OffsetCommitRequest.Topic(name=name, topic_id=self.ids[name], partitions=[requested])
        request = OffsetCommitRequest(
            group_id=self.id, generation_id_or_member_epoch=epoch, member_id=member, topics=[topic]
        )
        return self.side.request(request, version).topics[0].partitions[0].error_code

    def fetch(self, member: str | None, epoch: int, version: int = 9) -> Any:
        name = self.topics[0]
        topic = OffsetFetchRequest.Group.Topic(name=name, topic_id=self.ids[name], partition_indexes=[0])
        requested = OffsetFetchRequest.Group(group_id=self.id, member_id=member, member_epoch=epoch, topics=[topic])
        (group,) = self.side.request(OffsetFetchRequest(groups=[requested]), version).groups
        return group.error_code, [(p.committed_offset, p.error_code) for t in group.topics for p in t.partitions]


# The cases.


def rejected_heartbeats(side: Side) -> Iterator[Any]:
    group = Group(side, 1)
    rejected: dict[str, dict[str, Any]] = {
        "instance": {"instance_id": ""}, "rack": {"rack_id": ""}, "timeout": {"rebalance_timeout_ms": -1},
        "owned": {"topic_partitions": None}, "topics": {"subscribed_topic_names": None},
        "assignor": {"server_assignor": "mine"}, "lookahead": {"subscribed_topic_regex": "(?=a)"},
    }  # fmt: skip
    for name, fields in rejected.items():
        yield name, group.join("m", **fields)[: 1 if name == "lookahead" else 3]  # the text is that of RE2/J
    yield "member", group.join("")
    yield "owned", group.join("m", topic_partitions=group.parts((0, [0])))
    yield "epochs", [group.beat("m", epoch) for epoch in (-3, -2, -1, 1)]
    yield "static", group.beat("m", -2, instance_id="i")
    yield "v0", group.beat("", 5, version=0)
    empty = Group(side, group="")
    empty.topics, empty.ids = group.topics, group.ids
    yield "group", empty.join("m")[0], empty.beat("m", 4)[0]
    yield "describe", group.describe()
    yield "joined", group.join("m"), group.beat("n", 2), group.beat("m", 2, instance_id="i")
    yield (
        "joined",
        group.beat("m", 2, server_assignor="mine"),
        group.beat("n", -1),
        group.beat("n", -2, instance_id="i"),
    )


def one_member(side: Side) -> Iterator[Any]:
    group = Group(side, 3, 1)
    yield "join", group.join("m")
    yield "beats", group.beat("m", 2, (0, [0, 1, 2]), (1, [0])), group.beat("m", 2, topic_partitions=None)
    yield "full", group.beat("m", 2, (0, [0, 1, 2]), rebalance_timeout_ms=1000, subscribed_topic_names=group.topics)
    yield "again", group.join("m"), group.join("m", topics=group.topics[:1])
    yield "describe", group.describe(0), group.describe(1)
    yield "unsubscribed", group.beat("m", 3, topic_partitions=None), group.beat("m", 3, (0, [0, 1, 2]))
    yield "described", group.describe()
    yield "epochs", [group.beat("m", epoch, (0, [0, 1, 2])) for epoch in (2, 4, 0)]
    yield "nothing", group.beat("m", 3, (0, [0, 1, 2]), subscribed_topic_names=[])
    yield "describe", group.describe()
    yield "revoked", group.beat("m", 3), group.beat("m", 4), group.describe()
    yield "leave", group.beat("m", -1), group.describe(), group.beat("m", -1), group.join("m")


def members_share(side: Side) -> Iterator[Any]:
    group = Group(side, 4)
    yield "first", group.join("a")
    yield "second", group.join("b"), group.describe()
    code, _, epoch, _, assigned = group.beat("a", 2, topic_partitions=None)
    kept = assigned[0][1]
    yield "beats", code, epoch, len(kept)
    yield "waits", group.beat("b", 3), group.describe()[:6]
    yield "not yet", group.beat("a", 2, (0, [0, 1, 2, 3])), group.beat("a", 2, topic_partitions=None)
    yield "done", group.beat("a", 2, (0, kept))[:4]
    code, _, epoch, _, assigned = group.beat("b", 3)
    yield "gets", code, epoch, len(assigned[0][1]), sorted({*assigned[0][1], *kept})
    yield "state", group.describe()[2:5]
    taken = assigned[0][1]
    yield "commits", group.commit("a", 2, partition=kept[0]), group.commit("a", 3, partition=kept[0])
    yield "commits", group.commit("b", 2, partition=taken[0]), group.commit("b", 3, partition=taken[0])
    yield "commits", group.commit("a", 2, partition=taken[0]), group.commit("a", 3, partition=taken[0])
    yield "commits", group.commit("a", 4, partition=kept[0]), group.commit("c", 3), group.commit("a", -1)
    yield "commits", [group.commit("a", 3, partition=kept[0], version=version) for version in (2, 8, 10)]
    yield "fetches", group.fetch("a", 3), group.fetch("a", 2), group.fetch("c", 3), group.fetch(None, -1)
    yield "leave", group.beat("b", -1)[:4]
    yield "left", group.beat("a", 3, (0, kept))[:3], group.describe()[2:5]


def static_members(side: Side) -> Iterator[Any]:
    group = Group(side, 2)
    yield "join", group.join("a", instance_id="i"), group.join("b", instance_id="i"), group.join("c", instance_id="j")
    yield "beats", group.beat("a", 2, topic_partitions=None, instance_id="i")[:4]
    code, _, epoch, _, _ = group.beat("a", 2, (0, [0]), instance_id="i")
    yield "moved", code, epoch, group.beat("c", 3, instance_id="j")[:3]
    yield "leave", group.beat("b", -2, instance_id="i"), group.beat("a", -2, instance_id="i")
    yield "away", [member[:4] for member in group.describe()[7]], group.describe()[2:5]
    yield "back", group.join("b", instance_id="i")[:4], group.describe()[3:5]
    yield "fenced", group.beat("a", 3, instance_id="i"), group.beat("a", -1, instance_id="i")
    yield "fenced", group.beat("x", 3, instance_id="x"), group.beat("b", 3)[0], group.beat("b", 9, instance_id="i")
    yield "gone", group.beat("b", -1, instance_id="i"), group.describe()[3]
    yield "rejoin", group.join("b", instance_id="i")[:3]


def topics_change(side: Side) -> Iterator[Any]:
    group = Group(side, 1)
    yield "join", group.join("a")
    more = CreatePartitionsRequest.Topic(name=group.topics[0], count=3, assignments=None)
    yield codes(side.request(CreatePartitionsRequest(topics=[more], timeout_ms=5000, validate_only=False)).results)
    changed = wait_for(lambda: group.beat("a", 2, (0, [0])), lambda response: response[4] is not None)
    yield "more", changed, group.describe()[2:5]


def patterns(side: Side) -> Iterator[Any]:
    group = Group(side, 1, 1)
    pattern = f"{side.case}-[[:digit:]]+"
    yield "join", group.join("a", subscribed_topic_names=None, subscribed_topic_regex=pattern)[:2]
    # Kafka matches in another thread, so later, and its epochs grow in between.
    settled = wait_for(
        lambda: group.beat("a", group.describe()[7][0][3], topic_partitions=None),
        lambda _: bool(group.describe()[7][0][8]),
    )
    yield "resolved", settled[0], group.describe()[2], group.describe()[7][0][6:]


def from_outside(side: Side) -> Iterator[Any]:
    group = Group(side, 1)
    group.join("a")

    def listed(**filters: Any) -> Any:
        groups = side.request(ListGroupsRequest(**filters), 5).groups
        return [
            (found.protocol_type, found.group_state, found.group_type) for found in groups if found.group_id == group.id
        ]

    yield listed(), listed(types_filter=["Consumer"]), listed(types_filter=["classic"])
    yield listed(states_filter=["stable"]), listed(states_filter=["Empty"]), listed(states_filter=["Reconciling"])
    for version in (5, 6):
        (found,) = side.request(DescribeGroupsRequest(groups=[group.id]), version).groups
        yield found.error_code, (found.error_message or "").replace(group.id, "GROUP"), found.group_state

    def delete() -> Any:
        return side.request(DeleteGroupsRequest(groups_names=[group.id]), 2).results[0].error_code

    def delete_offset() -> Any:
        partition = OffsetDeleteRequest.Topic.Partition(partition_index=0)
        topic = OffsetDeleteRequest.Topic(name=group.topics[0], partitions=[partition])
        response = side.request(OffsetDeleteRequest(group_id=group.id, topics=[topic]))
        return response.error_code, [codes(found.partitions) for found in response.topics]

    yield group.commit("a", 2), delete(), delete_offset(), group.fetch(None, -1)
    group.beat("a", -1)
    yield listed(), group.describe(), group.commit("", -1), group.commit("a", 2), delete_offset()
    yield group.fetch(None, -1), delete(), delete(), listed(), group.describe()


def group_configs(side: Side) -> Iterator[Any]:
    def alter(name: str, value: str | None, operation: int = 0, group: str | None = None) -> Any:
        config = IncrementalAlterConfigsRequest.Resource.Config(name=name, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsRequest.Resource(
            resource_type=GROUP_RESOURCE, resource_name=side.case if group is None else group, configs=[config]
        )
        (result,) = side.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
        return result.error_code

    def described() -> Any:
        resource = DescribeConfigsRequest.Resource(
            resource_type=GROUP_RESOURCE, resource_name=side.case, configuration_keys=None
        )
        (result,) = side.request(DescribeConfigsRequest(resources=[resource])).results
        return result.error_code, sorted(
            (c.name, c.value, c.config_source, c.read_only, c.is_sensitive, c.config_type)
            for c in result.configs
            if c.name in ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")
        )

    yield described()
    for value in ("50000", "44999", "60001", "x", "45000"):
        yield value, alter("consumer.session.timeout.ms", value)
    for value in ("4999", "15001", "6000"):
        yield value, alter("consumer.heartbeat.interval.ms", value)
    yield alter("consumer.nothing", "1"), alter("consumer.session.timeout.ms", "50000", group="")
    expected = "6000"
    yield wait_for(described, lambda found: any(config[1] == expected for config in found[1]))
    group = Group(side, 1)
    yield wait_for(lambda: group.join("m"), lambda response: response[3] == int(expected))
    yield alter("consumer.heartbeat.interval.ms", None, 1)


class Classic:
    """A classic member in a group of either type."""

    def __init__(self, group: Group, **more: Any) -> None:
        self.group, self.side, self.more = group, group.side, more
        self.id, self.generation = "", -1
        self.owned: list[int] = []

    def join(self) -> Any:
        owned = [ConsumerProtocolSubscription.TopicPartition(topic=self.group.topics[0], partitions=self.owned)]
        subscription = ConsumerProtocolSubscription(
            topics=self.group.topics, owned_partitions=owned if self.owned else [], generation_id=self.generation
        )
        protocol = JoinGroupRequest.Protocol(name="range", metadata=encode_versioned(subscription, 3))
        response = self.side.join(
            self.group.id, self.id, protocols=[protocol], session_timeout_ms=45_000, rebalance_timeout_ms=60_000,
            **self.more,
        )  # fmt: skip
        if response.error_code == 79:
            self.id = response.member_id
            return 79, self.join()
        self.id, self.generation = response.member_id, response.generation_id
        return (
            response.error_code, response.generation_id, response.protocol_type, response.protocol_name,
            response.leader == self.id, len(response.members), response.skip_assignment,
        )  # fmt: skip

    def sync(self, assignment: list[int] | None = None, **more: Any) -> Any:
        assignments = []
        if assignment is not None:
            parts = [ConsumerProtocolAssignment.TopicPartition(topic=self.group.topics[0], partitions=assignment)]
            data = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=parts), 1)
            assignments = [SyncGroupRequest.Assignment(member_id=self.id, assignment=data)]
        fields = {
            "generation_id": self.generation, "member_id": self.id, "protocol_type": "consumer",
            "protocol_name": "range", **more,
        }  # fmt: skip
        request = SyncGroupRequest(group_id=self.group.id, assignments=assignments, **fields)
        response = self.side.request(request)
        if not response.assignment:
            return response.error_code, response.protocol_type, response.protocol_name, None
        version, decoded = decode_versioned(ConsumerProtocolAssignment, response.assignment)
        self.owned = [partition for topic in decoded.assigned_partitions for partition in topic.partitions]
        return response.error_code, response.protocol_type, response.protocol_name, version, len(self.owned)

    def heartbeat(self, **more: Any) -> int:
        fields = {"generation_id": self.generation, "member_id": self.id, **more}
        return self.side.request(HeartbeatRequest(group_id=self.group.id, **fields)).error_code

    def leave(self) -> Any:
        member = LeaveGroupRequest.Member(member_id=self.id)
        response = self.side.request(LeaveGroupRequest(group_id=self.group.id, members=[member]))
        return response.error_code, codes(response.members)


def upgrade(side: Side) -> Iterator[Any]:
    group = Group(side, 4)
    classic = Classic(group)
    yield "classic", classic.join(), classic.sync([0, 1, 2, 3])
    yield "upgrade", group.join("new"), classic.heartbeat(), group.describe()[2:6]
    yield "sync", classic.sync()[0]
    yield "rejoin", classic.join(), classic.sync(), classic.heartbeat()
    yield "waits", group.beat("new", group.describe()[3])[:3]
    yield "reports", classic.join(), classic.sync(), classic.heartbeat()
    yield "gets", len(group.beat("new", 2)[4] or [(0, [])]), group.describe()[2:5]
    yield "commits", group.commit(classic.id, 1, partition=classic.owned[0]), group.commit(classic.id, 2)
    yield "commits", group.commit(classic.id, 3), group.commit(classic.id, 2, version=5)
    yield (
        "refused",
        classic.heartbeat(generation_id=9),
        classic.heartbeat(member_id="new"),
        classic.sync(generation_id=9),
    )
    yield "refused", classic.sync(protocol_name="sticky"), classic.sync(member_id="x")
    yield "types", sorted(member[10] for member in group.describe()[7])
    yield "leave", classic.leave(), classic.leave(), group.describe()[2:5]


def downgrade(side: Side) -> Iterator[Any]:
    group = Group(side, 2)
    yield "new", group.join("new")
    classic = Classic(group)
    yield "classic", classic.join(), classic.heartbeat(), classic.sync(), group.describe()[2:5]
    yield "leave", group.beat("new", -1), classic.heartbeat()
    (found,) = side.request(DescribeGroupsRequest(groups=[group.id]), 6).groups
    yield found.error_code, found.group_state, found.protocol_type, len(found.members)
    yield "rebalance", classic.join(), classic.sync([0, 1]), classic.heartbeat(), group.describe()


CASES = [
    rejected_heartbeats, one_member, members_share, static_members, topics_change, patterns, from_outside,
    group_configs, upgrade, downgrade,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_respond_alike(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> None:
    real, embedded = results_by_side(sides, case)
    assert embedded == real
