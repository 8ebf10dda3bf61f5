"""Run seeds of the scenarios of groups: none shows an anomaly, and what can go wrong does, somewhere."""

from __future__ import annotations

from collections import Counter

import pytest

from kwire.simulation import GROUP_SCENARIOS
from tests.simulation.replays import check

SEEDS = 8  # of each scenario; tools/simulate runs thousands


@pytest.mark.parametrize("scenario", GROUP_SCENARIOS)
def test_no_anomaly_and_records_are_processed(scenario: str) -> None:
    coverage: Counter[str] = sum((check(scenario, seed).coverage for seed in range(SEEDS)), Counter())
    done = coverage["group: processed"] + coverage["group: accepted"] + coverage["group: rejected"]
    assert done + coverage["group: unsure"] >= coverage["records: acknowledged"] > 0


# Without these, seeds that show no anomaly would prove nothing.
HAPPENED = [
    "fault: KillMember",
    "fault: CloseMember",
    "fault: FreezeMember",
    "fault: SlowMember",
    "fault: RaiseInCallback",
    "fault: PauseMember",
    "fault: SeekMember",
    "fault: AddPartitions",
    "fault: StopBroker",
    "fault: MoveLeader",
    "fault: CutConnection",
    "fault: Silence",
    "fault: Hold",
    "fault: FailRequests Refuse",
    "fault: FailRequests Disconnect",
    "fault: FailRequests Mute",
    "fault: FailRequests Delay",
    "group: lost",
    "group: accepted",
    "group: released",
    "group: rejected",
    "group: unsure",
    "group: assigned",
    "group: revoked",
    "group: committed",
]


@pytest.mark.parametrize("what", HAPPENED)
def test_it_happened(what: str) -> None:
    assert any(check(scenario, seed).coverage[what] for scenario in GROUP_SCENARIOS for seed in range(SEEDS))
