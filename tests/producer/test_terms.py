"""Records with delivery options, on virtual time: which share a request, and when they expire."""

from __future__ import annotations

import pytest

from kwire.errors import DeliveryError, DisconnectedError, ErrorCode
from kwire.producer.producer_request import DeliveryOptions
from tests.producer.fakes import Bench, Sent

CUT = DisconnectedError("the connection broke")
ALL, LEADER, NOBODY = DeliveryOptions(-1), DeliveryOptions(1), DeliveryOptions(0)


def within(seconds: float, bench: Bench, acks: int = -1) -> DeliveryOptions:
    return DeliveryOptions(acks, seconds, bench.now + seconds)


def shown(sent: list[Sent]) -> list[tuple[int, list[tuple[int, list[bytes | None]]]]]:
    """Return (acks, [(partition, values)]) of each request."""
    return [(one.request.acks, [(place[1], values) for place, values in one.values().items()]) for one in sent]


def test_batches_with_equal_acks_share_a_request() -> None:
    bench = Bench({"t": [(1, 0)] * 4}, idempotence=False)
    bench.send(b"plain", partition=0)
    bench.send(b"leader", partition=1, terms=LEADER)
    bench.send(b"also plain", partition=2)
    bench.send(b"also leader", partition=3, terms=LEADER)
    bench.send(b"nobody", partition=2, terms=NOBODY)
    sent = bench.turn()
    assert shown(sent) == [
        (-1, [(0, [b"plain"]), (2, [b"also plain"])]),
        (1, [(1, [b"leader"]), (3, [b"also leader"])]),
    ]
    for one in sent:
        one.respond(bench.now)
    (last,) = bench.turn()
    assert (shown([last]), last.call.expects_response) == ([(0, [(2, [b"nobody"])])], False)


def test_a_partition_keeps_its_order_across_different_parameters() -> None:
    bench = Bench({"t": [(1, 0)]}, idempotence=False)
    for number, terms in enumerate([None, None, LEADER, None, NOBODY, NOBODY, ALL, LEADER]):
        bench.send(b"%d" % number, partition=0, terms=terms)
    order = []
    for _ in range(6):
        for one in bench.turn():
            order.append((one.request.acks, one.values()["t", 0]))
            if one.call.expects_response:
                one.respond(bench.now)
            else:
                one.call.on_done(None, bench.now)
    assert order == [
        (-1, [b"0", b"1"]),
        (1, [b"2"]),
        (-1, [b"3"]),
        (0, [b"4", b"5"]),
        (-1, [b"6"]),
        (1, [b"7"]),
    ]


def test_records_without_a_key_keep_apart_too() -> None:
    bench = Bench({"t": [(1, 0), (1, 0)]}, idempotence=False)
    first = [bench.send(b"a"), bench.send(b"b", terms=LEADER), bench.send(b"c", terms=LEADER)]
    sent = bench.turn()
    assert sorted(shown(sent)) == [(-1, [(0, [b"a"])]), (1, [(1, [b"b", b"c"])])]
    for one in sent:
        one.respond(bench.now)
    assert all(response.done() for response in first)


def test_the_replicas_get_the_longest_limit_that_travels() -> None:
    bench = Bench({"t": [(1, 0)] * 3})
    bench.send(b"a", partition=0, terms=within(2.0, bench))
    bench.send(b"b", partition=1, terms=within(1.0, bench))
    (short,) = bench.turn()
    assert short.request.timeout_ms == 2_000
    short.respond(bench.now)
    bench.send(b"a", partition=0, terms=within(2.0, bench))
    bench.send(b"b", partition=1)
    (mixed,) = bench.turn()
    assert mixed.request.timeout_ms == 30_000
    mixed.respond(bench.now)
    bench.send(b"a", partition=0, terms=within(100.0, bench))
    (long,) = bench.turn()
    assert long.request.timeout_ms == 30_000, "no longer than the client's request timeout"


def test_different_limits_make_different_batches() -> None:
    bench = Bench({"t": [(-1, 0)]})
    for number, seconds in enumerate([1.0, 1.0, 5.0, None, None, 5.0]):
        bench.send(b"%d" % number, partition=0, terms=None if seconds is None else within(seconds, bench))
    for number, pause in enumerate([0.25, 0.25, 0.25], start=6):  # a tenth of 5 s is shared, and no more
        bench.turn(pause)
        bench.send(b"%d" % number, partition=0, terms=within(5.0, bench))
    bench.know({"t": [(1, 0)]})
    batches: list[list[bytes | None]] = []
    for _ in range(5):
        for one in bench.turn():
            batches += one.values().values()
            one.respond(bench.now)
    assert batches == [[b"0", b"1"], [b"2"], [b"3", b"4"], [b"5", b"6", b"7"], [b"8"]]


def test_time_is_up_for_a_record_that_could_not_be_sent() -> None:
    bench = Bench({"t": [(1, 0)]})
    bench.view.down.add(1)
    bench.view.failures[1] = CUT
    short, plain = bench.send(b"a", partition=0, terms=within(1.0, bench)), bench.send(b"b", partition=0)
    bench.turn()
    assert bench.sender.deadline() == bench.now + 1.0
    bench.turn(0.99)
    assert not short.done()
    bench.turn(0.01)
    error = short.exception(0)
    assert isinstance(error, DeliveryError)
    assert not error.possibly_persisted
    assert "not delivered within 1.0 s" in str(error)
    assert error.__cause__ is CUT
    assert not plain.done(), "nobody else's time is up"
    assert bench.buffer_pool.used_bytes == 100


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_batch_expires_behind_one_with_a_longer_limit(key: bytes | None, known: bool) -> None:
    bench = Bench({"t": [(-1, 0)]} if known else None)
    longer = bench.send(b"a", key=key, terms=within(5.0, bench))
    shorter = bench.send(b"b", key=key, terms=within(1.0, bench))
    bench.turn()
    assert bench.sender.deadline() == bench.now + 1.0
    bench.turn(1.0)
    assert (longer.done(), shorter.done()) == (False, True)
    bench.turn(4.0)
    assert longer.done()
    assert bench.buffer_pool.used_bytes == 0


def test_time_is_up_while_a_request_carries_it() -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"a", partition=0, terms=within(1.0, bench))
    (sent,) = bench.turn()
    bench.turn(1.0)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    assert "not acknowledged within 1.0 s" in str(error)
    behind = bench.send(b"b", partition=0)
    assert bench.turn() == [], "it keeps its place in the window"
    assert bench.buffer_pool.used_bytes == 200, "and its memory, which is still being written"
    sent.respond(bench.now)
    (after,) = bench.turn()
    assert after.batches()["t", 0].base_sequence == 1, "and its sequence"
    after.respond(bench.now)
    assert behind.result(0).offset == 100
    assert (bench.buffer_pool.used_bytes, bench.identities) == (0, 1)


def test_rule_8_bytes_that_are_being_written_stay_until_the_response_or_the_end_of_the_connection() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=500)
    response = bench.send(b"the first", partition=0, terms=within(1.0, bench))
    (sent,) = bench.turn()
    written = sent.request.topic_data[0].partition_data[0].records
    assert written is not None
    before = bytes(written)
    bench.turn(1.0)
    assert isinstance(response.exception(0), DeliveryError), "it expired"
    for number in range(20):  # these must not reuse the memory of the expired record
        bench.send(b"%d" % number * 100, partition=0)
        bench.turn()
    assert bytes(written) == before
    used = bench.buffer_pool.used_bytes
    sent.fail(bench.now, CUT)
    bench.turn(1.0)
    assert bench.buffer_pool.used_bytes < used, "nobody writes them any more"


def test_a_batch_that_was_refused_and_waits_for_its_retry_expires() -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"a", partition=0, terms=within(1.0, bench))
    behind = bench.send(b"b", partition=0)
    (sent,) = bench.turn()
    sent.fail(bench.now, CUT)
    bench.view.down.add(1)
    bench.turn(1.0)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    bench.view.down.clear()
    (again,) = bench.turn(1.0)
    assert again.values() == {("t", 0): [b"b"]}
    assert bench.identities == 2, "its sequence was burnt"
    again.respond(bench.now)
    assert behind.done()


def test_a_batch_that_is_held_back_for_a_later_batchs_response_expires() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    held = bench.send(b"held", partition=0, terms=within(1.0, bench))
    later = bench.send(b"later", partition=0)
    first, second = bench.turn()
    first.respond(bench.now, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.turn(1.0)
    error = held.exception(0)
    assert isinstance(error, DeliveryError)
    assert not error.possibly_persisted, "it was refused, and is not sent again"
    assert not later.done()
    second.respond(bench.now, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    sent = bench.turn(1.0)
    assert [one.values() for one in sent] == [{("t", 0): [b"later"]}]
    sent[0].respond(bench.now)
    assert later.done()
    assert bench.buffer_pool.used_bytes == 0


def test_a_batch_acknowledged_in_time_resolves_once() -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"a", partition=0, terms=within(1.0, bench))
    bench.turn()[0].respond(bench.now)
    assert response.result(0).offset == 100
    assert bench.turn(2.0) == []
    assert bench.sender.deadline() is None
