"""Time acknowledged sends, one at a time under light load, with or without another Python thread that spins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bench.meter import Meter
from bench.ratios import percentile
from bench.task import Sample, Task


def latencies(task: Task, send: Callable[[bytes], object], version: str) -> Sample:
    """Time sends. `send` returns when the record is acknowledged; the thread sleeps `pause_s` between two sends."""
    values = task.values(task.warmup + task.records)
    pause_s = task.options["pause_s"]
    with Spinning(task.options["spinning"]):
        for value in values[: task.warmup]:
            send(value)
        seconds: list[float] = []
        with Meter() as meter:
            for value in values[task.warmup :]:
                start = time.perf_counter()
                send(value)
                seconds.append(time.perf_counter() - start)
                time.sleep(pause_s)
    return meter.sample(task.records, measures=percentiles(seconds), version=version)


def percentiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{percent}_ms": percentile(seconds, percent) * 1000 for percent in (50, 90, 99)}


class Spinning:
    """Run a second Python thread that computes all the time, as an application's might."""

    def __init__(self, is_wanted: bool) -> None:
        self._end = not is_wanted
        self._thread = threading.Thread(target=self._spin, daemon=True)

    def _spin(self) -> None:
        number = 0
        while not self._end:
            number = (number * 1_103_515_245 + 12_345) % 2_147_483_648

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._end = True
        self._thread.join()
