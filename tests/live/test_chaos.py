"""The short form of tools/chaos: three real brokers, one killed and one stopped, while every connection is cut.

20,000 sequenced records and a transactional copy by a process that is killed: nothing lost, doubled, out of order or
torn, says librdkafka, and kwire.Consumer has read the same while it happened. tools/chaos has the long forms.
"""

from __future__ import annotations

import pytest
from chaos_runs.run import run
from chaos_runs.scenarios import SHORT

SEED = "kwire"


@pytest.mark.timeout(240)
def test_what_is_promised_holds_under_chaos() -> None:
    verdict = run(SHORT, SHORT.records, SEED, print)
    proofs = (verdict.log, verdict.copy)
    assert [finding for proof in proofs if proof is not None for finding in proof.findings] == []
    assert verdict.complaints == []
    assert verdict.holds
    # And it did happen: nobody is impressed by a calm day.
    assert verdict.log.records >= SHORT.records
    assert verdict.copy is not None
    assert verdict.copy.records == verdict.log.records
    assert verdict.clients["killed"] == 1
    assert verdict.cuts > 20
    assert verdict.retries > 0
