"""How brokers are greeted: what it takes to be believed to be from before 0.10."""

from __future__ import annotations

import pytest

from kwire.cluster.connections import HandshakeMode, VersionProbes

HERE, THERE = ("here", 9092), ("there", 9092)
NEW, PROBE, OLD = HandshakeMode.API_VERSIONS, HandshakeMode.PROBE, HandshakeMode.OLD


@pytest.mark.parametrize(
    ("ends", "then"),
    [
        ("", NEW),
        ("x", NEW),
        ("xx", PROBE),
        ("xxx", NEW),  # the probe ended unanswered as well: it is just not well
        ("xxxx", NEW),
        ("xxxxx", PROBE),
        ("xxa", NEW),  # the probe was answered: greet it once more
        ("xxax", OLD),
        ("xxaxa", OLD),
        ("xxaxx", NEW),  # not even an old one answers any more
        ("xxaa", NEW),
        ("xxaax", NEW),
        ("xa", NEW),
        ("xax", NEW),
    ],
)
def test_what_ends_and_answers_teach(ends: str, then: HandshakeMode) -> None:
    """x: the next connection ends without an answer; a: it is answered."""
    greetings = VersionProbes()
    for one in ends:
        (greetings.ended if one == "x" else greetings.answered)(HERE, greetings.next(HERE))
    assert greetings.next(HERE) is then


def test_each_address_for_itself() -> None:
    greetings = VersionProbes()
    for _ in range(2):
        greetings.ended(HERE, NEW)
    assert (greetings.next(HERE), greetings.next(THERE)) == (PROBE, NEW)


def test_one_that_answers_api_versions_speaks_for_the_cluster() -> None:
    greetings = VersionProbes()
    greetings.answered(THERE, NEW)
    for _ in range(9):
        greetings.ended(HERE, NEW)
        assert greetings.next(HERE) is NEW
