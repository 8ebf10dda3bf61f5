"""A run is a function of its scenario and seed: in this process, in another one, with another hash seed, and with the
other implementation.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kwire.simulation import PRODUCER_SCENARIOS, SCENARIOS, plan, run, simulate

_PRINT_DIGESTS = """
from kwire.simulation import simulate
import logging
logging.getLogger("kwire").setLevel(logging.CRITICAL)
for name in %r:
    print(name, simulate(name, 7).digest)
"""
# Of groups and queues only some, because their runs take long.
NAMES = [*PRODUCER_SCENARIOS, "static", "share", "newcopiers", "queue-clocks", "queue-producer"]


def digests(hash_seed: str) -> dict[str, str]:
    """Return the digests of another process, which runs in pure Python."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "KWIRE_IMPL": "python"}
    done = subprocess.run(
        [sys.executable, "-c", _PRINT_DIGESTS % NAMES], env=environment, capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.slow
def test_two_runs_of_a_seed_are_one() -> None:
    here = {name: simulate(name, 7).digest for name in NAMES}
    assert digests("1") == here


def test_seeds_differ() -> None:
    assert len({simulate("patient", seed).digest for seed in range(10)}) == 10


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_plan_is_a_value(scenario: str) -> None:
    assert plan(SCENARIOS[scenario], 3) == plan(SCENARIOS[scenario], 3)
    assert plan(SCENARIOS[scenario], 3) != plan(SCENARIOS[scenario], 4)


def test_a_trace_is_kept_only_for_a_reader() -> None:
    one = plan(SCENARIOS["patient"], 1)
    quiet, kept = run(one), run(one, keeps_trace=True)
    assert quiet.trace is None
    assert kept.trace is not None
    assert len(kept.trace) > 100
    assert quiet.digest == kept.digest
