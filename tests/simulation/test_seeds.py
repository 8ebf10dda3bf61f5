"""300 seeds of all scenarios: no anomaly, and everything that can go wrong did, somewhere."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from kwire.simulation import SCENARIOS
from tests.simulation.replays import check

SEEDS = 300

CASES = [(list(SCENARIOS)[number % len(SCENARIOS)], number // len(SCENARIOS)) for number in range(SEEDS)]


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_no_anomaly(scenario: str, seed: int) -> None:
    check(scenario, seed)


@cache
def seen(scenario: str) -> Counter[str]:
    """In all seeds; those that another process was given run here again."""
    return sum((check(*case).coverage for case in CASES if case[0] == scenario), Counter())


# What has to have happened in the seeds above for their silence to mean something.
HAPPENED = [
    "fault: CutConnection",
    "fault: Silence",
    "fault: Hold",
    "fault: Trickle",
    "fault: RefuseConnections",
    "fault: StopBroker",
    "fault: MoveLeader",
    "fault: UncleanElection",
    "fault: JumpClock",
    "fault: LagMetadata",
    "fault: Throttle",
    "fault: FailRequests Refuse",
    "fault: FailRequests Disconnect",
    "fault: FailRequests Cut",
    "fault: FailRequests Delay",
    "fault: FailRequests Mute",
    "fault: FailRequests ApplyLate",
    "fault: AddPartitions",
    "fault: RecreateTopic",
    "fault: CloseProducer",
    "fault: Rival",
    "net: connections cut inside a frame",
    "net: frames from an end that was gone",
    "net: dials refused",
    "net: dials swallowed",
    "net: metadata of yesterday",
    "net: answers throttled",
    "net: duplicates recognised",
    "net: answered NOT_LEADER_OR_FOLLOWER",
    "net: answered MESSAGE_TOO_LARGE",
    "net: answered UNKNOWN_PRODUCER_ID",
    "net: answered KAFKA_STORAGE_ERROR",
    "net: answered OUT_OF_ORDER_SEQUENCE_NUMBER",
    "net: answered INVALID_PRODUCER_EPOCH",
    "transactions: committed",
    "transactions: aborted",
    "records: lost with a leader",
    "records: lost by an unclean election",
    "records: given up, surely not stored",
    "records: given up, possibly stored",
    "records: refused for want of memory",
]


@pytest.mark.parametrize("what", HAPPENED)
def test_it_happened(what: str) -> None:
    assert any(seen(scenario)[what] for scenario in SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_most_records_are_acknowledged(scenario: str) -> None:
    assert seen(scenario)["records: acknowledged"] > seen(scenario)["records: sent"] / 2
