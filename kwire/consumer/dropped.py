"""What becomes of a consumer that the program drops without `close`: it leaves its group, and its thread ends.

The loop thread does not keep a consumer alive: what it calls there goes through `weakly`. When the garbage collector
takes the consumer, on any thread and perhaps amid any work, a `Farewell` takes its place on the loop: nothing waits.
As at the end of the interpreter, nothing is committed, because nobody says what was processed, and no callback runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakMethod

from kwire.cluster.requests import ClusterView, PendingRequest
from kwire.errors import ClosedError, KwireError

if TYPE_CHECKING:
    from kwire.cluster import LoopThread
    from kwire.consumer.membership import Membership
    from kwire.consumer.rebalance import RebalanceStep

P = ParamSpec("P")
T = TypeVar("T")

# A consumer that was dropped has so long to leave its group.
_LEAVE_SECONDS = 5.0
# How often a farewell looks for a step of a rebalance, which no caller will take.
_STEP_SECONDS = 0.05


def weakly(method: Callable[P, T], default: T) -> Callable[P, T]:
    """Return a function that calls a method without keeping its object alive; `default` once that is gone."""
    reference = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        found = reference()
        return default if found is None else found(*args, **kwargs)

    return call


class Remains:
    """What is left of a consumer: its loop thread, and its membership once it has one."""

    def __init__(self, name: str, runtime: LoopThread) -> None:
        self.membership: Membership | None = None
        self._name = name
        self._runtime = runtime

    def end(self) -> None:
        """Leave the group and close the loop thread. Never waits. The finalizer of a consumer calls it."""
        runtime = self._runtime
        if runtime.is_forked or runtime.is_closed:
            return
        is_running = runtime.is_running
        with suppress(ClosedError):  # it is ending just now
            if is_running and self.membership is not None:
                runtime.add(Farewell(runtime, self.membership, runtime.clock.now() + _LEAVE_SECONDS))
            else:
                runtime.close(timeout=0)
        if is_running:
            leaves = "" if self.membership is None else ": it leaves its group without a commit of what was processed"
            what = f"a {self._name} ({runtime.config.client_id!r}) was dropped without close()"
            warnings.warn(
                f"{what}{leaves}; close it, or use `with`",
                ResourceWarning,
                stacklevel=2,
            )


class Farewell:
    """A `StateMachine`: leaves the group in place of a consumer that is gone, then closes the loop thread."""

    def __init__(self, runtime: LoopThread, membership: Membership, deadline: float) -> None:
        self._runtime = runtime
        self._membership = membership
        self._until = deadline
        self._now = 0.0
        self._answered: RebalanceStep | None = None
        self._has_begun = False
        self._has_left = False

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        self._now = now
        if not self._has_begun:
            self._has_begun = True
            self._membership.leave("default", self._left, self._until)
        step = self._membership.pending_step
        if step is not None and step is not self._answered:
            self._answered = step
            if step.kind == "prepare":
                self._membership.prepared(step, {})
            else:
                self._membership.step_done(step)
        if self._has_left or now >= self._until:
            self._runtime.close(timeout=0)
        return []

    def _left(self) -> None:
        self._has_left = True

    def deadline(self) -> float | None:
        return self._now + _STEP_SECONDS

    def topics(self) -> Collection[str]:
        return ()

    def closed(self, error: KwireError) -> None:
        """Do nothing: no caller waits."""
