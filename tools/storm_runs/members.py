"""The members of a storm, as their owner sees them: processes that are started, ended, killed and frozen.

They are forked from one process that has imported kwire: an import for each start would take most of a busy computer.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from storm_runs.member import Event, Settings, main

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["storm_runs.member"])


@dataclass
class Member:
    """A slot: one process after the other, with the same name. `rebalances` counts what all of them reported."""

    settings: Settings
    log: Path
    process: ForkServerProcess | None = None
    is_frozen: bool = False
    rebalances: Counter[str] = field(default_factory=Counter)
    owned: int = 0
    complaints: list[str] = field(default_factory=list)
    _handles_signals: bool = False

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.exitcode is None

    def start(self) -> None:
        self.owned = 0
        self._handles_signals = False
        events, child_events = _PROCESSES.Pipe(duplex=False)
        self.process = _PROCESSES.Process(target=main, args=(self.settings, child_events, self.log), daemon=True)
        self.process.start()
        child_events.close()
        threading.Thread(target=self._read, args=(self.process, events), daemon=True).start()

    def _read(self, process: ForkServerProcess, events: Connection) -> None:
        with events:
            while (event := _next_event(events)) is not None:
                what, partitions = event
                if what == "started":
                    self._handles_signals = process is self.process
                    continue
                self.rebalances[what] += 1
                if process is self.process:
                    self.owned += partitions if what == "assigned" else -partitions

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.is_frozen = False
        self._wait({-signal.SIGKILL}, 10)

    def leave(self, timeout_s: float = 60) -> None:
        """End it by SIGTERM. An end with an error, or none, is a complaint."""
        expected = {0} if self._handles_signals else {0, -signal.SIGTERM}
        self._signal(signal.SIGTERM)
        self._wait(expected, timeout_s)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    def check(self) -> None:
        """Note a complaint if it ended by itself, and start it again."""
        if self.process is not None and not self.is_running:
            self.complaints.append(f"{self.settings.name} ended with {self.process.exitcode}:\n{self.log_tail()}")
            self.start()

    def log_tail(self) -> str:
        return self.log.read_bytes()[-1500:].decode(errors="replace")

    def _signal(self, number: int) -> None:
        assert self.process is not None
        assert self.process.pid is not None
        if self.is_running:
            os.kill(self.process.pid, number)

    def _wait(self, expected: set[int], timeout_s: float) -> None:
        assert self.process is not None
        self.process.join(timeout_s)
        code: object = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
            code = f"no end within {timeout_s:.0f} s"
        self.process = None
        if code not in expected:
            self.complaints.append(f"{self.settings.name}: {code}:\n{self.log_tail()}")


def _next_event(events: Connection) -> Event | None:
    """Return what a member reports next, or None after its end."""
    try:
        found: Event = events.recv()
    except (EOFError, OSError):
        return None
    return found
