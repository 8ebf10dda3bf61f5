"""The sender on virtual time: routing, requests, retries, order and expiry. One test for each rule."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.cluster import ToNode
from kwire.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    DecodeError,
    DeliveryError,
    DisconnectedError,
    ErrorCode,
    RecordTooLargeError,
    TopicError,
    UnsupportedVersionError,
)
from kwire.producer.futures import ProduceResponse
from kwire.producer.partitioner import murmur2_partition
from kwire.producer.producer_request import DeliveryOptions
from kwire.protocol.messages.init_producer_id import InitProducerIdRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import record_bytes_max
from kwire.records.encoder import lead_bytes, record_bytes
from tests.producer.fakes import Bench

CUT = DisconnectedError("the connection broke")
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_record_goes_out_and_its_offset_comes_back() -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"v", key=b"k")
    (sent,) = bench.turn()
    assert (sent.node, sent.values()) == (1, {("t", 0): [b"v"]})
    sent.respond(bench.now, base_offset=42)
    assert response.result(0).offset == 42
    assert bench.buffer_pool.used_bytes == 0


def test_records_are_collated_by_broker_many_partitions_to_a_request() -> None:
    bench = Bench({"t": [(1, 0), (2, 0), (1, 0), (2, 0)]})
    for partition in range(4):
        bench.send(b"%d" % partition, partition=partition)
    sent = bench.turn()
    assert {one.node: one.values() for one in sent} == {
        1: {("t", 0): [b"0"], ("t", 2): [b"2"]},
        2: {("t", 1): [b"1"], ("t", 3): [b"3"]},
    }


def test_requests_are_bounded_in_bytes_and_partitions_take_turns() -> None:
    batch_bytes = 61 + record_bytes(lead_bytes(0, 0), None, b"x")
    bench = Bench({"t": [(1, 0)] * 4}, max_request_bytes=3 * batch_bytes - 1, batch_bytes=150)
    for partition in range(4):
        bench.send(b"x", partition=partition)
    sent = bench.turn()
    assert [sorted(one.values()) for one in sent] == [[("t", 0), ("t", 1)], [("t", 2), ("t", 3)]]


@pytest.mark.parametrize(("version", "partitions"), [(13, 3), (2, 2)])
def test_before_v2_a_record_has_more_and_requests_are_bounded_by_that(version: int, partitions: int) -> None:
    bench = Bench({"t": [(1, 0)] * 4}, max_request_bytes=20_000)
    bench.view.versions[ProduceRequest] = version
    value = bytes(100)
    for partition in range(4):
        for _ in range(50):
            bench.send(value, partition=partition, size_bytes=record_bytes_max(None, value))
    sent = bench.turn()
    assert [len(one.batches()) for one in sent] == [partitions, 4 - partitions]
    for one in sent:
        (topic,) = one.request.topic_data
        assert sum(len(partition.records or b"") for partition in topic.partition_data) <= 20_000


def test_a_connection_takes_no_more_requests_than_it_has_room_for() -> None:
    bench = Bench({"t": [(1, 0)] * 4}, max_request_bytes=100)
    bench.view.rooms[1] = 2
    for partition in range(4):
        bench.send(b"x", partition=partition)
    assert len(bench.turn()) == 2


def test_keyed_records_hash_over_all_partitions_led_or_not() -> None:
    bench = Bench({"t": [(1, 0), (-1, 0), (1, 0)]})
    keys = [b"%d" % number for number in range(30)]
    for key in keys:
        bench.send(key, key=key)
    sent = bench.turn()
    expected = {key: murmur2_partition(key, 3) for key in keys}
    for (_, partition), values in sent[0].values().items():
        assert values == [key for key in keys if expected[key] == partition]
    assert {partition for _, partition in sent[0].values()} == {0, 2}
    bench.know({"t": [(1, 0), (2, 1), (1, 0)]})
    (late,) = bench.turn(0.1)
    assert late.values() == {("t", 1): [key for key in keys if expected[key] == 1]}


def test_keyed_records_wait_for_the_partition_count_in_order() -> None:
    bench = Bench()
    for number in range(5):
        bench.send(b"%d" % number, key=b"same")
    assert bench.turn() == []
    assert "t" in bench.sender.topics()
    bench.know({"t": [(1, 0)] * 3})
    bench.send(b"5", key=b"same")
    (sent,) = bench.turn()
    assert list(sent.values().values()) == [[b"0", b"1", b"2", b"3", b"4", b"5"]]


def test_rule_11_unkeyed_records_pass_by_a_dead_leader() -> None:
    bench = Bench({"t": [(1, 0), (2, 0), (-1, 0)]})
    bench.view.down.add(1)
    for number in range(6):
        bench.send(b"%d" % number, size_bytes=300)
    sent = bench.turn()
    assert {one.node for one in sent} == {2}
    assert all(set(one.values()) == {("t", 1)} for one in sent)


def test_rule_11_unkeyed_batches_take_turns_over_the_partitions() -> None:
    bench = Bench({"t": [(1, 0), (1, 0), (1, 0)]}, batch_bytes=61 + record_bytes(lead_bytes(0, 0), None, b"0"))
    for number in range(3):
        bench.send(b"%d" % number, size_bytes=200)
    values = {place: value for one in bench.turn() for place, value in one.values().items()}
    assert values == {("t", 0): [b"0"], ("t", 1): [b"1"], ("t", 2): [b"2"]}


def test_linger_holds_an_open_batch_and_no_full_one() -> None:
    bench = Bench({"t": [(1, 0)]}, linger_ms=10, batch_bytes=1_000)
    bench.send(b"a", partition=0)
    assert bench.turn() == []
    assert bench.sender.deadline() == pytest.approx(bench.now + 0.010)
    bench.send(b"b", partition=0)
    assert bench.turn(0.0095) == []
    (sent,) = bench.turn(0.0006)
    assert sent.values() == {("t", 0): [b"a", b"b"]}
    sent.respond(bench.now)
    bench.send(b"c", partition=0, size_bytes=1_000)
    assert len(bench.turn()) == 1


def test_flush_ends_the_linger_and_waits_for_earlier_records() -> None:
    bench = Bench({"t": [(1, 0)]}, linger_ms=1_000)
    done: list[str] = []
    bench.sender.flush(lambda: done.append("nothing to wait for"), bench.now)
    bench.send(b"a", partition=0)
    bench.send(b"b")
    bench.send(b"c", "unknown", key=b"k")
    bench.sender.flush(lambda: done.append("flushed"), bench.now)
    sent = bench.turn()
    bench.send(b"later", partition=0)
    for one in sent:
        one.respond(bench.now)
    for one in bench.turn():
        one.respond(bench.now)
    assert done == ["nothing to wait for"], "the keyed record of the unknown topic is still to come"
    bench.know({"t": [(1, 0)], "unknown": [(1, 0)]})
    for one in bench.turn():
        one.respond(bench.now)
    assert done == ["nothing to wait for", "flushed"]


# -- order


def test_rule_1_batches_that_failed_are_sent_again_before_later_ones() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    for name in (b"a", b"b", b"c"):
        bench.send(name, partition=0)
    sent = bench.turn()
    assert [one.values()["t", 0] for one in sent] == [[b"a"], [b"b"], [b"c"]]
    bench.send(b"d", partition=0)
    sent[0].respond(bench.now, MOVED)
    assert bench.turn() == [], "two requests are still in flight"
    sent[1].respond(bench.now, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    sent[2].respond(bench.now, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.turn() == [], "back-off"
    order = []
    for _ in range(4):
        for one in bench.turn(1.0):
            order += one.values()["t", 0]
            one.respond(bench.now)
    assert order == [b"a", b"b", b"c", b"d"]
    assert bench.identities == 1, "out of order behind a failure is only order"


def test_rule_2_a_retried_batch_is_the_same_bytes() -> None:
    bench = Bench({"t": [(1, 0)]})
    bench.send(b"a", partition=0)
    (first,) = bench.turn()
    bench.send(b"b", partition=0)
    first.fail(bench.now, CUT)
    (again,) = bench.turn(1.0)
    assert bytes(again.batches()["t", 0].raw) == bytes(first.batches()["t", 0].raw)
    assert again.batches()["t", 0].base_sequence == 0


def test_rule_3_one_batch_until_the_first_acknowledgement_then_five() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    for number in range(8):
        bench.send(b"%d" % number, partition=0)
    (first,) = bench.turn()
    assert bench.turn() == []
    first.respond(bench.now)
    window = bench.turn()
    assert [one.batches()["t", 0].base_sequence for one in window] == [1, 2, 3, 4, 5]
    assert bench.turn() == []


def test_rule_4_the_new_leader_waits_for_the_old_leaders_responses() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    bench.send(b"a", partition=0)
    (old,) = bench.turn()
    bench.know({"t": [(2, 1)]})
    bench.send(b"b", partition=0)
    assert bench.turn() == []
    old.fail(bench.now, CUT)
    (new,) = bench.turn(1.0)
    assert (new.node, new.values()) == (2, {("t", 0): [b"a"]})


def test_rule_6_without_idempotence_one_batch_per_partition_pipelined_across() -> None:
    bench = Bench({"t": [(1, 0), (1, 0)]}, idempotence=False, batch_bytes=100)
    for _ in range(2):
        for number in range(3):
            for partition in (0, 1):
                bench.send(b"%d" % number, partition=partition)
        sent = bench.turn()
        assert len(sent) <= 2
        assert sum(len(one.values()) for one in sent) == 2
        assert bench.id_requests == []
        assert all(batch.base_sequence == -1 for one in sent for batch in one.batches().values())
        for one in sent:
            one.respond(bench.now)


def test_rule_6_unordered_has_no_window() -> None:
    bench = Bench({"t": [(1, 0)]}, ordered=False, batch_bytes=100)
    prove(bench)
    for number in range(5):
        bench.send(b"%d" % number, partition=0)
    assert len(bench.turn()) == 5


def test_brokers_without_idempotence_get_the_gate_of_one() -> None:
    bench = Bench({"t": [(1, 0)]}, gives_ids=False, batch_bytes=100)
    del bench.view.versions[InitProducerIdRequest]
    bench.view.versions[ProduceRequest] = 2
    for number in range(3):
        bench.send(b"%d" % number, partition=0)
    assert bench.turn() == []
    bench.id_requests.pop().on_done(UnsupportedVersionError("too old"), bench.now)
    (sent,) = bench.turn(1.0)
    sent.respond(bench.now)
    assert len(bench.turn()) == 1
    batch = sent.batches()["t", 0]
    assert (batch.magic, batch.base_sequence) == (1, -1)


def test_rule_6_one_batch_at_a_time_where_no_broker_gives_an_id_though_leaders_would_take_sequences() -> None:
    bench = Bench({"t": [(1, 0)], "later": [(1, 0)]}, gives_ids=False, batch_bytes=100)
    del bench.view.versions[InitProducerIdRequest]
    for number in range(4):
        bench.send(b"%d" % number, partition=0)
    assert bench.turn() == []
    bench.id_requests.pop().on_done(UnsupportedVersionError("not spoken here"), bench.now)
    for number in range(4):
        bench.send(b"%d" % number, "later", partition=0)
    for number in range(4):
        (sent,) = bench.turn(1.0)
        assert sent.values() == {("t", 0): [b"%d" % number], ("later", 0): [b"%d" % number]}
        assert bench.turn() == []
        sent.respond(bench.now)


TOO_OLD = UnsupportedVersionError("too old")


def lose_sequences(bench: Bench) -> None:
    """Let a batch of unknown fate expire; after it the producer needs another id."""
    bench.send(b"lost", partition=0)
    (sent,) = bench.turn()
    bench.gives_ids = False
    bench.turn(1.0)
    sent.fail(bench.now, CUT)
    bench.send(b"next", partition=0)
    assert bench.turn(1.0) == []


def test_a_producer_that_lost_its_sequences_requests_an_id_from_another_broker() -> None:
    bench = Bench({"t": [(1, 0), (2, 0)]}, delivery_timeout_ms=1_000)
    bench.view.too_old.add(1)
    prove(bench)
    lose_sequences(bench)
    bench.id_requests.pop().on_done(TOO_OLD, bench.now)
    assert bench.turn() == [], "nothing goes without an id while one can be had"
    assert bench.id_requests[0].route == ToNode(2)
    bench.give_id()
    (sent,) = bench.turn()
    batch = sent.batches()["t", 0]
    assert (batch.producer_id, batch.base_sequence) == (1002, 0)


def test_a_producer_that_goes_on_without_idempotence_after_it_had_an_id_warns(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench({"t": [(1, 0), (2, 0)]}, delivery_timeout_ms=1_000)
    bench.view.too_old |= set(range(10))
    prove(bench)
    lose_sequences(bench)
    for _ in range(100):
        if not bench.id_requests:
            break
        bench.id_requests.pop().on_done(TOO_OLD, bench.now)
        bench.turn(2.0)
    response = bench.send(b"without", partition=0)
    (sent,) = bench.turn()
    assert (sent.batches()["t", 0].producer_id, sent.batches()["t", 0].base_sequence) == (-1, -1)
    sent.respond(bench.now)
    assert response.done()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "it goes on without idempotence" in warning


def test_a_producer_that_never_had_an_id_goes_on_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench({"t": [(1, 0)]}, gives_ids=False)
    bench.view.too_old |= set(range(10))
    bench.send(b"v", partition=0)
    bench.turn()
    bench.id_requests.pop().on_done(TOO_OLD, bench.now)
    assert len(bench.turn(1.0)) == 1
    assert not caplog.records


def test_a_leader_that_is_older_than_the_broker_that_gave_the_id() -> None:
    """Brokers in an upgrade to 0.11: a batch with a sequence keeps it, the others are sent without."""
    bench = Bench({"t": [(1, 0), (1, 0)]}, batch_bytes=100)
    begun, fresh = bench.send(b"begun", partition=0), None
    bench.turn()[0].fail(bench.now, CUT)
    bench.view.versions[ProduceRequest] = 2
    fresh = bench.send(b"fresh", partition=1)
    (sent,) = bench.turn(1.0)
    assert sent.values() == {("t", 1): [b"fresh"]}
    assert sent.batches()["t", 1].magic == 1
    sent.respond(bench.now)
    assert fresh.result(0).partition == 1
    error = begun.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    assert isinstance(error.__cause__, UnsupportedVersionError)
    for name in (b"a", b"b"):
        bench.send(name, partition=1)
    (sent,) = bench.turn()
    assert sent.values() == {("t", 1): [b"a"]}, "one at a time"


def test_insisting_on_idempotence_fails_on_a_leader_that_is_too_old() -> None:
    bench = Bench({"t": [(1, 0)]}, idempotence=True)
    bench.view.versions[ProduceRequest] = 2
    response = bench.send(b"v", partition=0)
    assert bench.turn() == []
    assert isinstance(response.exception(0), UnsupportedVersionError)


def test_insisting_on_idempotence_fails_on_old_brokers() -> None:
    bench = Bench({"t": [(1, 0)]}, gives_ids=False, idempotence=True)
    response = bench.send(b"v", partition=0)
    bench.turn()
    bench.id_requests.pop().on_done(UnsupportedVersionError("too old"), bench.now)
    with pytest.raises(UnsupportedVersionError):
        response.result(0)


# -- sequences and epochs


def test_a_refused_batch_burns_its_sequence_so_that_all_start_afresh() -> None:
    bench = Bench({"t": [(1, 0), (2, 0)]}, batch_bytes=100)
    bench.send(b"other", partition=1)
    for one in bench.turn():
        one.respond(bench.now)
    prove(bench)
    too_large = bench.send(b"large", partition=0)
    after = bench.send(b"after", partition=0)
    first, second = bench.turn()
    first.respond(bench.now, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(too_large.exception(0), RecordTooLargeError)
    assert bench.turn() == [], "no new identity while a sequenced batch is out"
    second.respond(bench.now, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.send(b"other", partition=1)
    sent = bench.turn(1.0)
    assert bench.identities == 2
    assert {(batch.producer_id, batch.base_sequence) for one in sent for batch in one.batches().values()} == {(1002, 0)}
    for one in sent:
        one.respond(bench.now)
    assert after.done()


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_broker_that_knows_other_sequences_gets_a_new_identity(code: ErrorCode) -> None:
    """Under the old sequence it would refuse the batch for ever."""
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    response = bench.send(b"v", partition=0)
    (refused,) = bench.turn()
    assert [(batch.producer_id, batch.base_sequence) for batch in refused.batches().values()] == [(1001, 1)]
    refused.respond(bench.now, code)
    (again,) = bench.turn(1.0)
    assert [(batch.producer_id, batch.base_sequence) for batch in again.batches().values()] == [(1002, 0)]
    again.respond(bench.now)
    assert response.exception(0) is None


def test_rule_2_nothing_new_is_sent_under_a_broken_identity() -> None:
    """Neither with its id nor without one; in the partition whose batch is settled, in another and in a new topic."""
    bench = Bench({"t": [(1, 0), (1, 0)], "new": [(1, 0)]}, batch_bytes=100)
    bench.send(b"unsure", partition=0)
    bench.send(b"refused", partition=1)
    bench.turn()[0].respond(bench.now, {("t", 0): ErrorCode.REQUEST_TIMED_OUT, ("t", 1): ErrorCode.INVALID_RECORD})
    for topic, partition in (("t", 0), ("t", 1), ("new", 0)):
        bench.send(b"next", topic, partition=partition)
    (settling,) = bench.turn(1.0)
    assert settling.values() == {("t", 0): [b"unsure"]}
    assert bench.turn(1.0) == []
    settling.respond(bench.now)
    sent = bench.turn()
    assert sorted(place for one in sent for place in one.batches()) == [("new", 0), ("t", 0), ("t", 1)]
    assert {(batch.producer_id, batch.base_sequence) for one in sent for batch in one.batches().values()} == {(1002, 0)}


def test_rule_2_no_new_identity_while_the_fate_of_a_batch_is_open() -> None:
    bench = Bench({"t": [(1, 0), (1, 0)]}, batch_bytes=100)
    unsure = bench.send(b"unsure", partition=0)
    refused = bench.send(b"refused", partition=1)
    (sent,) = bench.turn()
    sent.respond(bench.now, {("t", 0): ErrorCode.REQUEST_TIMED_OUT, ("t", 1): ErrorCode.INVALID_RECORD})
    assert isinstance(refused.exception(0), BrokerError)
    bench.send(b"next", partition=1)
    (settling,) = bench.turn(1.0)
    assert (settling.values(), bench.identities) == ({("t", 0): [b"unsure"]}, 1)
    assert settling.batches()["t", 0].producer_id == 1001
    settling.respond(bench.now, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert unsure.result(0).offset == -1
    (last,) = bench.turn()
    assert (last.values(), last.batches()["t", 1].producer_id) == ({("t", 1): [b"next"]}, 1002)


def test_rule_2_a_batch_that_may_be_stored_is_not_stored_again_under_a_new_identity() -> None:
    """The broker no longer knows the producer, or the sequences differ: whether the batch is stored is unknown."""
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, ErrorCode.REQUEST_TIMED_OUT)
    bench.turn(1.0)[0].respond(bench.now, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    bench.send(b"next", partition=0)
    (sent,) = bench.turn(1.0)
    batch = sent.batches()["t", 0]
    assert (sent.values(), batch.producer_id, batch.base_sequence) == ({("t", 0): [b"next"]}, 1002, 0)


def test_rule_2_a_batch_of_unknown_fate_is_resolved_also_behind_a_refused_one() -> None:
    """The first of two batches was not stored, the second may be. Both are sent again with the old producer id."""
    bench = Bench({"t": [(1, 0), (1, 0)]}, batch_bytes=100)
    prove(bench)
    responses = [bench.send(name, partition=0) for name in (b"refused", b"unsure")]
    refused, unsure = bench.turn()
    refused.respond(bench.now, ErrorCode.NOT_ENOUGH_REPLICAS)
    unsure.fail(bench.now, CUT)
    other = bench.send(b"other", partition=1)
    bench.view.down.add(1)
    bench.turn(1.0)
    bench.view.down.clear()
    bench.sender._identity.require_epoch_bump()  # another partition's doing
    order = []
    for _ in range(4):
        for sent in bench.turn(1.0):
            order += [(batch.producer_id, place) for place, batch in sent.batches().items()]
            sent.respond(bench.now)
    assert order == [(1001, ("t", 0)), (1001, ("t", 0)), (1002, ("t", 1))]
    assert [response.done() for response in (*responses, other)] == [True] * 3


def test_rule_2_behind_a_gap_nothing_is_open() -> None:
    """The broker forgot what came before: the first batch cannot be stored, so nor can the second have been."""
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    responses = [bench.send(name, partition=0) for name in (b"refused", b"unsure")]
    refused, unsure = bench.turn()
    refused.respond(bench.now, ErrorCode.NOT_ENOUGH_REPLICAS)
    unsure.fail(bench.now, CUT)
    (again,) = bench.turn(1.0)
    again.respond(bench.now, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for sequence in range(2):
        (sent,) = bench.turn(1.0)
        batch = sent.batches()["t", 0]
        assert (batch.producer_id, batch.base_sequence) == (1002, sequence)
        sent.respond(bench.now)
    assert all(response.exception(0) is None for response in responses)


def test_rule_7_an_expired_batch_of_unknown_fate_says_so_and_its_sequence_is_not_used_again() -> None:
    bench = Bench({"t": [(1, 0)]}, delivery_timeout_ms=1_000, batch_bytes=100)
    unsure = bench.send(b"unsure", partition=0)
    (sent,) = bench.turn()
    sent.fail(bench.now, CUT)
    bench.view.down.add(1)
    bench.turn(1.0)
    error = unsure.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    assert error.__cause__ is CUT
    bench.view.down.clear()
    bench.send(b"next", partition=0)
    (next_sent,) = bench.turn()
    batch = next_sent.batches()["t", 0]
    assert (batch.producer_id, batch.base_sequence) == (1002, 0)


def test_rule_7_a_batch_that_expires_unsent_burns_no_sequence() -> None:
    bench = Bench({"t": [(1, 0)]}, delivery_timeout_ms=1_000)
    prove(bench)
    bench.view.down.add(1)
    bench.view.failures[1] = CUT
    expired = bench.send(b"expired", partition=0)
    bench.turn()
    bench.turn(1.0)
    error = expired.exception(0)
    assert isinstance(error, DeliveryError)
    assert not error.possibly_persisted
    assert error.__cause__ is CUT
    bench.view.down.clear()
    bench.send(b"next", partition=0)
    (sent,) = bench.turn()
    assert (sent.batches()["t", 0].base_sequence, bench.identities) == (1, 1)


def test_rule_7_records_in_flight_fail_at_their_delivery_timeout_and_their_batch_keeps_its_place() -> None:
    bench = Bench({"t": [(1, 0)]}, delivery_timeout_ms=1_000)
    response = bench.send(b"v", partition=0)
    flushed: list[bool] = []
    (sent,) = bench.turn()
    bench.sender.flush(lambda: flushed.append(True), bench.now)
    assert bench.sender.deadline() == bench.now + 1.0
    bench.turn(0.99)
    assert (response.done(), flushed) == (False, [])
    assert bench.turn(0.01) == []
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    assert "not acknowledged within 1000 ms" in str(error)
    assert flushed == [True], "each record has an outcome: nothing is left to wait for"
    bench.sender.flush(lambda: flushed.append(True), bench.now)
    assert flushed == [True, True]
    assert bench.buffer_pool.used_bytes == 100, "its memory is still being written"
    explained = bench.sender.explain("t", 0, bench.now, bench.view)
    assert (explained.batches_in_flight, explained.given_up_in, explained.oldest) == (1, None, None)
    behind = bench.send(b"behind", partition=0)
    assert bench.turn() == [], "it keeps its place in the window"
    sent.respond(bench.now)
    (after,) = bench.turn()
    assert after.batches()["t", 0].base_sequence == 1
    after.respond(bench.now)
    assert behind.result(0).offset == 100
    assert (bench.buffer_pool.used_bytes, bench.identities) == (0, 1)


def test_rule_7_a_batch_in_flight_past_its_delivery_timeout_is_not_retried() -> None:
    bench = Bench({"t": [(1, 0)]}, delivery_timeout_ms=1_000)
    response = bench.send(b"v", partition=0)
    (sent,) = bench.turn()
    bench.turn(1.0)
    assert response.done()
    sent.fail(bench.now, CUT)
    assert bench.turn(1.0) == []
    behind = bench.send(b"behind", partition=0)
    (after,) = bench.turn()
    batch = after.batches()["t", 0]
    assert (after.values()["t", 0], batch.producer_id, batch.base_sequence) == ([b"behind"], 1002, 0)
    after.respond(bench.now)
    assert behind.done()
    assert bench.buffer_pool.used_bytes == 0


def test_rule_9_sequences_survive_a_topic_that_vanishes_from_metadata() -> None:
    bench = Bench({"t": [(1, 0)]})
    prove(bench)
    bench.know({})
    response = bench.send(b"v", partition=0)
    assert bench.turn() == []
    bench.know({"t": [(1, 0)]})
    (sent,) = bench.turn(0.1)
    assert sent.batches()["t", 0].base_sequence == 1
    sent.respond(bench.now)
    assert response.done()


# -- what errors mean


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_passing_errors_are_retried_after_a_back_off(code: ErrorCode) -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"v", partition=0)
    (sent,) = bench.turn()
    sent.respond(bench.now, code)
    assert bool(bench.view.refreshes) is code.invalidates_metadata
    assert bench.turn(0.05) == []
    (again,) = bench.turn(0.1)
    again.respond(bench.now)
    assert response.result(0).offset == 100


@pytest.mark.parametrize(
    ("code", "acks", "was_appended", "possibly_persisted"),
    [
        # The error comes before the append, or, with the offset, after it: the leader lost the partition meanwhile.
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "all", False, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "all", True, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "all", False, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "all", True, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, "all", False, True),  # a log that fails may have the batch nevertheless
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, False, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1, False, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, 1, False, False),  # with acks=1 a leader responds at once or never
        (ErrorCode.REQUEST_TIMED_OUT, "all", False, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "all", False, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "all", False, False),
        (ErrorCode.CORRUPT_MESSAGE, "all", False, False),
    ],
)
def test_rule_7_which_errors_leave_it_open_whether_the_batch_is_stored(
    code: ErrorCode, acks: Any, was_appended: bool, possibly_persisted: bool
) -> None:
    bench = Bench({"t": [(1, 0)]}, acks=acks, delivery_timeout_ms=1_000)
    response = bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, code, was_appended=was_appended)
    bench.view.down.add(1)
    bench.turn(1.0)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted is possibly_persisted


def test_rule_7_a_broker_that_fails_in_an_unknown_way_may_have_stored_the_batch() -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, ErrorCode.UNKNOWN_SERVER_ERROR)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.possibly_persisted
    assert isinstance(error.__cause__, BrokerError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLargeError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicError),
        (ErrorCode.INVALID_RECORD, BrokerError),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, BrokerError),
        (12_345, BrokerError),
    ],
)
def test_lasting_errors_fail_with_place_and_cause(code: int, kind: type[BrokerError]) -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, code)
    error = response.exception(0)
    assert type(error) is kind
    operation = {"operation": "write"} if kind is AuthorizationError else {}
    assert error.where == operation | {
        "broker": "1 at host-1:9092", "api": "Produce", "version": 12, "topic": "t", "partition": 0
    }  # fmt: skip
    assert bench.buffer_pool.used_bytes == 0


def test_rule_10_a_response_without_the_partition_counts_as_no_response() -> None:
    bench = Bench({"t": [(1, 0), (1, 0)]})
    left_out = bench.send(b"v", partition=0)
    bench.send(b"w", partition=1)
    (sent,) = bench.turn()
    del sent.request.topic_data[0].partition_data[0]
    sent.respond(bench.now)
    assert not left_out.done()
    (again,) = bench.turn(1.0)
    assert again.values() == {("t", 0): [b"v"]}


def test_a_request_that_was_never_written_leaves_nothing_unsure() -> None:
    bench = Bench({"t": [(1, 0)]}, delivery_timeout_ms=1_000)
    response = bench.send(b"v", partition=0)
    bench.turn()[0].fail(bench.now, CUT, was_written=False)
    bench.view.down.add(1)
    bench.turn(1.0)
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert not error.possibly_persisted


def test_a_response_that_cannot_be_decoded_counts_as_no_response() -> None:
    bench = Bench({"t": [(1, 0)]})
    response = bench.send(b"v", partition=0)
    bench.turn()[0].fail(bench.now, DecodeError("garbage"))
    (again,) = bench.turn(1.0)
    again.respond(bench.now, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert response.result(0).offset == -1


def test_throttled_brokers_are_left_alone_for_that_long() -> None:
    bench = Bench({"t": [(1, 0)]})
    bench.send(b"a", partition=0)
    bench.turn()[0].respond(bench.now, throttle_time_ms=500)
    bench.send(b"b", partition=0)
    assert bench.turn(0.4) == []
    assert len(bench.turn(0.1)) == 1


# -- topics that cannot be


def test_a_topic_that_stays_unknown_fails_after_its_time() -> None:
    bench = Bench(unknown_topic_timeout_ms=1_000)
    bench.know({}, errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    responses = [bench.send(b"a"), bench.send(b"b", key=b"k"), bench.send(b"c", partition=2)]
    bench.turn()
    bench.turn(0.9)
    assert not any(response.done() for response in responses)
    bench.turn(0.1)
    for response in responses:
        error = response.exception(0)
        assert isinstance(error, TopicError)
        assert "create the topic" in str(error)


def test_a_topic_that_is_refused_fails_at_once() -> None:
    bench = Bench()
    bench.know({}, errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    response = bench.send(b"a", key=b"k")
    bench.turn()
    assert isinstance(response.exception(0), AuthorizationError)


def test_a_partition_that_was_added_after_the_last_metadata() -> None:
    bench = Bench({"t": [(1, 0)] * 3})
    response = bench.send(b"a", partition=3)
    assert bench.turn() == []
    assert bench.view.refreshes == ["t has 3 partitions, 3 is wanted"]
    assert bench.turn(0.01) == []
    assert len(bench.view.refreshes) == 1, "back-off"
    bench.know({"t": [(1, 0)] * 4})
    (sent,) = bench.turn(1.0)
    sent.respond(bench.now)
    assert response.result(0).partition == 3


def test_a_partition_that_does_not_exist() -> None:
    bench = Bench({"t": [(1, 0)] * 3}, unknown_topic_timeout_ms=1_000)
    response = bench.send(b"a", partition=3)
    bench.turn()
    assert not response.done()
    assert bench.sender.deadline() is not None
    bench.turn(1.0)
    error = response.exception(0)
    assert isinstance(error, TopicError)
    assert "there is no partition 3" in str(error)


def test_headers_need_brokers_from_0_11() -> None:
    bench = Bench({"t": [(1, 0)]}, idempotence=False)
    bench.view.versions[ProduceRequest] = 2
    response = bench.send(b"a", partition=0, headers=(("h", b"v"),))
    fine = bench.send(b"b", partition=0)
    bench.turn()
    assert isinstance(response.exception(0), UnsupportedVersionError)
    assert isinstance(fine.exception(0), UnsupportedVersionError), "a batch travels together"


# -- ends


def test_a_fatal_connection_error_fails_records_at_once() -> None:
    bench = Bench()
    bench.view.connection_error = AuthenticationError("wrong password")
    response = bench.send(b"v")
    bench.turn()
    assert not response.done()
    bench.view.has_fatal_error = True
    bench.turn()
    assert isinstance(response.exception(0), AuthenticationError)


def test_acks_0_is_done_when_sent() -> None:
    bench = Bench({"t": [(1, 0)]}, acks=0)
    response = bench.send(b"v", partition=0)
    (sent,) = bench.turn()
    assert (sent.call.expects_response, sent.request.acks) == (False, 0)
    sent.call.on_done(None, bench.now)
    assert response.result(0).offset == -1


def resolved_in_order(responses: list[ProduceResponse]) -> list[int]:
    """Return a list that gets the numbers of the responses in the order in which they resolve."""
    order: list[int] = []
    for response in responses:
        response.add_done_callback(lambda response: order.append(responses.index(response)))
    return order


def test_rule_10_a_batch_resolves_after_the_batches_before_it() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    order = resolved_in_order([bench.send(name, partition=0) for name in (b"a", b"b", b"c")])
    a, b, c = bench.turn()
    a.respond(bench.now, ErrorCode.REQUEST_TIMED_OUT)  # stored, but the followers were late
    b.respond(bench.now, base_offset=7)
    c.respond(bench.now, ErrorCode.INVALID_RECORD)
    assert (order, bench.buffer_pool.used_bytes) == ([], 3 * 100)
    (again,) = bench.turn(1.0)
    again.respond(bench.now, base_offset=6)
    assert (order, bench.buffer_pool.used_bytes) == ([0, 1, 2], 0)


def test_rule_10_records_that_expire_in_flight_and_queued_complete_in_order() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100, delivery_timeout_ms=1_000)
    responses = [bench.send(name, partition=0) for name in (b"in flight", b"queued")]
    order = resolved_in_order(responses)
    (sent,) = bench.turn()
    assert bench.turn(2.0) == []
    assert order == [0, 1]
    errors = [response.exception(0) for response in responses]
    assert [isinstance(error, DeliveryError) and error.possibly_persisted for error in errors] == [True, False]
    sent.respond(bench.now)
    assert order == [0, 1]
    assert bench.turn() == [], "what has expired is not sent"
    assert bench.buffer_pool.used_bytes == 0


def test_rule_10_an_expired_record_waits_for_the_one_before_it_that_has_more_time() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100, delivery_timeout_ms=1_000)
    longer = DeliveryOptions(-1, 5.0, bench.now + 5.0)
    order = resolved_in_order([bench.send(b"a", partition=0, terms=longer), bench.send(b"b", partition=0)])
    (sent,) = bench.turn()
    bench.turn(0.9)
    assert order == []
    sent.respond(bench.now)
    assert order == [0]
    (last,) = bench.turn()
    last.respond(bench.now)
    assert order == [0, 1]


def test_rule_10_a_batch_with_a_result_keeps_it_when_the_producer_is_closed() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    responses = [bench.send(name, partition=0) for name in (b"a", b"b")]
    order = resolved_in_order(responses)
    a, b = bench.turn()
    b.respond(bench.now, base_offset=7)  # responses come in order, except over two connections
    a.fail(bench.now, CUT)
    bench.sender.closed(ClosedError("closed"))
    assert order == [0, 1]
    assert isinstance(responses[0].exception(0), DeliveryError)
    assert responses[1].result(0).offset == 7
    assert bench.buffer_pool.used_bytes == 0


def test_without_order_batches_resolve_as_responses_arrive() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100, ordered=False)
    prove(bench)
    order = resolved_in_order([bench.send(name, partition=0) for name in (b"a", b"b")])
    a, b = bench.turn()
    b.respond(bench.now)
    assert order == [1]
    a.respond(bench.now)
    assert order == [1, 0]


def test_rule_10_closing_resolves_everything_once() -> None:
    bench = Bench({"t": [(1, 0)]}, batch_bytes=100)
    prove(bench)
    out = bench.send(b"out", partition=0)
    (sent,) = bench.turn()
    queued, undesignated = bench.send(b"queued", partition=0, size_bytes=10), bench.send(b"undesignated")
    unrouted, appended = bench.send(b"unrouted", "new", key=b"k"), None
    bench.view.down.add(1)
    bench.turn()
    appended = bench.send(b"appended")
    sent.fail(bench.now, CUT)
    bench.sender.closed(ClosedError("closed"))
    for response in (queued, undesignated, unrouted, appended):
        error = response.exception(0)
        assert isinstance(error, DeliveryError)
        assert not error.possibly_persisted
    lost = out.exception(0)
    assert isinstance(lost, DeliveryError)
    assert lost.possibly_persisted
    assert bench.buffer_pool.used_bytes == 0


def prove(bench: Bench) -> None:
    """Get partition 0 its first acknowledgement."""
    bench.send(b"first", partition=0)
    for one in bench.turn():
        one.respond(bench.now)


def test_a_record_after_the_last_response_wakes_the_loop() -> None:
    """While a linger runs the loop wakes by itself; once nothing is left to wait for, a record has to wake it."""
    bench = Bench({"t": [(1, 0)]}, linger_ms=10)
    bench.send(b"a", partition=0)
    bench.turn()
    woken = bench.wakes
    bench.send(b"b", partition=0)
    assert bench.wakes == woken, "the linger wakes the loop in time"
    (sent,) = bench.turn(0.02)
    bench.send(b"c", partition=0)
    assert bench.wakes == woken + 1, "the response that the batch waits for may take long"
    bench.turn()
    sent.respond(bench.now)
    for last in bench.turn(0.02):
        last.respond(bench.now)
    bench.turn()
    woken = bench.wakes
    bench.send(b"d", partition=0)
    assert bench.wakes == woken + 1, "nothing else will"
