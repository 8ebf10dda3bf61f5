"""Which handshake a broker gets, and what proves that it is older than 0.10."""

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
        ("xxx", NEW),  # the probe got no response either: the broker is just unwell
        ("xxxx", NEW),
        ("xxxxx", PROBE),
        ("xxa", NEW),  # the probe got a response: one more handshake
        ("xxax", OLD),
        ("xxaxa", OLD),
        ("xxaxx", NEW),  # an old broker responds, this one does not
        ("xxaa", NEW),
        ("xxaax", NEW),
        ("xa", NEW),
        ("xax", NEW),
    ],
)
def test_failures_and_responses_choose_the_next_handshake(ends: str, then: HandshakeMode) -> None:
    """x: the next connection ends without a response; a: it gets a response."""
    probes = VersionProbes()
    for one in ends:
        (probes.failed if one == "x" else probes.succeeded)(HERE, probes.next(HERE))
    assert probes.next(HERE) is then


def test_the_version_of_api_versions_is_forgotten_after_a_handshake_that_fails() -> None:
    probes = VersionProbes()
    probes.succeeded(HERE, NEW, 4)
    assert (probes.api_versions(HERE), probes.api_versions(THERE)) == (4, None)
    probes.failed(HERE, NEW)
    assert probes.api_versions(HERE) is None


def test_addresses_are_independent() -> None:
    probes = VersionProbes()
    for _ in range(2):
        probes.failed(HERE, NEW)
    assert (probes.next(HERE), probes.next(THERE)) == (PROBE, NEW)


def test_a_broker_that_serves_api_versions_speaks_for_the_cluster() -> None:
    probes = VersionProbes()
    probes.succeeded(THERE, NEW)
    for _ in range(9):
        probes.failed(HERE, NEW)
        assert probes.next(HERE) is NEW
