"""Partitioners by name and the caller's own: the hashes of other clients, and the sender's choices."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kwire.errors import ConfigurationError
from kwire.producer.partitioner import (
    ShortestQueue,
    SingleBroker,
    Sticky,
    crc32_partition,
    murmur2_partition,
    own_rule,
    routing,
)
from tests.producer.fakes import Bench


@pytest.mark.parametrize(
    ("key", "count", "expected"),
    [  # org.apache.kafka.common.utils.Utils.murmur2, computed by Kafka 4.4's own class
        (b"21", 1_000, -973932308),
        (b"foobar", 1_000, -790332482),
        (b"a-little-bit-long-string", 1_000, -985981536),
        (b"a-little-bit-longer-string", 1_000, -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 1_000, -58897971),
        (b"abc", 1_000, 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, count: int, expected: int) -> None:
    assert murmur2_partition(key, count) == (expected & 0x7FFFFFFF) % count


def test_crc32_is_librdkafkas() -> None:
    assert crc32_partition(b"123456789", 1_000) == 0xCBF43926 % 1_000


@pytest.mark.parametrize(
    ("name", "key_hash", "spread"),
    [
        ("murmur2", "murmur2", ShortestQueue),
        ("crc32", "crc32", ShortestQueue),
        ("round_robin", None, ShortestQueue),
        ("sticky", "murmur2", Sticky),
        ("single_broker", "murmur2", SingleBroker),
        ("crc32+sticky", "crc32", Sticky),
        ("crc32+single_broker", "crc32", SingleBroker),
    ],
)
def test_names(name: str, key_hash: str | None, spread: type) -> None:
    found = routing(name)
    assert found.key_hash == key_hash
    assert type(found.spread(Random(1), 100, 30.0)) is spread
    assert own_rule(name) is None


@pytest.mark.parametrize(
    "name", ["random", "", "+", "sticky+crc32", "crc32+", "+sticky", "crc32+random", "murmur2+crc32"]
)
def test_wrong_names(name: str) -> None:
    with pytest.raises(ConfigurationError, match="choose one of murmur2, crc32, round_robin"):
        routing(name)


def test_an_own_rule_is_anything_that_can_be_called() -> None:
    def rule(*_: Any) -> int:
        return 0

    assert own_rule(rule) is rule
    with pytest.raises(ConfigurationError, match="a function of a message and a topic"):
        own_rule(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("leaders", "expected"),
    [((1, 1, 1), [0, 1, 2, 0]), ((1, -1, 1), [0, 2, 0, 2]), ((-1, -1, -1), [0, 1, 2, 0]), ((1,), [0, 0, 0, 0])],
)
def test_turns_pass_by_partitions_without_a_leader(leaders: tuple[int, ...], expected: list[int]) -> None:
    """And over all of them while none has one."""
    bench = Bench({"t": [(leader, 0) for leader in leaders]}, partitioner="round_robin", batch_bytes=100)
    bench.send(b"first", "t", partition=0)
    bench.turn()  # the accumulator knows the leaders now
    for number in range(4):
        bench.send(b"%d" % number)
    placed = {record[2]: run.partition for run in bench.buffer_pool.accumulator.take() for record in run.rows()}
    assert [placed[b"%d" % number] for number in range(4)] == expected


def test_round_robin_counts_every_record_keyed_or_not() -> None:
    bench = Bench({"t": [(1, 0), (1, 0), (-1, 0)]}, partitioner="round_robin")
    for number in range(6):
        bench.send(b"%d" % number, key=b"same" if number % 2 else None)
    (sent,) = bench.turn()
    assert sent.values() == {("t", 0): [b"0", b"2", b"4"], ("t", 1): [b"1", b"3", b"5"]}


def test_round_robin_waits_for_the_partitions() -> None:
    bench = Bench(partitioner="round_robin")
    for number in range(4):
        bench.send(b"%d" % number)
    assert bench.turn() == []
    bench.know({"t": [(1, 0), (1, 0)]})
    (sent,) = bench.turn()
    assert sent.values() == {("t", 0): [b"0", b"2"], ("t", 1): [b"1", b"3"]}


def test_sticky_sends_small_batches_to_one_partition() -> None:
    bench = Bench({"t": [(1, 0)] * 3}, partitioner="sticky", batch_bytes=4 * (61 + 8))
    places = []
    for number in range(8):
        bench.send(b"%d" % number)
        for sent in bench.turn():
            places += [partition for _, partition in sent.values()]
            sent.respond(bench.now)
    assert places == [0, 0, 0, 0, 1, 1, 1, 1], "four small batches reach the size of a whole one"


def test_single_broker_sends_to_one_until_it_fails() -> None:
    bench = Bench({"t": [(1, 0), (2, 0), (3, 0)] * 2}, partitioner="single_broker", batch_bytes=100)
    nodes = set()
    for _ in range(10):
        bench.send(b"v")
        for sent in bench.turn():
            nodes.add(sent.node)
            sent.respond(bench.now)
    (node,) = nodes
    bench.view.down.add(node)
    bench.send(b"waits while a connection is made")
    assert bench.turn() == []
    bench.view.failures[node] = ConfigurationError("down")
    (sent,) = bench.turn()
    assert sent.node != node
    sent.respond(bench.now)
    bench.view.down.clear()
    bench.view.failures.clear()
    bench.send(b"after thirty seconds")
    (later,) = bench.turn(30.0)
    assert later.node != sent.node


@pytest.mark.parametrize("name", ["murmur2", "crc32", "round_robin", "sticky", "crc32+single_broker"])
def test_ignored_keys_leave_the_spread_as_it_is(name: str) -> None:
    found, kept = routing(name, ignore_keys=True), routing(name)
    assert found.key_hash == (None if name == "round_robin" else "")
    assert type(found.spread(Random(1), 100, 30.0)) is type(kept.spread(Random(1), 100, 30.0))


def test_ignored_keys_go_where_records_without_a_key_go() -> None:
    """By batches: all of one batch to one partition, whatever their keys, and past a dead leader."""
    bench = Bench(partitioner_ignore_keys=True)
    bench.send(b"before the partitions are known", key=b"k")
    bench.turn()
    bench.know({"t": [(1, 0), (-1, 0), (1, 0)]})
    for number in range(20):
        bench.send(b"%d" % number, key=b"key %d" % number)
    bench.send(b"own", key=b"k", partition=2)
    values: dict[tuple[str, int], list[bytes | None]] = {}
    for _ in range(3):
        for sent in bench.turn(1.0):
            for place, batch in sent.values().items():
                values.setdefault(place, []).extend(batch)
            sent.respond(bench.now)
    assert set(values) <= {("t", 0), ("t", 2)}
    assert {value for batch in values.values() for value in batch} == {
        b"before the partitions are known", b"own", *(b"%d" % number for number in range(20))
    }  # fmt: skip
    assert [b"%d" % number for number in range(20)] in [batch[-20:] for batch in values.values()], "all in one batch"


def test_how_long_single_broker_keeps_to_one() -> None:
    bench = Bench({"t": [(1, 0), (2, 0)]}, partitioner="single_broker", single_broker_switch_ms=2_000)
    nodes: list[int] = []
    for _ in range(8):
        bench.send(b"v")
        for sent in bench.turn(0.5):
            nodes.append(sent.node)
            sent.respond(bench.now)
    switches = sum(one != other for one, other in pairwise(nodes))
    assert (set(nodes), switches) == ({1, 2}, 1)
