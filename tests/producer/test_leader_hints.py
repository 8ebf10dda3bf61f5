"""A former leader names the new one (KIP-951): the next attempt goes there, without metadata or a back-off."""

from __future__ import annotations

from typing import Literal

import pytest

import kwire
from kwire.broker import Cluster
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.protocol.messages.produce import ProduceRequest
from tests.producer.fakes import Bench

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
PATIENCE = 30
NEVER_MS = 120_000


def test_the_next_attempt_goes_to_the_leader_that_was_named_at_once() -> None:
    bench = Bench({"t": [(1, 5)]})
    response = bench.send(b"v", partition=0)
    (sent,) = bench.turn()
    before = sent.batches()["t", 0].raw.tobytes()
    sent.respond(bench.now, MOVED, leaders={("t", 0): (2, 6)})
    (again,) = bench.turn()
    assert (again.node, again.batches()["t", 0].raw.tobytes()) == (2, before)
    assert bench.view.refreshes, "metadata is refreshed for other partitions that moved"
    again.respond(bench.now)
    assert response.result(0).offset == 100


@pytest.mark.parametrize("hint", [(2, 5), (2, 4), (-1, -1)], ids=["same epoch", "older", "none"])
def test_without_news_there_is_a_back_off(hint: tuple[int, int]) -> None:
    bench = Bench({"t": [(1, 5)]})
    bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, MOVED, leaders={("t", 0): hint})
    assert bench.turn(0.05) == []
    assert [sent.node for sent in bench.turn(0.1)] == [1]


@pytest.mark.parametrize(
    ("code", "refreshes", "node"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, 2),
        (ErrorCode.FENCED_LEADER_EPOCH, True, 2),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False, 1),  # the broker's epoch is older: it names no leader
    ],
)
def test_the_errors_of_leadership(code: ErrorCode, refreshes: bool, node: int) -> None:
    bench = Bench({"t": [(1, 5)]})
    response = bench.send(b"v", partition=0)
    hints = {("t", 0): (2, 6)} if node == 2 else None
    bench.turn()[0].respond(bench.now, code, leaders=hints)
    assert bool(bench.view.refreshes) is refreshes
    (again,) = bench.turn(0.0 if hints else 0.15)
    assert again.node == node
    again.respond(bench.now)
    assert response.exception(0) is None


def test_rule_4_requests_to_the_old_leader_get_a_response_first() -> None:
    bench = Bench({"t": [(1, 5)]}, batch_bytes=100)
    bench.send(b"first", partition=0)
    bench.turn()[0].respond(bench.now)
    for value in (b"a", b"b"):
        bench.send(value, partition=0)
    first, second = bench.turn()
    first.respond(bench.now, MOVED, leaders={("t", 0): (2, 6)})
    assert bench.turn(1.0) == []
    second.respond(bench.now, MOVED, leaders={("t", 0): (2, 6)})
    again = bench.turn()
    assert [(sent.node, sent.values()) for sent in again] == [(2, {("t", 0): [b"a"]})]


def test_a_hint_for_one_partition_does_not_hurry_another() -> None:
    bench = Bench({"t": [(1, 5), (1, 5)]})
    for partition in range(2):
        bench.send(b"v", partition=partition)
    bench.turn()[0].respond(bench.now, MOVED, leaders={("t", 0): (2, 6)})
    assert [(sent.node, list(sent.values())) for sent in bench.turn()] == [(2, [("t", 0)])]


def test_metadata_that_is_older_than_the_hint_changes_nothing() -> None:
    bench = Bench({"t": [(1, 5)]})
    bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, MOVED, leaders={("t", 0): (2, 6)})
    bench.know({"t": [(1, 5)]})
    assert [sent.node for sent in bench.turn()] == [2]


@pytest.mark.parametrize("produce", [12, 13], ids=["by name", "by id"])
@pytest.mark.parametrize("acks", ["all", 1])
def test_leaders_move_and_no_metadata_is_waited_for(produce: int, acks: Literal["all", 1]) -> None:
    """The pauses are so long that a record that needs a back-off or new metadata would be late."""
    with Cluster(brokers=3, api_versions={ApiKey.PRODUCE: range(produce + 1)}) as cluster:
        cluster.create_topic("t", partitions=1)
        with kwire.Producer(
            cluster.bootstrap, acks=acks, linger_ms=0, retry_backoff_ms=NEVER_MS, retry_backoff_ms_max=NEVER_MS
        ) as producer:
            for number, node in enumerate((1, 2, 3, 1, 2, 3)):
                if cluster.leader("t") != node:
                    cluster.move_leader("t", 0, node)
                assert producer.send("t", b"%d" % number).result(PATIENCE).offset == number
        assert cluster.requests()[ApiKey.METADATA] <= 3
        assert cluster.failures == ()


def test_responses_before_version_10_name_no_leader() -> None:
    bench = Bench({"t": [(1, 5)]})
    bench.view.versions[ProduceRequest] = 9
    bench.send(b"v", partition=0)
    bench.turn()[0].respond(bench.now, MOVED)
    assert bench.turn() == []
    assert bench.view.refreshes
