"""Deterministic simulation: clients and brokers in one thread, on virtual time, from one seed.

    report = simulate("patient", seed=1234)
    assert not report.anomalies

The code under test is the real one: event loop, sessions, codecs, sender, server, handlers, logs. Sockets, time and
random numbers are simulated. A plan is a function of scenario and seed, and a run is a function of its plan, so
`tools/simulate --replay patient 1234` shows the same run again.

    world      virtual time, the loops that run in it, the trace of all events
    network    connections that delay, split, cut or lose bytes; the simulated KafkaSelector
    cluster    embedded brokers in a world
    clients    a producer, a reader, a transactional job
    program    user code as coroutines on virtual time, and what a client has instead of a thread
    members    members of a group: the consumer, and the user code around it
    schedule   the vocabulary of a plan: work and disturbances
    scenario   named families of plans; drawing a plan from a seed
    history    what clients did and what logs hold
    checker    whether the history keeps every promise, transactions included
    share_members, share_checker
               the same for share groups
    copiers, copy_checker
               the same for members that copy records in transactions
    group_scenario, group_history, group_checker, group_world
               the same for groups: families, evidence, promises, and the course of a run
    queue_scenario, queue_processes, queue_history, queue_checker, queue_world
               the same for queues: families, programs, evidence, promises, and a run
    conduct    whether the requests of the sender keep the rules of order
    run        one run from a plan to a report
    shrink     the fewest disturbances that still cause an anomaly

Imports: aio, broker, queue, share, consumer, producer, cluster, net, session, protocol, records, wire.
"""

from collections.abc import Mapping
from types import MappingProxyType

from kwire.simulation.checker import Anomaly
from kwire.simulation.group_scenario import GROUP_SCENARIOS
from kwire.simulation.queue_scenario import QUEUE_SCENARIOS
from kwire.simulation.queue_world import QueueRun
from kwire.simulation.run import Report, run
from kwire.simulation.scenario import PRODUCER_SCENARIOS, Plan, Scenario, plan
from kwire.simulation.shrink import shrink

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({**PRODUCER_SCENARIOS, **GROUP_SCENARIOS, **QUEUE_SCENARIOS})


def simulate(scenario: str, seed: int, *, keeps_trace: bool = False) -> Report:
    """Run one seed of a named scenario. Raises KeyError for a name that is none of `SCENARIOS`."""
    return run(plan(SCENARIOS[scenario], seed), keeps_trace=keeps_trace)


__all__ = [
    "GROUP_SCENARIOS",
    "PRODUCER_SCENARIOS",
    "QUEUE_SCENARIOS",
    "SCENARIOS",
    "Anomaly",
    "Plan",
    "QueueRun",
    "Report",
    "Scenario",
    "plan",
    "run",
    "shrink",
    "simulate",
]
