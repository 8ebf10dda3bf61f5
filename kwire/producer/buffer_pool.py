"""The door between the threads that send and the loop, with those who wait before it: bounded memory, order, patience.

The `RecordAccumulator` takes what there is room for, and needs nobody here for that. A sender that finds no room
blocks or gets an
error (`put`); or it leaves its record in a queue before the door, is told when it went in, and may take it back until
then (`offer`, for asyncio). The only lock here is of those who wait. It refuses to know about partitions and batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.errors import BufferFullError, KwireError
from kwire.producer.accumulator import SHARE, RecordAccumulator
from kwire.producer.batch_builder import Dispatch
from kwire.producer.failures import own_copy
from kwire.producer.futures import MakeResponse, ProduceResponse
from kwire.producer.partitioner import routing
from kwire.producer.producer_request import DeliveryOptions, may_share
from kwire.records import Compression

if TYPE_CHECKING:
    from kwire.producer.options import ProducerSettings, WhenFull

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Append(Protocol[R_co]):
    """What is before the door: a record, or many of one call."""

    @property
    def topic(self) -> str:
        """Where it goes."""
        ...

    @property
    def left(self) -> int:
        """How many records are still to go in."""
        ...

    def enter(self, door: RecordAccumulator) -> R_co | None:
        """Go in as far as there is room; answers the response when all is in."""


class PendingRecord(NamedTuple):
    """A record before the door. `partition` is None where the producer is to choose."""

    topic: str
    partition: int | None
    record: tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
    size_bytes: int
    terms: DeliveryOptions | None = None
    make: MakeResponse = ProduceResponse

    @property
    def left(self) -> int:
        return 1

    def enter(self, door: RecordAccumulator) -> ProduceResponse | None:
        place = door.append(self.topic, self.partition, *self.record, self.size_bytes, self.terms)
        return None if place is None else self.make(*place)


class BlockedAppend(Generic[R]):
    """What waits. `tell(error)` is called once, by the thread that ends its wait; None: it went in."""

    __slots__ = ("error", "incoming", "response", "tell")

    def __init__(self, incoming: Append[R], tell: Callable[[Exception | None], object]) -> None:
        self.incoming = incoming
        self.tell = tell
        self.response: R | None = None  # once it went in
        self.error: Exception | None = None  # that it met as it was to go in


class BufferPool:
    """Of one producer. The door bounds the memory of records that are not yet resolved, and each topic's share of it.

    Senders that find no room wait in one queue, threads and tasks alike. Those of a topic are served in the order in
    which they came, and before every `send` for it that comes later. A topic that has its share holds up no other.
    Where a topic that holds little finds no room, all others get little until it is served
    (`RecordAccumulator.is_short`): small
    records do not pass a large one for ever.
    """

    def __init__(
        self, door: RecordAccumulator, when_full: WhenFull, block_s_max: float, wakeup: Callable[[], object]
    ) -> None:
        self.door = door
        self._when_full = when_full
        self._block_s_max = block_s_max
        self._wakeup = wakeup
        self._lock = threading.Lock()
        # Who waits, in order. A sender is put here before it looks for room once more, and `release` gives room before
        # it looks whether anybody waits: so one of the two sees the other.
        self._queue: dict[BlockedAppend[Any], None] = {}
        self._awaited: dict[str, int] = {}  # the topics for which somebody waits, and how many do
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
        return bool(self._queue)

    @property
    def waiting(self) -> int:
        """How many senders wait for memory."""
        return len(self._queue)

    def waiting_for(self, topic: str) -> int:
        """How many of them wait for memory for a topic."""
        return self._awaited.get(topic, 0)

    def put(self, incoming: Append[R], block_s_max: float | None = None) -> R:
        """Hand it over; blocks or raises BufferFullError when there is no room. Of many some may be in then."""
        if incoming.topic not in self._awaited:
            response = self._enter(incoming)
            if response is not None:
                return response
        admitted = threading.Lock()
        admitted.acquire()
        refused: list[Exception] = []

        def tell(error: Exception | None) -> None:
            if error is not None:
                refused.append(error)
            admitted.release()

        queued = self.offer(incoming, tell)
        if not isinstance(queued, BlockedAppend):
            return queued
        limit = self._block_s_max if block_s_max is None else min(block_s_max, self._block_s_max)
        left = incoming.left
        try:
            while not admitted.acquire(timeout=limit):
                if left != incoming.left:
                    left = incoming.left  # of many: as long as some went in
                elif self.withdraw(queued):
                    raise self.full(incoming.topic)
                else:
                    admitted.acquire()  # it went in just now
                    break
        except BaseException:
            self.withdraw(queued)
            raise
        if refused:
            raise refused[0]
        assert queued.response is not None
        return queued.response

    def offer(self, incoming: Append[R], tell: Callable[[Exception | None], object]) -> R | BlockedAppend[R]:
        """As `put`, but never blocks: returns the record's place in the queue where there is no room.

        It is behind those of its topic that came before, whatever their sizes. `tell` is called on the thread that
        makes room, or that closes, and must not raise. Raises BufferFullError where senders are not to wait.
        """
        if incoming.topic not in self._awaited:
            response = self._enter(incoming)
            if response is not None:
                return response
        with self._lock:
            if self._closed is not None:
                raise own_copy(self._closed)
            if self._when_full == "raise":
                raise self.full(incoming.topic)
            queued = BlockedAppend(incoming, tell)
            self._queue[queued] = None
            self._awaited[incoming.topic] = self._awaited.get(incoming.topic, 0) + 1
            self.door.set_awaited(incoming.topic, True)
            entered = self._let_in()  # room that was made since it was looked for
        if queued.response is None:
            self._wakeup()  # it must not linger now
        _tell(one for one in entered if one is not queued)
        if queued.error is not None:
            raise queued.error
        return queued if queued.response is None else queued.response

    def withdraw(self, queued: BlockedAppend[Any]) -> bool:
        """Take a record back. False: it is too late, `tell` was called or is just about to be."""
        with self._lock:
            was_waiting = queued in self._queue
            if was_waiting:
                self._leave(queued)
            entered = self._let_in()  # it may have been the large one that held up the rest
        _tell(entered)
        return was_waiting

    def release(self, sizes: Mapping[str, int]) -> None:
        """Give back memory, in bytes by topic."""
        for topic, size_bytes in sizes.items():
            self.door.release(topic, size_bytes)
        if self._queue:
            with self._lock:
                entered = self._let_in()
            _tell(entered)

    def close(self, error: KwireError) -> None:
        """Every put from now on, waiting ones included, raises `error`."""
        self.door.is_open = False
        with self._lock:
            self._closed = error
            refused, self._queue = list(self._queue), {}
            self._awaited.clear()
        for queued in refused:
            queued.tell(own_copy(error))

    def full(self, topic: str) -> BufferFullError:
        """What to raise where there is no room for a topic's record: it names the topic that holds most."""
        largest, held = self.door.largest()
        whose = f", {held} of them for topic {largest}" if held else ""
        what = f"{self.used_bytes} of {self.bytes_max} buffered bytes are waiting to be delivered{whose}"
        if self.used_bytes < self.bytes_max and topic == largest:
            what += f", which has its share: it may hold at most {SHARE} times what is free"
        return BufferFullError(
            what,
            remedy="send more slowly, raise max_buffered_bytes, or ask "
            f"producer.explain({largest or topic!r}) why it is not delivered",
            topic=topic,
        )

    def _enter(self, incoming: Append[R]) -> R | None:
        """Take it in, if there is room."""
        if self._closed is not None:
            raise own_copy(self._closed)
        return incoming.enter(self.door)

    def _leave(self, queued: BlockedAppend[Any]) -> None:
        """It waits no more. Under the lock."""
        topic = queued.incoming.topic
        del self._queue[queued]
        self._awaited[topic] -= 1
        if not self._awaited[topic]:
            del self._awaited[topic]
            self.door.set_awaited(topic, False)

    def _let_in(self) -> list[BlockedAppend[Any]]:
        """Take in what there is room for now: in order, and of a topic none before an earlier one. Under the lock."""
        door = self.door
        door.is_short = False
        entered: list[BlockedAppend[Any]] = []
        stopped: set[str] = set()
        for queued in self._queue:
            topic = queued.incoming.topic
            if topic in stopped:
                continue
            try:
                queued.response = self._enter(queued.incoming)
            except Exception as error:  # the sender's to hear, not this thread's
                queued.error = error
            if queued.response is not None or queued.error is not None:
                entered.append(queued)
                continue
            stopped.add(topic)
            if door.held(topic) <= door.bytes_max - door.used_bytes:
                door.is_short = True  # not its own share is in its way
            if len(stopped) == len(self._awaited):
                break
        for queued in entered:
            self._leave(queued)
        return entered


def _tell(entered: Iterable[BlockedAppend[Any]]) -> None:
    for queued in entered:
        queued.tell(queued.error)


def make_door(
    settings: ProducerSettings,
    dispatch: Dispatch,
    wakeup: Callable[[], object],
    time_ms: Callable[[], int] | None = None,
    refer: Callable[..., object] | None = None,
    *,
    by_system: bool = False,
) -> RecordAccumulator:
    """The door of a producer with these settings; `time_ms` and `refer` are for those who use its own `send`."""
    return RecordAccumulator(
        place=ProduceResponse,
        dispatch=dispatch,
        batch_bytes=settings.batch_bytes,
        bytes_max=settings.max_buffered_bytes,
        record_bytes_max=settings.record_bytes_max,
        key_hash=routing(settings.partitioner, ignore_keys=settings.partitioner_ignore_keys).key_hash,
        may_share=may_share,
        time_ms=time_ms or _never,
        wakeup=wakeup,
        refer=refer or _never,
        by_system=by_system,
        sums=settings.codec is Compression.NONE,
    )


def _never(*_: object) -> Any:
    raise AssertionError("the door's own `send` is not for this producer")
