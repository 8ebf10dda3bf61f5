"""Run tests in several pytest processes, each of which has a group of files: PROCESSES [TEST...] [-- ARGUMENT...].

TEST is a file, a folder or file::test (default: tests); pytest gets ARGUMENT. Files are given to pytest by their names,
so what is to be left out must be told by --ignore=PATH. A process that ends makes room for the next group. The output
of a group is printed if one of its tests failed; the reasons of skipped tests, and the sum, are printed at the end.

With --twice the tests run in pure Python (KWIRE_IMPL=python) afterwards, except those of --once PATH. With --later
PROCESSES FILE so many processes run from when the file FILE exists, so that they take the place of other programs.

With pytest-xdist every process collects all tests, and reports each of them to the first process: of 13,600 short tests
that was 40 % of the CPU time.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_SECONDS = 2.0  # for processes that got the signal, too
_LOOK_SECONDS = 1.0  # for the file of --later
# So that the last group is short. To import and collect its tests takes a group two seconds of CPU time.
_GROUPS_OF_A_PROCESS = 3
_GROUPS_OF_A_PROCESS_AGAIN = 2
_IGNORE = "--ignore="
_SUM = re.compile(r"^(?:=+ )?((?:no tests|\d+[ /]).*) in \d+\.\d+s\b")
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)\b")
_EXIT_FIRST = re.compile(r"-[a-z]*x[a-z]*|--exitfirst|--maxfail=?.*")
_SUMMARY = "short test summary info"
_NO_TESTS = 5  # pytest's exit code


def files_of(tests: Sequence[str], ignored: Iterable[str]) -> list[str]:
    """Return the files of these tests, folders searched; a test within a file stays as it is."""
    left_out = [Path(path).resolve() for path in ignored]
    found: dict[Path, str] = {}
    within: dict[str, None] = {}
    for test in tests or ["tests"]:
        path = Path(test)
        if "::" in test:
            within[test] = None
            continue
        for one in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if not any(one.resolve().is_relative_to(folder) for folder in left_out):
                found.setdefault(one.resolve(), str(one))
    return [*(one for one in within if _file(one).resolve() not in found), *found.values()]


def groups_of(files: Sequence[str], count: int) -> list[list[str]]:
    """Deal the files to at most `count` groups, the largest first: these take long, and should not begin last."""
    by_size = sorted(files, key=lambda test: _file(test).stat().st_size, reverse=True)
    return [group for number in range(count) if (group := by_size[number::count])]


def _file(test: str) -> Path:
    return Path(test.partition("::")[0])


@dataclass(frozen=True)
class Group:
    """Tests that one process runs, perhaps in pure Python."""

    tests: Sequence[str]
    is_in_python: bool = False

    def __str__(self) -> str:
        others = f" and {len(self.tests) - 1} more" if self.tests[1:] else ""
        return f"{self.tests[0]}{others}{', in pure Python' * self.is_in_python}"


@dataclass(frozen=True)
class Ended:
    """What pytest printed about a group."""

    group: Group
    seconds: float
    code: int
    output: str

    def __str__(self) -> str:
        return f"{self.group}: {_shown(self.counts())} in {self.seconds:.0f} s"

    @property
    def has_failed(self) -> bool:
        """Return whether a test failed, or ended the process: then there is no sum, whatever the exit code is."""
        return self.code not in (0, _NO_TESTS) or self._sum() is None

    def _sum(self) -> str | None:
        """Return pytest's sum. A library may print more as the process ends."""
        sums = [found[1] for line in self.output.splitlines() if (found := _SUM.match(line))]
        return sums[-1] if sums else None

    def counts(self) -> Counter[str]:
        """Return how many tests passed, failed and so on."""
        return Counter({name.removesuffix("s"): int(count) for count, name in _COUNT.findall(self._sum() or "")})

    def skip_reasons(self) -> list[str]:
        """Return the lines about skipped tests of pytest's summary."""
        summary = self.output.partition(_SUMMARY)[2]
        return [line for line in summary.splitlines() if line.startswith("SKIPPED")]


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if name != "deselected") or "no tests"


@dataclass(frozen=True)
class Later:
    """How many processes run at once from when a file exists."""

    processes: int
    file: Path


class Runner:
    """Runs groups, each in a process of its own, `processes` at once, and perhaps more `later`.

    What stops the runner stops its processes: Ctrl-C in a terminal reaches them anyway, a signal to it alone does not.
    """

    def __init__(self, processes: int, arguments: Sequence[str], later: Later | None = None) -> None:
        self._arguments = arguments
        self._running: set[subprocess.Popen[str]] = set()
        self._pool = ThreadPoolExecutor(max(processes, later.processes if later else 0))
        self._stopped = threading.Event()
        self._free = threading.Semaphore(processes)
        if later is not None and later.processes > processes:
            more = later.processes - processes
            threading.Thread(target=self._free_more, args=(more, later.file), daemon=True).start()

    def _free_more(self, count: int, file: Path) -> None:
        while not file.exists():
            if self._stopped.wait(_LOOK_SECONDS):
                return
        self._free.release(count)

    def run(self, groups: Sequence[Group]) -> int:
        """Run the groups; return 1 if one failed, pytest's 5 if there was no test, else 0.

        With pytest's -x no further group begins after a failure.
        """
        began = time.monotonic()
        is_brief = any(map(_EXIT_FIRST.fullmatch, self._arguments))
        total, skipped, failed = Counter[str](), list[str](), False
        left = deque(groups)
        waiting = [self._pool.submit(self._run_next, left) for _ in groups]
        try:
            for number, future in enumerate(as_completed(waiting), 1):
                ended = future.result()
                if ended is None:  # it had not begun when another failed
                    continue
                total += ended.counts()
                skipped += ended.skip_reasons()
                print(f"[{number}/{len(groups)}] {ended}", flush=True)
                if ended.has_failed:
                    failed = True
                    if is_brief:
                        self._stopped.set()
                    print(ended.output, flush=True)
        except BaseException:
            self._stopped.set()
            for process in list(self._running):
                try:
                    process.wait(_PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:  # the signal came to this process alone
                    process.send_signal(signal.SIGINT)
            raise
        finally:
            self._pool.shutdown()
            self._stopped.set()
        for line in skipped:
            print(line)
        print(f"{_shown(total)} in {time.monotonic() - began:.0f} s", flush=True)
        has_run = any(count for name, count in total.items() if name not in ("deselected", "warning"))
        return 1 if failed else 0 if has_run else _NO_TESTS

    def _run_next(self, left: deque[Group]) -> Ended | None:
        with self._free:  # and only then take a group, as they begin in order
            return None if self._stopped.is_set() else self._run_pytest(left.popleft())

    def _run_pytest(self, group: Group) -> Ended:
        began = time.monotonic()
        # The cache plugin would write what failed last in each group over that of the others.
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *self._arguments, *group.tests]
        environment = {**os.environ, "KWIRE_IMPL": "python"} if group.is_in_python else None
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        ) as process:  # fmt: skip
            self._running.add(process)
            output, _ = process.communicate()
            self._running.discard(process)
        return Ended(group, time.monotonic() - began, process.returncode, output)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _from_1(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(words: Sequence[str]) -> int:
    """Run as the module says."""
    split = words.index("--") if "--" in words else len(words)
    arguments = words[split + 1 :]
    parser = argparse.ArgumentParser(prog="grouped_tests", description=__doc__, allow_abbrev=False)
    parser.add_argument("processes", type=_from_1)
    parser.add_argument("tests", nargs="*", metavar="TEST")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--once", action="append", default=[], metavar="PATH")
    parser.add_argument("--later", nargs=2, metavar=("PROCESSES", "FILE"))
    options = parser.parse_args(words[:split])
    try:
        later = Later(_from_1(options.later[0]), Path(options.later[1])) if options.later else None
    except ValueError:
        parser.error(f"--later: {options.later[0]} is no number of processes")
    for test in options.tests:
        if not _file(test).exists():
            parser.error(f"there is no {_file(test)}")
    ignored = [one.removeprefix(_IGNORE) for one in arguments if one.startswith(_IGNORE)]

    count = options.processes * _GROUPS_OF_A_PROCESS
    groups = [Group(tests) for tests in groups_of(files_of(options.tests, ignored), count)]
    if options.twice:
        count = (later.processes if later else options.processes) * _GROUPS_OF_A_PROCESS_AGAIN
        again = groups_of(files_of(options.tests, [*ignored, *options.once]), count)
        groups += [Group(tests, is_in_python=True) for tests in again]
    signal.signal(signal.SIGTERM, _stop)
    try:
        return Runner(options.processes, arguments, later).run(groups)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
