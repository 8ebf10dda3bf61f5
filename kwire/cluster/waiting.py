"""How a caller waits for a client's loop thread: a thread blocks, a task of asyncio awaits.

A method that may wait is written once, as a coroutine that waits by a `Waiter` only. The face for threads has it as
`poll = blocking(ConsumerClient._poll)`: the `BlockingWaiter` blocks inside the coroutine, which therefore never
suspends, and one step runs it to its end. The face for asyncio has the coroutine itself:
`poll = awaited(ConsumerClient._poll)`. Both keep the signature and the docstring, for people and for type checkers.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import update_wrapper, wraps
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from kwire.errors import AuthorizationError, ClosedError, RequestTimeoutError

if TYPE_CHECKING:
    from kwire.cluster.thread import LoopThread

C = TypeVar("C", bound=Callable[..., object])
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

# How long, in seconds, a loop thread may take to run a function: it does at its next turn.
_LOOP_SECONDS = 5.0


class Signal(ABC):
    """An event that is set once, from any thread, and that one thread or task waits for."""

    __slots__ = ()

    @abstractmethod
    def set(self, error: BaseException | None = None) -> None:
        """Set the event, or make `wait` raise `error`."""

    @abstractmethod
    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until set, for at most `timeout` seconds; False when it took longer. Raises the error of `set`."""


class Waiter(ABC):
    """A way to wait. One waiter serves any number of threads or tasks."""

    shares_thread: ClassVar[bool]  # whether other tasks share the thread: they run only while this one waits
    cancellations: ClassVar[tuple[type[BaseException], ...]] = ()  # what a wait raises because its task is cancelled

    @abstractmethod
    def signal(self) -> Signal:
        """Return a new signal for the calling thread or task."""

    @abstractmethod
    async def yield_now(self) -> None:
        """Let the other tasks of this thread run."""

    @abstractmethod
    async def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function of the user's in the calling thread or task."""

    @abstractmethod
    async def close(self, runtime: LoopThread, timeout: float | None) -> None:
        """Close the client's loop thread and wait for its end, for at most `timeout` seconds."""

    @abstractmethod
    def caller(self) -> object:
        """Return what identifies the calling thread or task."""

    @abstractmethod
    def dispatcher(self, runtime: LoopThread) -> Callable[..., object]:
        """Return what makes a call of the user's code from the loop thread: on the callback thread, or in this loop."""

    @abstractmethod
    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, also when the calling task is cancelled meanwhile: that is raised afterwards."""

    async def result_of(self, future: Future[T], timeout: float | None = None) -> T:
        """Return the result of a `future` of a loop thread; RequestTimeoutError after `timeout` seconds."""
        if not future.done():
            signal = self.signal()
            future.add_done_callback(lambda _: signal.set())
            if not await signal.wait(timeout) and not future.done():
                raise RequestTimeoutError(
                    f"the client's own thread did not respond within {timeout} s",
                    remedy="it is blocked: look for code that keeps the interpreter busy, and read the log",
                )
        return future.result()

    async def on_loop_or_after(self, runtime: LoopThread, function: Callable[[], T]) -> T:
        """Run a function on a client's loop thread, or here while none runs; return or raise what it does."""
        if runtime.is_running:
            with suppress(ClosedError):  # it is ending just now
                future: Future[T] = Future()
                runtime.call_soon(_complete, future, function)
                return await self.result_of(future, _LOOP_SECONDS)
        return function()


def _complete(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


# -- threads


class BlockingSignal(Signal):
    """A signal for a thread. A Condition or an Event would not survive a KeyboardInterrupt; a lock does."""

    __slots__ = ("_error", "_is_set", "_lock")

    def __init__(self) -> None:
        self._is_set = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self, error: BaseException | None = None) -> None:
        if not self._is_set:
            self._is_set, self._error = True, error
            self._lock.release()

    async def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._lock.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))
        if self._error is not None:
            raise self._error
        return self._is_set


def not_awaited(function: Callable[..., object]) -> TypeError:
    """Return the error for a coroutine function where a thread calls it."""
    return TypeError(f"{function!r} is a coroutine function: give a plain one, or use the client of kwire.aio")


class BlockingWaiter(Waiter):
    """Blocks the calling thread. Its coroutines never suspend: `run_blocking` runs them."""

    shares_thread = False

    def signal(self) -> Signal:
        return BlockingSignal()

    async def yield_now(self) -> None:
        """Do nothing: a blocked thread has no other tasks."""

    async def call(self, function: Callable[..., object], *args: object) -> None:
        result = function(*args)
        if inspect.iscoroutine(result):
            result.close()
            raise not_awaited(function)

    async def close(self, runtime: LoopThread, timeout: float | None) -> None:
        runtime.close(timeout)

    def caller(self) -> object:
        return threading.get_ident()

    def dispatcher(self, runtime: LoopThread) -> Callable[..., object]:
        return runtime.dispatch

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine


BLOCKING = BlockingWaiter()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits by a `BlockingWaiter` only, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the blocking face waited for an event loop: a defect of kwire")


class _PublicMethod:
    """What `blocking` and `awaited` put into a class body: it becomes a function that has the name given there.

    Python's errors about arguments name a function. The user called `subscribe`, and knows no `_subscribe`.
    """

    __slots__ = ("_method", "_wrap")

    def __init__(self, method: Callable[..., Any], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._method, self._wrap = method, wrap

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self._wrap(renamed(self._method, name, f"{owner.__qualname__}.{name}")))


def renamed(method: C, name: str, qualname: str) -> C:
    """Return a copy of a function with another name: for errors, and for `help`."""
    assert isinstance(method, FunctionType)
    public = FunctionType(method.__code__, method.__globals__, name, method.__defaults__, method.__closure__)
    public.__kwdefaults__, public.__qualname__ = method.__kwdefaults__, qualname
    return cast("C", update_wrapper(public, method, ("__module__", "__doc__", "__annotations__"), ("__dict__",)))


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Return, for a class body, a method that runs the coroutine method to its end: same signature and docstring."""

    def wrap(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
        @wraps(method)
        def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return run_blocking(method(self, *args, **kwargs))
            except AuthorizationError as error:
                _name_principal(self, error)
                raise

        return run

    return cast("Callable[Concatenate[S, P], T]", _PublicMethod(method, wrap))


def awaited(method: C) -> C:
    """Return, for a class body, a coroutine method without the underscore in its name."""
    return cast("C", _PublicMethod(method, lambda method: method))


def _name_principal(client: object, error: AuthorizationError) -> None:
    """Add whom the client logs in as. Errors that the loop's thread made have it."""
    runtime = getattr(client, "_runtime", None)
    if runtime is not None:
        error.at(principal=runtime.config.principal)


class Leaves(Protocol):
    """A client or a message that can be the subject of a `with` block."""

    async def _leave(self, error: BaseException | None) -> None: ...


class BlockingContext:
    """The `with` block of a face for threads: at its end `_leave` gets the exception of the block, or None."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: Leaves, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run_blocking(self._leave(error))


class AwaitedContext:
    """The `async with` block of a face for asyncio, likewise."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: Leaves, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)
