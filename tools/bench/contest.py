"""Run rounds: each runs every contestant once, in its own process and in a different order.

Conditions such as a warm processor or another busy program are likely to affect a whole round, so ratios are computed
within rounds. A contestant that fails is reported as failed, with its error, and runs again in the next round.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.contestants import CONTESTANTS, Contestant
from bench.ratios import Spread, ratios
from bench.task import Sample, Task

_TOOLS = Path(__file__).resolve().parent.parent
_TURN_S_MAX = 600.0

Words = Mapping[str, Callable[[], object]]
Tell = Callable[[str], object]


@dataclass
class Result:
    """Hold the samples of one case by contestant: one for each round, unless it failed."""

    title: str
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def failure(self, name: str) -> str | None:
        return next((sample.failure for sample in self.samples[name] if sample.failure is not None), None)

    def values(self, name: str, measure: str) -> list[float]:
        return [sample.measure(measure) for sample in self.samples[name]]

    def spread(self, name: str, measure: str) -> Spread:
        return Spread.of(self.values(name, measure))

    def ratio(self, ours: str, theirs: str, measure: str) -> Spread | None:
        """Return ours divided by theirs, by round; None if one of the two is missing or failed."""
        for name in (ours, theirs):
            if name not in self.samples or self.failure(name) is not None:
                return None
        return Spread.of(ratios(self.values(ours, measure), self.values(theirs, measure)))

    @property
    def failures(self) -> dict[str, str]:
        return {name: failure for name in self.samples if (failure := self.failure(name)) is not None}


def compete(title: str, names: Sequence[str], rounds: int, turn: Callable[[str], Sample], tell: Tell) -> Result:
    """Run the rounds. `turn(name)` runs one contestant; `tell` receives a progress line before each."""
    result = Result(title, {name: [] for name in names})
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            if result.failure(name) is None:
                tell(f"{title}: round {number + 1} of {rounds}, {name}")
                result.samples[name].append(turn(name))
    return result


def take_turn(bench: str, task: Task, words: Words | None = None) -> Sample:
    """Run one contestant in its own process. `words` maps each word that it may print to the action it asks for."""
    chosen: Contestant = CONTESTANTS[bench][task.contestant]
    environment = {**os.environ, **chosen.environment, "PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
    guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    process = subprocess.Popen(
        [*guard, sys.executable, "-m", "bench.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[str] = []
    listener = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    listener.start()
    late = threading.Timer(_TURN_S_MAX, _kill, [process])
    late.start()
    answer = ""
    try:
        print(replace(task, contestant=f"{bench}/{task.contestant}").to_json(), file=process.stdin, flush=True)
        for line in process.stdout:
            answer = line.strip()
            if words is not None and answer in words:
                words[answer]()
                print("done", file=process.stdin, flush=True)
    finally:
        late.cancel()
        _kill(process)
        process.wait()
        listener.join()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    if not answer.startswith("{"):
        return Sample(failure=f"ended without an answer: {''.join(said[-3:]).strip()}")
    return Sample.from_json(answer)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the process and its children, because a JVM must not outlive its contestant."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _python_path() -> str:
    """Return a PYTHONPATH with the kwire of this tree first, whichever is installed."""
    return os.pathsep.join(map(str, (_TOOLS, _TOOLS.parent)))


def chosen_names(bench: str, wanted: Iterable[str] | None) -> list[str]:
    """Return the contestants of a bench, or those whose names begin with one of the wanted."""
    names = list(CONTESTANTS[bench])
    if wanted is None:
        return names
    found = [name for name in names if any(name.lower().startswith(one.strip().lower()) for one in wanted)]
    if not found:
        raise SystemExit(f"no contestant of {bench} is called so; there are: {', '.join(names)}")
    return found
