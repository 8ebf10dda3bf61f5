"""Plant deliberate bugs, one at a time, in a copy of the tree, and check that the tests notice each.

A bug is a small patch in tests/mutants/*.toml, with the tests that must fail. Without names it tries all bugs. With
--simulation the simulation must notice those marked for it, within 300 seeds of the scenarios of producers, 2,000 of
those of groups or 260 of those of queues. The tests run in pure Python, because the
C accelerator replaces some Python code. Exit code 1 if a bug goes unnoticed or a patch does not apply exactly once.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = ROOT / "tests" / "mutants"
SEEDS = {"producers": 300, "groups": 2_000, "queue": 260}  # by kind of scenario
_SCENARIO_SEEDS = 60  # of one scenario that is named itself

# What the tests read. Sources are copied, because they change while the tests run.
_COPIED = ("kwire", "tests")
_ABOUT_BYTECODE = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
_LINKED = ("tools", "fixtures", "docs", "setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
_SEEDS_SECONDS_MAX = 1_800.0
_SECONDS_MAX = 300.0  # a longer test run hangs, which counts as noticed
_PYTEST_FAILED = 1


class MutantError(Exception):
    """A mutant cannot be tried as it is written."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: in `file`, `old` becomes `new`. `tests` are pytest's node ids, of which at least one must fail.

    `simulation` names the kind of scenarios that must notice it, too, or one scenario, or is empty. `implementation` is
    "python", or "c" for a bug in code that only the accelerator uses.
    """

    name: str
    about: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    simulation: str = ""
    implementation: str = "python"

    def patched(self, source: str) -> str:
        """Return the source with the bug in it. Raises MutantError unless `old` occurs exactly once."""
        count = source.count(self.old)
        if count != 1:
            raise MutantError(f"{self.name}: the old text occurs {count} times in {self.file}, not once")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Result:
    """How a mutant was tried. `noticed_by` is None if its tests (or the seeds) passed."""

    mutant: Mutant
    checker: str  # "tests" or "simulation"
    noticed_by: str | None
    seconds: float
    error: str | None = None

    @property
    def is_noticed(self) -> bool:
        return self.noticed_by is not None and self.error is None


def load(folder: Path = MUTANTS) -> dict[str, Mutant]:
    """Read every mutant, by name. Raises MutantError for one that lacks a field, or whose name is taken."""
    mutants: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            try:
                mutant = Mutant(
                    name=entry["name"], about=entry["about"], file=entry["file"], old=entry["old"].strip("\n"),
                    new=entry["new"].strip("\n"), tests=tuple(entry["tests"]),
                    simulation=_kind(entry.get("simulation", "")), implementation=entry.get("implementation", "python"),
                )  # fmt: skip
            except KeyError as error:
                raise MutantError(f"{path.name}: {entry.get('name', 'a mutant')} has no {error}") from None
            if mutant.name in mutants:
                raise MutantError(f"{path.name}: the name {mutant.name} is taken")
            if mutant.old == mutant.new:
                raise MutantError(f"{mutant.name} changes nothing")
            mutants[mutant.name] = mutant
    return mutants


def _kind(simulation: str) -> str:
    if simulation not in ("", *SEEDS) and simulation.partition("-")[0] not in SEEDS:
        raise MutantError(f"simulation is {simulation!r}: give one of {', '.join(SEEDS)}, or a scenario of queues")
    return simulation


class Workspace:
    """A copy of the tree in which one bug at a time is planted."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        for name in _COPIED:
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in _LINKED:
            if (root / name).exists():
                (folder / name).symlink_to(root / name)
        # By the hash of the source: a file may change twice within a second.
        self.run(["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "kwire"])

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.file
        if not path.exists():
            raise MutantError(f"{mutant.name}: there is no {mutant.file}")
        source = path.read_text()
        path.write_text(mutant.patched(source))
        try:
            yield
        finally:
            path.write_text(source)

    def run(
        self, arguments: Sequence[str], implementation: str = "python", *, seconds_max: float = _SECONDS_MAX
    ) -> tuple[int | None, str]:
        """Run Python in the copy. Return its exit code (None after a timeout) and its output."""
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _ABOUT_BYTECODE},
            "KWIRE_IMPL": implementation,
            "PYTHONPATH": os.pathsep.join((str(self.folder), str(self.folder / "tools"))),
        }
        command = [sys.executable, *arguments]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=seconds_max,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr


def try_tests(workspace: Workspace, mutant: Mutant) -> Result:
    """Plant the bug and run its tests."""
    began = time.monotonic()
    arguments = ["-m", "pytest", "-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", *mutant.tests]
    with workspace.planted(mutant):
        code, output = workspace.run(arguments, mutant.implementation)
    seconds = time.monotonic() - began
    if code is None:
        return Result(mutant, "tests", f"a test that took over {_SECONDS_MAX:.0f} s", seconds)
    if code == _PYTEST_FAILED:
        failed = [line.split(" - ")[0] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return Result(mutant, "tests", failed[0].partition(" ")[2] if failed else "a test", seconds)
    if code == 0:
        return Result(mutant, "tests", None, seconds)
    return Result(mutant, "tests", None, seconds, error=f"pytest ended with {code}: {output[-2000:]}")


def try_seeds(workspace: Workspace, mutant: Mutant, seeds: int | None = None) -> Result:
    """Plant the bug and run the simulation up to the first seed that shows an anomaly."""
    began = time.monotonic()
    code = "import sys; from checks.simulate import main; sys.exit(main(sys.argv[1:]))"
    count = str(seeds or SEEDS.get(mutant.simulation, _SCENARIO_SEEDS))
    which = "--kind" if mutant.simulation in SEEDS else "--scenario"
    with workspace.planted(mutant):
        status, output = workspace.run(
            ["-c", code, which, mutant.simulation, "--seeds", count, "--jobs", "1", "--until-anomaly"],
            seconds_max=_SEEDS_SECONDS_MAX,
        )
    seconds = time.monotonic() - began
    if status is None:
        return Result(mutant, "simulation", f"a run that took over {_SEEDS_SECONDS_MAX:.0f} s", seconds)
    if status == 0:
        return Result(mutant, "simulation", None, seconds)
    lines = [line for line in output.splitlines() if line.startswith("seed ")]
    if not lines:
        return Result(mutant, "simulation", None, seconds, error=f"it ended with {status}: {output[-2000:]}")
    return Result(mutant, "simulation", lines[0], seconds)


def try_all(mutants: Iterable[Mutant], *, simulates: bool = False, jobs: int = 1) -> Iterator[Result]:
    """Yield the result of each mutant in order. Each job has a copy of the tree."""
    tasks = [(try_tests, mutant) for mutant in mutants]
    if simulates:
        tasks = [(try_seeds, mutant) for _, mutant in tasks if mutant.simulation]
    with tempfile.TemporaryDirectory(prefix="kwire-mutate-") as folder:
        free: queue.Queue[Workspace] = queue.Queue()
        for number in range(min(jobs, len(tasks))):
            copy = Path(folder) / str(number)
            copy.mkdir()
            free.put(Workspace(copy))

        def attempt(task: int) -> Result:
            checker, mutant = tasks[task]
            workspace = free.get()
            try:
                return checker(workspace, mutant)
            except MutantError as error:
                return Result(mutant, "patch", None, 0.0, error=str(error))
            finally:
                free.put(workspace)

        with ThreadPoolExecutor(max(1, jobs)) as pool:
            yield from pool.map(attempt, range(len(tasks)))


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        mutants = load()
    except MutantError as error:
        print(f"tools/mutate: {error}", file=sys.stderr)
        return 2
    unknown = [name for name in options.names if name not in mutants]
    if unknown:
        print(f"tools/mutate: no such mutant: {', '.join(unknown)}; see --list", file=sys.stderr)
        return 2
    chosen = [mutants[name] for name in options.names] or list(mutants.values())
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:44} {mutant.simulation:9} {mutant.about} ({mutant.file})")
        return 0
    missed = tried = 0
    for simulates in (False, True) if options.simulation else (False,):
        for result in try_all(chosen, simulates=simulates, jobs=options.jobs):
            tried += 1
            missed += not result.is_noticed
            print(_line(result), flush=True)
    print(f"{tried} tried, {tried - missed} noticed, {missed} not")
    return 1 if missed else 0


def _line(result: Result) -> str:
    what = f"noticed by {result.noticed_by}" if result.noticed_by else "NOT NOTICED"
    if result.error is not None:
        what = f"ERROR: {result.error}"
    return f"{result.mutant.name:44} {result.seconds:5.1f} s  {result.checker}: {what}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="the mutants to try (all)")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run nothing")
    parser.add_argument("--simulation", action="store_true", help="run seeds of the simulation, too")
    parser.add_argument("--jobs", type=_positive, default=2, help="copies of the tree to work in at once (2)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
