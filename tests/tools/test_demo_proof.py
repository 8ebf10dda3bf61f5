"""Test that the check of the demo finds a loss, a duplicate, a swap, and the rest, each with its number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from demo_parts.proof import Place, Proof, Read, judge

SENT = 8
# Even numbers are in partition 0, odd ones in partition 1, in the order of sending.
LOG = [Read(Place(number % 2, number // 2), number) for number in range(SENT)]
ACKNOWLEDGED = {record.number: record.place for record in LOG}


def counts(proof: Proof) -> dict[str, int]:
    names = ("lost", "foreign", "duplicated", "disordered", "misplaced")
    return {name: getattr(proof, name) for name in names if getattr(proof, name)}


def at(place: Place, number: int) -> Callable[[list[Read]], None]:
    """Replace the record at a position by another number."""

    def change(log: list[Read]) -> None:
        log[[record.place for record in log].index(place)] = Read(place, number)

    return change


def swap(log: list[Read]) -> None:
    at(Place(0, 1), 4)(log)
    at(Place(0, 2), 2)(log)


def lose(log: list[Read]) -> None:
    del log[3]


def duplicate(log: list[Read]) -> None:
    log.append(Read(Place(1, 4), 7))


def duplicate_elsewhere(log: list[Read]) -> None:
    log.append(Read(Place(0, 4), 7))


def test_a_complete_log_passes() -> None:
    proof = judge(SENT, ACKNOWLEDGED, LOG)
    assert proof.holds
    assert (proof.sent, proof.read, proof.findings) == (8, 8, [])


def test_partitions_may_be_read_in_any_order() -> None:
    assert judge(SENT, ACKNOWLEDGED, sorted(LOG)).holds


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [(True, True, False), (False, False, False), (False, True, True), (True, False, True)],
)
def test_order_holds_among_records_with_a_key_and_among_those_without(first: bool, second: bool, holds: bool) -> None:
    log = [Read(Place(0, 0), 1, first), Read(Place(0, 1), 0, second)]
    assert judge(2, {}, log).holds is holds


@pytest.mark.parametrize(
    ("change", "expected", "finding"),
    [
        (lose, {"lost": 1}, "number 3 is nowhere"),
        (duplicate, {"duplicated": 1}, "number 7 is at partition 1 offset 3 and partition 1 offset 4"),
        (duplicate_elsewhere, {"duplicated": 1}, "number 7 is at partition 1 offset 3 and partition 0 offset 4"),
        (swap, {"disordered": 1, "misplaced": 2}, "partition 0 offset 2 holds number 2 after number 4"),
        (at(Place(0, 1), -1), {"lost": 1, "foreign": 1}, "partition 0 offset 1 holds a record that was never sent"),
        (at(Place(0, 1), SENT), {"lost": 1, "foreign": 1}, "number 2 is nowhere"),
        (
            at(Place(1, 3), 6),
            {"lost": 1, "duplicated": 1},
            "number 6 is at partition 0 offset 3 and partition 1 offset 3",
        ),
    ],
)
def test_each_anomaly_is_found(change: Callable[[list[Read]], None], expected: dict[str, int], finding: str) -> None:
    log = list(LOG)
    change(log)
    proof = judge(SENT, ACKNOWLEDGED, log)
    assert not proof.holds
    assert counts(proof) == expected
    assert finding in proof.findings


def test_a_record_at_another_offset_than_acknowledged() -> None:
    wrong = ACKNOWLEDGED | {5: Place(1, 7)}
    proof = judge(SENT, wrong, LOG)
    assert counts(proof) == {"misplaced": 1}
    assert proof.findings == ["number 5 was acknowledged at partition 1 offset 7, which holds something else"]


def test_an_acknowledgement_may_lack_the_offset() -> None:
    assert judge(SENT, ACKNOWLEDGED | {5: Place(1, -1)}, LOG).holds


def test_only_a_few_findings_of_a_kind_are_kept() -> None:
    proof = judge(1_000, {}, [])
    assert proof.lost == 1_000
    assert len(proof.findings) == 3
