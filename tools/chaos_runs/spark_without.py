"""Take a step out of Spark's writes exactly once, in each process that makes them: what does the step prevent?

The environment variable KWIRE_SPARK_WITHOUT names the step. `spark_faults.strike` calls `take_out` when a process
reaches its first step, which is before anything is written or read.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

from kwire.errors import KwireError

WITHOUT = "KWIRE_SPARK_WITHOUT"

DECISION = "decision"  # tasks commit what they have written, instead of leaving that to the driver
MARKER = "marker"  # nobody looks whether the batch was written before
COMPLETION = "completion"  # the next driver does not commit the sides of a batch that was decided
FENCING = "fencing"  # each driver has a transactional id of its own
REFUSAL = "refusal"  # options: onMissingMarker is assumeNew; no transactionalIdPrefix. Nothing is changed here


def take_out(step: str) -> None:
    """Change the classes of this process, once; `step` is what it has reached."""
    from kwire.spark import fault_points

    without = os.environ.get(WITHOUT, "")
    if without == MARKER and step == fault_points.IN_ABORT:
        return  # it completes what was decided: else the repeated tasks, which have the same ids, would replace that
    _change(without)
    if without == COMPLETION and step in (fault_points.RECOVERING, fault_points.IN_ABORT):
        # They complete a batch, too, and a new process is in them before it is changed. Both errors are only logged.
        raise KwireError("taken out")


@cache
def _change(without: str) -> None:
    changes: dict[str, Callable[[], None]] = {
        DECISION: _commit_in_tasks, MARKER: _ignore_marker, COMPLETION: _leave_sides, FENCING: _share_no_id
    }  # fmt: skip
    if without in changes:
        changes[without]()


def _commit_in_tasks() -> None:
    from kwire.spark import fault_points
    from kwire.spark.lead import Prepared
    from kwire.spark.task_write import TaskWrite

    def add(self: Any, encoded: list[Any]) -> None:
        self._batches += encoded
        if self._side is None and self._batches:
            self._side = self._begin()

    def write(self: Any) -> None:
        batches, self._batches = self._batches, []
        self._side.write(batches)
        self._requests.end([self._side.transaction], is_commit=True)
        self._reach(fault_points.SIDE_PRODUCING)

    def prepared(self: Any) -> Prepared:
        if self._side is not None:
            self._write()
        self._reach(fault_points.SIDE_PREPARED)
        return Prepared(self._task.batch, self._task.task, self._encoder.rows, self._encoder.digest)

    made: Any = TaskWrite
    made._add, made._write, made._prepared = add, write, prepared


def _ignore_marker() -> None:
    from kwire.spark.lead import LeadTransaction
    from kwire.spark.task_write import TaskWrite

    lead: Any = LeadTransaction
    task: Any = TaskWrite
    lead._is_decided = lambda self, marker, batch: False
    lead._check_marker = lambda self, marker, batch: None
    task._is_decided = lambda self: False


def _leave_sides() -> None:
    from kwire.spark.lead import LeadTransaction

    lead: Any = LeadTransaction
    lead._complete_earlier = lambda self, lead, marker, batch, parts: None
    lead.abort = lambda self, batch, parts: None


def _share_no_id() -> None:
    from kwire.spark.marker import side_prefix
    from kwire.spark.transactions import TransactionRequests

    requests: Any = TransactionRequests
    begin = requests.begin

    def begin_own(self: Any, name: str, timeout_ms: int) -> Any:
        own = self.__dict__.setdefault("_own", uuid.uuid4().hex)
        return begin(self, name if side_prefix("") in name else f"{name}-{own}", timeout_ms)

    requests.begin = begin_own
