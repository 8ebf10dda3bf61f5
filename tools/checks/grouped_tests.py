"""Run tests in several pytest processes, each of which has a group of files: PROCESSES [TEST...] [-- ARGUMENT...].

TEST is a file, a folder or file::test (default: tests); pytest gets ARGUMENT. A process that ends makes room for the
next group. The output of a group is printed if one of its tests failed; the reasons of skipped tests, and the sum, are
printed at the end.

With pytest-xdist every process collects all tests, and reports each of them to the first process: of 13,600 short tests
that was 40 % of the CPU time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

_GROUPS_OF_A_PROCESS = 4  # so that the last group is short
_IGNORE = "--ignore="
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)\b")
_SUMMARY = "short test summary info"
_NO_TESTS = 5  # pytest's exit code


def files_of(tests: Sequence[str], ignored: Iterable[str]) -> list[str]:
    """Return the files of these tests, folders searched; a test within a file stays as it is."""
    left_out = [Path(path).resolve() for path in ignored]
    found: dict[str, None] = {}
    for test in tests or ["tests"]:
        path = Path(test)
        some = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        for one in some:
            where = _file(str(one)).resolve()
            if not any(where.is_relative_to(folder) for folder in left_out):
                found[str(one)] = None
    return [one for one in found if one == str(_file(one)) or str(_file(one)) not in found]


def groups_of(files: Sequence[str], count: int) -> list[list[str]]:
    """Return the files in at most `count` groups of about the same size in bytes.

    Neighbours stay together: they share imports.
    """
    sizes = [_file(file).stat().st_size for file in files]
    each = sum(sizes) / max(1, count)
    groups: list[list[str]] = []
    before = 0
    for file, size in zip(files, sizes, strict=True):
        if not groups or before + size / 2 >= len(groups) * each:
            groups.append([])
        groups[-1].append(file)
        before += size
    return groups


def _file(test: str) -> Path:
    return Path(test.partition("::")[0])


@dataclass(frozen=True)
class Ended:
    """What pytest printed about a group."""

    group: Sequence[str]
    seconds: float
    code: int
    output: str

    def __str__(self) -> str:
        first, last = self.group[0], self.group[-1]
        return f"{first if first == last else f'{first} to {last}'}: {_shown(self.counts())} in {self.seconds:.0f} s"

    @property
    def has_failed(self) -> bool:
        if self.code == 0:
            return not self.counts()  # a test ended the process
        return self.code != _NO_TESTS

    def counts(self) -> Counter[str]:
        """Return how many tests passed, failed and so on, from the last line."""
        last = self.output.rstrip().rpartition("\n")[2]
        return Counter({name.removesuffix("s"): int(count) for count, name in _COUNT.findall(last)})

    def skip_reasons(self) -> list[str]:
        """Return the lines about skipped tests of pytest's summary."""
        summary = self.output.partition(_SUMMARY)[2]
        return [line for line in summary.splitlines() if line.startswith("SKIPPED")]


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if name != "deselected") or "no tests"


def run_group(group: Sequence[str], arguments: Sequence[str]) -> Ended:
    """Run a group in a pytest process."""
    began = time.monotonic()
    # The cache plugin would write what failed last in each group over that of the others.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, *group]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return Ended(group, time.monotonic() - began, done.returncode, done.stdout)


def run(groups: Sequence[Sequence[str]], processes: int, arguments: Sequence[str]) -> int:
    """Run the groups; return 1 if one failed, pytest's 5 if there was no test, else 0.

    With pytest's -x no further group begins after a failure. Ctrl-C reaches pytest's processes too; then return 130.
    """
    began, is_brief = time.monotonic(), bool({"-x", "--exitfirst"} & {*arguments})
    total, skipped, failed = Counter[str](), list[str](), False
    with ThreadPoolExecutor(processes) as pool:
        waiting = [pool.submit(run_group, group, arguments) for group in groups]
        try:
            for number, future in enumerate(as_completed(waiting), 1):
                ended = future.result()
                total += ended.counts()
                skipped += ended.skip_reasons()
                print(f"[{number}/{len(groups)}] {ended}", flush=True)
                if ended.has_failed:
                    failed = True
                    print(ended.output, flush=True)
                    if is_brief:
                        break
        except KeyboardInterrupt:
            return 130
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for line in skipped:
        print(line)
    print(f"{_shown(total)} in {time.monotonic() - began:.0f} s", flush=True)
    has_run = any(count for name, count in total.items() if name not in ("deselected", "warning"))
    return 1 if failed else 0 if has_run else _NO_TESTS


def main(words: Sequence[str]) -> int:
    """Run as the module says."""
    split = words.index("--") if "--" in words else len(words)
    processes, tests, arguments = int(words[0]), words[1:split], words[split + 1 :]
    ignored = [one.removeprefix(_IGNORE) for one in arguments if one.startswith(_IGNORE)]
    return run(groups_of(files_of(tests, ignored), processes * _GROUPS_OF_A_PROCESS), processes, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
