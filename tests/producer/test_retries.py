"""Retries: their number, their time limit and their back-off, for each partition separately."""

from __future__ import annotations

from typing import Any

import pytest

import kwire
from kwire.broker import Cluster, Refuse
from kwire.errors import BrokerError, ConfigurationError, DeliveryError, DisconnectedError, ErrorCode
from kwire.producer.options import ProducerSettings
from kwire.protocol import ApiKey
from tests.producer.fakes import Bench, Sent

BUSY = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
CUT = DisconnectedError("the connection broke")
PATIENCE = 30


def bench_of(**settings: Any) -> Bench:
    """The window is open, and a batch has one record."""
    bench = Bench({"t": [(1, 0)] * 2}, batch_bytes=100, **settings)
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    return bench


def test_without_a_number_only_time_is_the_limit() -> None:
    bench = bench_of()
    response = bench.send(b"a", partition=0)
    for _ in range(60):
        bench.turn(1.5)[0].respond(bench.now, BUSY)
    bench.turn(1.5)[0].respond(bench.now)
    assert response.exception(0) is None


@pytest.mark.parametrize("retries", [0, 1, 4])
@pytest.mark.parametrize(("unanswered", "is_open"), [(False, False), (True, True)])
def test_a_batch_fails_after_its_last_retry(retries: int, unanswered: bool, is_open: bool) -> None:
    bench = bench_of(retries=retries)
    response, behind = bench.send(b"a", partition=0), bench.send(b"b", partition=0)
    attempts = 0
    while not response.done():
        for sent in bench.turn(1.5):
            if sent.values()["t", 0] == [b"b"]:
                sent.respond(bench.now, OUT_OF_ORDER)
                continue
            attempts += 1
            if unanswered:
                sent.fail(bench.now, CUT)
            else:
                sent.respond(bench.now, BUSY)
    assert attempts == retries + 1
    error = response.exception(0)
    assert isinstance(error, DeliveryError)
    assert error.message.startswith(f"failed after {attempts} attempt{'s' * (retries > 0)}; the last failure was: ")
    assert isinstance(error.__cause__, DisconnectedError if unanswered else BrokerError)
    assert error.possibly_persisted is is_open
    assert error.where["broker"] == "1 at host-1:9092"
    while not behind.done():
        for sent in bench.turn(1.5):
            assert sent.batches()["t", 0].base_sequence == 0
            sent.respond(bench.now)
    assert behind.exception(0) is None
    assert bench.identities == 2, "the lost sequence is not used again"


def test_waiting_for_an_earlier_batch_is_no_retry() -> None:
    bench = bench_of(retries=1)
    first, second = bench.send(b"a", partition=0), bench.send(b"b", partition=0)
    one, two = bench.turn()
    one.respond(bench.now, BUSY)
    two.respond(bench.now, OUT_OF_ORDER)
    codes = [0, BUSY, 0]
    while codes:
        for sent in bench.turn(0.2):
            sent.respond(bench.now, codes.pop(0))
    assert (first.exception(0), second.exception(0)) == (None, None)


def test_being_cut_in_pieces_is_no_retry() -> None:
    bench = Bench({"t": [(1, 0)]}, retries=0)
    responses = [bench.send(b"%d" % n, partition=0) for n in range(8)]
    while not all(response.done() for response in responses):
        for sent in bench.turn(0.2):
            sent.respond(bench.now, ErrorCode.MESSAGE_TOO_LARGE if len(sent.values()["t", 0]) > 1 else 0)
    assert [response.exception(0) for response in responses] == [None] * 8


def test_pauses_grow_for_the_partition_that_fails_and_for_no_other() -> None:
    bench = bench_of()
    bench.send(b"a", partition=0)
    pauses: list[float] = []
    (sent,) = bench.turn()
    for _ in range(6):
        failed_at = bench.now
        sent.respond(failed_at, BUSY)
        other = bench.send(b"b", partition=1)
        (fine,) = bench.turn()
        assert list(fine.values()) == [("t", 1)]
        fine.respond(bench.now)
        assert other.done()
        again: list[Sent] = []
        while not again:
            again = bench.turn(0.01)
        (sent,) = again
        pauses.append(bench.now - failed_at)
    # Doubled from 0.1 s to 1 s with a jitter of a fifth, so that producers do not retry all at once.
    for pause, base in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=True):
        assert base * 0.79 <= pause <= base * 1.21 + 0.01


NOT_YET = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the error of a new topic's leader until it knows that it leads


def test_metadata_of_a_new_topic_is_not_requested_repeatedly() -> None:
    """New metadata without changes does not matter. A hundred partitions fail, and are sent again, in one request."""
    count, leaders = 100, [(1, 0)] * 100
    bench = Bench({"t": leaders})
    responses = [bench.send(b"v", partition=index) for index in range(count)]
    born_at, requests, batches = bench.now + 5.0, 0, 0
    while not all(response.done() for response in responses):
        for sent in bench.turn(0.01):
            requests, batches = requests + 1, batches + len(sent.values())
            sent.respond(bench.now, NOT_YET if bench.now < born_at else 0)
            bench.know({"t": leaders})
    # Pauses of 0.1, 0.2, 0.4, 0.8, and of 1 s from then on, each by up to a fifth more or less.
    assert requests <= 10
    assert batches == requests * count


@pytest.mark.parametrize(
    ("leader", "is_hurried"), [((1, 5), False), ((1, 4), False), ((1, 6), True), ((2, 6), True), ((-1, 6), False)]
)
def test_only_another_leader_or_epoch_ends_a_pause(leader: tuple[int, int], is_hurried: bool) -> None:
    bench = Bench({"t": [(1, 5)]})
    bench.send(b"v", partition=0)
    (sent,) = bench.turn()
    bench.know({"t": [leader]})
    sent.respond(bench.now, NOT_YET)
    assert [again.node for again in bench.turn()] == ([leader[0]] if is_hurried else [])


@pytest.mark.parametrize("retries", [-1, True])
def test_an_invalid_number_of_retries_is_refused(retries: int) -> None:
    with pytest.raises(ConfigurationError, match="retries is"):
        ProducerSettings(retries=retries)


def test_on_a_cluster() -> None:
    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        fault = cluster.add_fault(Refuse(BUSY), api=ApiKey.PRODUCE, times=None)
        with kwire.Producer(cluster.bootstrap, retries=3, retry_backoff_ms=5) as producer:
            error = producer.send("t", b"v").exception(PATIENCE)
            assert isinstance(error, DeliveryError)
            assert "failed after 4 attempts; the last failure was: NOT_ENOUGH_REPLICAS (19)" in error.message
            assert fault.hits == 4
            cluster.clear_faults()
            assert producer.send("t", b"w").result(PATIENCE).offset == 0
