"""The members of a storm, as their owner sees them: processes that are started, ended, killed and frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from storm_runs.member import Settings

TOOLS = Path(__file__).resolve().parent.parent


@dataclass
class Member:
    """A slot: one process after the other, with the same name. `rebalances` counts what all of them reported."""

    settings: Settings
    log: Path
    process: subprocess.Popen[str] | None = None
    is_frozen: bool = False
    rebalances: Counter[str] = field(default_factory=Counter)
    owned: int = 0
    complaints: list[str] = field(default_factory=list)
    _handles_signals: bool = False

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.owned = 0
        self._handles_signals = False
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "storm_runs.member", self.settings.encoded()], stdout=subprocess.PIPE,
                stderr=errors, text=True, env={**os.environ, "PYTHONPATH": str(TOOLS)},
            )  # fmt: skip
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "started":
                    self._handles_signals = process is self.process
                    continue
                self.rebalances[event["event"]] += 1
                if process is self.process:
                    self.owned += event["partitions"] if event["event"] == "assigned" else -event["partitions"]

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
            self.complaints.append(f"{self.settings.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            self.start()

    def log_tail(self) -> str:
        return self.log.read_bytes()[-1500:].decode(errors="replace")

    def _signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _wait(self, expected: set[int], timeout_s: float) -> None:
        assert self.process is not None
        try:
            code: object = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = f"no end within {timeout_s:.0f} s"
        self.process = None
        if code not in expected:
            self.complaints.append(f"{self.settings.name}: {code}:\n{self.log_tail()}")
