"""Assignments of Kafka 4.4.0, and the results of our assignors on its recorded and its random cases."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.consumer.assignors.user_data import sticky_user_data
from tests.consumer.assignors import oracle
from tests.consumer.assignors.cases import Case, Tally, assigned_by, random_cases
from tests.java_program import JavaProgram

RECORDED = Path(__file__).with_name("kafka_cases.jsonl.gz")  # made by tools/assignors --record

AB = ["a", "b"]
ROW = [["r1"], ["r2"], ["r1"], ["r2"]]
EACH = [["r1"], ["r2"], ["r3"]]
ALL_OF_A = [["a", number] for number in range(4)]
OWNED_A = sticky_user_data([("a", number) for number in range(4)], 3).hex()

VECTORS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "V01": ("range", {"a": 3, "b": 3}, {"m1": AB, "m2": AB}, "m1: a0 a1 b0 b1; m2: a2 b2"),
    "V02": ("range", {"a": 3}, {"m1": ["a"], "m2": {"topics": ["a"], "instance": "i1"}}, "m2: a0 a1; m1: a2"),
    "V03": (
        "range",
        {"a": ROW},
        {"m1": {"topics": ["a"], "rack": "r2"}, "m2": {"topics": ["a"], "rack": "r1"}},
        "m1: a1 a3; m2: a0 a2",
    ),
    "V04": (
        "range",
        {"a": EACH, "b": EACH},
        {f"m{n}": {"topics": AB, "rack": rack} for n, rack in ((1, "r3"), (2, "r1"), (3, "r2"))},
        "m1: a2 b2; m2: a0 b0; m3: a1 b1",
    ),
    "V05": (
        "range",
        {"a": 2, "b": 3, "c": 0},
        {"m1": ["a", "b", "c", "nowhere"], "m2": ["b"], "m3": ["a"]},
        "m1: a0 b0 b1; m2: b2; m3: a1",
    ),
    "V06": ("roundrobin", {"a": 3, "b": 3}, {"m1": ["a"], "m2": AB}, "m1: a0 a2; m2: a1 b0 b1 b2"),
    "V07": (
        "roundrobin",
        {"t": 1, "u": 2, "v": 3},
        {"c1": ["t"], "c2": ["t", "u"], "c3": ["t", "u", "v"]},
        "c1: t0; c2: u0; c3: u1 v0 v1 v2",
    ),
    "V08": (
        "roundrobin",
        {"a": 2, "b": 1},
        {"z": {"topics": AB, "instance": "i0"}, "y": {"topics": AB, "instance": "i1"}, "x": AB},
        "z: a0; y: a1; x: b0",
    ),
    "V09": ("sticky", {"a": 3, "b": 3}, {"m1": AB, "m2": AB}, "m1: a0 a2 b1; m2: a1 b0 b2"),
    "V10": (
        "sticky",
        {"t": 1, "u": 2, "v": 3},
        {"c1": ["t"], "c2": ["t", "u"], "c3": ["t", "u", "v"]},
        "c1: t0; c2: u0 u1; c3: v0 v1 v2",
    ),
    "V11": (
        "cooperative-sticky",
        {"a": 4},
        {"m1": {"topics": ["a"], "owned": ALL_OF_A, "generation": 3}, "m2": ["a"]},
        "m1: a0 a1; m2: -",
    ),
    "V12": (
        "cooperative-sticky",
        {"a": 4},
        {
            "m1": {"topics": ["a"], "owned": ALL_OF_A[:2], "generation": 4},
            "m2": {"topics": ["a"], "generation": 4},
        },
        "m1: a0 a1; m2: a2 a3",
    ),
    "V13": (
        "sticky",
        {"a": 4},
        {"m1": {"topics": ["a"], "userData": OWNED_A}, "m2": ["a"]},
        "m1: a0 a1; m2: a2 a3",
    ),
    "V14": (
        "sticky",
        {"a": 4},
        {"m1": {"topics": ["a"], "owned": ALL_OF_A, "generation": 3}, "m2": ["a"]},
        "m1: a0 a2; m2: a1 a3",
    ),
    "V15": (
        "cooperative-sticky",
        {"a": 3},
        {
            "m1": {"topics": ["a"], "owned": ALL_OF_A[:2], "generation": 5},
            "m2": {"topics": ["a"], "owned": ALL_OF_A[1:3], "generation": 5},
        },
        "m1: a0; m2: a2",
    ),
    "V16": (
        "cooperative-sticky",
        {"a": 3},
        {
            "m1": {"topics": ["a"], "owned": ALL_OF_A[:2], "generation": 5},
            "m2": {"topics": ["a"], "owned": ALL_OF_A[1:3], "generation": 4},
            "m3": ["a"],
        },
        "m1: a0; m2: a2; m3: -",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_kafkas_assignment(name: str) -> None:
    assignor, topics, members, expected = VECTORS[name]
    case = Case.from_json(
        {
            "assignor": assignor,
            "topics": {topic: [[]] * racks if isinstance(racks, int) else racks for topic, racks in topics.items()},
            "members": {
                member: {"topics": given} if isinstance(given, list) else given for member, given in members.items()
            },
        }
    )
    found = {
        member: " ".join(f"{topic}{index}" for topic, index in sorted(partitions)) or "-"
        for member, partitions in assigned_by(case).items()
    }
    assert found == dict(part.split(": ") for part in expected.split("; "))


def test_recorded_cases() -> None:
    """Cases with Kafka's results; tools/assignors compares with Kafka itself."""
    tally = Tally()
    lines = gzip.decompress(RECORDED.read_bytes()).splitlines()
    for line in lines:
        recorded = json.loads(line)
        tally.judge(Case.from_json(recorded["case"]), recorded["kafka"])
    assert tally.wrong == []
    assert tally.exact > len(lines) / 2
    assert tally.moved <= tally.moved_by_kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[JavaProgram]:
    program = oracle.open_oracle()
    yield program
    program.close()


@pytest.mark.live
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_random_cases(kafka: JavaProgram, assignor: str) -> None:
    cases = list(random_cases(1, assignor, 500))
    tally = Tally()
    for case, result in zip(cases, oracle.ask(kafka, cases), strict=True):
        tally.judge(case, result)
    assert tally.wrong == []
    assert tally.exact + tally.by_rules + tally.failed_in_kafka == len(cases)
