"""Define the scenarios: each is a function that disturbs the brokers of a `Stage`; a table lists them all.

A scenario leaves every broker running and in sync. The same stage and seed repeat the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

PARTITIONS = 6
NEWEST = "4.3.1"
OLD_VERSIONS = ("0.8.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1")
# Longer than the controller needs to notice a lost broker (broker.session.timeout.ms is 6 s here).
_GONE_S = 8.0
_PAUSE_S = 20.0
_CALM_S = 2.0
# A killed broker stays registered for this time, and its id cannot register again before (see ZOOKEEPER_MS).
_ZOOKEEPER_S = 6.0
ZOOKEEPER_MS = 4_000
# After this time the coordinator, which checks every second, has aborted the transaction of a frozen process.
_FROZEN_S = 9.0
_FROZEN_TRANSACTION_MS = 5_000
# The first delivery timeout is longer than any outage of a broker, the second is shorter.
_PATIENT_MS, _IMPATIENT_MS = 180_000, 3_000


class Stage(Protocol):
    """List the actions of a scenario. Each call returns after its action; only `rest` and waiting take time."""

    random: Random

    @property
    def nodes(self) -> list[int]: ...
    def leader(self, partition: int) -> int: ...
    def kill(self, node: int) -> None: ...
    def stop(self, node: int) -> None: ...
    def start(self, *nodes: int) -> None: ...
    def pause(self, node: int) -> None: ...
    def resume(self, node: int) -> None: ...
    def cut_connections(self, is_cutting: bool) -> None: ...
    def kill_client(self) -> None: ...
    def replace_client(self) -> None: ...
    def freeze_client(self, seconds: float) -> None: ...
    def wait_in_sync(self) -> None: ...
    def rest(self, seconds: float) -> None: ...


def calm(stage: Stage) -> None:
    stage.rest(_CALM_S)


def kill(stage: Stage) -> None:
    for _ in range(2):
        _calm(stage)
        _away(stage, _any_leader(stage), stage.kill, _GONE_S)


def stop(stage: Stage) -> None:
    for _ in range(2):
        _calm(stage)
        _away(stage, _any_leader(stage), stage.stop, _CALM_S)


def pause(stage: Stage) -> None:
    _calm(stage)
    victim = _any_leader(stage)
    stage.pause(victim)
    stage.rest(_PAUSE_S)
    stage.resume(victim)
    stage.wait_in_sync()


def roll(stage: Stage) -> None:
    for node in stage.nodes:
        _calm(stage)
        _away(stage, node, stage.stop, 0)


def chase(stage: Stage) -> None:
    """Kill the leader of partition 0 five times."""
    for _ in range(5):
        _calm(stage)
        _away(stage, stage.leader(0), stage.kill, _GONE_S)


def blackout(stage: Stage) -> None:
    """Kill all brokers at once, so that no process has the acknowledged records any more."""
    for _ in range(2):
        _calm(stage)
        for node in stage.nodes:
            stage.kill(node)
        stage.rest(_CALM_S)
        stage.start(*stage.nodes)
        stage.wait_in_sync()


def cuts(stage: Stage) -> None:
    stage.cut_connections(True)
    stage.rest(30)
    stage.cut_connections(False)


def clients(stage: Stage) -> None:
    """Disturb no broker; the copying process is killed every few seconds."""
    for _ in range(10):
        stage.rest(stage.random.uniform(0.5, 3))
        stage.kill_client()


def zombies(stage: Stage) -> None:
    """Freeze and replace a copying process; when it continues, it must notice that it is fenced."""
    for _ in range(4):
        stage.rest(stage.random.uniform(1, 3))
        stage.replace_client()


def frozen(stage: Stage) -> None:
    """Freeze a copying process for longer than the transaction timeout, without a replacement."""
    for _ in range(4):
        stage.rest(stage.random.uniform(1, 3))
        stage.freeze_client(_FROZEN_S)


def storm(stage: Stage) -> None:
    """Combine all disturbances."""
    stage.cut_connections(True)
    for away, seconds in ((stage.kill, _GONE_S), (stage.stop, _CALM_S)):
        _calm(stage)
        stage.kill_client()
        _away(stage, _any_leader(stage), away, seconds)
    stage.kill_client()
    pause(stage)
    stage.cut_connections(False)
    stage.replace_client()


def short(stage: Stage) -> None:
    """Run in half a minute, for CI: a kill, a clean stop, cut connections and killed clients."""
    stage.cut_connections(True)
    _away(stage, _any_leader(stage), stage.kill, _CALM_S)
    stage.kill_client()
    _away(stage, _any_leader(stage), stage.stop, 0)
    stage.cut_connections(False)


def restart(stage: Stage) -> None:
    """Stop and start the only broker, then kill it and start it after ZooKeeper has noticed."""
    for away, seconds in ((stage.stop, 0), (stage.kill, _ZOOKEEPER_S)):
        _calm(stage)
        _away(stage, stage.nodes[0], away, seconds)


def bounce(stage: Stage) -> None:
    """Stop and start the only broker, for CI."""
    _calm(stage)
    _away(stage, stage.nodes[0], stage.stop, 0)


@dataclass(frozen=True)
class Scenario:
    """Describe a scenario.

    `seconds` is its approximate length, over which the records are spread. `client_kills` is the range of seconds
    between kills of the copying process, or None.
    """

    name: str
    about: str
    act: Callable[[Stage], None]
    seconds: float
    version: str = NEWEST
    nodes: int = 3
    client_kills: tuple[float, float] | None = (5.0, 15.0)
    copiers: int = 2
    transaction_timeout_ms: int = 60_000
    delivery_timeout_ms: int = _PATIENT_MS
    is_relayed: bool = False
    records: int = 200_000

    @property
    def may_fail(self) -> bool:
        """Return whether records may fail before a broker is available again."""
        return self.delivery_timeout_ms < _PATIENT_MS


_BUSY = (
    Scenario("calm", "nothing happens, for comparison", calm, 0, client_kills=None),
    Scenario("kill", "kill -9 of two leaders, each away for 8 s", kill, 40),
    Scenario("pause", "SIGSTOP of a leader for 20 s", pause, 35),
    Scenario("stop", "two leaders are stopped cleanly, and started", stop, 25),
    Scenario("roll", "rolling bounce: each broker in turn", roll, 35),
    Scenario("chase", "the leader of partition 0 is killed, five times", chase, 100),
    Scenario("blackout", "kill -9 of all brokers at once, twice", blackout, 40),
    Scenario(
        "impatient",
        "the same as kill, but records are given up after 3 s",
        kill,
        40,
        delivery_timeout_ms=_IMPATIENT_MS,
    ),
    Scenario("cuts", "every connection is cut 0.5 to 1.5 s after it began", cuts, 30, is_relayed=True),
    Scenario("clients", "the copying process is killed ten times", clients, 20, client_kills=None),
    Scenario("zombies", "the copying process freezes, is replaced, and wakes up", zombies, 30, client_kills=None),
    Scenario(
        "frozen",
        "the copying process freezes until its transaction has timed out",
        frozen,
        50,
        client_kills=None,
        transaction_timeout_ms=_FROZEN_TRANSACTION_MS,
    ),
    Scenario("storm", "cuts, kill -9, clean stop, SIGSTOP, killed and frozen clients", storm, 80, is_relayed=True),
    Scenario("storm-3.9.1", "the same with transactions of the older protocol", storm, 80, "3.9.1", is_relayed=True),
)
_OLD = tuple(
    Scenario(f"restart-{version}", f"the one broker, {version}, is stopped, then killed", restart, 15, version, 1)
    for version in OLD_VERSIONS
)
SHORT = Scenario(
    "short",
    "cuts, kill -9, clean stop, killed clients",
    short,
    25,
    client_kills=None,
    copiers=1,
    is_relayed=True,
    records=20_000,
)
# A version without idempotence, the first with it, and the last with the older transaction protocol among them.
BOUNCES = tuple(
    Scenario(
        f"bounce-{version}",
        f"the one broker, {version}, is stopped once",
        bounce,
        5,
        version,
        nodes=1,
        client_kills=None,
        copiers=1,
        records=20_000,
    )
    for version in ("0.8.2.2", "0.11.0.3", "3.9.1")
)
# Named groups of scenarios. CI runs `ci`: short forms of the others.
GROUPS: Mapping[str, Sequence[Scenario]] = {"new": _BUSY, "old": _OLD, "ci": (SHORT, *BOUNCES)}
SCENARIOS: Mapping[str, Scenario] = {one.name: one for group in GROUPS.values() for one in group}


def _calm(stage: Stage) -> None:
    stage.rest(stage.random.uniform(1, 2 * _CALM_S))


def _any_leader(stage: Stage) -> int:
    return stage.leader(stage.random.randrange(PARTITIONS))


def _away(stage: Stage, node: int, how: Callable[[int], None], seconds: float) -> None:
    how(node)
    stage.rest(seconds)
    stage.start(node)
    stage.wait_in_sync()
