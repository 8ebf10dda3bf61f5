"""Run seeds of the scenarios of groups: none shows an anomaly, and what can go wrong does, somewhere."""

from __future__ import annotations

import pytest

from kwire.simulation import GROUP_SCENARIOS
from tests.simulation.replays import check

# A seed of each scenario, and others that show what these do not; tools/simulate runs thousands.
# In "eager" a heartbeat was sent for a membership that had ended; in "newcopiers" begin() failed and lost the batch.
FORMER = [("eager", 710_002), ("newcopiers", 710_012)]
CASES = [*((scenario, 0) for scenario in GROUP_SCENARIOS), ("share", 2), ("newcopiers", 1), ("classic", 4), *FORMER]


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_no_anomaly_and_records_are_processed(scenario: str, seed: int) -> None:
    coverage = check(scenario, seed).coverage
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
    "fault: MoveCoordinators",
    "fault: Throttle",
    "net: responses throttled",
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


@pytest.mark.slow
@pytest.mark.parametrize("what", HAPPENED)
def test_it_happened(what: str) -> None:
    assert any(check(*case).coverage[what] for case in CASES)
