"""Deterministic simulation: producers and brokers in one thread, on virtual time, from one seed.

    report = simulate("patient", seed=1234)
    assert not report.anomalies

The code under test is the real one: event loop, sessions, codecs, sender; `Server`, handlers, logs. Simulated are
sockets, time and chance. What a run does is a function of its plan, and a plan is a function of scenario and seed:
`tools/simulate --replay patient 1234` shows the same run again.

    world      virtual time, and loops that turn until they would sleep
    pipe       one direction of a connection: delay, pieces, standstill, cut at any byte, silence
    connection two pipes and their ends
    net        who listens, who is connected
    selector   the face of KafkaSelector
    brokers    the embedded brokers in a world; producer, reader: clients in it
    job        a program that writes in transactions
    schedule   the words for work and disturbances; inject: carrying them out; chance: drawing them
    scenario   named families of runs
    history    what happened; checker: whether that was promised; isolation: the same for transactions
    run        one run; shrink: the fewest disturbances that still break it
    trace      every event of a run, hashed
"""

from kwire.broker.simulation.chance import plan
from kwire.broker.simulation.checker import Anomaly
from kwire.broker.simulation.run import Report, run
from kwire.broker.simulation.scenario import SCENARIOS, Plan, Scenario
from kwire.broker.simulation.shrink import shrink


def simulate(scenario: str, seed: int, *, keeps_trace: bool = False) -> Report:
    """Run one seed of a named scenario. Raises KeyError for a name that is none of `SCENARIOS`."""
    return run(plan(SCENARIOS[scenario], seed), keeps_trace=keeps_trace)


__all__ = ["SCENARIOS", "Anomaly", "Plan", "Report", "Scenario", "plan", "run", "shrink", "simulate"]
