"""The door between the threads that send and the loop, with those who wait before it: bounded memory, order, patience.

The `Door` takes what there is room for, and needs nobody here for that. A sender that finds no room blocks or gets an
error (`put`); or it leaves its record in a queue before the door, is told when it went in, and may take it back until
then (`offer`, for asyncio). The only lock here is of those who wait. It refuses to know about partitions and batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.errors import BufferFullError, KwireError
from kwire.producer.partitioners import routing
from kwire.producer.producer_request import Terms, may_share
from kwire.producer.response import MakeResponse, ProduceResponse
from kwire.records import Compression
from kwire.wire.accel import Dispatch, Door

if TYPE_CHECKING:
    from kwire.producer.settings import ProducerSettings, WhenFull


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Entrant(Protocol[R_co]):
    """What is before the door: a record, or many of one call."""

    @property
    def left(self) -> int:
        """How many records are still to go in."""

    def enter(self, door: Door) -> R_co | None:
        """Go in as far as there is room; answers the response when all is in."""


class Incoming(NamedTuple):
    """A record before the door. `partition` is None where the producer is to choose."""

    topic: str
    partition: int | None
    record: tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
    size_bytes: int
    terms: Terms | None = None
    make: MakeResponse = ProduceResponse

    @property
    def left(self) -> int:
        return 1

    def enter(self, door: Door) -> ProduceResponse | None:
        place = door.append(self.topic, self.partition, *self.record, self.size_bytes, self.terms)
        return None if place is None else self.make(*place)


class Queued(Generic[R]):
    """What waits. `tell(error)` is called once, by whoever ends its wait; None: it went in."""

    __slots__ = ("incoming", "response", "tell")

    def __init__(self, incoming: Entrant[R], tell: Callable[[KwireError | None], object]) -> None:
        self.incoming = incoming
        self.tell = tell
        self.response: R | None = None  # once it went in


class Intake:
    """Of one producer. The bound on the memory of records that are not yet resolved is the door's."""

    def __init__(self, door: Door, when_full: WhenFull, block_s_max: float, wakeup: Callable[[], object]) -> None:
        self.door = door
        self._when_full = when_full
        self._block_s_max = block_s_max
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        # Threads that wait. A sender counts itself before it looks for room, and `release` gives room before it looks
        # whether anybody waits: so one of the two sees the other, and the lock sees to it that the notice finds a
        # sender that waits already.
        self._waiters = 0
        self._queue: dict[Queued[Any], None] = {}  # before the door, in order
        self._closed: KwireError | None = None

    @property
    def used_bytes(self) -> int:
        return self.door.used_bytes

    @property
    def bytes_max(self) -> int:
        return self.door.bytes_max

    @property
    def is_full(self) -> bool:
        """Whether some sender waits for memory: then nothing may be held back for the sake of a larger batch."""
        return self._waiters > 0 or bool(self._queue)

    @property
    def waiting(self) -> int:
        """How many senders wait for memory."""
        return self._waiters + len(self._queue)

    def put(self, incoming: Entrant[R], block_s_max: float | None = None) -> R:
        """Hand it over; blocks or raises BufferFullError when there is no room. Of many some may be in then."""
        response = self._enter(incoming)
        return self._wait_for_room(incoming, block_s_max) if response is None else response

    def offer(
        self, incoming: Entrant[R], tell: Callable[[KwireError | None], object]
    ) -> R | Queued[R]:
        """As `put`, but never blocks: where there is no room, answers the record's place before the door.

        There it is behind those that came before, whatever their sizes. `tell` is called on the thread that makes room,
        or that closes, and must not raise. Raises BufferFullError where senders are not to wait.
        """
        with self._lock:
            if not self._queue:
                response = self._enter(incoming)
                if response is not None:
                    return response
            if self._closed is not None:
                raise self._closed
            if self._when_full == "raise":
                raise self.full()
            queued = Queued(incoming, tell)
            self._queue[queued] = None
            entered = self._let_in()  # room that was made since it was looked for
        self._wakeup()  # it must not linger now
        _tell(entered)
        return queued

    def withdraw(self, queued: Queued[Any]) -> bool:
        """Take a record back. False: it is too late, `tell` was called or is just about to be."""
        with self._lock:
            was_waiting = queued in self._queue
            self._queue.pop(queued, None)
            entered = self._let_in()  # it may have been the large one that held up the rest
        _tell(entered)
        return was_waiting

    def release(self, size_bytes: int) -> None:
        self.door.release(size_bytes)
        if self._waiters or self._queue:
            with self._lock:
                self._freed.notify_all()
                entered = self._let_in()
            _tell(entered)

    def close(self, error: KwireError) -> None:
        """Every put from now on, waiting ones included, raises `error`."""
        self.door.is_open = False
        with self._lock:
            self._closed = error
            self._freed.notify_all()
            refused, self._queue = list(self._queue), {}
        for queued in refused:
            queued.tell(error)

    def full(self) -> BufferFullError:
        return BufferFullError(
            f"{self.used_bytes} of {self.bytes_max} buffered bytes are waiting to be delivered",
            remedy="send more slowly, raise max_buffered_bytes, or ask producer.explain(topic) why it is not delivered",
        )

    def _enter(self, incoming: Entrant[R]) -> R | None:
        """Take it in, if there is room."""
        if self._closed is not None:
            raise self._closed
        return incoming.enter(self.door)

    def _let_in(self) -> list[Queued[Any]]:
        """Take in, from the front, what there is room for now. Under the lock."""
        entered: list[Queued[Any]] = []
        for queued in self._queue:
            queued.response = self._enter(queued.incoming)
            if queued.response is None:
                break
            entered.append(queued)
        for queued in entered:
            del self._queue[queued]
        return entered

    def _wait_for_room(self, incoming: Entrant[R], block_s_max: float | None) -> R:
        if self._when_full == "raise":
            raise self.full()
        entered: list[R] = []

        def has_entered() -> bool:
            response = self._enter(incoming)
            if response is not None:
                entered.append(response)
            return response is not None

        limit = self._block_s_max if block_s_max is None else min(block_s_max, self._block_s_max)
        with self._lock:
            self._waiters += 1
            self._wakeup()
            try:
                left = 0
                while left != incoming.left and not entered:  # of many: as long as some went in
                    left = incoming.left
                    self._freed.wait_for(has_entered, limit)
            finally:
                self._waiters -= 1
        if not entered:
            raise self.full()
        return entered[0]


def _tell(entered: list[Queued[Any]]) -> None:
    for queued in entered:
        queued.tell(None)


def make_door(
    settings: ProducerSettings,
    dispatch: Dispatch,
    wakeup: Callable[[], object],
    time_ms: Callable[[], int] | None = None,
    refer: Callable[..., object] | None = None,
    *,
    by_system: bool = False,
) -> Door:
    """The door of a producer with these settings; `time_ms` and `refer` are for those who use its own `send`."""
    return Door(
        place=ProduceResponse,
        dispatch=dispatch,
        batch_bytes=settings.batch_bytes,
        bytes_max=settings.max_buffered_bytes,
        record_bytes_max=settings.record_bytes_max,
        key_hash=routing(settings.partitioner).key_hash,
        may_share=may_share,
        time_ms=time_ms or _never,
        wakeup=wakeup,
        refer=refer or _never,
        by_system=by_system,
        sums=settings.codec is Compression.NONE,
    )


def _never(*_: object) -> Any:
    raise AssertionError("the door's own `send` is not for this producer")
