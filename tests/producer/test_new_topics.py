"""New topics whose leaders do not know yet that they lead: batches without a key do not wait for these.

After a topic was created a real broker says for seconds, partition by partition, that it does not lead what its own
metadata says it leads. Of a thousand partitions the last one decides when a flush ends, if batches wait there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kwire.errors import DeliveryError, DisconnectedError, ErrorCode
from kwire.producer.batch import ProducerBatch
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.explain import Hold
from kwire.producer.producer_request import DeliveryOptions
from kwire.producer.topic import SlowStart
from tests.producer.fakes import Bench, Sent
from tests.producer.growth import Lines

NOT_YET = ErrorCode.NOT_LEADER_OR_FOLLOWER
GONE = DisconnectedError("the connection broke")


def refused_once(leaders: list[tuple[int, int]] | None = None, **settings: object) -> Bench:
    """Send a batch without a key to partition 0, whose leader does not know yet that it leads."""
    bench = Bench({"t": leaders or [(1, 0)] * 3}, **settings)  # type: ignore[arg-type]
    bench.send(b"a")
    (sent,) = bench.turn()
    assert list(sent.values()) == [("t", 0)]
    sent.respond(bench.now, NOT_YET)
    return bench


def test_another_partition_gets_the_batch_after_a_pause() -> None:
    bench = refused_once()
    assert bench.turn() == []
    assert 0.08 <= (bench.sender.deadline() or 0.0) - bench.now <= 0.12
    (sent,) = bench.turn(0.12)  # 0.1 s, up to a fifth more or less
    assert sent.values() == {("t", 1): [b"a"]}
    assert sent.batches()["t", 1].base_sequence == 0
    sent.respond(bench.now)
    bench.send(b"b", partition=0)
    (sent,) = bench.turn(1.0)
    assert sent.batches()["t", 0].base_sequence == 0, "what was never stored has used no sequence"


def test_a_partition_that_has_acknowledged_something_gets_it_at_once() -> None:
    bench = Bench({"t": [(1, 0)] * 3})
    bench.send(b"first", partition=2)
    bench.turn()[0].respond(bench.now)
    bench.send(b"a")
    bench.turn()[0].respond(bench.now, NOT_YET)
    assert [sent.values() for sent in bench.turn()] == [{("t", 2): [b"a"]}]


def keyed(bench: Bench) -> Sent:
    bench.send(b"a", partition=0)
    return bench.turn()[0]


def unkeyed(bench: Bench) -> Sent:
    bench.send(b"a")
    return bench.turn()[0]


def perhaps_sent_before(bench: Bench) -> Sent:
    unkeyed(bench).fail(bench.now, GONE)
    return bench.turn(1.5)[0]


def after_an_acknowledgement(bench: Bench) -> Sent:
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    return unkeyed(bench)


@pytest.mark.parametrize(
    ("leader", "send", "code", "was_appended"),
    [
        ((1, 0), keyed, NOT_YET, False),
        ((1, 0), perhaps_sent_before, NOT_YET, False),
        ((1, 0), after_an_acknowledgement, NOT_YET, False),
        ((1, 1), unkeyed, NOT_YET, False),  # led before: what an earlier leader stored may be there
        ((1, 0), unkeyed, NOT_YET, True),  # Kafka's leader has lost it while its followers were to follow
        ((1, 0), unkeyed, ErrorCode.NOT_ENOUGH_REPLICAS, False),
    ],
)
def test_a_batch_stays_where_it_may_be_stored_or_belongs(
    leader: tuple[int, int], send: Callable[[Bench], Sent], code: ErrorCode, was_appended: bool
) -> None:
    bench = Bench({"t": [leader, (-1, 0)]})
    sent = send(bench)
    bench.know({"t": [leader] * 2})
    before = next(iter(sent.batches().values()))
    sent.respond(bench.now, code, was_appended=was_appended)
    (again,) = bench.turn(1.5)
    assert list(again.values()) == [("t", 0)]
    assert again.batches()["t", 0].raw == before.raw


def test_a_number_of_retries_counts_here_too() -> None:
    bench = Bench({"t": [(1, 0)] * 3}, retries=1)
    response = bench.send(b"a")
    bench.turn()[0].respond(bench.now, NOT_YET)
    bench.turn(0.2)[0].respond(bench.now, NOT_YET)
    assert isinstance(response.exception(0), DeliveryError)


def test_an_overdue_batch_is_not_moved() -> None:
    bench = Bench({"t": [(1, 0)] * 3})
    response = bench.send(b"a", terms=DeliveryOptions(-1, 0.5, bench.now + 0.5))
    (sent,) = bench.turn()
    bench.turn(0.6)
    assert response.done()
    sent.respond(bench.now, NOT_YET)
    assert bench.turn(1.5) == []
    assert bench.buffer_pool.used_bytes == 0


def test_a_batch_that_waited_behind_it_resolves() -> None:
    bench = Bench({"t": [(1, 0)] * 2})
    first = bench.send(b"a")
    (sent,) = bench.turn()
    behind = bench.send(b"b", partition=0)
    bench.turn()
    bench.know({}, errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    bench.turn()
    assert not behind.done()
    sent.respond(bench.now, NOT_YET)
    assert (first.done(), behind.done()) == (False, True)
    bench.turn()
    assert first.done()


def test_it_is_explained() -> None:
    bench = refused_once()
    reasons = bench.sender.explain("t", None, bench.now, bench.view).reasons
    assert {reason.partitions: reason.hold for reason in reasons} == {(0,): Hold.BACK_OFF, (1, 2): Hold.BACK_OFF}
    assert all(0.08 <= (reason.until or 0.0) <= 0.12 for reason in reasons)


class Tries:
    """A slow start, and the batches that try partitions."""

    def __init__(self) -> None:
        self.slow_start = SlowStart()
        self.out: list[ProducerBatch] = []

    def try_some(self, now: float) -> int:
        """Return how many more partitions may be tried; 50 means all."""
        count = 0
        while (self.slow_start.is_sure or self.slow_start.may_try(now)) and count < 50:
            self.out.append(ProducerBatch(BatchBuilder("t", count, 1_000), now, 100.0))
            if not self.slow_start.is_sure:
                self.slow_start.tries(self.out[-1], now)
            count += 1
        return count

    def respond(self, now: float, *, is_led: bool) -> None:
        while self.out:
            batch = self.out.pop()
            if is_led:
                batch.is_decided = True
                self.slow_start.acknowledged(now)
            else:
                batch.retries += 1
                self.slow_start.refused(now, lambda failures: failures / 10)


def test_a_few_partitions_are_tried_at_first_and_all_after_an_acknowledgement() -> None:
    tries = Tries()
    assert [tries.try_some(0.0), tries.try_some(5.0)] == [4, 0]
    tries.respond(5.0, is_led=True)
    assert tries.try_some(5.0) == 50
    tries.respond(5.0, is_led=False)
    assert [tries.try_some(now) for now in (5.09, 5.11)] == [0, 1], "one response allows one try"


def test_after_a_refusal_partitions_are_tried_one_by_one_until_enough_have_acknowledged() -> None:
    tries = Tries()
    assert tries.try_some(0.0) == 4
    tries.respond(1.0, is_led=False)
    assert [tries.try_some(now) for now in (1.0, 1.09, 1.11, 5.0)] == [0, 0, 1, 0]
    tries.respond(5.0, is_led=False)
    assert [tries.try_some(now) for now in (5.0, 5.19, 5.21, 9.0)] == [0, 0, 1, 0]
    for number in range(15):
        tries.respond(10.0 + number, is_led=True)
        assert [tries.try_some(10.0 + number + later) for later in (0.19, 0.21, 0.5)] == [0, 1, 0]
    tries.respond(30.0, is_led=True)
    assert tries.try_some(30.0) == 50
    tries.respond(31.0, is_led=False)
    assert [tries.try_some(now) for now in (31.09, 31.11)] == [0, 1], "the next pause is a short one again"


def test_partitions_that_have_refused_are_tried_one_by_one_too() -> None:
    bench = Bench({"t": [(1, 0)] * 3}, batch_bytes=100)
    for value in (b"a", b"b", b"c"):
        bench.send(value)
    (sent,) = bench.turn()
    assert len(sent.values()) == 3
    sent.respond(bench.now, NOT_YET)
    for pause in (0.12, 0.24, 0.48):
        (sent,) = bench.turn(pause)
        assert list(sent.values().values()) == [[b"a"]]
        sent.respond(bench.now, NOT_YET)


def test_a_batch_does_not_come_back_behind_later_ones() -> None:
    """What is sent to one partition is in its log as it was sent, also without a key."""
    bench = Bench({"t": [(1, 0)] * 2}, batch_bytes=100)
    first, second = bench.send(b"a"), bench.send(b"b")
    (sent,) = bench.turn()
    assert sent.values() == {("t", 0): [b"a"], ("t", 1): [b"b"]}
    sent.respond(bench.now, {("t", 0): NOT_YET})
    assert (first.done(), second.done()) == (False, True)
    assert bench.turn() == []
    (again,) = bench.turn(0.2)
    assert again.values() == {("t", 0): [b"a"]}


def test_batches_that_a_response_refuses_come_back_in_order() -> None:
    bench = Bench({"t": [(1, 0)] * 4}, batch_bytes=100)
    bench.send(b"first", partition=3)
    bench.turn()[0].respond(bench.now)
    for value in (b"a", b"b", b"c"):
        bench.send(value)
    (sent,) = bench.turn()
    assert list(sent.values()) == [("t", 0), ("t", 1), ("t", 2)]
    sent.respond(bench.now, {("t", 1): NOT_YET, ("t", 2): NOT_YET})
    (sent,) = bench.turn()
    assert sent.values() == {("t", 3): [b"b"], ("t", 0): [b"c"]}


def test_no_other_batch_gets_a_partition_while_a_try_is_in_flight_but_not_for_long() -> None:
    bench = refused_once()
    bench.send(b"first", partition=2)
    bench.turn()[0].respond(bench.now)
    bench.send(b"b")
    (tried,) = bench.turn(0.2)
    assert len(tried.values()) == 1
    assert ("t", 2) not in tried.values()
    assert bench.turn(0.05) == []
    deadline = bench.sender.deadline()
    assert deadline is not None
    assert 0.9 < deadline - bench.now < 1.0
    (sent,) = bench.turn(deadline - bench.now)
    assert list(sent.values()) == [("t", 2)]


@pytest.mark.parametrize("seconds", [2.0, 20.0])
def test_no_batch_waits_for_the_last_of_a_thousand_partitions(seconds: float) -> None:
    """Partitions get leaders in random order; all twenty batches are acknowledged long before the last."""
    count, random = 1_000, Random(7)
    led_at = [1.0 + seconds * number / count for number in random.sample(range(count), count)]
    bench = Bench({"t": [(1, 0)] * count}, batch_bytes=1_000)
    responses = [bench.send(b"v" * 900, size_bytes=900) for _ in range(20)]
    sent_batches = 0
    while not all(response.done() for response in responses):
        for sent in bench.turn(0.01):
            places = sent.values()
            sent_batches += len(places)
            sent.respond(bench.now, {place: NOT_YET for place in places if led_at[place[1]] > bench.now})
    assert bench.now - 1.0 < seconds / 2
    assert sent_batches <= 20 + 20 + 30, "each twice, and the tries that failed"
    assert all(response.exception(0) is None for response in responses)


def test_a_request_carries_a_hundred_new_partitions_at_most() -> None:
    """A broker needs time for each partition, and responds only after the last one."""
    count = 450
    bench = Bench({"t": [(1, 0)] * count})
    for expected in ([100, 100, 100, 100, 50], [450]):
        for index in range(count):
            bench.send(b"v", partition=index)
        sent = bench.turn()
        assert [len(one.values()) for one in sent] == expected
        for one in sent:
            one.respond(bench.now)


def lines_while_busy(count: int) -> int:
    """Return the lines of ten turns while a batch waits for brokers with max_in_flight requests."""
    bench = Bench({"t": [(1, 0), (2, 0)] * (count // 2)})
    bench.view.rooms = {1: 0, 2: 0}
    bench.send(b"a")
    bench.turn()
    with Lines() as lines:
        for _ in range(10):
            assert bench.turn(0.01) == []
    bench.view.rooms = {1: 0, 2: 1}
    (sent,) = bench.turn()
    assert sent.node == 2
    return lines.count


def test_partitions_of_busy_brokers_are_not_examined() -> None:
    assert lines_while_busy(1_000) == lines_while_busy(2)
