"""`explain`: a table of situations on virtual time, each with its reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import kwire
import kwire.aio
from kwire.broker import Cluster, Mute
from kwire.cluster.metadata import MetadataStatus
from kwire.cluster.recovery import Failure
from kwire.errors import DisconnectedError, ErrorCode
from kwire.producer.accumulator import PendingRecord
from kwire.producer.explain import Explanation, Hold, Reason
from kwire.protocol import ApiKey
from tests.producer.fakes import Bench

CUT = DisconnectedError("the connection broke", broker="1 at host-1:9092", remedy="look at its log")
PATIENCE = 30


def explained(bench: Bench, partition: int | None = 0, topic: str = "t") -> Explanation:
    return bench.sender.explain(topic, partition, bench.now, bench.view)


def proven(**settings: object) -> Bench:
    """Return a producer with an id, whose partition 0 has its first acknowledgement from broker 1."""
    bench = Bench({"t": [(1, 0), (2, 0)]}, **settings)  # type: ignore[arg-type]
    bench.send(b"first", partition=0)
    for sent in [*bench.turn(), *bench.turn(1.0)]:
        sent.respond(bench.now)
    return bench


def unknown_topic() -> Bench:
    bench = Bench()
    bench.send(b"a", partition=0)
    bench.view.metadata = MetadataStatus(2, bench.now - 0.5, 0.0, None, CUT)
    return bench


def metadata_to_be_requested() -> Bench:
    bench = unknown_topic()
    bench.view.metadata = MetadataStatus(None, 0.0, bench.now + 0.25, "why", None)
    return bench


def no_broker_at_all() -> Bench:
    bench = metadata_to_be_requested()
    bench.view.connection_error = CUT
    return bench


def refused_topic() -> Bench:
    bench = Bench(unknown_topic_timeout_ms=10_000)
    bench.know({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    bench.send(b"a", partition=0)
    bench.turn()
    bench.turn(1.0)
    return bench


def no_such_partition() -> Bench:
    bench = Bench({"t": []}, unknown_topic_timeout_ms=10_000)
    bench.know({"t": [(1, 0)]})
    bench.send(b"a", partition=3)
    return bench


def no_leader() -> Bench:
    bench = proven()
    bench.know({"t": [(-1, 0), (2, 0)]})
    bench.now += 2.0
    bench.view.metadata = MetadataStatus(None, 0.0, bench.now + 0.5, "why", None)
    bench.send(b"a", partition=0)
    return bench


def unreachable() -> Bench:
    bench = proven()
    bench.view.down.add(1)
    bench.view.outages[1] = Failure(bench.now - 3.0, bench.now + 0.75, 2, CUT)
    bench.send(b"a", partition=0)
    return bench


def connecting() -> Bench:
    bench = proven()
    bench.view.down.add(1)
    bench.view.failures[1] = CUT
    bench.send(b"a", partition=0)
    return bench


def without_id() -> Bench:
    bench = Bench({"t": [(1, 0)]}, gives_ids=False)
    bench.send(b"a", partition=0)
    return bench


def id_requested() -> Bench:
    bench = without_id()
    bench.turn()
    return bench


def id_refused() -> Bench:
    bench = id_requested()
    bench.id_requests.pop().on_done(CUT, bench.now)
    return bench


def sequence_lost() -> Bench:
    bench = proven(batch_bytes=100)
    bench.send(b"refused", partition=0)
    bench.send(b"out", partition=0)
    bench.turn()[0].respond(bench.now, ErrorCode.INVALID_RECORD)
    bench.send(b"a", partition=1)
    return bench


def back_off() -> Bench:
    bench = proven()
    bench.send(b"a", partition=0)
    bench.turn()[0].fail(bench.now, CUT)
    return bench


def window_closed() -> Bench:
    bench = Bench({"t": [(1, 0)]})
    bench.send(b"out", partition=0)
    bench.turn()
    bench.now += 0.5
    bench.send(b"a", partition=0)
    return bench


def old_leader() -> Bench:
    bench = proven()
    bench.send(b"out", partition=0)
    bench.turn()
    bench.know({"t": [(2, 1), (2, 0)]})
    bench.send(b"a", partition=0)
    return bench


def throttled() -> Bench:
    bench = proven()
    bench.send(b"out", partition=0)
    bench.turn()[0].respond(bench.now, throttle_time_ms=500)
    bench.send(b"a", partition=0)
    return bench


def busy() -> Bench:
    bench = proven()
    bench.view.rooms[1] = 0
    bench.send(b"a", partition=0)
    return bench


def lingering() -> Bench:
    bench = proven(linger_ms=20)
    bench.send(b"a", partition=0)
    bench.turn()
    bench.now += 0.005
    return bench


def response_awaited() -> Bench:
    bench = proven()
    bench.send(b"a", partition=0)
    bench.turn()
    bench.now += 0.25
    return bench


def several_at_once() -> Bench:
    bench = Bench({"t": [(1, 0)]}, gives_ids=False, linger_ms=20)
    bench.view.down.add(1)
    bench.view.outages[1] = Failure(bench.now, bench.now + 1.0, 1, CUT)
    bench.send(b"a", partition=0)
    return bench


SITUATIONS: list[tuple[Callable[[], Bench], list[tuple[Hold, float | None, float | None]]]] = [
    (unknown_topic, [(Hold.METADATA, 0.5, None)]),
    (metadata_to_be_requested, [(Hold.METADATA, None, 0.25)]),
    (no_broker_at_all, [(Hold.METADATA, None, None)]),
    (refused_topic, [(Hold.TOPIC, 1.0, 9.0)]),
    (no_leader, [(Hold.LEADER, 2.0, 0.5)]),
    (unreachable, [(Hold.UNREACHABLE, 3.0, 0.75)]),
    (connecting, [(Hold.CONNECTING, None, None)]),
    (without_id, [(Hold.IDENTITY, None, None)]),
    (id_requested, [(Hold.IDENTITY, None, None)]),
    (back_off, [(Hold.BACK_OFF, None, 0.1)]),
    (window_closed, [(Hold.WINDOW, 0.5, None)]),
    (old_leader, [(Hold.WINDOW, 0.0, None)]),
    (throttled, [(Hold.THROTTLED, None, 0.5)]),
    (busy, [(Hold.BUSY, None, None)]),
    (lingering, [(Hold.LINGER, None, 0.015)]),
    (response_awaited, [(Hold.ANSWER, 0.25, None)]),
    (several_at_once, [(Hold.IDENTITY, None, None), (Hold.UNREACHABLE, 0.0, 1.0), (Hold.LINGER, None, 0.02)]),
]


@pytest.mark.parametrize(("situation", "expected"), SITUATIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_situations(situation: Callable[[], Bench], expected: list[tuple[Hold, float | None, float | None]]) -> None:
    bench = situation()
    explanation = explained(bench)
    assert [reason.hold for reason in explanation.reasons] == [hold for hold, _, _ in expected], str(explanation)
    for reason, (_, since, until) in zip(explanation.reasons, expected, strict=True):
        assert (reason.since is None, reason.until is None) == (since is None, until is None), reason
        assert (reason.since or 0.0) == pytest.approx(since or 0.0, abs=0.001)
        assert (reason.until or 0.0) == pytest.approx(until or 0.0, abs=0.021)  # back-offs have jitter
    assert explanation.batches_queued + explanation.batches_in_flight > 0
    assert len(str(explanation).splitlines()) == 1 + len(expected)


@pytest.mark.parametrize("situation", [situation for situation, _ in SITUATIONS], ids=lambda value: value.__name__)
def test_a_batch_is_sent_exactly_when_there_is_no_reason_against_it(situation: Callable[[], Bench]) -> None:
    """The reasons and the sender agree."""
    bench = situation()
    holds = {reason.hold for reason in explained(bench).reasons}
    sent = [one for one in bench.turn() if ("t", 0) in one.values()]
    assert bool(sent) is (holds <= {Hold.IDENTITY} and bench.gives_ids)


@pytest.mark.parametrize(
    ("situation", "partition", "detail", "cause"),
    [
        (unknown_topic, 0, "the topic's partitions are being requested from broker 2 at host-2:9092", CUT),
        (no_broker_at_all, 0, "no broker can be reached", CUT),
        (no_such_partition, 3, "the topic has 1 partition", None),
        (unreachable, 0, "broker 1 at host-1:9092 cannot be reached", CUT),
        (connecting, 0, "a connection to broker 1 at host-1:9092", CUT),
        (id_refused, 0, "no id yet", CUT),
        (sequence_lost, 1, "a sequence was lost", None),
        (back_off, 0, "1 failures in a row", CUT),
        (window_closed, 0, "window of 1", None),
        (old_leader, 0, "the old leader has not responded yet", None),
        (response_awaited, 0, "1 batches are at broker 1 at host-1:9092", None),
    ],
)
def test_details_name_brokers_and_causes(
    situation: Callable[[], Bench], partition: int, detail: str, cause: Exception | None
) -> None:
    reason = explained(situation(), partition).reasons[0]
    assert detail in reason.detail
    assert reason.cause is cause


def test_nothing_is_held_back() -> None:
    bench = proven()
    idle = explained(bench)
    assert (idle.reasons, idle.oldest, idle.given_up_in) == ((), None, None)
    assert str(idle) == "t-0: 0 batches (0 records) queued, 0 in flight"
    bench.send(b"goes with the next turn", partition=0)
    assert explained(bench).reasons == ()
    assert explained(bench, 7).reasons == explained(bench, 0, "never heard of").reasons == ()


def test_ages_and_sizes() -> None:
    bench = unreachable()
    bench.send(b"b", partition=0)
    bench.turn()
    bench.turn(5.0)
    explanation = explained(bench)
    assert (explanation.batches_queued, explanation.records_queued) == (1, 2)
    assert explanation.oldest == pytest.approx(5.0)
    assert explanation.given_up_in == pytest.approx(115.0)
    assert str(explanation).startswith("t-0: 1 batches (2 records) queued, 0 in flight; the oldest for 5 s, expires in")


def test_full_memory_is_a_reason_for_the_topics_whose_senders_wait() -> None:
    bench = unreachable()
    bench.buffer_pool.accumulator.bytes_max = 150
    bench.buffer_pool._when_full = "block"
    bench.buffer_pool.append_nowait(PendingRecord("t", 0, (0, None, b"", ()), 100), lambda error: None)
    last = explained(bench).reasons[-1]
    assert (last.hold, last.detail) == (
        Hold.MEMORY, "1 senders wait for room: 100 of 150 bytes are buffered, most of them, 100, for t"
    )  # fmt: skip
    assert explained(bench, 0, "other").reasons == (), "its records find room"
    bench.buffer_pool.append_nowait(PendingRecord("other", None, (0, None, b"", ()), 140), lambda error: None)
    assert explained(bench, 0, "other").reasons == (last,)


# -- a whole topic


def test_records_without_a_partition() -> None:
    bench = Bench({"t": [(-1, 0), (1, 0), (-1, 0), (2, 0)]}, linger_ms=20)
    bench.turn()
    bench.send(b"a")
    bench.view.down.update((1, 2))
    bench.view.outages[1] = bench.view.outages[2] = Failure(0.0, 2.0, 1, CUT)
    bench.turn()
    reasons = {reason.hold: reason for reason in explained(bench, None).reasons}
    assert list(reasons) == [Hold.LEADER, Hold.UNREACHABLE, Hold.LINGER]
    assert reasons[Hold.LEADER].partitions == (0, 2)
    assert reasons[Hold.UNREACHABLE].partitions in ((1,), (3,))
    bench.view.down.clear()
    bench.view.outages.clear()
    assert Hold.LEADER not in {reason.hold for reason in explained(bench, None).reasons}, (
        "there is one that can take it"
    )


def test_keyed_records_of_an_unknown_topic() -> None:
    bench = Bench()
    bench.send(b"a", key=b"k")
    bench.view.metadata = MetadataStatus(2, bench.now, 0.0, None, None)
    explanation = explained(bench, None)
    assert [reason.hold for reason in explanation.reasons] == [Hold.METADATA]
    assert explanation.records_queued == 1


def test_partitions_with_the_same_reason_are_merged() -> None:
    bench = proven()
    bench.view.rooms.update({1: 0, 2: 0})
    for partition in (0, 1, 0):
        bench.send(b"a", partition=partition)
    bench.know({"t": [(1, 0), (1, 1)]})
    (reason,) = explained(bench, None).reasons
    assert (reason.hold, reason.partitions) == (Hold.BUSY, (0, 1))
    assert "(partition 0, 1)" in str(reason)


def test_reasons_in_words() -> None:
    reason = Reason(Hold.UNREACHABLE, "broker 1 at h:1 cannot be reached", 3.14159, 0.5, CUT)
    assert str(reason) == (
        "unreachable: broker 1 at h:1 cannot be reached, for 3.14 s so far, 0.5 s to go; the last failure was: "
        "the connection broke [broker 1 at host-1:9092]: look at its log"
    )


# -- over real sockets


def test_a_response_that_does_not_arrive_and_a_broker_that_is_gone() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        producer = kwire.Producer(cluster.bootstrap, request_timeout_ms=60_000, delivery_timeout_ms=60_000)
        assert producer.explain("t").reasons == ()
        producer.send("t", b"first").result(PATIENCE)
        mute = cluster.add_fault(Mute(), api=ApiKey.PRODUCE, times=None)
        producer.send("t", b"unanswered", partition=0)
        while not mute.hits:
            producer.explain("t", 0)
        (reason,) = producer.explain("t", 0).reasons
        assert reason.hold is Hold.ANSWER
        cluster.stop(1)
        while Hold.ANSWER in (holds := [reason.hold for reason in producer.explain("t", 0).reasons]):
            pass
        assert set(holds) <= {Hold.UNREACHABLE, Hold.BACK_OFF, Hold.METADATA, Hold.CONNECTING}
        assert producer.explain("t", 0).reasons[0].cause is not None
        producer.close(timeout=0)
        assert producer.explain("t", 0).reasons == ()


def test_awaited() -> None:
    async def main(bootstrap: str) -> None:
        async with kwire.aio.Producer(bootstrap, linger_ms=60_000) as producer:
            await producer.send("t", b"x", partition=0)
            while Hold.LINGER not in (holds := {one.hold for one in (await producer.explain("t", 0)).reasons}):
                assert holds <= {Hold.METADATA, Hold.CONNECTING, Hold.IDENTITY, Hold.LEADER, Hold.TOPIC}

    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        asyncio.run(main(cluster.bootstrap))
