"""Programs in a simulated world: user code as coroutines on virtual time, and what a client has instead of a thread.

The methods of clients that wait are coroutines over a `Waiter`. Here the waiter suspends the program until the world
comes to the moment, so a program reads like that of a user:

    records = await consumer.poll(timeout=0.5)
    await sleep(world, 0.2)                        # slow user code; the client's loop runs meanwhile

A process can be frozen: neither its loop nor its program runs until it is thawed, and time passes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, ClassVar, TypeVar

from kwire.cluster import ClientConfig, EventLoop, PendingRequest, Snapshot, StateMachine
from kwire.cluster.requests import ClusterView
from kwire.cluster.waiting import BlockingWaiter, Signal
from kwire.errors import ClosedError
from kwire.simulation.network import Network, SimulatedSelector
from kwire.simulation.world import Loop, World

T = TypeVar("T")
_Resume = Callable[[float], None]
# So often a program that is freed may wait in `finally` blocks.
_FINALLY_MAX = 100
# Changes a request of a client before the loop gets it, to see what it sends and gets.
Watch = Callable[[PendingRequest, float], PendingRequest]


class _Suspension:
    """What a program awaits: `begin` gets the function that resumes it."""

    def __init__(self, begin: Callable[[_Resume], object]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Callable[[_Resume], object]]:
        yield self._begin


async def sleep(world: World, seconds: float) -> None:
    """Let time pass, as user code does that works on a record."""
    await _Suspension(lambda resume: world.at(world.now() + seconds, resume))


class Program:
    """A coroutine that runs in the world. `on_end` gets the exception that ended it, or None."""

    running: ClassVar[Program | None] = None

    def __init__(
        self, world: World, main: Coroutine[Any, Any, None], on_end: Callable[[BaseException | None], object]
    ) -> None:
        self.is_over = False
        self._world = world
        self._main = main
        self._on_end = on_end
        self._suspensions = 0
        self._is_frozen = False
        self._is_due = False
        world.at(world.now(), self._step)

    def freeze(self, is_frozen: bool) -> None:
        self._is_frozen = is_frozen
        if not is_frozen and self._is_due:
            self._is_due = False
            self._world.at(self._world.now(), self._step)

    def kill(self) -> None:
        """Never run it again. Its `finally` blocks do not run before `discard`."""
        self.is_over = True

    def discard(self) -> None:
        """Free the coroutine, after the end of the world."""
        self.is_over = True
        for _ in range(_FINALLY_MAX):
            try:
                self._main.close()
            except RuntimeError:  # it waits in a `finally` block, for what never comes
                continue
            return

    def _step(self, now: float) -> None:
        if self.is_over:
            return
        if self._is_frozen:
            self._is_due = True
            return
        before, Program.running = Program.running, self
        try:
            begin = self._main.send(None)
        except StopIteration:
            self.is_over = True
            self._on_end(None)
        except Exception as error:
            self.is_over = True
            self._on_end(error)
        else:
            self._suspensions += 1
            number = self._suspensions

            def resume(now: float) -> None:
                if number == self._suspensions and not self.is_over:
                    self._suspensions += 1
                    self._step(now)

            begin(resume)
        finally:
            Program.running = before


class _SimulatedSignal(Signal):
    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self._error: BaseException | None = None
        self._resume: _Resume | None = None

    def set(self, error: BaseException | None = None) -> None:
        if not self._is_set:
            self._is_set, self._error = True, error
            if self._resume is not None:
                self._world.at(self._world.now(), self._resume)

    async def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:

            def begin(resume: _Resume) -> None:
                self._resume = resume
                if timeout is not None:
                    self._world.at(self._world.now() + timeout, resume)

            await _Suspension(begin)
        if self._error is not None:
            raise self._error
        return self._is_set


class SimulatedWaiter(BlockingWaiter):
    """Suspends the running `Program`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def signal(self) -> Signal:
        return _SimulatedSignal(self._world)

    async def call(self, function: Callable[..., object], *args: object) -> None:
        result: Any = function(*args)
        if isinstance(result, Coroutine):
            await result

    def caller(self) -> object:
        return Program.running

    async def close(self, runtime: Any, timeout: float | None) -> None:
        runtime.close()


class SimulatedThread:
    """What `LoopThread` is to a client: its event loop, which runs in the world. `watch` sees each request."""

    is_forked = False

    has_system_clock = False

    def __init__(self, net: Network, name: str, random: Random, config: ClientConfig, watch: Watch) -> None:
        self.config = config
        self.clock = net.world
        self.is_closed = False
        self.is_running = False
        self.client: object = None
        self._watch = watch
        self._watched: dict[StateMachine, _Watched] = {}
        self.loop = Loop(net.world, name, self._turn)
        selector = SimulatedSelector.of(net, name, random, config, wake_loop=self.loop.wake)
        self.event_loop = EventLoop(config, selector, net.world, random)  # type: ignore[arg-type]
        self.wakeup = self.event_loop.wakeup

    def _turn(self) -> None:
        self.event_loop.turn()

    def add(self, machine: StateMachine, purpose: str = "general") -> None:
        self.check_usable()
        if not self.is_running:
            self.is_running = True
            self.loop.wake()
        self._watched[machine] = watched = _Watched(machine, self._watch)
        self.call_soon(self.event_loop.client.add, watched, purpose)

    def remove(self, machine: StateMachine) -> None:
        self.call_soon(self.event_loop.remove, self._watched.pop(machine))

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        self.check_usable()
        self.event_loop.post(lambda: function(*args))

    def dispatch(self, function: Callable[..., object], *args: Any) -> None:
        """Call user code, which on a real thread runs at some time after this."""

        def call(now: float) -> None:
            function(*args)

        self.clock.at(self.clock.now(), call)

    def view_for(self, purpose: str) -> ClusterView:
        return self.event_loop.view(purpose)

    @property
    def snapshot(self) -> Snapshot:
        return self.event_loop.snapshot

    @property
    def view(self) -> ClusterView:
        return self.view_for("general")

    def on_fork(self, callback: Callable[[], object]) -> None:
        """Do nothing: nothing forks."""

    def on_loop_or_after(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Call the function: all runs on one thread."""
        return function()

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Call at once: a simulated loop ends at once."""
        callback()

    def check_usable(self) -> None:
        if self.is_closed:
            raise ClosedError("the client is closed")

    def deliver_before_end(self, deliver: Callable[[float | None], object]) -> None:
        """Do nothing: no simulated client shares its loop."""

    def close(self, timeout: float | None = None) -> None:
        """End at once: all connections close, and what waits fails."""
        if not self.is_closed:
            self.is_closed, self.is_running = True, False
            self.loop.stop()
            self.event_loop.close(ClosedError("the client was closed"))

    def kill(self, *, is_silent: bool) -> None:
        """End without a word. The connections close, as the system does it, or with `is_silent` stay open."""
        if not self.is_closed:
            self.is_closed, self.is_running = True, False
            self.loop.stop()
            if not is_silent:
                self.event_loop.close(ClosedError("the process was killed"))

    def discard(self) -> None:
        """Free, after the end of the world, what a silent `kill` left as it was."""
        self.close()
        self.event_loop.close(ClosedError("the world has ended"))


class _Watched:
    """A state machine as the event loop sees it."""

    def __init__(self, machine: StateMachine, watch: Watch) -> None:
        self._machine = machine
        self._watch = watch
        self.topics = machine.topics
        self.deadline = machine.deadline
        self.closed = machine.closed

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        return [self._watch(call, now) for call in self._machine.turn(now, view)]
