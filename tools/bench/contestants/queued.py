"""Queue records while the broker is paused, and measure their memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

from bench.contestants.reports import Reports
from bench.meter import Meter, forget_peak, peak_bytes, resident_bytes
from bench.task import Coordination, Sample, Task, payloads


def queued(
    task: Task, coordination: Coordination, send: Callable[[bytes], bool], flush: Callable[[], object],
    reports: Reports, version: str,
) -> Sample:  # fmt: skip
    """Queue records. `send` returns False when the queue is full: the end if the task is to fill it, else an error.

    Each value is a new object that only the queue refers to. After the pause every record must be delivered.
    """
    seed = payloads(task.size)[0]
    gc.collect()
    coordination.say("stop the broker")
    before = resident_bytes()
    forget_peak()
    count = 0
    with Meter() as meter:
        while count < task.records and send(b"%012d" % count + seed[12:]):
            count += 1
    if count < task.records and not task.options["fill"]:
        raise RuntimeError(f"the queue was full after {count} of {task.records} records")
    after, peak = resident_bytes(), peak_bytes()
    coordination.say("let the broker go on")
    flush()
    reports.expect(count)
    reports.wait()
    measures = {
        "records": count,
        "bytes_per_record": (after - before) / max(1, count),
        "peak_mb": (peak - before) / 1e6,
    }
    return meter.sample(count, measures=measures, version=version)
