"""Test the short scenarios of `tools/chaos ci`: real brokers are killed, stopped and cut off without an anomaly.

librdkafka reads 20,000 numbered records and a transactional copy by a process that is killed: no record is lost,
duplicated or out of order, no transaction is partial, and kwire.Consumer has read the same during the scenario.
"""

from __future__ import annotations

import pytest
from brokers.cluster import KafkaCluster
from chaos_runs.run import Verdict, run, run_on
from chaos_runs.scenarios import BOUNCES, SHORT, Scenario

SEED = "kwire"


@pytest.mark.timeout(240)
def test_no_anomaly_under_chaos(three_brokers: KafkaCluster) -> None:
    verdict = run_on(three_brokers, SHORT, SHORT.records, SEED, print)
    assert_holds(verdict)
    # The disturbances really happened.
    assert verdict.copy is not None
    assert verdict.clients["killed"] == 1
    assert verdict.cuts > 20
    assert verdict.retries > 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scenario", BOUNCES, ids=lambda scenario: scenario.version)
def test_an_old_broker_is_restarted_in_the_middle(scenario: Scenario) -> None:
    """Records may occur twice only if the broker has no idempotence: see `Proof.tolerated`."""
    verdict = run(scenario, scenario.records, SEED, print)
    assert_holds(verdict)
    assert (verdict.copy is None) == ("duplicated" in verdict.log.tolerated) == (scenario.version == "0.8.2.2")
    assert verdict.longest_stall > 1  # the broker was down, and records waited for it


def assert_holds(verdict: Verdict) -> None:
    proofs = [proof for proof in (verdict.log, verdict.copy) if proof is not None]
    assert [finding for proof in proofs if proof.anomalies for finding in proof.findings] == []
    assert verdict.complaints == []
    assert verdict.holds
    assert all(proof.records == verdict.log.records >= verdict.scenario.records for proof in proofs)
