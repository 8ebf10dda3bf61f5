"""Every mutant still applies, and tools/mutate reports correctly whether tests notice one.

tools/mutate itself runs all of them, which takes minutes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from checks import mutate
from checks.mutate import Mutant, MutantError

pytestmark = pytest.mark.programs

MUTANTS = mutate.load()


@pytest.mark.parametrize("name", MUTANTS)
def test_the_patch_applies_once_and_its_tests_exist(name: str) -> None:
    mutant = MUTANTS[name]
    compile(mutant.patched((mutate.ROOT / mutant.file).read_text()), mutant.file, "exec")
    assert mutant.tests
    for test in mutant.tests:
        path, *names = test.split("::")
        source = (mutate.ROOT / path).read_text()
        assert all(f" {name.partition('[')[0]}" in source for name in names)


# Scenarios of groups (S), fetching (F) and share groups (H): bugs that other clients had.
SCENARIOS = [f"{kind}{number:02}" for kind, last in (("s", 50), ("f", 15), ("h", 12)) for number in range(1, last + 1)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_has_a_test_that_notices_a_bug(scenario: str) -> None:
    """The test has the scenario in its name, and a mutant names this test, or the scenario in its own name."""
    folders = ("tests/consumer/", "tests/share/", "tests/broker/", "tests/producer/")
    named = re.compile(rf"::(\w+::)?test_(\w+_)?{scenario}_")
    noticed_by = [test for mutant in MUTANTS.values() for test in mutant.tests if named.search(test)]
    assert [test for test in noticed_by if test.startswith(folders)], f"no mutant for a test_{scenario}_..."


def test_bugs_are_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["held-batches-return-reversed", "aborted-off-by-one"]
    assert mutate.main([*names, "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, line in zip(names, lines, strict=False):
        assert line.startswith(f"{name} ")
        assert f"noticed by {MUTANTS[name].tests[0].partition('[')[0]}" in line
    assert lines[2:] == ["2 tried, 2 noticed, 0 not"]


def test_neither_a_harmless_change_nor_one_that_does_not_fit_is_noticed() -> None:
    bug = MUTANTS["held-batches-return-reversed"]
    changes = replace(bug, old="no such text"), replace(bug, old="_FIRST_EPOCH = 0", new="_FIRST_EPOCH = 1 - 1")
    unfit, harmless = mutate.try_all(changes)
    assert unfit.error is not None
    assert "occurs 0 times in kwire/producer/partition.py" in unfit.error
    assert (harmless.noticed_by, harmless.error, harmless.is_noticed) == (None, None, False)


def test_the_simulation_names_the_seed(tmp_path: Path) -> None:
    workspace = mutate.Workspace(tmp_path)
    result = mutate.try_seeds(workspace, MUTANTS["throttle-ignored"], seeds=100)
    assert result.noticed_by is not None
    assert result.noticed_by.startswith("seed ")
    harmless = replace(MUTANTS["throttle-ignored"], new="        if response.throttle_time_ms > 0:\n")
    assert mutate.try_seeds(workspace, harmless, seeds=5).noticed_by is None


def test_a_patch_must_fit_once() -> None:
    with pytest.raises(MutantError, match="occurs 2 times"):
        Mutant("twice", "", "a.py", "x", "y", ()).patched("x x")


def test_an_unknown_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutate.main(["no-such-bug"]) == 2
    assert "no such mutant: no-such-bug" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('name = "a"\nabout = ""\nfile = "f"\nold = "x"\nnew = "y"', "a has no 'tests'"),
        ('name = "a"\nabout = ""\nfile = "f"\nold = "x"\nnew = "x"\ntests = ["t"]', "a changes nothing"),
    ],
)
def test_a_malformed_mutant_is_an_error(tmp_path: Path, entry: str, message: str) -> None:
    (tmp_path / "room.toml").write_text(f"[[mutant]]\n{entry}\n")
    with pytest.raises(MutantError, match=message):
        mutate.load(tmp_path)
