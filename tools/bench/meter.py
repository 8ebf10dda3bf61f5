"""Measure the CPU time, the elapsed time and the memory of a part of this process."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from bench.task import Sample


class Meter:
    """Measure a block: `with Meter() as meter: ...`, then `meter.sample(records)`.

    `clock` gives the CPU time: by default that of all threads of this process and of its children that have ended.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or cpu_seconds

    def __enter__(self) -> Self:
        self._cpu, self._wall = self._clock(), time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.cpu_s, self.wall_s = self._clock() - self._cpu, time.perf_counter() - self._wall

    def sample(self, records: int, **more: Any) -> Sample:
        return Sample(records, self.cpu_s, self.wall_s, **more)


def cpu_seconds() -> float:
    """Return user and system seconds of this process and of its children that have been waited for."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def session_cpu_seconds() -> float:
    """Return user and system seconds of all processes of this session and of the children they have waited for."""
    ticks = 0
    own = os.getsid(0)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended; its parent's figures include its time
        if int(fields[3]) == own:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def process_cpu_seconds(pid: int) -> float:
    """Return user and system seconds of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def session_peak_bytes(word: str) -> int:
    """Return the peak memory of the largest process of this session that has a word in its command; 0 if none has."""
    own = os.getsid(0)
    found = [0]
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if os.getsid(int(folder.name)) == own and word in (folder / "cmdline").read_text():
                found.append(_status("VmHWM", folder.name))
    return max(found)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the peak of the resident memory since the process began, or since `forget_peak`."""
    return _status("VmHWM")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str, pid: str = "self") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has no {name}")
