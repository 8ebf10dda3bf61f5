"""Run 300 seeds of producers: none shows an anomaly, and everything that can go wrong does, somewhere."""

from __future__ import annotations

from collections import Counter

import pytest

from kwire.simulation import PRODUCER_SCENARIOS as SCENARIOS
from tests.simulation.replays import check

SEEDS = 300

CASES = [(list(SCENARIOS)[number % len(SCENARIOS)], number // len(SCENARIOS)) for number in range(SEEDS)]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_anomaly_and_most_records_are_acknowledged(scenario: str) -> None:
    coverage: Counter[str] = sum((check(*case).coverage for case in CASES if case[0] == scenario), Counter())
    assert coverage["records: acknowledged"] > coverage["records: sent"] / 2


# Without these, seeds that show no anomaly would prove nothing.
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
    "net: frames from a closed end",
    "net: dials refused",
    "net: dials swallowed",
    "net: stale metadata",
    "net: responses throttled",
    "net: duplicates recognised",
    "net: returned NOT_LEADER_OR_FOLLOWER",
    "net: returned MESSAGE_TOO_LARGE",
    "net: returned UNKNOWN_PRODUCER_ID",
    "net: returned KAFKA_STORAGE_ERROR",
    "net: returned OUT_OF_ORDER_SEQUENCE_NUMBER",
    "net: returned INVALID_PRODUCER_EPOCH",
    "transactions: committed",
    "transactions: aborted",
    "records: lost with a leader",
    "records: lost by an unclean election",
    "records: given up, surely not stored",
    "records: given up, possibly stored",
    "records: refused for want of memory",
]


@pytest.mark.slow
@pytest.mark.parametrize("what", HAPPENED)
def test_it_happened(what: str) -> None:
    """Stops at the first seed that shows it: another process may run the other seeds."""
    assert any(check(*case).coverage[what] for case in CASES)


@pytest.mark.slow
def test_a_first_batch_that_moves_to_another_partition_leaves_its_sequence() -> None:
    """The next batch begins where that one began, which is not 0 in this scenario."""
    check("wrap", 1_500_004)
