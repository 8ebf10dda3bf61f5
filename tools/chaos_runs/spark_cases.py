"""The cases of `tools/chaos spark`: who is struck at which step, and what is taken out of the protocol to see a harm.

A control is a case whose protocol lacks a step (`without`, see `spark_without`): it has to lose or double rows, or the
same case with the whole protocol would prove nothing. Before a task has written, there is nothing to double: the steps
task-begun, encoded and side-initialized have no control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos_runs.spark_faults import BROKER, DRIVER, EXECUTOR, HOLD, WORKER
from chaos_runs.spark_without import COMPLETION, DECISION, FENCING, MARKER, REFUSAL
from kwire.spark.fault_points import (
    AFTER_DECISION,
    BEFORE_DECISION,
    COMPLETED,
    ENCODED,
    IN_COMMIT,
    IN_TASK,
    LEAD_INITIALIZED,
    LEAD_PRODUCING,
    SIDE_INITIALIZED,
    SIDE_PREPARED,
    SIDE_PRODUCING,
)

INLINE, SIDES = "inline", "sides"
MODES = (INLINE, SIDES)
_OF_SIDES = (SIDE_INITIALIZED, SIDE_PRODUCING, SIDE_PREPARED)

# What happens besides, or instead of, a process that is killed.
STAGE_RETRY = "stage-retry"  # the executor that is killed had shuffled rows: Spark repeats the stage before, too
SPECULATION = "speculation"  # an attempt hangs, a second one of the same task runs elsewhere, and the first goes on
TWO_DRIVERS = "two-drivers"  # a driver hangs in its commit, another one commits the batch, and the first goes on
MARKER_EXPIRED = "marker-expired"  # the driver dies after the decision, and the marker is deleted
CHECKPOINT_DELETED = "checkpoint-deleted"  # the query starts again from nothing, with its transactionalIdPrefix

# What such a query has to end with, instead of writing on.
REFUSALS: Mapping[str, str] = {
    TWO_DRIVERS: "FencedError",
    MARKER_EXPIRED: "MissingMarkerError",
    CHECKPOINT_DELETED: "transactional id of another query",
}

LOCAL, CLUSTER, SPECULATIVE, TWINS = "local", "cluster", "speculative", "twins"


@dataclass(frozen=True)
class Case:
    mode: str
    victim: str = ""
    step: str = ""
    kind: str = ""
    without: str = ""

    @property
    def name(self) -> str:
        what = [self.kind] if self.kind else [self.victim or "calm", *([self.step] if self.step else [])]
        return "-".join([self.mode, *what, *(["without", self.without] if self.without else [])])

    @property
    def skip(self) -> int:
        """Strike in the second batch: two tasks have reached the step by then, or one commit."""
        return 2 if self.step in IN_TASK else 1

    @property
    def place(self) -> str:
        """Return what it runs on: a JVM for all, a cluster of Spark's with two executors, or two drivers."""
        if self.kind == SPECULATION:
            return SPECULATIVE
        if self.kind == TWO_DRIVERS:
            return TWINS
        return CLUSTER if self.victim == EXECUTOR else LOCAL

    @property
    def batches(self) -> int | None:
        """Return how many batches are written before the query refuses to go on; None: all of them."""
        return 2 if self.kind == MARKER_EXPIRED else None

    @property
    def refusal(self) -> str:
        return "" if self.without else REFUSALS.get(self.kind, "")

    @property
    def told(self) -> tuple[str, str]:
        """Return who is struck and where, in words."""
        who = {
            WORKER: "Python worker", DRIVER: "driver's JVM", EXECUTOR: "executor", BROKER: "a broker",
            HOLD: "nobody: it hangs",
        }.get(self.victim, "nobody")  # fmt: skip
        return who, " ".join(filter(None, [self.step, f"({self.kind})" if self.kind else ""])) or "-"


def cases() -> list[Case]:
    """Return the cases with the whole protocol. Those whose driver dies are the last: each of them takes a new JVM."""
    found = []
    for mode in MODES:
        found.append(Case(mode))
        for step in IN_TASK + IN_COMMIT:
            if mode == SIDES or step not in _OF_SIDES:
                found += [Case(mode, WORKER, step), Case(mode, DRIVER, step)]
        in_task = ENCODED if mode == INLINE else SIDE_PREPARED
        found += [Case(mode, BROKER, step) for step in (in_task, LEAD_PRODUCING, BEFORE_DECISION, AFTER_DECISION)]
        found += [Case(mode, EXECUTOR, step) for step in (in_task, *([SIDE_PRODUCING] if mode == SIDES else []))]
        found += [
            Case(mode, EXECUTOR, in_task, STAGE_RETRY),
            Case(mode, HOLD, in_task, SPECULATION),
            Case(mode, HOLD, LEAD_PRODUCING, TWO_DRIVERS),
            Case(mode, WORKER, AFTER_DECISION, MARKER_EXPIRED),
            Case(mode, kind=CHECKPOINT_DELETED),
        ]
    return sorted(found, key=lambda case: case.victim == DRIVER)


def controls() -> list[Case]:
    """Return the cases whose protocol lacks a step."""
    found = []
    for mode in MODES:
        for victim in (WORKER, DRIVER):
            steps = [LEAD_INITIALIZED, LEAD_PRODUCING, BEFORE_DECISION]
            steps = [SIDE_PRODUCING, SIDE_PREPARED, *steps] if mode == SIDES else steps
            found += [Case(mode, victim, step, without=DECISION) for step in steps]
            found += [Case(mode, victim, step, without=MARKER) for step in (AFTER_DECISION, COMPLETED)]
        found += [
            Case(mode, WORKER, AFTER_DECISION, MARKER_EXPIRED, REFUSAL),
            Case(mode, kind=CHECKPOINT_DELETED, without=REFUSAL),
        ]
    found += [
        # With sides nothing is doubled even so: the second driver has aborted the first one's, as a dead run's.
        Case(INLINE, HOLD, LEAD_PRODUCING, TWO_DRIVERS, FENCING),
        *(Case(SIDES, victim, AFTER_DECISION, without=COMPLETION) for victim in (WORKER, DRIVER)),
        Case(SIDES, EXECUTOR, SIDE_PRODUCING, without=DECISION),
        Case(SIDES, EXECUTOR, SIDE_PREPARED, STAGE_RETRY, DECISION),
        Case(SIDES, HOLD, SIDE_PREPARED, SPECULATION, DECISION),
    ]
    return sorted(found, key=lambda case: case.victim == DRIVER)


def options_of(case: Case) -> dict[str, str]:
    """Return the options of the write that belong to the case."""
    options = {"inlineMaxBytes": "0"} if case.mode == SIDES else {}
    if case.kind == MARKER_EXPIRED:  # its group has to be known
        options |= {"transactionalIdPrefix": case.name, "onMissingMarker": "assumeNew" if case.without else "fail"}
    elif case.kind == CHECKPOINT_DELETED and not case.without:
        options["transactionalIdPrefix"] = case.name
    return options
