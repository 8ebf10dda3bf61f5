"""Transactions on the embedded broker and on Kafka: the same requests to both, right and wrong ones, answers compared.

As in `test_like_kafka`; what a transaction left in the logs is compared too, markers and their epochs included.
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
from tests.broker.sides import NOW_MS, Side, told_by
from tests.broker.transactions import Topic, Tx

pytestmark = pytest.mark.live

COMMIT, ABORT = True, False
OLD, NEW = 3, 5  # versions of EndTxn, one for each protocol


def tx(side: Side, name: str = "tx", **more: Any) -> Tx:
    made = Tx(side.ask, f"{side.case}-{name}", now_ms=NOW_MS, **more)
    side.until_coordinated(lambda: side.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[made.id]), 4))
    return made


def begun(side: Side, name: str = "tx", **more: Any) -> Tx:
    made = tx(side, name, **more)
    request = InitProducerIdRequest(transactional_id=made.id, transaction_timeout_ms=made.timeout_ms)
    first = side.until_coordinated(lambda: side.ask(request, 5))
    made.pid, made.epoch = first.producer_id, first.producer_epoch
    return made


def new_topic(side: Side, partitions: int = 1) -> Topic:
    return Topic(*side.topic(partitions))


def stored(side: Side, topic: Topic, *, committed: bool = False) -> Any:
    """What a Fetch tells, when the markers are there."""
    data = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=int(committed),
        topics=[FetchRequest.Topic(topic=topic.name, topic_id=topic.id, partitions=[data])],
    )  # fmt: skip
    (found,) = side.ask(request, 12).responses[0].partitions
    batches = [
        (
            batch.base_offset, batch.count, batch.base_sequence, batch.producer_epoch, batch.is_transactional,
            batch.control() if batch.is_control else None,
        )
        for batch in decode_batches(found.records or b"")
    ]  # fmt: skip
    aborted = None if found.aborted_transactions is None else [a.first_offset for a in found.aborted_transactions]
    return found.error_code, found.high_watermark, found.last_stable_offset, aborted, batches


def at_rest(side: Side, transaction: Tx) -> Any:
    """State and epoch, once markers are not under way any more."""

    def ask() -> Any:
        (told,) = side.ask(DescribeTransactionsRequest(transactional_ids=[transaction.id])).transaction_states
        return told.error_code, told.transaction_state, told.producer_epoch, len(told.topics)

    return side.until(ask, lambda told: not told[1].startswith("Prepare"))


def identities(side: Side) -> Iterator[Any]:
    for version in range(6):
        one = begun(side, f"v{version}")
        yield version, [one.init(version) for _ in range(2)]
        if version >= 3:
            had = (one.pid, one.epoch)
            yield version, [one.init(version, expected=had) for _ in range(2)], one.init(version)
            yield version, one.init(version, expected=had), one.init(version, expected=(one.pid + 10_000, 0))
            yield version, one.init(version, expected=(one.pid, 900)), one.init(version, expected=(one.pid, -1))
            yield version, one.init(version, expected=(-1, 0))
    fresh = tx(side, "fresh")
    yield fresh.init(expected=(12_345, 7))


def additions(side: Side) -> Iterator[Any]:
    topic = new_topic(side, 3)
    for version in range(6):
        one = begun(side, f"v{version}")
        name = topic.name
        yield version, one.add((name, 0), (name, 1), version=version), one.add((name, 0), version=version)
        yield version, one.add((name, 2), ("nowhere", 0), (name, 7), version=version)
        yield version, one.add((name, 0), version=version, epoch=9), one.add((name, 0), version=version, pid=9_999_999)
        one.init()
        yield version, at_rest(side, one)
        yield version, one.add((name, 0), version=version, epoch=0)
    for version in (4, 5):
        one = begun(side, f"verify{version}")
        yield one.add((topic.name, 0), version=version, verify=True)
        one.add((topic.name, 0), version=version)
        yield [one.add((topic.name, n), version=version, verify=True) for n in (0, 1)]
        yield one.add((topic.name, 0), version=version, verify=True, epoch=5)
    yield Tx(side.ask, "", now_ms=NOW_MS).add((topic.name, 0)), tx(side, "unknown").add((topic.name, 0))


def writes(side: Side) -> Iterator[Any]:
    for version in range(3, 14):
        one, topic = begun(side, f"v{version}"), new_topic(side)
        yield version, "not added", one.produce(topic, version=version)
        one.add((topic.name, 0))
        yield version, [one.produce(topic, version=version) for _ in range(2)], one.produce(topic, sequence=1)
        yield version, one.produce(topic, version=version, sequence=9)
        yield version, one.produce(topic, version=version, sequence=2, transactional=False)
        yield version, one.end(COMMIT, OLD if version < 12 else NEW)
        yield version, at_rest(side, one), stored(side, topic), stored(side, topic, committed=True)
        if version < 12:
            yield version, "of the last", one.produce(topic, version=version, sequence=1)
        yield version, one.init(), one.produce(topic, version=version, epoch=one.epoch - 1, sequence=9)
        yield version, "unknown", one.produce(topic, version=version, pid=9_999_999)
        yield version, "of another", one.produce(topic, version=version, id="nobody")
        yield version, one.produce(topic, version=version, id="")


def ends(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    for version in range(6):
        one = begun(side, f"v{version}")
        yield version, "empty", one.end(COMMIT, version), one.end(ABORT, version)
        yield version, "after that", at_rest(side, one)
        for wish in (COMMIT, ABORT):
            one.add((topic.name, 0))
            had = one.epoch
            yield version, wish, one.end(wish, version), at_rest(side, one)
            yield version, "again", [one.end(again, version, epoch=had) for again in (wish, not wish)]
            yield version, "next", [(one.end(again, version), at_rest(side, one)) for again in (wish, not wish)]
        one.add((topic.name, 0))
        yield version, one.end(COMMIT, version, epoch=one.epoch + 1), one.end(COMMIT, version, epoch=one.epoch - 1)
        yield version, one.end(COMMIT, version, pid=9_999_999), one.end(COMMIT, version), at_rest(side, one)
        yield version, tx(side, "unknown").end(COMMIT, version), Tx(side.ask, "", now_ms=0).end(COMMIT, version)
    yield stored(side, topic), stored(side, topic, committed=True)


def both_protocols_on_one_id(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    for first, then in ((OLD, NEW), (NEW, OLD)):
        one = begun(side, f"{first}{then}")
        one.add((topic.name, 0))
        had = one.epoch
        yield first, one.end(COMMIT, first), at_rest(side, one)
        yield then, "again", one.end(COMMIT, then, epoch=had), one.end(ABORT, then, epoch=had)
        yield then, one.end(ABORT, then), at_rest(side, one)


def init_aborts(side: Side) -> Iterator[Any]:
    for version in (OLD, NEW):
        topic, group = new_topic(side), f"{side.case}-g{version}"
        one = begun(side, f"v{version}")
        one.add((topic.name, 0))
        one.add_group(group)
        yield one.produce(topic), one.commit_offsets(group, (topic.name, 0), version=4)
        old = one.epoch
        yield one.init(version, patient=False), one.init(version)
        yield at_rest(side, one), stored(side, topic, committed=True)
        yield "zombie", one.add((topic.name, 0), epoch=old), one.add((topic.name, 0), version=0, epoch=old)
        yield "zombie", [one.add_group(group, v, epoch=old) for v in range(5)]
        yield "zombie", [one.commit_offsets(group, (topic.name, 0), version=v, epoch=old) for v in range(6)]
        yield "zombie", [one.end(COMMIT, v, epoch=old) for v in range(6)]
        yield "zombie", [one.produce(topic, version=v, epoch=old, sequence=1) for v in range(3, 14)]
        yield "zombie", one.init(expected=(one.pid, old)), one.init(3, expected=(one.pid, old))
        yield one.offsets_of(group, (topic.name, 0))


def offsets(side: Side) -> Iterator[Any]:
    topic = new_topic(side, 2)
    place = (topic.name, 0)
    for version in range(6):
        one, group = begun(side, f"v{version}"), f"{side.case}-v{version}"
        yield version, "not added", one.commit_offsets(group, place, version=version)
        yield version, one.add_group(group, min(version, 4)), one.commit_offsets(group, place, version=version)
        yield version, one.offsets_of(group, place, (topic.name, 1)), one.offsets_of(group, place, stable=False)
        yield version, one.commit_offsets(group, place, ("nowhere", 0), (topic.name, 7), version=version, offset=6)
        yield version, one.commit_offsets(group, place, version=version, metadata="x" * 4097)
        yield version, one.commit_offsets(group, place, version=version, epoch=9)
        yield version, one.commit_offsets(group, place, version=version, pid=9_999_999)
        yield version, one.commit_offsets("", place, version=version)
        yield version, one.end(COMMIT, NEW), at_rest(side, one), one.offsets_of(group, place)
        one.add_group(group)
        yield version, one.commit_offsets(group, place, version=version, offset=8), one.end(ABORT, NEW)
        yield version, at_rest(side, one), one.offsets_of(group, place)
        if version >= 3:
            yield version, one.add_group(f"{group}-x"), one.add_group("")
            yield version, one.commit_offsets(f"{group}-x", place, version=version, generation=4)
            yield version, one.commit_offsets(f"{group}-x", place, version=version, member_id="m")
        yield version, one.end(ABORT, NEW), at_rest(side, one)
    yield [one.add_group("g", v, epoch=9) for v in range(5)], one.add_group("g", pid=9_999_999)
    yield tx(side, "unknown").add_group("g"), Tx(side.ask, "", now_ms=0).add_group("g")


def later_write_wins(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    place = (topic.name, 0)
    for order in ("plain last", "transaction last"):
        one, group = begun(side, order), f"{side.case} {order}"
        one.add_group(group)
        if order == "transaction last":
            side.commit(group, topic.name, 3)
        yield one.commit_offsets(group, place, offset=7)
        if order == "plain last":
            yield side.commit(group, topic.name, 3)
        yield one.end(COMMIT), at_rest(side, one), one.offsets_of(group, place)


def members(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    group, place = side.case, (topic.name, 0)
    one = begun(side)
    joined = side.joined(group)
    who = {"generation": joined.generation_id, "member_id": joined.member_id}
    for phase in ("sync phase", "stable"):
        yield phase, one.commit_offsets(group, place, **who), one.commit_offsets(group, place)
        yield phase, one.commit_offsets(group, place, generation=9, member_id=joined.member_id)
        yield phase, one.commit_offsets(group, place, generation=joined.generation_id, member_id="me")
        yield phase, one.commit_offsets(group, place, **who, instance_id="i")
        yield phase, one.commit_offsets(group, place, member_id=joined.member_id)
        side.sync(group, joined)
    yield one.end(COMMIT), at_rest(side, one), one.offsets_of(group, place)


def timeouts(side: Side) -> Iterator[Any]:
    for version in (1, OLD, NEW):
        topic = new_topic(side)
        one = begun(side, f"v{version}", timeout_ms=100)
        yield one.add((topic.name, 0)), one.produce(topic, version=11)
        had = one.epoch

        def told(one: Tx = one) -> Any:
            return at_rest(side, one)

        yield side.until(told, lambda told: told[1] != "Ongoing"), stored(side, topic, committed=True)
        yield one.produce(topic, version=11), one.produce(topic, version=12), one.add((topic.name, 0))
        yield [one.end(COMMIT, v, epoch=had) for v in (version, 1, OLD, NEW)]
        yield one.end(ABORT, version), at_rest(side, one)
        yield one.init(expected=(one.pid, had)), one.init(expected=(one.pid, one.epoch))


def seen_from_outside(side: Side) -> Iterator[Any]:
    topic = new_topic(side, 2)
    one = begun(side)

    def describe() -> Any:
        ids = [one.id, "no-such-id", ""]
        found = side.ask(DescribeTransactionsRequest(transactional_ids=ids)).transaction_states
        return [
            (t.error_code, t.transactional_id, t.transaction_state, t.transaction_timeout_ms, t.producer_epoch,
             min(t.transaction_start_time_ms, 1), sorted((x.topic, *sorted(x.partitions)) for x in t.topics))
            for t in found
        ]  # fmt: skip

    def listed(version: int = 2, states: tuple[str, ...] = (), ids: tuple[int, ...] = (), **more: Any) -> Any:
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(ids), **more)
        told = side.ask(request, version)
        mine = [(t.transactional_id, t.transaction_state) for t in told.transaction_states if t.producer_id == one.pid]
        return told.error_code, told.unknown_state_filters, mine

    def producers(*places: tuple[str, int]) -> Any:
        topics = [DescribeProducersRequest.Topic(name=name, partition_indexes=[index]) for name, index in places]
        told = side.ask(DescribeProducersRequest(topics=topics)).topics
        return [
            (p.error_code, [(a.producer_epoch, a.last_sequence, a.coordinator_epoch, a.current_txn_start_offset)
                            for a in p.active_producers])
            for t in told for p in t.partitions
        ]  # fmt: skip

    yield describe(), listed(), tx(side, "").add((topic.name, 0))
    yield one.produce(topic), one.produce(topic), one.produce(topic, partition=1)
    yield describe(), listed(), listed(states=("Ongoing", "Nonsense")), listed(states=("Empty",))
    yield listed(ids=(one.pid,)), listed(ids=(9_999_999,)), listed(1, duration_filter=1_000_000)
    yield listed(transactional_id_pattern="seen.*"), listed(transactional_id_pattern="see")
    yield listed(transactional_id_pattern="("), listed(transactional_id_pattern="")
    yield producers((topic.name, 0), (topic.name, 1), (topic.name, 9), ("nowhere", 0), ("a/b", 0))
    yield one.end(ABORT), at_rest(side, one), listed(), producers((topic.name, 0))
    yield describe()


def markers_by_hand(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    one = begun(side)

    def mark(epoch: int, coordinator_epoch: int, commit: bool, *, partition: int = 0, version: int = 1) -> Any:
        asked = WriteTxnMarkersRequest.Marker(
            producer_id=one.pid, producer_epoch=epoch, transaction_result=commit, coordinator_epoch=coordinator_epoch,
            topics=[WriteTxnMarkersRequest.Marker.Topic(name=topic.name, partition_indexes=[partition])],
        )  # fmt: skip
        (told,) = side.ask(WriteTxnMarkersRequest(markers=[asked]), version).markers
        return [p.error_code for t in told.topics for p in t.partitions]

    yield one.produce(topic), one.end(COMMIT), at_rest(side, one), one.produce(topic)
    yield mark(0, 0, ABORT), mark(one.epoch, -1, ABORT), mark(one.epoch, 0, ABORT, partition=7)
    yield mark(one.epoch, 0, ABORT), stored(side, topic, committed=True)


def isolation(side: Side) -> Iterator[Any]:
    topic = new_topic(side)
    one, two = begun(side, "one"), begun(side, "two")

    def end(committed: bool) -> Any:
        asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(committed),
            topics=[ListOffsetsRequest.Topic(name=topic.name, partitions=[asked])],
        )  # fmt: skip
        (found,) = side.ask(request, 9).topics[0].partitions
        return found.error_code, found.offset

    for step in (one, two, one):
        yield step.produce(topic), end(True), end(False)
    for step, wish in ((one, ABORT), (two, COMMIT)):
        yield step.end(wish), at_rest(side, step), end(True), end(False)
        yield stored(side, topic), stored(side, topic, committed=True)


CASES = [
    identities, additions, writes, ends, both_protocols_on_one_id, init_aborts, offsets, later_write_wins, members,
    timeouts, seen_from_outside, markers_by_hand, isolation,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_both_answer_alike(sides: tuple[Side, Side], case: Callable[[Side], Iterator[Any]]) -> None:
    real, embedded = told_by(sides, case)
    assert embedded == real
