"""Start Java processes in their own process group, watch them, and end them.

A process of a test ends with its parent: by `stop`, by atexit, and on Linux by the kernel if the parent is killed
(util-linux's setpriv requests that). A detached process outlives its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

_LOG_TAIL_BYTES = 4_000
_running: set[JavaProcess] = set()


class JavaProcess:
    """Control one running process: `pid`, `is_running`, the end of its log, and `stop`."""

    def __init__(self, command: Sequence[str], log: Path, *, detached: bool = False) -> None:
        setpriv = None if detached else shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self.log = log
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [*guard, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.pid = self._process.pid
        if not detached:
            _running.add(self)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log_tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")

    def stop(self, *, graceful: bool = False, timeout_s: float = 30) -> None:
        """Kill the process; if `graceful`, terminate it first and kill it only after the timeout."""
        if graceful and self.is_running:
            _signal_group(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        if self.is_running:
            _signal_group(self.pid, signal.SIGKILL)
        self._process.wait()
        _running.discard(self)

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        self._process.wait()

    def detach(self) -> None:
        """Leave the process running after the end of its parent."""
        # Popen would warn about a child that its parent did not wait for, which is intended here.
        self._process.returncode = 0


def kill_group(pid: int, marker: str) -> None:
    """Kill a detached process and its group, if `pid` is still the process whose command line has `marker`."""
    if is_alive(pid, marker):
        _signal_group(pid, signal.SIGKILL)


def is_alive(pid: int, marker: str) -> bool:
    """Return whether `pid` is a process whose command line has `marker`, because the system reuses pids."""
    try:
        return marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def run_java(command: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> bytes:
    """Run a command to its end and return its standard output. Raises RuntimeError with its output if it fails."""
    # The locale is set to UTF-8, because a JVM would read arguments as ASCII under the locale C.
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False, env=environment)
    if done.returncode:
        said = (done.stdout[-_LOG_TAIL_BYTES:] + done.stderr[-_LOG_TAIL_BYTES:]).decode(errors="replace")
        raise RuntimeError(f"exit code {done.returncode} of {' '.join(command[command.index('-cp') + 2 :])}:\n{said}")
    return done.stdout


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


@atexit.register
def _stop_all() -> None:
    for process in list(_running):
        process.stop()
