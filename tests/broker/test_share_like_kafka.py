"""Share groups on the embedded broker and on Kafka: the same valid and invalid requests to both, as in test_like_kafka.

Ranges of acquired records are joined before they are compared: Kafka lists single offsets where it keeps a state for
each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from kwire.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kwire.protocol.messages.delete_groups import DeleteGroupsRequest
from kwire.protocol.messages.delete_records import DeleteRecordsRequest
from kwire.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kwire.protocol.messages.describe_configs import DescribeConfigsRequest
from kwire.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_groups import ListGroupsRequest
from kwire.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from kwire.protocol.messages.share_fetch import ShareFetchRequest
from kwire.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kwire.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kwire.records import encode_batch
from tests.broker.comparison import NOW_MS, Side, results_by_side
from tests.broker.transactions import Topic, Tx
from tests.waiting import wait_for

pytestmark = pytest.mark.live

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP = 32
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER = "AAAAAAAAAAAAAAAAAAAAAg"
Ack = tuple[int, int, Sequence[int]]


def plain(count: int) -> bytes:
    return encode_batch([(NOW_MS, None, b"v", ())] * count)


def heartbeat(side: Side, group: str, member: str, epoch: int, topics: Sequence[str] | None) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None if topics is None else list(topics),
    )
    return side.until_coordinated(lambda: side.request(request, 1))


def configure(side: Side, group: str, **configs: str | None) -> int:
    """Set configs of a group, written with underscores; None deletes one. Return the error."""
    changes = [
        IncrementalAlterConfigsRequest.Resource.Config(
            name=name.replace("_", "."), config_operation=0 if value is not None else 1, value=value
        )
        for name, value in configs.items()
    ]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=GROUP, resource_name=group, configs=changes)
    return (
        side.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses[0].error_code
    )


def shown_configs(side: Side, group: str) -> dict[str, tuple[str | None, int]]:
    resource = DescribeConfigsRequest.Resource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
    configs = side.request(request).results[0].configs
    return {config.name: (config.value, config.config_source) for config in configs}


class Sharer:
    """A member of the group of a case."""

    def __init__(self, side: Side, topic: tuple[str, UUID], member: str = MEMBER, group: str = "g") -> None:
        self.side = side
        self.group = f"{side.case}-{group}"
        self.member = member
        self.topic = topic
        self.epoch = 0
        self.member_epoch = 0

    def join(self, *, start: str = "earliest", partitions: int = 1, **configs: str) -> Sharer:
        """Join, and wait until Kafka has initialized the partitions and assigned them."""
        configure(self.side, self.group, share_auto_offset_reset=start, **configs)
        wanted = {"share.auto.offset.reset": start}
        wait_for(
            lambda: shown_configs(self.side, self.group),
            lambda shown: all(shown[name][0] == value for name, value in wanted.items()),
        )
        response = heartbeat(self.side, self.group, self.member, 0, [self.topic[0]])
        assert not response.error_code, response
        self.member_epoch = response.member_epoch
        assigned = response.assignment

        def beat() -> Any:
            nonlocal assigned
            again = heartbeat(self.side, self.group, self.member, self.member_epoch, None)
            assert not again.error_code, again
            self.member_epoch = again.member_epoch
            assigned = again.assignment or assigned
            return assigned

        def is_whole(assignment: Any) -> bool:
            return sum(len(part.partitions) for part in assignment.topic_partitions) == partitions

        if not is_whole(assigned):
            wait_for(beat, is_whole)
        return self

    def leave(self) -> int:
        code: int = heartbeat(self.side, self.group, self.member, -1, None).error_code
        return code

    def request(
        self, *acks: Ack, epoch: int | None = None, member: str | None = None, topic: UUID | None = None,
        partition: int = 0, named: bool = True, forget: Sequence[int] = (), version: int = 2, **more: Any,
    ) -> Any:  # fmt: skip
        batches = [
            ShareFetchRequest.Topic.Partition.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acks
        ]
        part = ShareFetchRequest.Topic.Partition(partition_index=partition, acknowledgement_batches=batches)
        id = self.topic[1] if topic is None else topic
        limits = {"max_wait_ms": 200, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id=self.group, member_id=self.member if member is None else member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[ShareFetchRequest.Topic(topic_id=id, partitions=[part])] if named else [],
            forgotten_topics_data=(
                [ShareFetchRequest.ForgottenTopic(topic_id=id, partitions=list(forget))] if forget else []
            ),
            **{**limits, **more},
        )  # fmt: skip
        response = self.side.request(request, version)
        if epoch is None and not response.error_code:
            self.epoch += 1
        return response

    def fetch(self, *acks: Ack, **more: Any) -> Any:
        """Return the error of the request, or for each partition its errors and what was acquired."""
        response = self.request(*acks, **more)
        if response.error_code:
            return response.error_code
        return sorted(
            (part.partition_index, part.error_code, part.acknowledge_error_code, joined(part.acquired_records))
            for topic in response.responses
            for part in topic.partitions
        )

    def acquire(self, *acks: Ack, **more: Any) -> Any:
        """Fetch until something is acquired: Kafka's first fetches initialize the partition."""
        found = self.fetch(*acks, **more)
        for _ in range(100):
            if not isinstance(found, list) or any(acquired or code for _, code, _, acquired in found):
                break
            found = self.fetch(**more)
        return found

    def acknowledge(self, *acks: Ack, epoch: int | None = None, renews: bool = False, partition: int = 0) -> Any:
        batches = [
            ShareAcknowledgeRequest.Topic.Partition.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acks
        ]
        part = ShareAcknowledgeRequest.Topic.Partition(partition_index=partition, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.member, share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews, topics=[ShareAcknowledgeRequest.Topic(topic_id=self.topic[1], partitions=[part])],
        )  # fmt: skip
        response = self.side.request(request, 2)
        if response.error_code:
            return "request", response.error_code
        if epoch is None:
            self.epoch += 1
        return response.responses[0].partitions[0].error_code

    def offsets(self, *, all: bool = False, partitions: Sequence[int] = (0,)) -> Any:
        topic = DescribeShareGroupOffsetsRequest.Group.Topic(topic_name=self.topic[0], partitions=list(partitions))
        group = DescribeShareGroupOffsetsRequest.Group(group_id=self.group, topics=None if all else [topic])
        (found,) = self.side.request(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
        return found.error_code, [
            (part.partition_index, part.start_offset, part.lag, part.error_code)
            for topic in found.topics
            for part in topic.partitions
        ]

    def alter(self, offset: int, *, partition: int = 0, topic: str | None = None) -> Any:
        part = AlterShareGroupOffsetsRequest.Topic.Partition(partition_index=partition, start_offset=offset)
        named = AlterShareGroupOffsetsRequest.Topic(topic_name=topic or self.topic[0], partitions=[part])
        response = self.side.request(AlterShareGroupOffsetsRequest(group_id=self.group, topics=[named]))
        return response.error_code, [p.error_code for t in response.responses for p in t.partitions]

    def delete(self, topic: str | None = None) -> Any:
        named = DeleteShareGroupOffsetsRequest.Topic(topic_name=topic or self.topic[0])
        response = self.side.request(DeleteShareGroupOffsetsRequest(group_id=self.group, topics=[named]))
        return response.error_code, [t.error_code for t in response.responses]


def joined(acquired: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Return (first, last, delivery count), with neighbours of the same count as one."""
    found: list[tuple[int, int, int]] = []
    for part in acquired:
        if found and found[-1][1] + 1 == part.first_offset and found[-1][2] == part.delivery_count:
            found[-1] = (found[-1][0], part.last_offset, part.delivery_count)
        else:
            found.append((part.first_offset, part.last_offset, part.delivery_count))
    return found


def filled(side: Side, *sizes: int) -> tuple[str, UUID]:
    topic = side.topic()
    for size in sizes:
        side.produce(topic, plain(size))
    return topic


# The cases.


def heartbeats(side: Side) -> Iterator[Any]:
    topic = side.topic()
    group = f"{side.case}-g"
    for member, epoch, topics in [
        ("", 0, [topic[0]]), (MEMBER, -2, [topic[0]]), (MEMBER, 0, []), (MEMBER, 0, None), (MEMBER, 1, [topic[0]]),
        (MEMBER, -1, None),
    ]:  # fmt: skip
        response = heartbeat(side, group, member, epoch, topics)
        yield member, epoch, topics is None, response.error_code, response.member_epoch
    sharer = Sharer(side, topic).join()
    yield "unknown", heartbeat(side, group, MEMBER, 0, [topic[0]]).error_code
    yield "other", heartbeat(side, group, OTHER, 1, None).error_code
    yield "epoch", heartbeat(side, group, MEMBER, sharer.member_epoch + 5, None).error_code
    yield "nothing new", heartbeat(side, group, MEMBER, sharer.member_epoch, None).assignment
    request = ShareGroupDescribeRequest(group_ids=[group, "nobody"], include_authorized_operations=True)
    for found in sorted(side.request(request, 1).groups, key=lambda found: found.error_code):
        members = [
            (m.member_id, m.rack_id, m.client_id != "", len(m.assignment.topic_partitions)) for m in found.members
        ]
        yield found.error_code, found.group_state, found.assignor_name, members, found.authorized_operations
    listed = side.request(ListGroupsRequest(states_filter=[], types_filter=["share"])).groups
    yield [(g.protocol_type, g.group_type, g.group_state) for g in listed if g.group_id == group]
    yield "left", sharer.leave(), sharer.leave()


def sessions(side: Side) -> Iterator[Any]:
    topic = filled(side, 5)
    member = Sharer(side, topic).join()
    yield "no session", member.fetch(epoch=1), member.fetch(epoch=-1), member.acknowledge((0, 0, [1]), epoch=3)
    yield "no member", member.fetch(member=""), member.fetch(member="m" * 37)
    yield "acknowledges in the first", member.fetch((0, 0, [ACCEPT]))
    yield "opens", member.acquire()
    yield "epochs", member.fetch(epoch=9), member.acknowledge((0, 0, [1]), epoch=9), member.acknowledge(epoch=0)
    yield "goes on", member.fetch(), member.acknowledge((0, 0, [ACCEPT]))
    yield "closes", member.fetch((1, 1, [ACCEPT]), epoch=-1), member.fetch(epoch=1)
    member.epoch = 0
    yield "the rest was released", member.acquire()
    yield "forgets", member.fetch(named=False, forget=[0]), member.fetch(named=False)
    yield "unknown partition", member.fetch(partition=7)
    yield "renews without limits", member.fetch((2, 2, [RENEW]), is_renew_ack=True)
    yield member.fetch(
        (2, 2, [RENEW]), is_renew_ack=True, max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0, batch_size=0
    )
    yield "acknowledge closes", member.acknowledge((2, 2, [ACCEPT]), epoch=-1), member.fetch(epoch=member.epoch)


def acquiring(side: Side) -> Iterator[Any]:
    topic = filled(side, 5, 5, 5, 5)
    for name, more in [
        ("all", {}), ("soft", {"max_records": 7}), ("one", {"max_records": 1}), ("batches", {"batch_size": 5}),
        ("strict", {"max_records": 7, "share_acquire_mode": 1}), ("v1", {"max_records": 7, "version": 1}),
        ("bytes", {"max_bytes": 1}),
    ]:  # fmt: skip
        member = Sharer(side, topic, group=name).join()
        yield name, member.acquire(**more), member.fetch(**more), member.fetch(**more)
    member = Sharer(side, topic, group="none").join()
    yield "no records", member.fetch(max_records=0)


def acknowledging(side: Side) -> Iterator[Any]:
    topic = filled(side, 10, 10)
    one, two = Sharer(side, topic).join(), Sharer(side, topic, OTHER)
    yield one.acquire(max_records=10), two.fetch(max_records=10)
    yield "not mine", one.acknowledge((10, 12, [ACCEPT])), one.acknowledge((9, 10, [ACCEPT]))
    yield "nothing changed", one.acknowledge((9, 9, [ACCEPT]))
    yield "twice", one.acknowledge((9, 9, [ACCEPT])), one.acknowledge((8, 8, [ACCEPT]), (8, 8, [ACCEPT]))
    yield "behind", one.acknowledge((15, 25, [ACCEPT])), one.acknowledge((30, 31, [ACCEPT]))
    yield "types", one.acknowledge((0, 0, [9])), one.acknowledge((0, 1, [1, 1, 1])), one.acknowledge((3, 2, [1]))
    yield "renew", one.acknowledge((0, 0, [RENEW])), one.acknowledge((0, 0, [RENEW]), renews=True)
    yield "mixed", one.acknowledge((0, 8, [ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT, ACCEPT, RELEASE, ACCEPT]))
    yield "before the start", one.acknowledge((0, 0, [ACCEPT]))
    yield one.fetch(), one.offsets()
    yield "on the way", one.fetch((1, 1, [ACCEPT]), (4, 4, [ACCEPT]), (7, 7, [ACCEPT])), one.offsets()
    yield two.acknowledge((10, 19, [ACCEPT])), two.offsets()
    yield "nothing in flight", one.acknowledge((20, 20, [ACCEPT])), one.acknowledge((3, 3, [ACCEPT]))


def delivered_often(side: Side) -> Iterator[Any]:
    """Records that fail come in ever smaller parts, and at last not at all."""
    topic = filled(side, 8)
    member = Sharer(side, topic).join()
    for _ in range(40):
        found = member.acquire() if not member.epoch else member.fetch()
        yield found
        ranges = [part for _, _, _, acquired in found for part in acquired]
        if not ranges:
            break
        member.acknowledge(*((first, last, [RELEASE]) for first, last, _ in ranges))
    yield member.offsets()


def delivered_one_bad(side: Side) -> Iterator[Any]:
    topic = filled(side, 10, 10)
    member = Sharer(side, topic).join(share_delivery_count_limit="3")
    for _ in range(20):
        found = member.acquire() if not member.epoch else member.fetch()
        yield found
        ranges = [part for _, _, _, acquired in found for part in acquired]
        if not ranges:
            break
        member.acknowledge(
            *((first, last, [RELEASE if offset == 4 else ACCEPT for offset in range(first, last + 1)])
              for first, last, _ in ranges)
        )  # fmt: skip


def locks(side: Side) -> Iterator[Any]:
    topic = filled(side, 3)
    one = Sharer(side, topic).join(share_record_lock_duration_ms="1000")
    two = Sharer(side, topic, OTHER)
    yield one.acquire()
    yield two.fetch(max_wait_ms=5000)
    yield one.acknowledge((0, 2, [ACCEPT])), two.acknowledge((0, 2, [ACCEPT]))


def window(side: Side) -> Iterator[Any]:
    topic = filled(side, *[30] * 8)
    member = Sharer(side, topic).join(share_partition_max_record_locks="100")
    yield member.acquire(max_records=50), member.fetch(max_records=500), member.fetch()
    yield member.acknowledge((30, 59, [RELEASE])), member.fetch(), member.fetch()
    yield member.acknowledge((0, 9, [ACCEPT])), member.fetch(), member.fetch()


def deleted_records(side: Side) -> Iterator[Any]:
    topic = filled(side, 5, 5, 5)
    member = Sharer(side, topic).join()
    yield member.acquire(max_records=5), member.acknowledge((0, 4, [RELEASE, RELEASE, ACCEPT, RELEASE, RELEASE]))
    part = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=10)
    topics = [DeleteRecordsRequest.Topic(name=topic[0], partitions=[part])]
    side.request(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    found = [member.fetch(), member.fetch()]
    yield sorted(part for one in found for _, _, _, acquired in one for part in acquired)
    yield member.acknowledge((10, 14, [ACCEPT]))


def starts(side: Side) -> Iterator[Any]:
    topic = filled(side, 5)
    member = Sharer(side, topic, group="latest").join(start="latest")
    yield member.fetch(), member.fetch()
    side.produce(topic, plain(2))
    yield member.acquire()
    yield Sharer(side, topic, group="duration").join(start="by_duration:PT1H").acquire()


def isolation(side: Side) -> Iterator[Any]:
    for level in ("read_committed", "read_uncommitted"):
        topic = Topic(*side.topic())
        tx = Tx(side.request, f"{side.case}-{level}", now_ms=NOW_MS)
        side.request(FindCoordinatorRequest(key_type=1, coordinator_keys=[tx.id]), 4)
        request = InitProducerIdRequest(transactional_id=tx.id, transaction_timeout_ms=tx.timeout_ms)
        made = side.until_coordinated(lambda request=request: side.request(request, 5))  # type: ignore[misc]
        tx.pid, tx.epoch = made.producer_id, made.producer_epoch

        def produce(tx: Tx = tx, topic: Topic = topic) -> None:
            # Kafka refuses the first records of a transaction while it completes the last one.
            wait_for(lambda: tx.produce(topic), lambda error: error == 0)

        for commit in (True, False, True):
            for _ in range(2):
                produce()
            wait_for(lambda tx=tx, commit=commit: tx.end(commit), lambda result: result[0] == 0)  # type: ignore[misc]
        produce()
        member = Sharer(side, (topic.name, topic.id), group=level).join(share_isolation_level=level)
        found = [member.acquire(), member.fetch()]
        yield level, sorted(part for one in found for _, _, _, acquired in one for part in acquired)
        tx.end(False)


def offsets(side: Side) -> Iterator[Any]:
    topic = filled(side, 10)
    member = Sharer(side, topic)
    yield "no group", member.offsets(), member.offsets(all=True), member.delete()
    member.join()
    yield "not read", member.offsets(), member.offsets(all=True)
    yield "members", member.alter(3), member.delete()
    yield member.acquire(), member.acknowledge((0, 5, [1, 1, 0, 3, 2, 1])), member.offsets(), member.offsets(all=True)
    member.fetch(epoch=-1)
    yield "left", member.leave()
    yield "unknown", member.alter(3, partition=9), member.alter(3, topic="nowhere"), member.delete("nowhere")
    yield "altered", member.alter(3), member.offsets()
    # Kafka 4.3.1 goes on from the leader's cache after this; the embedded broker starts at 3 (test_share_offsets).
    yield "deleted", member.delete(), member.offsets(), member.offsets(all=True)
    request = DeleteGroupsRequest(groups_names=[member.group])
    yield [found.error_code for found in side.request(request, 2).results]
    yield "new group", Sharer(side, topic, group="new").alter(2)


def configs(side: Side) -> Iterator[Any]:
    group = f"{side.case}-g"
    for changes in [
        {"share_auto_offset_reset": "earliest"}, {"share_auto_offset_reset": "never"},
        {"share_auto_offset_reset": "by_duration:P1D"}, {"share_auto_offset_reset": "by_duration:1h"},
        {"share_auto_offset_reset": "by_duration:PT-1H"}, {"share_isolation_level": "read_committed"},
        {"share_isolation_level": "x"}, {"share_record_lock_duration_ms": "70000"},
        {"share_record_lock_duration_ms": "20000"}, {"share_delivery_count_limit": "1"},
        {"share_delivery_count_limit": "11"}, {"share_partition_max_record_locks": "99"},
        {"share_session_timeout_ms": "1"}, {"share_heartbeat_interval_ms": "1"}, {"nothing": "1"},
        {"share_renew_acknowledge_enable": "x"}, {"share_heartbeat_interval_ms": "abc"},
    ]:  # fmt: skip
        yield changes, configure(side, group, **changes)
    yield "no group", configure(side, "", share_auto_offset_reset="earliest")
    wanted = ("read_committed", 8)
    shown = wait_for(lambda: shown_configs(side, group), lambda found: found.get("share.isolation.level") == wanted)
    yield {name: value for name, value in shown.items() if name.startswith("share.")}
    yield configure(side, group, share_isolation_level=None)


CASES: list[Callable[[Side], Iterator[Any]]] = [
    heartbeats, sessions, acquiring, acknowledging, delivered_often, delivered_one_bad, locks, window, deleted_records,
    starts, isolation, offsets, configs,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_share_groups_like_kafka(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> None:
    kafka, embedded = results_by_side(sides, case)
    assert embedded == kafka
