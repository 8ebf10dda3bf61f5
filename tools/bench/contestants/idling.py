"""Let a consumer wait for records of idle partitions, and measure its CPU time; the contest counts its requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.meter import Meter
from bench.task import Coordination, Sample, Task


def idle(task: Task, coordination: Coordination, poll: Callable[[], object], version: str) -> Sample:
    """Poll for `settle_s`, then for `idle_s` while the CPU time and, at the contest, the requests are counted."""
    poll_for(poll, task.options["settle_s"])
    coordination.say("count")
    with Meter() as meter:
        poll_for(poll, task.options["idle_s"])
    coordination.say("stop counting")
    return sample(meter, version)


def poll_for(poll: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        poll()


def sample(meter: Meter, version: str) -> Sample:
    return meter.sample(1, measures={"cpu_percent": 100 * meter.cpu_s / meter.wall_s}, version=version)
