"""What becomes of a client that the program drops without `close`: its loop thread ends, and a warning says so.

A member of a group leaves it, also when the interpreter ends and nobody has closed it.

The loop thread does not keep such a client alive: what it calls there goes through `weakly`. The garbage collector may
take the client on any thread and amid any work, so nothing waits then.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from kwire.errors import ClosedError

if TYPE_CHECKING:
    from kwire.cluster.thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def weakly(method: Callable[P, T], default: T) -> Callable[P, T]:
    """Return a function that calls a method without keeping its object alive; `default` once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        found = reference()
        return default if found is None else found(*args, **kwargs)

    return call


class Leaving(Protocol):
    """A consumer that is a member of a group."""

    def _close_at_exit(self) -> None: ...


class Remains:
    """What is left of a client when `owner` is gone: its loop thread, and how it leaves its group once it is a member.

    `loss` says in the warning what becomes of records.
    """

    def __init__(self, owner: object, name: str, runtime: LoopThread, loss: str = "") -> None:
        self._leave: Callable[[], None] | None = None
        self._at_exit: weakref.finalize[[weakref.ref[Leaving]], LoopThread] | None = None
        self._name = name
        self._runtime = runtime
        self._loss = loss
        self._finalizer = weakref.finalize(owner, self._end)
        self._finalizer.atexit = False  # then the loop thread ends itself
        if not runtime.has_system_clock:  # a simulated world keeps its clients, and this would keep the world
            self._finalizer.detach()

    def joined(self, member: Leaving, leave: Callable[[], None]) -> None:
        """Note that the client is a member of a group.

        `leave` begins to leave it from any thread, without waiting, and closes the loop thread in the end.
        """
        self._leave = leave
        if self._runtime.has_system_clock:  # made after that of the runtime, it runs before it
            self._at_exit = weakref.finalize(self._runtime, _leave_at_exit, weakref.ref(member))

    def detach(self) -> None:
        """Note that the client is closed."""
        self._finalizer.detach()
        if self._at_exit is not None:
            self._at_exit.detach()

    def _end(self) -> None:
        """Leave the group and close the loop thread. Never waits."""
        runtime = self._runtime
        if runtime.is_forked or runtime.is_closed:
            return
        is_running = runtime.is_running
        with suppress(ClosedError):  # it is ending just now
            if is_running and self._leave is not None:
                self._leave()
            else:
                runtime.close(timeout=0)
        if is_running:
            leaves = "" if self._leave is None else f": it leaves its group {self._loss}"
            what = f"a {self._name} ({runtime.config.client_id!r}) was dropped without close()"
            warnings.warn(
                f"{what}{leaves}; close it, or use `with`",
                ResourceWarning,
                stacklevel=2,
            )


def _leave_at_exit(reference: weakref.ref[Leaving]) -> None:
    member = reference()
    if member is not None:
        member._close_at_exit()
