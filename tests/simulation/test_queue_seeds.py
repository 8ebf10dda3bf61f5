"""Run seeds of the scenarios of queues: none shows an anomaly, and what can go wrong does, somewhere."""

from __future__ import annotations

from collections import Counter

import pytest

from kwire.simulation import QUEUE_SCENARIOS
from tests.simulation.replays import check

# One seed of each; tools/simulate runs thousands.
FIRST = ("queue-consumer", "queue-tracker", "queue-poison", "queue-rough")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", FIRST)
def test_no_anomaly_and_messages_are_processed(scenario: str) -> None:
    coverage: Counter[str] = check(scenario, 2).coverage
    assert coverage["queue: handed"] >= coverage["queue: stored"] > 0


@pytest.mark.slow
def test_a_tracker_waits_while_a_transaction_hides_its_tick() -> None:
    """A consumer died in its transaction. The tracker polled without end, because its TICK was overdue."""
    check("queue-consumer", 810_150)


@pytest.mark.slow
def test_a_fault_explains_an_error() -> None:
    """The markers topic was forbidden: consumers said so."""
    check("queue-lease", 810_052)


@pytest.mark.slow
def test_a_lost_member_commits_nothing_though_its_group_is_empty() -> None:
    """It was frozen while others took its partitions, and woke when these had died."""
    check("queue-lease", 1_301_521)


@pytest.mark.slow
def test_a_release_that_is_stored_after_the_lease_does_not_make_a_redelivery_early() -> None:
    """The network held it; the tracker had decided by the START."""
    check("queue-rough", 1_403_036)


@pytest.mark.slow
def test_a_second_start_after_the_lease_does_not_stop_the_redelivery() -> None:
    """A consumer died between START and commit; the next one marked the record as a tracker redelivered it."""
    check("queue-consumer", 1_408_535)


@pytest.mark.slow
def test_processes_are_killed_at_their_steps() -> None:
    """Between START and commit, and wherever else a process waits for a response."""
    steps = Counter[str]()
    for scenario, seed in (("queue-consumer", 6), ("queue-tracker", 1)):
        steps += check(scenario, seed).coverage
    assert steps["fault: KillAtRequest"] >= 2


def test_each_family_of_the_specification_has_a_scenario() -> None:
    abouts = [scenario.about for scenario in QUEUE_SCENARIOS.values()]
    for family in range(64, 76):
        assert any(about.startswith(f"Q{family}:") for about in abouts), family
