"""Acknowledgements as requests carry them; Kafka's own class says how they are split into batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from brokers.jars import fetch_jars

from kwire.share.acknowledgements import Acknowledgements, AcknowledgeType, contiguous
from tests.java_program import JavaProgram

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType

# (offset, type) runs -> batches: what Kafka 4.4 makes of them, see the test on Kafka below.
VECTORS = {
    "0-4:1": "0-4:1",
    "0-4:1 6-6:2": "0-4:1|6-6:2",
    "0-9:1 10-10:2": "0-10:1,1,1,1,1,1,1,1,1,1,2",
    "0-10:1 11-11:2": "0-10:1|11-11:2",
    "0-1:2 2-12:1 13-14:3 15-25:1": "0-1:2|2-12:1|13-14:3|15-25:1",
    "0-2:1 3-3:2 4-4:3": "0-4:1,1,1,2,3",
    "5-15:0 16-16:1": "5-15:0|16-16:1",
}


def parsed(runs: str) -> Acknowledgements:
    acknowledgements = Acknowledgements()
    for run in runs.split():
        offsets, type = run.split(":")
        first, last = map(int, offsets.split("-"))
        acknowledgements.set_range(first, last, AcknowledgeType(int(type)))
    return acknowledgements


def shown(acknowledgements: Acknowledgements) -> str:
    return "|".join(f"{first}-{last}:{','.join(map(str, types))}" for first, last, types in acknowledgements.batches())


@pytest.mark.parametrize(("runs", "batches"), VECTORS.items())
def test_h12_batches_are_split_where_kafka_splits_them(runs: str, batches: str) -> None:
    assert shown(parsed(runs)) == batches


def test_the_order_in_which_acknowledgements_are_made_does_not_matter() -> None:
    random = Random(3)
    types = {offset: random.choice([ACCEPT, RELEASE, REJECT]) for offset in range(200) if offset % 17}
    shuffled = list(types)
    random.shuffle(shuffled)
    made = Acknowledgements()
    for offset in shuffled:
        made.set(offset, types[offset])
    assert made.batches() == Acknowledgements(types).batches()
    assert made.offsets() == sorted(types)


def test_the_last_acknowledgement_of_an_offset_counts() -> None:
    older, newer = parsed("0-9:1"), parsed("3-4:2")
    older.update(newer)
    newer.set(4, RENEW)
    assert shown(older) == "0-9:1,1,1,2,2,1,1,1,1,1"
    assert older.counts() == {ACCEPT: 8, RELEASE: 2}
    assert not older.has_renewals
    assert newer.of_type(RENEW) == [4]
    overlapping = parsed("5-9:1 0-6:3")
    assert overlapping.counts() == {REJECT: 7, ACCEPT: 3}


def test_gaps_are_no_records() -> None:
    acknowledgements = parsed("0-4:0 5-6:1")
    assert acknowledgements.of_records() == [5, 6]
    assert len(acknowledgements) == 7


def test_neighbours_form_ranges() -> None:
    assert list(contiguous([1, 2, 3, 5, 7, 8])) == [(1, 3), (5, 5), (7, 8)]
    assert list(contiguous([])) == []


@pytest.fixture(scope="module", params=["4.3.1", "4.4.0"])
def kafka(request: pytest.FixtureRequest) -> Iterator[JavaProgram]:
    jars = fetch_jars("kafka-clients", request.param)
    with closing(JavaProgram(jars, Path(__file__).with_name("AcknowledgementsOracle.java"))) as program:
        yield program


@pytest.mark.live
def test_h12_batches_equal_kafkas_for_mixed_acknowledgements(kafka: JavaProgram) -> None:
    """2,000 records with mixed types, in runs of all lengths and with holes, and the vectors above."""
    random = Random(12)
    cases = [parsed(runs) for runs in VECTORS]
    for _ in range(200):
        case, offset = Acknowledgements(), 0
        while offset < 2_000:
            offset += random.choice([0, 0, 0, 1, 5])
            length = random.choice([1, 2, 9, 10, 11, 12, 40])
            case.set_range(offset, offset + length - 1, random.choice([GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]))
            offset += length
        cases.append(case)
    lines = [
        ",".join(f"{offset}:{int(type)}" for offset, type in sorted(types.items()))
        for types in [{o: t for t in AcknowledgeType for o in case.of_type(t)} for case in cases]
    ]
    assert kafka.ask(lines) == [shown(case) for case in cases]
