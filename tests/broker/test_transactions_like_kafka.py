"""Transactions on the embedded broker and on Kafka: the same valid and invalid requests to both, as in test_like_kafka.

The contents of the logs are compared, too, with markers and their epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kwire.protocol.messages.describe_producers import DescribeProducersRequest
from kwire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.find_coordinator import FindCoordinatorRequest
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.list_transactions import ListTransactionsRequest
from kwire.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kwire.records import decode_batches
from tests.broker.comparison import NOW_MS, Side, results_by_side
from tests.broker.transactions import Topic, Tx
from tests.waiting import wait_for

pytestmark = pytest.mark.live

COMMIT, ABORT = True, False
OLD, NEW = 3, 5  # versions of EndTxn, one for each protocol


def new_tx(side: Side, name: str = "tx", **more: Any) -> Tx:
    made = Tx(side.request, f"{side.case}-{name}", now_ms=NOW_MS, **more)
    side.until_coordinated(lambda: side.request(FindCoordinatorRequest(key_type=1, coordinator_keys=[made.id]), 4))
    return made


def initialized(side: Side, name: str = "tx", **more: Any) -> Tx:
    made = new_tx(side, name, **more)
    request = InitProducerIdRequest(transactional_id=made.id, transaction_timeout_ms=made.timeout_ms)
    first = side.until_coordinated(lambda: side.request(request, 5))
    made.pid, made.epoch = first.producer_id, first.producer_epoch
    return made


def new_topic(side: Side, partitions: int = 1) -> Topic:
    return Topic(*side.topic(partitions))


def stored(side: Side, topic: Topic, *, committed: bool = False) -> Any:
    """Return what a Fetch returns once the markers are written."""
    data = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=int(committed),
        topics=[FetchRequest.Topic(topic=topic.name, topic_id=topic.id, partitions=[data])],
    )  # fmt: skip
    (found,) = side.request(request, 12).responses[0].partitions
    batches = [
        (
            batch.base_offset, batch.count, batch.base_sequence, batch.producer_epoch, batch.is_transactional,
            batch.control() if batch.is_control else None,
        )
        for batch in decode_batches(found.records or b"")
    ]  # fmt: skip
    aborted = None if found.aborted_transactions is None else [a.first_offset for a in found.aborted_transactions]
    return found.error_code, found.high_watermark, found.last_stable_offset, aborted, batches


def ended_state(side: Side, transaction: Tx) -> Any:
    """Return the state and the epoch once the markers are written."""

    def describe() -> Any:
        (response,) = side.request(DescribeTransactionsRequest(transactional_ids=[transaction.id])).transaction_states
        return response.error_code, response.transaction_state, response.producer_epoch, len(response.topics)

    return wait_for(describe, lambda response: not response[1].startswith("Prepare"))


def identities(side: Side) -> Iterator[Any]:
    for version in range(6):
        tx = initialized(side, f"v{version}")
        yield version, [tx.init(version) for _ in range(2)]
        if version >= 3:
            had = (tx.pid, tx.epoch)
            yield version, [tx.init(version, expected=had) for _ in range(2)], tx.init(version)
            yield version, tx.init(version, expected=had), tx.init(version, expected=(tx.pid + 10_000, 0))
            yield version, tx.init(version, expected=(tx.pid, 900)), tx.init(version, expected=(tx.pid, -1))
            yield version, tx.init(version, expected=(-1, 0))
    fresh = new_tx(side, "fresh")
    yield fresh.init(expected=(12_345, 7))


def additions(side: Side) -> Iterator[Any]:
    topic = new_topic(side, 3)
    for version in range(6):
        tx = initialized(side, f"v{version}")
        name = topic.name
        yield version, tx.add((name, 0), (name, 1), version=version), tx.add((name, 0), version=version)
        yield version, tx.add((name, 2), ("nowhere", 0), (name, 7), version=version)
        yield version, tx.add((name, 0), version=version, epoch=9), tx.add((name, 0), version=version, pid=9_999_999)
        tx.init()
        yield version, ended_state(side, tx)
        yield version, tx.add((name, 0), version=version, epoch=0)
    for version in (4, 5):
        tx = initialized(side, f"verify{version}")
        yield tx.add((topic.name, 0), version=version, verify=True)
        tx.add((topic.name, 0), version=version)
        yield [tx.add((topic.name, n), version=version, verify=True) for n in (0, 1)]
        yield tx.add((topic.name, 0), version=version, verify=True, epoch=5)
    yield Tx(side.request, "", now_ms=NOW_MS).add((topic.name, 0)), new_tx(side, "unknown").add((topic.name, 0))


def writes(side: Side) -> Iterator[Any]:
    for version in range(3, 14):
        tx, topic = initialized(side, f"v{version}"), new_topic(side)
        yield version, "not added", tx.produce(topic, version=version)
        tx.add((topic.name, 0))
        yield version, [tx.produce(topic, version=version) for _ in range(2)], tx.produce(topic, sequence=1)
        yield version, tx.produce(topic, version=version, sequence=9)
        yield version, tx.produce(topic, version=version, sequence=2, transactional=False)
        yield version, tx.end(COMMIT, OLD if version < 12 else NEW)
        yield version, ended_state(side, tx), stored(side, topic), stored(side, topic, committed=True)
        if version < 12:
            yield version, "of the last", tx.produce(topic, version=version, sequence=1)
        yield version, tx.init(), tx.produce(topic, version=version, epoch=tx.epoch - 1, sequence=9)
        yield version, "unknown", tx.produce(topic, version=version, pid=9_999_999)
        yield version, "of another", tx.produce(topic, version=version, id="nobody")
        yield version, tx.produce(topic, version=version, id="")


def ends(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    for version in range(6):
        tx = initialized(side, f"v{version}")
        yield version, "empty", tx.end(COMMIT, version), tx.end(ABORT, version)
        yield version, "after that", ended_state(side, tx)
        for commit in (COMMIT, ABORT):
            tx.add((topic.name, 0))
            had = tx.epoch
            yield version, commit, tx.end(commit, version), ended_state(side, tx)
            yield version, "again", [tx.end(again, version, epoch=had) for again in (commit, not commit)]
            yield version, "next", [(tx.end(again, version), ended_state(side, tx)) for again in (commit, not commit)]
        tx.add((topic.name, 0))
        yield version, tx.end(COMMIT, version, epoch=tx.epoch + 1), tx.end(COMMIT, version, epoch=tx.epoch - 1)
        yield version, tx.end(COMMIT, version, pid=9_999_999), tx.end(COMMIT, version), ended_state(side, tx)
        yield version, new_tx(side, "unknown").end(COMMIT, version), Tx(side.request, "", now_ms=0).end(COMMIT, version)
    yield stored(side, topic), stored(side, topic, committed=True)


def both_protocols_on_one_id(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    for first, then in ((OLD, NEW), (NEW, OLD)):
        tx = initialized(side, f"{first}{then}")
        tx.add((topic.name, 0))
        had = tx.epoch
        yield first, tx.end(COMMIT, first), ended_state(side, tx)
        yield then, "again", tx.end(COMMIT, then, epoch=had), tx.end(ABORT, then, epoch=had)
        yield then, tx.end(ABORT, then), ended_state(side, tx)


def init_aborts(side: Side) -> Iterator[Any]:
    for version in (OLD, NEW):
        topic, group = new_topic(side), f"{side.case}-g{version}"
        tx = initialized(side, f"v{version}")
        tx.add((topic.name, 0))
        tx.add_group(group)
        yield tx.produce(topic), tx.commit_offsets(group, (topic.name, 0), version=4)
        old = tx.epoch
        yield tx.init(version, patient=False), tx.init(version)
        yield ended_state(side, tx), stored(side, topic, committed=True)
        yield "zombie", tx.add((topic.name, 0), epoch=old), tx.add((topic.name, 0), version=0, epoch=old)
        yield "zombie", [tx.add_group(group, v, epoch=old) for v in range(5)]
        yield "zombie", [tx.commit_offsets(group, (topic.name, 0), version=v, epoch=old) for v in range(6)]
        yield "zombie", [tx.end(COMMIT, v, epoch=old) for v in range(6)]
        yield "zombie", [tx.produce(topic, version=v, epoch=old, sequence=1) for v in range(3, 14)]
        yield "zombie", tx.init(expected=(tx.pid, old)), tx.init(3, expected=(tx.pid, old))
        yield tx.offsets_of(group, (topic.name, 0))


def offsets(side: Side) -> Iterator[Any]:
    topic = new_topic(side, 2)
    partition = (topic.name, 0)
    for version in range(6):
        tx, group = initialized(side, f"v{version}"), f"{side.case}-v{version}"
        yield version, "not added", tx.commit_offsets(group, partition, version=version)
        yield version, tx.add_group(group, min(version, 4)), tx.commit_offsets(group, partition, version=version)
        yield version, tx.offsets_of(group, partition, (topic.name, 1)), tx.offsets_of(group, partition, stable=False)
        yield version, tx.commit_offsets(group, partition, ("nowhere", 0), (topic.name, 7), version=version, offset=6)
        yield version, tx.commit_offsets(group, partition, version=version, metadata="x" * 4097)
        yield version, tx.commit_offsets(group, partition, version=version, epoch=9)
        yield version, tx.commit_offsets(group, partition, version=version, pid=9_999_999)
        yield version, tx.commit_offsets("", partition, version=version)
        yield version, tx.end(COMMIT, NEW), ended_state(side, tx), tx.offsets_of(group, partition)
        tx.add_group(group)
        yield version, tx.commit_offsets(group, partition, version=version, offset=8), tx.end(ABORT, NEW)
        yield version, ended_state(side, tx), tx.offsets_of(group, partition)
        if version >= 3:
            yield version, tx.add_group(f"{group}-x"), tx.add_group("")
            yield version, tx.commit_offsets(f"{group}-x", partition, version=version, generation=4)
            yield version, tx.commit_offsets(f"{group}-x", partition, version=version, member_id="m")
        yield version, tx.end(ABORT, NEW), ended_state(side, tx)
    yield [tx.add_group("g", v, epoch=9) for v in range(5)], tx.add_group("g", pid=9_999_999)
    yield new_tx(side, "unknown").add_group("g"), Tx(side.request, "", now_ms=0).add_group("g")


def later_write_wins(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    partition = (topic.name, 0)
    for order in ("plain last", "transaction last"):
        tx, group = initialized(side, order), f"{side.case} {order}"
        tx.add_group(group)
        if order == "transaction last":
            side.commit(group, topic.name, 3)
        yield tx.commit_offsets(group, partition, offset=7)
        if order == "plain last":
            yield side.commit(group, topic.name, 3)
        yield tx.end(COMMIT), ended_state(side, tx), tx.offsets_of(group, partition)


def members(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    group, partition = side.case, (topic.name, 0)
    tx = initialized(side)
    joined = side.joined(group)
    member = {"generation": joined.generation_id, "member_id": joined.member_id}
    for phase in ("sync phase", "stable"):
        yield phase, tx.commit_offsets(group, partition, **member), tx.commit_offsets(group, partition)
        yield phase, tx.commit_offsets(group, partition, generation=9, member_id=joined.member_id)
        yield phase, tx.commit_offsets(group, partition, generation=joined.generation_id, member_id="me")
        yield phase, tx.commit_offsets(group, partition, **member, instance_id="i")
        yield phase, tx.commit_offsets(group, partition, member_id=joined.member_id)
        side.sync(group, joined)
    yield tx.end(COMMIT), ended_state(side, tx), tx.offsets_of(group, partition)


def timeouts(side: Side) -> Iterator[Any]:
    for version in (1, OLD, NEW):
        topic = new_topic(side)
        tx = initialized(side, f"v{version}", timeout_ms=1_000)
        yield tx.add((topic.name, 0)), tx.produce(topic, version=11)
        had = tx.epoch

        def response(tx: Tx = tx) -> Any:
            return ended_state(side, tx)

        yield wait_for(response, lambda response: response[1] != "Ongoing"), stored(side, topic, committed=True)
        yield tx.produce(topic, version=11), tx.produce(topic, version=12), tx.add((topic.name, 0))
        yield [tx.end(COMMIT, v, epoch=had) for v in (version, 1, OLD, NEW)]
        yield tx.end(ABORT, version), ended_state(side, tx)
        yield tx.init(expected=(tx.pid, had)), tx.init(expected=(tx.pid, tx.epoch))


def seen_from_outside(side: Side) -> Iterator[Any]:
    topic = new_topic(side, 2)
    tx = initialized(side)

    def describe() -> Any:
        ids = [tx.id, "no-such-id", ""]
        found = side.request(DescribeTransactionsRequest(transactional_ids=ids)).transaction_states
        return [
            (t.error_code, t.transactional_id, t.transaction_state, t.transaction_timeout_ms, t.producer_epoch,
             min(t.transaction_start_time_ms, 1), sorted((x.topic, *sorted(x.partitions)) for x in t.topics))
            for t in found
        ]  # fmt: skip

    def listed(version: int = 2, states: tuple[str, ...] = (), ids: tuple[int, ...] = (), **more: Any) -> Any:
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(ids), **more)
        response = side.request(request, version)
        mine = [
            (t.transactional_id, t.transaction_state) for t in response.transaction_states if t.producer_id == tx.pid
        ]
        return response.error_code, response.unknown_state_filters, mine

    def producers(*partitions: tuple[str, int]) -> Any:
        topics = [DescribeProducersRequest.Topic(name=name, partition_indexes=[index]) for name, index in partitions]
        response = side.request(DescribeProducersRequest(topics=topics)).topics
        return [
            (p.error_code, [(a.producer_epoch, a.last_sequence, a.coordinator_epoch, a.current_txn_start_offset)
                            for a in p.active_producers])
            for t in response for p in t.partitions
        ]  # fmt: skip

    yield describe(), listed(), new_tx(side, "").add((topic.name, 0))
    yield tx.produce(topic), tx.produce(topic), tx.produce(topic, partition=1)
    yield describe(), listed(), listed(states=("Ongoing", "Nonsense")), listed(states=("Empty",))
    yield listed(ids=(tx.pid,)), listed(ids=(9_999_999,)), listed(1, duration_filter=1_000_000)
    yield listed(transactional_id_pattern="seen.*"), listed(transactional_id_pattern="see")
    yield listed(transactional_id_pattern="("), listed(transactional_id_pattern="")
    yield producers((topic.name, 0), (topic.name, 1), (topic.name, 9), ("nowhere", 0), ("a/b", 0))
    yield tx.end(ABORT), ended_state(side, tx), listed(), producers((topic.name, 0))
    yield describe()


def markers_by_hand(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    tx = initialized(side)

    def mark(epoch: int, coordinator_epoch: int, commit: bool, *, partition: int = 0, version: int = 1) -> Any:
        marker = WriteTxnMarkersRequest.Marker(
            producer_id=tx.pid, producer_epoch=epoch, transaction_result=commit, coordinator_epoch=coordinator_epoch,
            topics=[WriteTxnMarkersRequest.Marker.Topic(name=topic.name, partition_indexes=[partition])],
        )  # fmt: skip
        (response,) = side.request(WriteTxnMarkersRequest(markers=[marker]), version).markers
        return [p.error_code for t in response.topics for p in t.partitions]

    yield tx.produce(topic), tx.end(COMMIT), ended_state(side, tx), tx.produce(topic)
    yield mark(0, 0, ABORT), mark(tx.epoch, -1, ABORT), mark(tx.epoch, 0, ABORT, partition=7)
    yield mark(tx.epoch, 0, ABORT), stored(side, topic, committed=True)


def isolation(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    tx, two = initialized(side, "one"), initialized(side, "two")

    def end(committed: bool) -> Any:
        marker = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(committed),
            topics=[ListOffsetsRequest.Topic(name=topic.name, partitions=[marker])],
        )  # fmt: skip
        (found,) = side.request(request, 9).topics[0].partitions
        return found.error_code, found.offset

    for step in (tx, two, tx):
        yield step.produce(topic), end(True), end(False)
    for step, commit in ((tx, ABORT), (two, COMMIT)):
        yield step.end(commit), ended_state(side, step), end(True), end(False)
        yield stored(side, topic), stored(side, topic, committed=True)


CASES = [
    identities, additions, writes, ends, both_protocols_on_one_id, init_aborts, offsets, later_write_wins, members,
    timeouts, seen_from_outside, markers_by_hand, isolation,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_respond_alike(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> None:
    real, embedded = results_by_side(sides, case)
    assert embedded == real
