"""Run copying processes: kill, freeze and replace them, and count what they logged.

Each share of the partitions has one process with a transactional id that its successors reuse. A process that ends by
itself too early is replaced as well, and its output is kept as an anomaly.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from chaos_runs import copy_job
from chaos_runs.copy_job import EXIT_FATAL, EXIT_FENCED, Job

_TICK_S = 0.05
_STOP_S = 90.0
# Time for a successor to start and fence the frozen process, and for the frozen process to notice.
_ZOMBIE_S = 30.0


class Copiers:
    """Run a process for each share of the partitions.

    `template` has the settings that all jobs share. `kills` is the range of seconds between random kills, or None.
    """

    def __init__(
        self,
        template: Job,
        shares: Sequence[tuple[int, ...]],
        random: Random,
        kills: tuple[float, float] | None,
    ) -> None:
        self._random = random
        self._kills = kills
        self._next_kill_at = float("inf")
        self._jobs = [
            replace(
                template,
                transactional_id=f"{template.group}-{number}",
                partitions=share,
                log=template.log / f"copier-{number}.jsonl",
            )
            for number, share in enumerate(shares)
        ]
        self._running: list[subprocess.Popen[bytes]] = []
        self._zombies: list[subprocess.Popen[bytes]] = []
        self._may_give_up: set[int] = set()  # process ids
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="copiers", daemon=True)
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()  # the reasons they logged for transactions that were not committed
        self.complaints: list[str] = []

    def __enter__(self) -> Copiers:
        with self._lock:
            self._running = [self._start(job) for job in self._jobs]
        self._plan_kill()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end_watch()
        for process in [*self._running, *self._zombies]:
            process.kill()
            _release(process)

    def kill_one(self) -> None:
        """Kill a process (kill -9) at any moment, and start its successor at once."""
        with self._lock:
            index = self._random.randrange(len(self._running))
            self._running[index].kill()
            _release(self._running[index])
            self.counts["killed"] += 1
            self._running[index] = self._start(self._jobs[index])

    def freeze_and_replace(self) -> None:
        """Freeze a process (SIGSTOP), start its successor, and continue it later: it must end because it was fenced."""
        with self._lock:
            index = self._random.randrange(len(self._running))
            zombie = self._running[index]
            # A process without an epoch would correctly get the newest when it continues, and fence its successor.
            self._wait(lambda: self._has_started(self._jobs[index], zombie.pid))
            zombie.send_signal(signal.SIGSTOP)
            self._zombies.append(zombie)
            self.counts["frozen"] += 1
            before = self._count(self._jobs[index], "committed")
            self._running[index] = self._start(self._jobs[index])
        self._wait(lambda: self._count(self._jobs[index], "committed") > before)  # so it has fenced the zombie
        zombie.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            zombie.wait(_ZOMBIE_S)
        if zombie.poll() != EXIT_FENCED:
            ended = "did not end" if zombie.returncode is None else f"ended with code {zombie.returncode}"
            self.complaints.append(f"a frozen copier that was replaced {ended}, rather than being fenced")

    def freeze(self, seconds: float) -> None:
        """Freeze a process (SIGSTOP) for a time. It may end itself because its transaction was aborted meanwhile.

        The error of a late commit depends on the broker: an invalid epoch from older ones, an invalid state from 4.x.
        """
        with self._lock:
            process = self._random.choice(self._running)
            self._may_give_up.add(process.pid)
            process.send_signal(signal.SIGSTOP)
            self.counts["frozen"] += 1
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Let each process end its transaction and exit. Raises TimeoutError for a process that does not."""
        self._end_watch()
        for process in self._running:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for number, process in enumerate(self._running):
            try:
                code = process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.complaints.append(f"copier {number} did not end within {_STOP_S:.0f} s of being told to")
                continue
            if code:
                self.complaints.append(f"copier {number} ended with code {code}")
        self._tally()

    def _keep_alive(self) -> None:
        while not self._is_over.wait(_TICK_S):
            if time.monotonic() >= self._next_kill_at:
                self.kill_one()
                self._plan_kill()
            with self._lock:
                for index, process in enumerate(self._running):
                    code = process.poll()
                    if code is not None and not self._is_over.is_set():
                        if code not in (EXIT_FENCED, EXIT_FATAL) or process.pid not in self._may_give_up:
                            self.complaints.append(f"copier {index} ended by itself with code {code}")
                        _release(process)
                        self._running[index] = self._start(self._jobs[index])

    def _plan_kill(self) -> None:
        if self._kills is not None:
            self._next_kill_at = time.monotonic() + self._random.uniform(*self._kills)

    def _end_watch(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _start(self, job: Job) -> subprocess.Popen[bytes]:
        job = replace(job, seed=self._random.randrange(1 << 30))
        self.counts["launched"] += 1
        with open(job.log.with_suffix(".err"), "ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", copy_job.__name__, *job.arguments()],
                stdin=subprocess.PIPE, stdout=errors, stderr=errors, env=_environment(),
            )  # fmt: skip

    @staticmethod
    def _wait(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _ZOMBIE_S
        while not is_so() and time.monotonic() < deadline:
            time.sleep(_TICK_S)

    def _has_started(self, job: Job, pid: int) -> bool:
        return any(line["event"] == "started" and line["pid"] == pid for line in _lines(job.log))

    def _count(self, job: Job, event: str) -> int:
        return sum(line["event"] == event for line in _lines(job.log))

    def _tally(self) -> None:
        for job in self._jobs:
            for line in _lines(job.log):
                self.counts[line["event"]] += 1
                if line["event"] != "started" and "why" in line:
                    self.reasons[f"{line['event']}: {line['why']}"] += 1
                if line["event"] == "died" or (line["event"] == "fatal" and line["pid"] not in self._may_give_up):
                    self.complaints.append(f"{job.transactional_id}: {line['event']}: {line['why']}")
        self.complaints += _tracebacks(job.log.with_suffix(".err") for job in self._jobs)


def _environment() -> dict[str, str]:
    """Return an environment in which the child imports from the same paths as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _release(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log without the last one if it is incomplete."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(text))
    return lines


def _tracebacks(paths: Iterable[Path]) -> list[str]:
    """Return the output on standard error, where a process should write nothing."""
    texts = [(path, path.read_text().strip()) for path in paths if path.exists()]
    return [f"{path.name}: {text[-500:]}" for path, text in texts if text]
