"""The named steps of a write exactly once, where a test may strike: kill a process, raise, or wait.

`reach` does nothing unless the environment variable KWIRE_SPARK_FAULTS names a function, as "module:function". Only
tests set it. The function gets the name of each step that a process reaches, in driver and executors alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module

VARIABLE = "KWIRE_SPARK_FAULTS"

# In a task.
TASK_BEGUN = "task-begun"
ENCODED = "encoded"
SIDE_INITIALIZED = "side-initialized"
SIDE_PRODUCING = "side-producing"
SIDE_PREPARED = "side-prepared"
# On the driver.
RECOVERING = "recovering"
LEAD_INITIALIZED = "lead-initialized"
LEAD_PRODUCING = "lead-producing"
BEFORE_DECISION = "before-decision"
AFTER_DECISION = "after-decision"
COMPLETED = "completed"
IN_ABORT = "in-abort"

IN_TASK = (TASK_BEGUN, ENCODED, SIDE_INITIALIZED, SIDE_PRODUCING, SIDE_PREPARED)
IN_COMMIT = (LEAD_INITIALIZED, LEAD_PRODUCING, BEFORE_DECISION, AFTER_DECISION, COMPLETED)

FaultPoint = Callable[[str], object]


def _no_fault(step: str) -> None:
    pass


def _load() -> FaultPoint:
    named = os.environ.get(VARIABLE)
    if not named:
        return _no_fault
    module, _, function = named.partition(":")
    fault: FaultPoint = getattr(import_module(module), function)
    return fault


reach: FaultPoint = _load()
