"""A live case for each verb of `kwire.Admin`: it calls the verb, and compares with what Kafka's own tools print then.

`CASES` has one function for each verb. It runs on each cluster of `test_admin`, with a topic of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from brokers.configuration import USERS

from kwire import Admin, Consumer, NewTopic, Producer, Sasl
from kwire.admin import Acl, AclFilter, ActiveProducer
from kwire.errors import BrokerError, ErrorCode, FencedError
from tests.live.kafka_tools import KafkaTools
from tests.waiting import wait_until

ALICE = Sasl("PLAIN", "alice", USERS["alice"])


@dataclass(frozen=True)
class Place:
    """A cluster of two brokers with an authorizer, and what a case needs there.

    hold_moves  makes the moves of partitions of a topic take long
    log_dirs    the directories of broker 1
    """

    name: str
    bootstrap: str
    sasl: str
    admin: Admin
    tools: KafkaTools
    folder: Path
    log_dirs: tuple[str, ...]
    hold_moves: Callable[[str], AbstractContextManager[None]]
    topic: str = ""  # with two partitions and no records

    @property
    def has_kraft(self) -> bool:
        return self.name != "2.8.2"

    def printed(self, tool: str, *arguments: str) -> str:
        """Return what a tool prints."""
        return self.tools.run(tool, self.bootstrap, *arguments)

    def prints(self, text: str, tool: str, *arguments: str) -> None:
        """Wait until a tool prints a text: each broker learns of the controller's changes a moment later.

        A tool that does not know a new topic yet fails.
        """
        wait_until(lambda: text in self.tools.run(tool, self.bootstrap, *arguments, may_fail=True))

    def no_more(self, text: str, tool: str, *arguments: str) -> None:
        """Wait until a tool does not print a text."""
        wait_until(lambda: text not in self.printed(tool, *arguments))

    def send(self, count: int = 3, size: int = 10, partition: int = 0) -> None:
        with Producer(self.bootstrap) as producer:
            producer.send_many(self.topic, [b"x" * size] * count, partitions=partition).result(30)

    @contextmanager
    def transaction(self) -> Iterator[tuple[str, ActiveProducer]]:
        """Hold a transaction open in partition 0; its id, and the producer as the leader knows it."""
        id = f"{self.topic}-tx"
        with Producer(self.bootstrap, transactional_id=id) as producer:
            producer.begin()
            producer.send(self.topic, b"open", partition=0).result(30)
            (active,) = self.admin.transactions.producers(self.topic, 0)
            yield id, active
            producer.close(0)
        self.admin.transactions.fence(id)  # ends what is open


# What Kafka 2.8 lacks: there the case must raise UnsupportedVersionError.
NOT_IN_2_8 = {
    "client_metrics.delete", "client_metrics.get", "client_metrics.list", "client_metrics.set", "cluster.add_voter",
    "cluster.quorum", "cluster.remove_voter", "cluster.unregister_broker", "cluster.unregister_controller",
    "configs.resources", "transactions.describe", "transactions.describe_many", "transactions.hanging",
    "transactions.list", "transactions.terminate",
}  # fmt: skip
# What Kafka 4.3 lacks, and the embedded broker of that version.
NOT_IN_4_3 = {"cluster.unregister_controller"}

Case = Callable[[Place], None]
CASES: dict[str, Case] = {}


def case(verb: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        CASES[verb] = function
        return function

    return add


# -- topics


def described_topic(place: Place, topic: str) -> list[tuple[int, int, tuple[int, ...], set[int]]]:
    """Return index, leader, replicas and replicas in sync of each partition, as kafka-topics prints them."""
    found = re.findall(
        r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S*)\s+Isr: (\S*)",
        place.printed("topics", "--describe", "--topic", topic),
    )
    return [(int(index), int(leader), _ids(replicas), set(_ids(isr))) for index, leader, replicas, isr in sorted(found)]


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def same_partitions(place: Place, partitions: Sequence[Any], topic: str) -> None:
    ours = [(one.index, one.leader, tuple(one.replicas), set(one.isr)) for one in partitions]
    assert ours == described_topic(place, topic)


@case("topics.create")
def _(place: Place) -> None:
    name = f"{place.topic}-new"
    made = place.admin.topics.create(name, partitions=3, replication_factor=2, configs={"retention.ms": "5000"})
    assert (made.partitions, made.replication_factor) == (3, 2)
    printed = place.printed("topics", "--describe", "--topic", name)
    assert "PartitionCount: 3\tReplicationFactor: 2" in printed
    assert "retention.ms=5000" in printed
    place.admin.topics.create(f"{name}-checked", dry_run=True)
    assert f"{name}-checked" not in place.printed("topics", "--list")


@case("topics.create_many")
def _(place: Place) -> None:
    results = place.admin.topics.create_many([NewTopic(place.topic), NewTopic(f"{place.topic}-a")])
    assert list(results.ok) == [f"{place.topic}-a"]
    assert f"{place.topic}-a" in place.printed("topics", "--list").split()


@case("create_topics")
def _(place: Place) -> None:
    place.admin.create_topics([NewTopic(f"{place.topic}-old-way", partitions=2)])
    place.prints("PartitionCount: 2", "topics", "--describe", "--topic", f"{place.topic}-old-way")


@case("topics.delete")
def _(place: Place) -> None:
    place.admin.topics.delete([place.topic]).check()
    place.no_more(place.topic, "topics", "--list")


@case("delete_topics")
def _(place: Place) -> None:
    place.admin.delete_topics([place.topic])
    place.no_more(place.topic, "topics", "--list")


@case("topics.list")
def _(place: Place) -> None:
    wait_until(
        lambda: place.admin.topics.list() == sorted(place.printed("topics", "--list", "--exclude-internal").split())
    )
    assert set(place.admin.topics.list(internal=True)) == set(place.printed("topics", "--list").split())


@case("topics.exists")
def _(place: Place) -> None:
    assert place.admin.topics.exists(place.topic)
    assert place.topic in place.printed("topics", "--list").split()
    assert not place.admin.topics.exists(f"{place.topic}-not")


@case("topics.describe")
def _(place: Place) -> None:
    same_partitions(place, place.admin.topics.describe(place.topic).partitions, place.topic)


@case("topics.describe_many")
def _(place: Place) -> None:
    results = place.admin.topics.describe_many([place.topic, f"{place.topic}-not"])
    assert list(results.errors) == [f"{place.topic}-not"]
    same_partitions(place, results[place.topic].partitions, place.topic)


@case("topics.add_partitions")
def _(place: Place) -> None:
    place.admin.topics.add_partitions(place.topic, 3)
    place.prints("PartitionCount: 3", "topics", "--describe", "--topic", place.topic)


# -- configs


def printed_configs(place: Place, *entity: str) -> dict[str, str]:
    """Return the configs that kafka-configs prints with --all; "null" is what it prints for none."""
    printed = place.printed("configs", "--describe", "--all", *entity)
    return dict(re.findall(r"^  ([\w.-]+)=(.*) sensitive=\w+ synonyms=", printed, re.MULTILINE))


@case("configs.get")
def _(place: Place) -> None:
    for found, entity in [
        (place.admin.configs.get(topic=place.topic), ("--entity-type", "topics", "--entity-name", place.topic)),
        (place.admin.configs.get(broker=1), ("--entity-type", "brokers", "--entity-name", "1")),
    ]:
        ours = {name: "null" if entry.value is None else entry.value for name, entry in found.items()}
        printed = printed_configs(place, *entity)
        assert {name: value for name, value in ours.items() if "\n" not in value} == printed
        assert len(printed) > 20


def _of_topic(place: Place) -> tuple[str, ...]:
    return ("--describe", "--entity-type", "topics", "--entity-name", place.topic)


@case("configs.set")
def _(place: Place) -> None:
    place.admin.configs.set({"retention.ms": 5}, topic=place.topic, dry_run=True)
    place.admin.configs.set({"segment.ms": 50_000}, topic=place.topic)
    place.prints("segment.ms=50000", "configs", *_of_topic(place))
    assert "retention.ms" not in place.printed("configs", *_of_topic(place))


@case("configs.append")
def _(place: Place) -> None:
    place.admin.configs.append({"cleanup.policy": "compact"}, topic=place.topic)
    place.prints("cleanup.policy=delete,compact", "configs", *_of_topic(place))


@case("configs.subtract")
def _(place: Place) -> None:
    place.admin.configs.set({"cleanup.policy": "delete,compact"}, topic=place.topic)
    place.admin.configs.subtract({"cleanup.policy": ["delete"]}, topic=place.topic)
    place.prints("cleanup.policy=compact ", "configs", *_of_topic(place))


@case("configs.reset")
def _(place: Place) -> None:
    place.admin.configs.set({"segment.ms": 50_000, "retention.ms": 70_000}, topic=place.topic)
    place.admin.configs.reset(["segment.ms"], topic=place.topic)
    place.no_more("segment.ms", "configs", *_of_topic(place))
    assert "retention.ms=70000" in place.printed("configs", *_of_topic(place))


@case("configs.set_many")
def _(place: Place) -> None:
    results = place.admin.configs.set_many(
        {("topic", place.topic): {"retention.ms": 70_000}, ("topic", f"{place.topic}-not"): {"retention.ms": 1}}
    )
    assert list(results.errors) == [("topic", f"{place.topic}-not")]
    place.prints("retention.ms=70000", "configs", *_of_topic(place))


@case("configs.resources")
def _(place: Place) -> None:
    found = place.admin.configs.resources(["topic", "broker"])
    assert {one.name for one in found if one.type == "topic"} == set(place.printed("topics", "--list").split())
    assert {one.name for one in found if one.type == "broker"} >= {"1", "2"}


# -- records and offsets


def printed_offsets(place: Place, time: str) -> dict[tuple[str, int], int]:
    """Return the offsets of the partitions of the topic, as kafka-get-offsets prints them."""
    printed = place.printed("get-offsets", "--topic", place.topic, "--time", time)
    return {(topic, int(index)): int(at) for topic, index, at in re.findall(r"^(.+):(\d+):(\d*)$", printed, re.M) if at}


@case("offsets.list")
def _(place: Place) -> None:
    place.send(3)
    place.send(5, partition=1)
    place.admin.records.delete({(place.topic, 1): 2}).check()
    for at, time in (("earliest", "earliest"), ("latest", "latest"), ("max_timestamp", "max-timestamp")):
        if at == "max_timestamp" and not place.has_kraft:
            continue  # since Kafka 3.0
        found = {key: one.offset for key, one in place.admin.offsets.list([place.topic], at).items()}  # type: ignore[arg-type]
        assert found == printed_offsets(place, time)


@case("records.delete")
def _(place: Place) -> None:
    place.send(5)
    assert place.admin.records.delete({(place.topic, 0): 4}).check() == {(place.topic, 0): 4}
    assert printed_offsets(place, "earliest") == {(place.topic, 0): 4, (place.topic, 1): 0}


@case("records.delete_before")
def _(place: Place) -> None:
    place.send(5)
    later = datetime.now() + timedelta(seconds=5)
    assert place.admin.records.delete_before(place.topic, later).check()[place.topic, 0] == 5
    assert printed_offsets(place, "earliest") == {(place.topic, 0): 5, (place.topic, 1): 0}


# -- groups


def _group(place: Place, offset: int = 1) -> str:
    """Return a group that has committed an offset of partition 0, which has three records."""
    place.send(3)
    group = f"{place.topic}-g"
    place.admin.groups.set_offsets(group, {(place.topic, 0): offset}).check()
    return group


def printed_group(place: Place, group: str) -> dict[tuple[str, int], tuple[str, str, str]]:
    """Return committed offset, end and lag of each partition, as kafka-consumer-groups prints them."""
    printed = place.printed("consumer-groups", "--describe", "--group", group)
    found = re.findall(rf"^{group}\s+(\S+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)", printed, re.MULTILINE)
    return {(topic, int(index)): (at, end, lag) for topic, index, at, end, lag in found}


@case("groups.list")
def _(place: Place) -> None:
    group = _group(place)
    found = {one.id for one in place.admin.groups.list()}
    assert group in found
    assert found >= set(place.printed("consumer-groups", "--list").split())


@contextmanager
def _member(place: Place, instance_id: str | None = None) -> Iterator[str]:
    """Run a classic member, alone in its group."""
    group = f"{place.topic}-m"
    options: dict[str, Any] = {"group_instance_id": instance_id} if instance_id else {}
    with Consumer(place.bootstrap, group=group, group_protocol="classic", on_no_offset="earliest", **options) as member:
        member.subscribe([place.topic])
        wait_until(lambda: [member.poll(timeout=0.1), len(member.assignment())][1] == 2)
        yield group


@case("groups.describe")
def _(place: Place) -> None:
    with _member(place) as group:
        found = place.admin.groups.describe(group)
        (member,) = found.members
        printed = place.printed("consumer-groups", "--describe", "--group", group, "--members", "--verbose")
        assert member.id in printed
        assert member.client_id in printed
        assert sorted(member.assignment) == [(place.topic, 0), (place.topic, 1)]
        state = place.printed("consumer-groups", "--describe", "--group", group, "--state")
        assert f" {found.state} " in state


@case("groups.describe_many")
def _(place: Place) -> None:
    group = _group(place)
    results = place.admin.groups.describe_many([group])
    assert results[group].state == "Empty"
    assert " Empty " in place.printed("consumer-groups", "--describe", "--group", group, "--state")


@case("groups.offsets")
def _(place: Place) -> None:
    group = _group(place)
    found = {key: str(one.offset) for key, one in place.admin.groups.offsets(group).items()}
    assert found == {key: at for key, (at, _, _) in printed_group(place, group).items()}


@case("groups.set_offsets")
def _(place: Place) -> None:
    group = _group(place, 2)
    assert printed_group(place, group) == {(place.topic, 0): ("2", "3", "1")}


@case("groups.reset")
def _(place: Place) -> None:
    group = _group(place)
    (move,) = place.admin.groups.reset(group, "latest", dry_run=True)
    assert printed_group(place, group)[place.topic, 0][0] == "1"
    assert place.admin.groups.reset(group, "latest") == [move]
    assert printed_group(place, group)[place.topic, 0] == ("3", "3", "0")


@case("groups.delete_offsets")
def _(place: Place) -> None:
    group = _group(place)
    place.admin.groups.set_offsets(group, {(place.topic, 1): 0}).check()
    place.admin.groups.delete_offsets(group, [(place.topic, 0)]).check()
    assert printed_group(place, group).keys() == {(place.topic, 1)}


@case("groups.lag")
def _(place: Place) -> None:
    group = _group(place)
    found = place.admin.groups.lag(group)
    assert {(one.topic, one.partition): str(one.records) for one in found.by_partition} == {
        key: lag for key, (_, _, lag) in printed_group(place, group).items()
    }
    assert found.total == 2


@case("groups.lag_many")
def _(place: Place) -> None:
    group = _group(place)
    assert place.admin.groups.lag_many([group])[group].total == 2
    assert printed_group(place, group)[place.topic, 0][2] == "2"


@case("groups.delete")
def _(place: Place) -> None:
    group = _group(place)
    place.admin.groups.delete(group)
    assert group not in place.printed("consumer-groups", "--list").split()


@case("groups.remove_members")
def _(place: Place) -> None:
    with _member(place, "left-behind") as group:
        pass  # a static member that is closed stays in its group
    members = ("consumer-groups", "--describe", "--group", group, "--members")
    assert "left-behind" in place.printed(*members)
    assert place.admin.groups.remove_members(group, instance_ids=["left-behind"]).check() == {"left-behind": None}
    place.no_more("left-behind", *members)


# -- partitions


def _there(place: Place, index: int = 0) -> tuple[int, int]:
    """Return the broker that has a partition, and the other one."""
    here = place.admin.topics.describe(place.topic).partitions[index].replicas[0]
    return here, 3 - here


@case("partitions.reassign")
def _(place: Place) -> None:
    here, there = _there(place)
    place.admin.partitions.reassign({(place.topic, 0): [there, here]}).check()
    wait_until(lambda: described_topic(place, place.topic)[0][2:] == ((there, here), {here, there}))


@case("partitions.reassignments")
def _(place: Place) -> None:
    here, there = _there(place)
    place.send(10, size=700_000)
    with place.hold_moves(place.topic):
        place.admin.partitions.reassign({(place.topic, 0): [there]}).check()
        (move,) = place.admin.partitions.reassignments([(place.topic, 0)])
        assert (move.adding, move.removing) == ((there,), (here,))
        printed = place.printed("reassign-partitions", "--list")
        assert re.search(rf"{place.topic}-0: replicas: .*adding: {there}\. removing: {here}\.", printed), printed
    wait_until(lambda: not place.admin.partitions.reassignments())
    assert "No partition reassignments found." in place.printed("reassign-partitions", "--list")


@case("partitions.cancel")
def _(place: Place) -> None:
    here, there = _there(place)
    place.send(10, size=700_000)
    with place.hold_moves(place.topic):
        place.admin.partitions.reassign({(place.topic, 0): [there]}).check()
        place.admin.partitions.cancel([(place.topic, 0)]).check()
        place.prints("No partition reassignments found.", "reassign-partitions", "--list")
    assert described_topic(place, place.topic)[0][2] == (here,)
    with pytest.raises(BrokerError) as refused:
        place.admin.partitions.cancel([(place.topic, 0)]).check()[place.topic, 0]
    assert refused.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@case("partitions.elect")
def _(place: Place) -> None:
    here, there = _there(place)
    place.admin.partitions.reassign({(place.topic, 0): [there, here]}).check()
    wait_until(lambda: described_topic(place, place.topic)[0][3] == {here, there})
    wait_until(
        lambda: [
            place.admin.partitions.elect("preferred", [(place.topic, 0)])[place.topic, 0],
            described_topic(place, place.topic)[0][1],
        ][1] == there
    )  # fmt: skip
    assert place.admin.partitions.elect("preferred", [(place.topic, 0)])[place.topic, 0] is False


# -- directories of logs


def printed_log_dirs(place: Place) -> dict[tuple[int, str], dict[str, int]]:
    """Return the sizes of the topic's partitions in each directory of each broker, as kafka-log-dirs prints them."""
    printed = place.printed("log-dirs", "--describe", "--topic-list", place.topic)
    (found,) = re.findall(r"^\{.*\}$", printed, re.MULTILINE)
    return {
        (broker["broker"], one["logDir"]): {part["partition"]: part["size"] for part in one["partitions"]}
        for broker in json.loads(found)["brokers"]
        for one in broker["logDirs"]
    }


@case("log_dirs.describe")
def _(place: Place) -> None:
    place.send(4, size=1_000)
    ours = {
        (one.broker, one.path): {f"{log.topic}-{log.partition}": log.size for log in one.replicas}
        for one in place.admin.log_dirs.describe(topics=[place.topic])
    }
    assert ours == printed_log_dirs(place)
    assert max(size for sizes in ours.values() for size in sizes.values()) > 4_000


@case("log_dirs.move")
def _(place: Place) -> None:
    with pytest.raises(BrokerError) as refused:
        place.admin.log_dirs.move(1, {(place.topic, 0): "/nowhere"})[place.topic, 0]
    assert refused.value.code == ErrorCode.LOG_DIR_NOT_FOUND
    place.admin.partitions.reassign({(place.topic, 0): [1]}).check()
    wait_until(lambda: described_topic(place, place.topic)[0][2] == (1,))
    for path in reversed(place.log_dirs):
        place.admin.log_dirs.move(1, {(place.topic, 0): path}).check()
        wait_until(lambda path=path: f"{place.topic}-0" in printed_log_dirs(place)[1, path])  # type: ignore[misc]


# -- transactions


def printed_transactions(place: Place) -> dict[str, tuple[int, str]]:
    """Return producer id and state of each transactional id, as kafka-transactions prints them."""
    printed = place.printed("transactions", "list")
    found = re.findall(r"^(\S+)\s+\d+\s+(\d+)\s+(\w+)\s*$", printed, re.MULTILINE)
    return {id: (int(producer_id), state) for id, producer_id, state in found}


@case("transactions.list")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.transactions.list()
    with place.transaction():
        found = {one.id: (one.producer_id, one.state) for one in place.admin.transactions.list()}
        assert found == printed_transactions(place)
        ongoing = {id for id, (_, state) in printed_transactions(place).items() if state == "Ongoing"}
        assert {one.id for one in place.admin.transactions.list(states=["Ongoing"])} == ongoing >= {f"{place.topic}-tx"}


@case("transactions.describe")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.transactions.describe("any")
    with place.transaction() as (id, active):
        found = place.admin.transactions.describe(id)
        assert (found.producer_id, found.producer_epoch) == (active.producer_id, active.producer_epoch)
        assert (found.state, found.partitions) == ("Ongoing", ((place.topic, 0),))
        printed = place.printed("transactions", "describe", "--transactional-id", id)
        assert re.search(rf"\s{found.producer_id}\s+{found.producer_epoch}\s+Ongoing\s", printed), printed
        assert f"{place.topic}-0" in printed


@case("transactions.describe_many")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.transactions.describe_many(["any"])["any"]
    with place.transaction() as (id, _):
        results = place.admin.transactions.describe_many([id, "never-used"])
        assert list(results.errors) == ["never-used"]
        assert (results[id].producer_id, results[id].state) == printed_transactions(place)[id]


def printed_start(place: Place, active: ActiveProducer) -> str:
    """Return where a producer's open transaction begins, as kafka-transactions prints it; "None" without one."""
    where = ("--topic", place.topic, "--partition", "0")
    printed = place.printed("transactions", "describe-producers", *where)
    (start,) = re.findall(
        rf"^{active.producer_id}\s+{active.producer_epoch}\s+.*\s(\d+|None)\s*$", printed, re.MULTILINE
    )
    return str(start)


@case("transactions.producers")
def _(place: Place) -> None:
    with place.transaction() as (_, active):
        assert active.transaction_start == int(printed_start(place, active)) == 0


@case("transactions.hanging")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.transactions.hanging(topics=[place.topic])
    with place.transaction():
        assert place.admin.transactions.hanging(older_than=timedelta(0), topics=[place.topic]) == []
    printed = place.printed(
        "transactions", "find-hanging", "--topic", place.topic, "--max-transaction-timeout", "1", "--partition", "0"
    )
    assert place.topic not in printed


@case("transactions.abort")
def _(place: Place) -> None:
    with place.transaction() as (_, active):
        place.admin.transactions.abort(active)
        (after,) = place.admin.transactions.producers(place.topic, 0)
        assert after.transaction_start is None
        assert printed_start(place, after) == "None"


@case("transactions.fence")
def _(place: Place) -> None:
    with Producer(place.bootstrap, transactional_id=f"{place.topic}-tx") as producer:
        producer.begin()
        producer.send(place.topic, b"x", partition=0).result(30)
        producer_id, epoch = place.admin.transactions.fence(f"{place.topic}-tx")[f"{place.topic}-tx"]
        if place.has_kraft:
            printed = place.printed("transactions", "describe", "--transactional-id", f"{place.topic}-tx")
            assert re.search(rf"\s{producer_id}\s+{epoch}\s+Empty\s", printed), printed
        with pytest.raises(FencedError):
            producer.commit(30)
        producer.close(0)


@case("transactions.terminate")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.transactions.terminate("any")
    with place.transaction() as (id, _):
        place.admin.transactions.terminate(id, dry_run=True)
        assert printed_transactions(place)[id][1] == "Ongoing"
        place.admin.transactions.terminate(id)
        wait_until(lambda: printed_transactions(place)[id][1] in ("CompleteAbort", "Empty"))


# -- rights, quotas, users, tokens


@case("acls.add")
def _(place: Place) -> None:
    rules = [
        Acl.allow("User:carol", "read").on(topic=f"{place.topic}-", prefix=True),
        Acl.deny("User:carol", "write", host="10.0.0.1").on(topic=place.topic),
    ]
    place.admin.acls.add(rules).check()
    printed = ("acls", "--list", "--principal", "User:carol")
    place.prints(f"resourceType=TOPIC, name={place.topic}-, patternType=PREFIXED", *printed)
    place.prints("principal=User:carol, host=*, operation=READ, permissionType=ALLOW", *printed)
    place.prints("principal=User:carol, host=10.0.0.1, operation=WRITE, permissionType=DENY", *printed)
    place.admin.acls.remove(AclFilter(principal="User:carol"))


@case("acls.find")
def _(place: Place) -> None:
    rule = Acl.allow("User:dave", "describe").on(cluster=True)
    place.admin.acls.add(rule)
    wait_until(lambda: place.admin.acls.find(AclFilter(principal="User:dave")) == [rule])
    place.prints("principal=User:dave, host=*, operation=DESCRIBE", "acls", "--list", "--cluster")
    place.admin.acls.remove(rule)


@case("acls.remove")
def _(place: Place) -> None:
    rule = Acl.allow("User:erin", "read").on(group=f"{place.topic}-g")
    place.admin.acls.add(rule)
    place.prints("User:erin", "acls", "--list")
    assert place.admin.acls.remove(AclFilter(principal="User:erin")) == [rule]
    place.no_more("User:erin", "acls", "--list")


def _quota(user: str) -> tuple[str, ...]:
    return ("configs", "--describe", "--entity-type", "users", "--entity-name", user)


@case("quotas.set")
def _(place: Place) -> None:
    place.admin.quotas.set(user="frank", producer_byte_rate=1_000_000, request_percentage=50)
    place.prints("producer_byte_rate=1000000.0", *_quota("frank"))
    place.admin.quotas.set(user="frank", producer_byte_rate=7, dry_run=True)
    place.admin.quotas.set(user="frank", request_percentage=None)
    place.no_more("request_percentage", *_quota("frank"))
    assert "producer_byte_rate=1000000.0" in place.printed(*_quota("frank"))
    place.admin.quotas.set(user="frank", producer_byte_rate=None)


@case("quotas.get")
def _(place: Place) -> None:
    place.admin.quotas.set(user="grace", consumer_byte_rate=5)
    wait_until(lambda: [one.values for one in place.admin.quotas.get(user="grace")] == [{"consumer_byte_rate": 5.0}])
    place.prints("consumer_byte_rate=5.0", *_quota("grace"))
    place.admin.quotas.set(user="grace", consumer_byte_rate=None)


_HEIDI = ("configs", "--describe", "--entity-type", "users", "--entity-name", "heidi")


@case("users.set_scram")
def _(place: Place) -> None:
    place.admin.users.set_scram("heidi", "hers", mechanism="SCRAM-SHA-256", iterations=4_096)
    place.prints("SCRAM-SHA-256=iterations=4096", *_HEIDI)
    with Admin(place.sasl, sasl=Sasl("SCRAM-SHA-256", "heidi", "hers")) as hers:
        assert hers.cluster.describe().brokers


@case("users.list")
def _(place: Place) -> None:
    place.admin.users.set_scram("heidi", "hers", mechanism="SCRAM-SHA-512", iterations=4_097)
    place.prints("SCRAM-SHA-512=iterations=4097", *_HEIDI)
    assert place.admin.users.list(["heidi"])["heidi"].iterations["SCRAM-SHA-512"] == 4_097


@case("users.delete_scram")
def _(place: Place) -> None:
    place.admin.users.set_scram("heidi", "hers", mechanism="SCRAM-SHA-512")
    place.prints("SCRAM-SHA-512", *_HEIDI)
    place.admin.users.delete_scram("heidi")
    place.no_more("SCRAM-SHA-512", *_HEIDI)


def printed_tokens(place: Place) -> str:
    """Return what kafka-delegation-tokens prints of alice's tokens."""
    file = place.folder / "alice.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="{USERS["alice"]}";\n'
    )
    options = ("--command-config", str(file), "--describe", "--owner-principal", "User:alice")
    return place.tools.run("delegation-tokens", place.sasl, *options)


@contextmanager
def _token(place: Place) -> Iterator[tuple[Admin, Any]]:
    with Admin(place.sasl, sasl=ALICE) as alice:
        token = alice.tokens.create(renewers=["User:bob"], lifetime=timedelta(hours=1))
        wait_until(lambda: token.id in printed_tokens(place))
        yield alice, token


@case("tokens.create")
def _(place: Place) -> None:
    with _token(place) as (_, token):
        line = rf"{re.escape(token.id)}\s.*User:alice.*User:bob"
        wait_until(lambda: re.search(line, printed_tokens(place)))  # another broker may respond than the one before


@case("tokens.list")
def _(place: Place) -> None:
    with _token(place) as (alice, token):
        wait_until(lambda: token in alice.tokens.list())
        wait_until(lambda: all(one.id in printed_tokens(place) for one in alice.tokens.list()))


@case("tokens.renew")
def _(place: Place) -> None:
    with _token(place) as (alice, token):
        ends = alice.tokens.renew(token, by=timedelta(minutes=30))
        assert ends < token.lives_until
        text = ends.strftime("%Y-%m-%dT%H:%M")
        wait_until(lambda: any(token.id in line and text in line for line in printed_tokens(place).splitlines()))


@case("tokens.expire")
def _(place: Place) -> None:
    with _token(place) as (alice, token):
        alice.tokens.expire(token)
        wait_until(lambda: token.id not in printed_tokens(place))


# -- metrics of clients


@case("client_metrics.set")
def _(place: Place) -> None:
    place.admin.client_metrics.set(
        "etl", ["org.apache.kafka.consumer."], interval_ms=10_000, match={"client_id": "etl-.*"}
    )
    for text in ("metrics=org.apache.kafka.consumer.", "interval.ms=10000", "match=client_id=etl-.*"):
        place.prints(text, "client-metrics", "--describe", "--name", "etl")
    place.admin.client_metrics.delete("etl")


@case("client_metrics.get")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.client_metrics.get("one")
    place.tools.run("client-metrics", place.bootstrap, "--alter", "--name", "one", "--metrics", "a.,b.", "--interval",
                    "9000", "--match", "client_id=x")  # fmt: skip
    wait_until(lambda: place.admin.client_metrics.get("one").interval_ms == 9_000)
    found = place.admin.client_metrics.get("one")
    assert (found.metrics, found.match) == (("a.", "b."), {"client_id": "x"})
    place.admin.client_metrics.delete("one")


@case("client_metrics.list")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.client_metrics.list()
    place.admin.client_metrics.set("two", ["a."])
    wait_until(lambda: "two" in place.admin.client_metrics.list())
    assert place.admin.client_metrics.list() == sorted(place.printed("client-metrics", "--list").split())
    place.admin.client_metrics.delete("two")


@case("client_metrics.delete")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.client_metrics.delete("three")
    place.admin.client_metrics.set("three", ["a."])
    place.prints("three", "client-metrics", "--list")
    place.admin.client_metrics.delete("three")
    place.no_more("three", "client-metrics", "--list")


# -- the cluster


def printed_brokers(place: Place) -> set[tuple[int, str, int]]:
    printed = place.printed("cluster", "list-endpoints")
    return {(int(id), host, int(port)) for id, host, port in re.findall(r"^(\d+)\s+(\S+)\s+(\d+)", printed, re.M)}


@case("cluster.describe")
def _(place: Place) -> None:
    found = place.admin.cluster.describe()
    assert {(one.id, one.host, one.port) for one in found.brokers} == printed_brokers(place)
    assert f"Cluster ID: {found.cluster_id}" in place.printed("cluster", "cluster-id")


@case("describe_cluster")
def _(place: Place) -> None:
    found = place.admin.describe_cluster()
    assert {(one.id, one.host, one.port) for one in found.brokers} == printed_brokers(place)


@case("cluster.metadata")
def _(place: Place) -> None:
    same_partitions(place, place.admin.cluster.metadata([place.topic]).topics[place.topic].partitions, place.topic)


@case("metadata")
def _(place: Place) -> None:
    same_partitions(place, place.admin.metadata([place.topic]).topics[place.topic].partitions, place.topic)


@case("cluster.explain")
def _(place: Place) -> None:
    wait_until(lambda: not [one for one in place.admin.cluster.explain() if "preferred" not in one])
    for only in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert "Partition:" not in place.printed("topics", "--describe", only)


@case("cluster.features")
def _(place: Place) -> None:
    printed = place.printed("features", "describe")
    found = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", printed)
    levels = {name: level for name, level in found if name != "metadata.version"}  # that one has a release's name
    ours = {name: str(one.level) for name, one in place.admin.cluster.features().items() if name != "metadata.version"}
    assert ours == levels


@case("cluster.set_feature")
def _(place: Place) -> None:
    if not place.has_kraft:
        with pytest.raises(BrokerError) as refused:
            place.admin.cluster.set_feature("none.such", 1)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        return
    if place.name == "embedded":  # an option of the cluster
        with pytest.raises(BrokerError) as fixed:
            place.admin.cluster.set_feature("share.version", 0, change="downgrade")
        assert fixed.value.code == ErrorCode.INVALID_UPDATE_VERSION
        return
    before = place.admin.cluster.features()["share.version"].level
    level = r"Feature: share.version .*FinalizedVersionLevel: {}\s"
    place.admin.cluster.set_feature("share.version", 0, change="downgrade", dry_run=True)
    assert re.search(level.format(before), place.printed("features", "describe"))
    place.admin.cluster.set_feature("share.version", 0, change="downgrade")
    wait_until(lambda: re.search(level.format(0), place.printed("features", "describe")))
    place.admin.cluster.set_feature("share.version", before)
    wait_until(lambda: re.search(level.format(before), place.printed("features", "describe")))


@case("cluster.quorum")
def _(place: Place) -> None:
    found = place.admin.cluster.quorum()
    printed = place.printed("metadata-quorum", "describe", "--status")
    assert re.search(rf"^LeaderId: +{found.leader}$", printed, re.MULTILINE)
    (voters,) = re.findall(r"^CurrentVoters: *(\[.*)$", printed, re.MULTILINE)
    assert {one["id"] for one in json.loads(voters)} == {one.id for one in found.voters}


# Voters that really come and go, and a controller that is forgotten: test_quorum.


@case("cluster.add_voter")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.cluster.add_voter(9, UUID(int=9), {"CONTROLLER": ("127.0.0.1", 1)})
    with pytest.raises(BrokerError) as refused:
        place.admin.cluster.add_voter(9, UUID(int=9), {"CONTROLLER": ("127.0.0.1", 1)})
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@case("cluster.remove_voter")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.cluster.remove_voter(9, UUID(int=9))
    with pytest.raises(BrokerError) as refused:
        place.admin.cluster.remove_voter(9, UUID(int=9))
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


@case("cluster.unregister_broker")
def _(place: Place) -> None:
    if not place.has_kraft:
        place.admin.cluster.unregister_broker(99)
    with pytest.raises(BrokerError) as refused:
        place.admin.cluster.unregister_broker(99)
    assert refused.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert {id for id, _, _ in printed_brokers(place)} == {1, 2}


@case("cluster.unregister_controller")
def _(place: Place) -> None:
    place.admin.cluster.unregister_controller(99)
