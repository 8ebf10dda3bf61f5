"""Test the short scenarios of `tools/chaos ci`: real brokers are killed, stopped and cut off without an anomaly.

librdkafka reads 20,000 numbered records and a transactional copy by a process that is killed: no record is lost,
duplicated or out of order, no transaction is partial, and kwire.Consumer has read the same during the scenario.
"""

from __future__ import annotations

import pytest
from brokers.cluster import KafkaCluster
from chaos_runs.run import RunOutcome, run, run_on
from chaos_runs.scenarios import BOUNCES, SHORT, Scenario

SEED = "kwire"


@pytest.mark.timeout(240)
def test_no_anomaly_under_chaos(three_brokers: KafkaCluster) -> None:
    outcome = run_on(three_brokers, SHORT, SHORT.records, SEED, print)
    assert_holds(outcome)
    # The disturbances really happened.
    assert outcome.copy is not None
    assert outcome.clients["killed"] == 1
    assert outcome.cuts > 20
    assert outcome.retries > 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scenario", BOUNCES, ids=lambda scenario: scenario.version)
def test_an_old_broker_is_restarted_in_the_middle(scenario: Scenario) -> None:
    """Records may occur twice only if the broker has no idempotence: see `Proof.tolerated`."""
    outcome = run(scenario, scenario.records, SEED, print)
    assert_holds(outcome)
    assert (outcome.copy is None) == ("duplicated" in outcome.log.tolerated) == (scenario.version == "0.8.2.2")
    assert outcome.longest_stall > 1  # the broker was down, and records waited for it


def assert_holds(outcome: RunOutcome) -> None:
    proofs = [proof for proof in (outcome.log, outcome.copy) if proof is not None]
    assert [finding for proof in proofs if proof.anomalies for finding in proof.findings] == []
    assert outcome.complaints == []
    assert outcome.holds
    assert all(proof.records == outcome.log.records >= outcome.scenario.records for proof in proofs)
