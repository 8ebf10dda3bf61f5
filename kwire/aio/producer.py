"""`kwire.aio.Producer`: the producer for asyncio, over the same `ProducerClient` as `kwire.Producer`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from kwire.cluster import ClientConfig, Cluster
from kwire.cluster.asyncio_waiting import AWAITING, AsyncioSignal
from kwire.cluster.callbacks import AsyncioBridge, asyncio_bridge
from kwire.cluster.waiting import awaited
from kwire.errors import KwireError
from kwire.option_checks import documents_options, translate_bootstrap
from kwire.producer import Message, ProduceResponse, ProducerRequest, RecordMetadata
from kwire.producer.accumulator import Append, BlockedAppend
from kwire.producer.batch_builder import Dispatch
from kwire.producer.client import ProducerClient, check_topic
from kwire.producer.futures import Callback, HomedResponse, MakeResponse, check_callback
from kwire.producer.message import Data, Headers
from kwire.producer.methods import ProducerMethods
from kwire.producer.options import ProducerKwargs, ProducerSettings
from kwire.producer.producer_request import DeliveryOptions

if TYPE_CHECKING:
    from kwire.cluster import ClusterEvent

T = TypeVar("T")

# While there is room, `send` has nothing to await: it yields this often, so that other tasks can run.
_SENDS_PER_TURN = 100


@documents_options(ProducerSettings, ClientConfig)
class Producer(ProducerMethods):
    """Sends records to a Kafka cluster from asyncio.

    >>> async with kwire.aio.Producer("localhost:9092") as producer:      # doctest: +SKIP
    ...     response = await producer.send("greetings", b"hello")         # in its batch, once there was room
    ...     print((await response).offset)                                # delivered
    ...     print(await producer.send_and_wait("greetings", b"hello"))    # both

    Options are those of `kwire.Producer`, except callback_executor; `help(kwire.aio.Producer)` has all of them.
    when_full="block" means that `send` waits for memory without blocking the loop. Callbacks run in the loop that
    called `send`. One producer serves any number of tasks; records go out in the order in which `send` was called, also
    those that waited for memory.

    A task that is cancelled in `send` while it waits for memory withdraws its record. If the record is accepted at that
    very moment, the cancellation comes too late, and the record is sent although nobody has its response.
    """

    _waiter = AWAITING

    @translate_bootstrap("kwire.aio.Producer")
    def __init__(self, bootstrap: str | Sequence[str] | Cluster, **options: Unpack[ProducerKwargs]) -> None:
        self._core = ProducerClient("kwire.aio.Producer", bootstrap, options, _declined, self._dispatch)
        self._buffer_pool = self._core.buffer_pool
        self._send_at_once = self._buffer_pool.accumulator.send
        self._sends = 0
        # The accumulator's own `send` serves the loop that sent first, where the callbacks of its responses run.
        self._first_loop: asyncio.AbstractEventLoop | None = None
        self._first_bridge: AsyncioBridge | None = None
        self._home: tuple[asyncio.AbstractEventLoop, tuple[AsyncioBridge, MakeResponse]] | None = None

    @overload
    async def send(self, topic: ProducerRequest) -> list[ProduceResponse]: ...

    @overload
    async def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse: ...

    async def send(
        self,
        topic: str | ProducerRequest,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callback | None = None,
    ) -> ProduceResponse | list[ProduceResponse]:
        """Append one record to its batch, once there is room; return its future, which can be awaited.

        Arguments and errors are those of `kwire.Producer.send`; BufferFullError comes after max_block_ms. Nothing
        awaits what `on_delivery` returns: it is a plain function.
        """
        if isinstance(topic, ProducerRequest):
            return await self._send_each(topic, topic.terms(self._core.settings, self._core.runtime.clock.now()))
        try:
            if not self._core.is_plain:
                topic, value, key, headers, partition, timestamp_ms = self._core.outgoing(
                    Message(topic, value, key, headers, partition, timestamp_ms)
                )
            self._sends += 1
            if self._sends % _SENDS_PER_TURN == 0:
                await asyncio.sleep(0)
            if asyncio.get_running_loop() is self._first_loop and not self._buffer_pool.is_full:
                # No task waits for room, so none is overtaken. It returns None without room, and for unusual records.
                future = self._send_at_once(topic, value, key, headers, partition, timestamp_ms, on_delivery)
                if future is not None:
                    return cast(ProduceResponse, future)
            if partition is None and self._core.custom_partitioner is not None:
                check_topic(topic)
                message = Message(topic, value, key, headers, partition, timestamp_ms)
                partition = self._core.choose_partition(message, await self._known(topic))
            if on_delivery is not None:
                check_callback(on_delivery)
            make = self._response_maker()
            append = self._core.pending_record(topic, value, key, headers, partition, timestamp_ms, None, make)
            response = await self._append(append)
        except KwireError as error:
            self._core.tell_refused(topic, partition, error)
            raise
        if on_delivery is not None:
            response.add_done_callback(on_delivery)
        return response

    async def send_and_wait(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """`send`, and await the response. A task that is cancelled after the first half leaves the record under way."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    send_all = awaited(ProducerMethods._send_all)
    send_many = awaited(ProducerMethods._send_many)
    send_lines = awaited(ProducerMethods._send_lines)
    send_arrow = awaited(ProducerMethods._send_arrow)
    flush = awaited(ProducerMethods._flush)
    explain = awaited(ProducerMethods._explain)
    metrics = awaited(ProducerMethods._metrics)
    client_instance_id = awaited(ProducerMethods._client_instance_id)
    close = awaited(ProducerMethods._close)

    async def _append(self, append: Append[T], terms: DeliveryOptions | None = None) -> T:
        has_memory = AsyncioSignal(self._current_loop()[0])
        appended = self._buffer_pool.append_nowait(append, has_memory.set)
        if not isinstance(appended, BlockedAppend):
            return appended
        await self._wait_for_memory(appended, has_memory, terms)
        assert appended.response is not None
        response: T = appended.response
        return response

    async def _wait_for_memory(
        self, blocked: BlockedAppend[Any], has_memory: AsyncioSignal, terms: DeliveryOptions | None
    ) -> None:
        """Wait until the append is done; raise BufferFullError when that takes too long."""
        limit = self._core.settings.max_block_ms / 1000
        if terms is not None and terms.timeout is not None:
            limit = min(limit, max(0.0, terms.deadline - self._core.runtime.clock.now()))
        try:
            left = 0
            while left != blocked.append.left:  # of many: as long as some were appended
                left = blocked.append.left
                if await has_memory.wait(limit):
                    return
            # If it cannot be cancelled any more, it was appended in the meantime, which is as good.
            if self._buffer_pool.cancel(blocked):
                raise self._buffer_pool.full_error(blocked.append.topic)
            await has_memory.wait()  # it is being notified just now
        except asyncio.CancelledError:
            self._buffer_pool.cancel(blocked)
            raise

    def _response_maker(self) -> MakeResponse:
        return self._current_loop()[1]

    def _bulk_dispatch(self) -> Dispatch | None:
        return partial(_dispatch, self._current_loop()[0], self._core.runtime.dispatch)

    def _current_loop(self) -> tuple[AsyncioBridge, MakeResponse]:
        """Return the bridge to the running loop, and a maker of responses whose callbacks run there.

        Once that loop is closed, they run on the callback thread.
        """
        loop = asyncio.get_running_loop()
        if self._home is None or self._home[0] is not loop:
            bridge = asyncio_bridge(loop)
            home = partial(_dispatch, bridge, self._core.runtime.dispatch)
            self._home = loop, (bridge, partial(HomedResponse, home=home))
            if self._first_loop is None:
                self._first_loop, self._first_bridge = loop, bridge
        return self._home[1]

    def _dispatch(self, function: Callable[..., object], *args: Any) -> None:
        """Run callbacks of responses that the accumulator's own `send` made, and calls of interceptors."""
        if self._first_bridge is None:  # no record was accepted in any loop
            self._core.runtime.dispatch(function, *args)
            return
        _dispatch(self._first_bridge, self._core.runtime.dispatch, function, *args)

    # -- transactions

    init_transactions = awaited(ProducerMethods._init_transactions)
    begin = awaited(ProducerMethods._begin)
    send_offsets = awaited(ProducerMethods._send_offsets)
    commit = awaited(ProducerMethods._commit)
    abort = awaited(ProducerMethods._abort)

    @contextlib.asynccontextmanager
    async def transaction(self, timeout: float | None = 60.0) -> AsyncIterator[None]:
        """`begin`, then `commit`; or `abort`, if the block raises or is cancelled, or the commit fails.

        If the block or the commit raises, that error is raised; the abort waits for at most 5 s, and its own error goes
        to the log.
        """
        await self.begin(timeout)
        try:
            yield
            await self.commit(timeout)
        except BaseException as error:
            await self._abort_after(error, timeout)
            raise

    # -- the rest

    def on_cluster_event(self, callback: Callable[[ClusterEvent], object]) -> Callable[[], None]:
        """Call `callback(event)` in the running event loop for each event: see `kwire.Producer.on_cluster_event`."""
        bridge = asyncio_bridge(asyncio.get_running_loop())
        return self._core.runtime.on_cluster_event(lambda event: bridge.post(callback, event))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close: for 30 s, 5 s while no broker has ever responded; after a block that raised 1 s, or not at all.

        Raises UndeliveredError, after a block that did not raise, if records failed or were not delivered in time and
        no caller has seen their failure. After a block that raised or was cancelled, it is an error in the log.
        """
        await self._exit(error)


def _declined(*_: object) -> None:
    """Return None from the accumulator's own `send` where it does not accept a record."""


def _dispatch(
    bridge: AsyncioBridge, otherwise: Callable[..., None], function: Callable[..., object], *args: Any
) -> None:
    if not bridge.post(function, *args):
        otherwise(function, *args)
