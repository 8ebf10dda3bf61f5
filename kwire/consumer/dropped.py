"""What becomes of a member of a group that the program drops without `close`: it leaves, and its thread ends.

When the garbage collector takes the consumer (see `kwire.cluster.dropped`), a `Farewell` takes its place on the loop.
As at the end of the interpreter, nothing is committed, because nobody says what was processed, and no callback runs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kwire.cluster.requests import ClusterView, PendingRequest
from kwire.errors import KwireError

if TYPE_CHECKING:
    from kwire.cluster import LoopThread
    from kwire.consumer.membership import Membership
    from kwire.consumer.rebalance import RebalanceStep

# A consumer that was dropped has so long to leave its group.
LEAVE_SECONDS = 5.0
# When the interpreter ends, a consumer that nobody closed has so long to leave its group.
EXIT_SECONDS = 1.0
# How often a farewell looks for a step of a rebalance, which no caller will take.
_STEP_SECONDS = 0.05


def say_farewell(runtime: LoopThread, membership: Membership) -> None:
    """Have a `Farewell` take the place of a consumer."""
    runtime.add(Farewell(runtime, membership, runtime.clock.now() + LEAVE_SECONDS))


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
