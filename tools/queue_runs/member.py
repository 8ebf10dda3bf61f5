"""A process of a queue that kills itself at one of its steps: a consumer, or a tracker.

What a consumer does with a message it writes to a file before it goes on, so that a kill leaves the evidence:
"p" before it works on it, "a" when `ack` has returned, "l" when the lease was lost; each with the message's number, its
own process id, and the message's place.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import kwire
from kwire.errors import LeaseLostError
from kwire.net import SystemClock
from kwire.producer.methods import ProducerMethods
from kwire.queue import Message, Service
from kwire.queue.message import MessageClient
from kwire.queue.tracker import TrackedPartition
from kwire.queue.tracker_backend import TrackerBackend

QUEUE = "jobs"
_SESSION_MS = 6_000


class Step(NamedTuple):
    """A call before or after which a process ends. `transactional`: in which mode it exists; None: in both.

    In each further round it is the call that comes so many times later: `later`.
    """

    owner: type
    method: str
    is_after: bool
    transactional: bool | None = None
    later: int = 2


CONSUMER_STEPS = {
    "before START": Step(TrackerBackend, "_start", False),
    "after START, before the commit": Step(TrackerBackend, "_commit", False, False),
    "in the transaction": Step(ProducerMethods, "_send_offsets", True, True),
    "after the commit, before the hand-out": Step(TrackerBackend, "_held", False),
    "in processing": Step(MessageClient, "payload", False),
    "before END": Step(TrackerBackend, "_send_last_markers", False),
    "END unanswered": Step(TrackerBackend, "_send_last_markers", True),
}
TRACKER_STEPS = {
    "replaying": Step(TrackedPartition, "_open", True, later=1),  # of three trackers each opens two partitions
    "before a redelivery": Step(TrackedPartition, "_redeliver", False),
    "between message and offset": Step(ProducerMethods, "_send_offsets", False),
    "before the commit": Step(ProducerMethods, "_commit", False),
    "after the commit": Step(ProducerMethods, "_commit", True),
}
STEPS = {"consumer": CONSUMER_STEPS, "tracker": TRACKER_STEPS}


@dataclass(frozen=True)
class Settings:
    """`step` is the name of one, or empty; the process ends at the `count`th time. `clock_ms` is added to its clock."""

    bootstrap: str
    role: str
    options: dict[str, Any]
    notes: Path
    log: Path
    step: str = ""
    count: int = 1
    clock_ms: int = 0


class _Service(Service):
    """A service whose dead members leave their groups soon."""

    def new_consumer(self, **options: Any) -> Any:
        if "group" in options:
            options |= {"session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": _SESSION_MS // 4}
        return super().new_consumer(**options)


def end_with_parent() -> None:
    """Have this process killed when the one that started it has ended, in whatever way: its pipe is closed then."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()


def main(settings: Settings) -> None:
    """Work until SIGTERM, until the step, or until the parent has ended."""
    os.setsid()
    end_with_parent()
    with settings.log.open("ab") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
    if settings.clock_ms:
        _shift_clock(settings.clock_ms)
    if settings.step:
        _die_at(STEPS[settings.role][settings.step], settings.count)
    with kwire.stop_on_signals() as stop, _Service(settings.bootstrap, **settings.options) as service:
        if settings.role == "tracker":
            with service.tracker():
                stop.wait()
        else:
            _consume(service, settings.notes)


def _consume(service: Service, path: Path) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, number: bytes, message: Message) -> None:
        os.write(notes, b"%s %s %d %d %d\n" % (what.encode(), number, os.getpid(), *message.place))

    def work(message: Message) -> None:
        number = dict(message.headers)["n"] or b""
        note("p", number, message)
        assert message.payload is not None
        try:
            message.ack()
        except LeaseLostError:
            note("l", number, message)
        else:
            note("a", number, message)

    service.queue(QUEUE).consumer().handle(work, workers=2)


def _shift_clock(ms: int) -> None:
    intact = SystemClock.time_ms

    def time_ms(self: SystemClock) -> int:
        return intact(self) + ms

    SystemClock.time_ms = time_ms  # type: ignore[method-assign]


def _die_at(step: Step, count: int) -> None:
    """Have this process killed before or after a call, at the `count`th time."""
    left = [count]

    def pass_by() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    intact = step.owner.__dict__[step.method]
    if isinstance(intact, property):

        def get(one: object) -> object:
            pass_by()
            return intact.__get__(one)

        setattr(step.owner, step.method, property(get))
    elif intact.__code__.co_flags & 0x80:  # a coroutine function
        setattr(step.owner, step.method, _watched(intact, pass_by, step.is_after))
    else:

        @wraps(intact)
        def call(*args: Any) -> Any:
            if not step.is_after:
                pass_by()
            result = intact(*args)
            if step.is_after:
                pass_by()
            return result

        setattr(step.owner, step.method, call)


def _watched(intact: Callable[..., Any], pass_by: Callable[[], None], is_after: bool) -> Callable[..., Any]:
    @wraps(intact)
    async def call(*args: Any, **options: Any) -> Any:
        if not is_after:
            pass_by()
        result = await intact(*args, **options)
        if is_after:
            pass_by()
        return result

    return call
