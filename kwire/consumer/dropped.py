"""What becomes of a consumer that the program drops without `close`: it leaves its group, and its thread ends.

The loop thread does not keep a consumer alive: what it calls there goes through `weakly`. When the garbage collector
takes the consumer, on any thread and perhaps amid any work, a `Farewell` takes its place on the loop: nothing waits.
As at the end of the interpreter, nothing is committed, because nobody says what was processed, and no callback runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar
from weakref import WeakMethod, ref

from kwire.cluster.requests import ClusterView, PendingRequest
from kwire.errors import ClosedError, KwireError

if TYPE_CHECKING:
    from kwire.cluster import LoopThread
    from kwire.consumer.membership import Membership
    from kwire.consumer.rebalance import RebalanceStep

P = ParamSpec("P")
T = TypeVar("T")

# A consumer that was dropped has so long to leave its group.
LEAVE_SECONDS = 5.0
# When the interpreter ends, a consumer that nobody closed has so long to leave its group.
EXIT_SECONDS = 1.0
# How often a farewell looks for a step of a rebalance, which no caller will take.
_STEP_SECONDS = 0.05


def weakly(method: Callable[P, T], default: T) -> Callable[P, T]:
    """Return a function that calls a method without keeping its object alive; `default` once that is gone."""
    reference = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        found = reference()
        return default if found is None else found(*args, **kwargs)

    return call


class Leaving(Protocol):
    """A consumer that is a member of a group."""

    def _close_at_exit(self) -> None: ...


L = TypeVar("L", bound=Leaving)


def leave_at_exit(reference: ref[L]) -> None:
    """Have a consumer that nobody closed leave its group when the interpreter ends."""
    consumer = reference()
    if consumer is not None:
        consumer._close_at_exit()


class Remains:
    """What is left of a consumer: its loop thread, and how it leaves its group once it is a member.

    `leave` begins that from any thread, without waiting, and closes the loop thread in the end. `loss` says in the
    warning what becomes of records.
    """

    def __init__(self, name: str, runtime: LoopThread, loss: str) -> None:
        self.leave: Callable[[], None] | None = None
        self._name = name
        self._runtime = runtime
        self._loss = loss

    def end(self) -> None:
        """Leave the group and close the loop thread. Never waits. The finalizer of a consumer calls it."""
        runtime = self._runtime
        if runtime.is_forked or runtime.is_closed:
            return
        is_running = runtime.is_running
        with suppress(ClosedError):  # it is ending just now
            if is_running and self.leave is not None:
                self.leave()
            else:
                runtime.close(timeout=0)
        if is_running:
            leaves = "" if self.leave is None else f": it leaves its group {self._loss}"
            what = f"a {self._name} ({runtime.config.client_id!r}) was dropped without close()"
            warnings.warn(
                f"{what}{leaves}; close it, or use `with`",
                ResourceWarning,
                stacklevel=2,
            )


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
