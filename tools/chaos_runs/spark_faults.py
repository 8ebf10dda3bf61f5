"""Kill a process of Spark at a named step of a write exactly once, or have it hang there until it is released.

kwire calls `strike` with each step that a process reaches, if KWIRE_SPARK_FAULTS names it. The file in
KWIRE_SPARK_STRIKE says where to strike, and is renamed by who does, so that each order is carried out once. Tasks run
side by side: who reads the order holds a lock on a file beside it until the order is counted down.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos_runs import spark_without

FAULTS, ORDER = "KWIRE_SPARK_FAULTS", "KWIRE_SPARK_STRIKE"
HOOK = "chaos_runs.spark_faults:strike"
WORKER, DRIVER, EXECUTOR = "worker", "driver", "executor"
HOLD, BROKER = "hold", "broker"  # it hangs; it hangs until the tool has killed a broker
_RELEASED = ".released"
_POLL_S = 0.02


def order(path: Path, step: str, victim: str, *, skip: int = 0) -> None:
    """Have the process that reaches `step` after `skip` others killed or held, or the JVM that it belongs to."""
    for suffix in (".struck", _RELEASED):
        path.with_suffix(suffix).unlink(missing_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"step": step, "victim": victim, "skip": skip}))
    draft.rename(path)


def cancel(path: Path) -> None:
    with _locked(path):
        path.unlink(missing_ok=True)


def was_struck(path: Path) -> bool:
    return path.with_suffix(".struck").exists()


def victim_struck(path: Path) -> str:
    """Return the victim of an order that was carried out; "" before."""
    try:
        return str(json.loads(path.with_suffix(".struck").read_text())["victim"])
    except FileNotFoundError:
        return ""


def release(path: Path) -> None:
    """Let who hangs go on."""
    path.with_suffix(_RELEASED).touch()


def is_released(path: Path) -> bool:
    return path.with_suffix(_RELEASED).exists()


def strike(step: str) -> None:
    spark_without.take_out(step)
    path = Path(os.environ[ORDER])
    with _locked(path):
        victim = _take(path, step)
    if victim in (HOLD, BROKER):
        while not is_released(path):
            time.sleep(_POLL_S)
    elif victim is not None:
        os.kill(os.getpid() if victim == WORKER else _jvm(), signal.SIGKILL)
        signal.pause()  # until the JVM's end has ended this process


def _take(path: Path, step: str) -> str | None:
    """Count the order down, or take it: return whom this process is to kill, if anyone."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if found["step"] != step:
        return None
    victim: str = found["victim"]
    if found["skip"]:
        order(path, step, victim, skip=found["skip"] - 1)
        return None
    path.rename(path.with_suffix(".struck"))
    return victim


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        yield


def _jvm() -> int:
    """Return the Java process that this Python worker descends from."""
    pid = os.getpid()
    while pid > 1:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        pid = int(next(line for line in lines if line.startswith("PPid:")).split()[1])
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            return pid
    raise RuntimeError("this process descends from no JVM")
