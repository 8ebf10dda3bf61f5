"""Each scenario on a stage of cardboard: what it does, that it does it again for the same seed, and cleans up."""

from __future__ import annotations

from random import Random

import pytest
from chaos_runs.main import chosen, main
from chaos_runs.scenarios import GROUPS, OLD_VERSIONS, PARTITIONS, SCENARIOS, Scenario

DEEDS = ("kill", "stop", "pause", "replace", "freeze")


class Cardboard:
    """A stage that keeps a diary and refuses what a real one could not do. Node 1 + partition modulo nodes leads."""

    def __init__(self, scenario: Scenario, seed: str) -> None:
        self.random = Random(seed)
        self.nodes = list(range(1, scenario.nodes + 1))
        self.diary: list[str] = []
        self.away: set[int] = set()
        self.paused: set[int] = set()
        self.most_away = 0
        self.is_cutting = False
        self.seconds = 0.0
        self._scenario = scenario
        self._turn = 0

    def leader(self, partition: int) -> int:
        assert 0 <= partition < PARTITIONS
        there = [node for node in self.nodes if node not in self.away | self.paused]
        self._turn += 1
        return there[(partition + self._turn) % len(there)]

    def _leave(self, node: int, how: str) -> None:
        assert not self.paused
        assert node not in self.away
        self.away.add(node)
        self.most_away = max(self.most_away, len(self.away))
        self.diary.append(f"{how} {node}")

    def kill(self, node: int) -> None:
        self._leave(node, "kill")

    def stop(self, node: int) -> None:
        self._leave(node, "stop")

    def start(self, *nodes: int) -> None:
        self.away -= set(nodes)
        self.diary.append(f"start {nodes}")

    def pause(self, node: int) -> None:
        assert not self.away
        self.paused.add(node)
        self.diary.append(f"pause {node}")

    def resume(self, node: int) -> None:
        self.paused.remove(node)
        self.diary.append(f"resume {node}")

    def cut_connections(self, is_cutting: bool) -> None:
        assert self._scenario.is_relayed
        self.is_cutting = is_cutting
        self.diary.append(f"cut {is_cutting}")

    def kill_client(self) -> None:
        self.diary.append("kill client")

    def replace_client(self) -> None:
        self.diary.append("replace client")

    def freeze_client(self, seconds: float) -> None:
        assert seconds * 1000 > self._scenario.transaction_timeout_ms
        self.diary.append("freeze client")

    def wait_in_sync(self) -> None:
        assert not self.away | self.paused, "it would wait for ever"
        self.diary.append("sync")

    def rest(self, seconds: float) -> None:
        assert seconds >= 0
        self.seconds += seconds


def act(scenario: Scenario, seed: str) -> Cardboard:
    stage = Cardboard(scenario, seed)
    scenario.act(stage)
    return stage


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_scenario_leaves_everything_running_and_can_be_repeated(scenario: Scenario) -> None:
    first, again = act(scenario, "7"), act(scenario, "7")
    assert (first.away, first.paused, first.is_cutting) == (set(), set(), False)
    assert (first.diary, first.seconds) == (again.diary, again.seconds)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_after_a_broker_was_away_the_copies_are_in_sync_before_the_next_one_goes(scenario: Scenario) -> None:
    diary = act(scenario, "1").diary
    for at, entry in enumerate(diary):
        if entry.startswith(("start", "resume")):
            assert diary[at + 1] == "sync"


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_of_three_copies_two_stay_but_in_a_blackout(scenario: Scenario) -> None:
    most = act(scenario, "1").most_away
    assert most == 3 if scenario.name == "blackout" else most <= 1


def test_another_seed_is_another_course() -> None:
    courses = {tuple(act(SCENARIOS["storm"], str(seed)).diary) for seed in range(20)}
    assert len(courses) > 5


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("calm", []),
        ("kill", ["kill"] * 2),
        ("pause", ["pause"]),
        ("stop", ["stop"] * 2),
        ("roll", ["stop 1", "stop 2", "stop 3"]),
        ("chase", ["kill"] * 5),
        ("impatient", ["kill"] * 2),
        ("blackout", ["kill 1", "kill 2", "kill 3"] * 2),
        ("clients", ["kill client"] * 10),
        ("frozen", ["freeze client"] * 4),
        ("zombies", ["replace client"] * 4),
        ("short", ["kill", "kill client", "stop"]),
        ("restart-2.8.2", ["stop 1", "kill 1"]),
        ("bounce-3.9.1", ["stop 1"]),
    ],
)
def test_what_a_scenario_does(name: str, entries: list[str]) -> None:
    done = [one for one in act(SCENARIOS[name], "3").diary if one.split()[0] in DEEDS]
    assert len(done) == len(entries)
    for one, expected in zip(done, entries, strict=True):
        assert one.startswith(expected)


def test_only_the_impatient_give_up() -> None:
    assert [name for name, scenario in SCENARIOS.items() if scenario.may_fail] == ["impatient"]


def test_a_pause_outlasts_the_session_and_the_request() -> None:
    assert act(SCENARIOS["pause"], "1").seconds >= 20


def test_every_old_broker_has_its_run() -> None:
    for version in OLD_VERSIONS:
        scenario = SCENARIOS[f"restart-{version}"]
        assert (scenario.version, scenario.nodes, scenario.is_relayed) == (version, 1, False)


@pytest.mark.parametrize(
    ("names", "first", "last", "count"),
    [
        (["old"], "restart-0.8.2.2", "restart-3.9.1", 5),
        (["storm", "old"], "storm", "restart-3.9.1", 6),
        (["ci"], "short", "bounce-3.9.1", 4),
        ([], "calm", "restart-3.9.1", len(GROUPS["new"]) + len(GROUPS["old"])),
    ],
)
def test_what_is_chosen(names: list[str], first: str, last: str, count: int) -> None:
    found = [scenario.name for scenario in chosen(names)]
    assert (found[0], found[-1], len(found)) == (first, last, count)


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert listed == list(SCENARIOS)


def test_a_scenario_that_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["peace"])
    assert ended.value.code == 2
    assert "storm" in capsys.readouterr().err
