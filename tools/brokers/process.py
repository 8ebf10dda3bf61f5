"""Java processes: started in a group of their own, watched, and ended whatever happens.

A process that belongs to a test dies with its parent: by `stop`, by atexit, and on Linux by the kernel when the parent
was killed (util-linux's setpriv asks for that). A detached one, started for a person, outlives its parent.
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


def java() -> str:
    """The java to run: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise SystemExit("no java in JAVA_HOME or on PATH: run `tools/env java`, or install a Java 17 or newer")
    return found


def java_command(
    jars: Path, main: str, arguments: Sequence[str], *, heap_mb: int, log4j: Path, login_file: Path | None = None,
    is_brief: bool = True,
) -> list[str]:  # fmt: skip
    """The command line of a class in a folder of jars.

    What `is_brief` is compiled once only, which halves the time to be up; what is to be fast for long is not.
    """
    haste = ["-XX:TieredStopAtLevel=1"] if is_brief else []
    return [
        java(), "-server", *haste, "-XX:+UseSerialGC", "-Xss512k", "-Xms32m", f"-Xmx{heap_mb}m",
        "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true", "-Dfile.encoding=UTF-8",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", f"-Dlog4j.configuration=file:{log4j}",
        *([f"-Djava.security.auth.login.config={login_file}"] if login_file else []),
        "-cp", f"{jars}/*", main, *arguments,
    ]  # fmt: skip


class JavaProcess:
    """One running process: `pid`, whether it `is_running`, the end of its log, and `stop`."""

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
        """End it: killed at once, or asked first when `graceful`, and killed when that takes too long."""
        if graceful and self.is_running:
            _signal_group(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        if self.is_running:
            _signal_group(self.pid, signal.SIGKILL)
        self._process.wait()
        _running.discard(self)

    def wait(self) -> None:
        """Until it ends by itself."""
        self._process.wait()

    def detach(self) -> None:
        """Leave it running: the parent ends without waiting for it."""
        # Popen warns of a child that nobody waited for, which is what is wanted here.
        self._process.returncode = 0


def kill_group(pid: int, marker: str) -> None:
    """Kill a detached process and its group, if `pid` is still the process whose command line has `marker`."""
    if is_alive(pid, marker):
        _signal_group(pid, signal.SIGKILL)


def is_alive(pid: int, marker: str) -> bool:
    """Whether `pid` is a process whose command line has `marker`: pids are used again."""
    try:
        return marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def run_java(command: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> bytes:
    """Run a command to its end and answer its standard output; RuntimeError with all it said when it fails."""
    # Arguments are in UTF-8 whatever the locale is: a JVM would read them as ASCII under C.
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
