"""What `kwire.Producer` and `kwire.aio.Producer` share: each method that may wait, written once.

Such a method is a coroutine that waits by the face's `Waiter` only (`kwire.cluster.waiting`). The face for threads has
it as `flush = blocking(ProducerMethods._flush)`, the face for asyncio as `flush = awaited(ProducerMethods._flush)`.
What differs by face stays there: `send`, the wait for memory, and where callbacks run.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from kwire.arguments import check_timeout
from kwire.cluster import GroupMetadata, Topic
from kwire.cluster.telemetry import ClientTelemetry, TelemetryMethods
from kwire.cluster.waiting import Waiter
from kwire.errors import (
    ClosedError,
    FatalError,
    KwireError,
    RequestTimeoutError,
    TransactionError,
    UndeliveredError,
)
from kwire.producer.accumulator import Append, PendingRecord
from kwire.producer.batch_builder import Dispatch
from kwire.producer.bulk import BulkResponse, Keys, ManyHeaders, Partitions, Slice, Timestamps, Values
from kwire.producer.client import (
    CLOSE_SECONDS,
    RAISED_SECONDS,
    THREAD_END_SECONDS,
    UNREACHED_SECONDS,
    ProducerClient,
)
from kwire.producer.consumed import ConsumedBatch, GroupSource, member_of, positions_of
from kwire.producer.explain import Explanation
from kwire.producer.futures import MakeResponse, ProduceResponse, check_wait
from kwire.producer.message import Message, check_message
from kwire.producer.metrics import ProducerMetrics
from kwire.producer.producer_request import DeliveryOptions
from kwire.wire.buffers import Bytes

T = TypeVar("T")

# Seconds that the loop thread may take to explain a timeout.
_GRACE = 5.0

# Seconds to wait for the abort of a transaction after an error in its block. The abort continues after that.
_ABORT_SECONDS = 5.0

_log = logging.getLogger("kwire.producer")


class ProducerMethods(TelemetryMethods):
    """The methods that wait. `_flush` here is the public `flush` of each producer, and so on."""

    _waiter: Waiter
    _core: ProducerClient

    @abstractmethod
    async def _append(self, append: Append[T], terms: DeliveryOptions | None = None) -> T:
        """Append a record, or many, once there is memory. Raises BufferFullError."""

    @abstractmethod
    def _response_maker(self) -> MakeResponse:
        """Return what creates the response of one record."""

    @abstractmethod
    def _bulk_dispatch(self) -> Dispatch | None:
        """Return what runs the callbacks of a `BulkResponse`; None: the callback thread."""

    # -- many records

    async def _send_all(self, messages: Iterable[Message]) -> list[ProduceResponse]:
        """Send several messages; return a response for each, in their order.

        Raises TypeError or ValueError for a message that cannot be a record: then none is sent. After that nothing is
        raised: a message that is too large, or for which there was no memory, has a response that says so.
        """
        return await self._send_each(messages, None)

    async def _send_each(self, messages: Iterable[Message], terms: DeliveryOptions | None) -> list[ProduceResponse]:
        core, make = self._core, self._response_maker()
        prepared = [core.prepared(await self._placed(core.outgoing(message)), terms, make) for message in messages]
        responses: list[ProduceResponse] = []
        for one in prepared:
            if isinstance(one, PendingRecord):
                try:
                    responses.append(await self._append(one, terms))
                except KwireError as error:
                    responses.append(core.refused(one.topic, error, make))
            else:
                responses.append(one)
        return responses

    async def _send_many(
        self,
        topic: str,
        values: Values,
        keys: Keys = None,
        headers: ManyHeaders = None,
        timestamps_ms: Timestamps = None,
        partitions: Partitions = None,
    ) -> BulkResponse:
        """Send a record for each of `values`; return one response for all of them.

        Each further argument has an item for each record, which may be None; or it is one for all records: a mapping of
        headers, a number. Items are what `send` accepts. More records than max_buffered_bytes are appended in parts:
        the call waits until there is memory, for max_block_ms without progress. In asyncio, if the task is cancelled
        meanwhile, the records that have no memory yet are dropped; the others are sent.

        Raises TypeError or ValueError for what cannot be a record: then none is sent. Raises BufferFullError or
        ClosedError only if no record was accepted; otherwise the response reports them, and RecordTooLargeError, for
        those records.
        """
        return await self._append_many(
            topic, [self._core.slice_of(topic, values, keys, headers, timestamps_ms, partitions)]
        )

    async def _send_lines(self, topic: str, data: Bytes, delimiter: bytes = b"\n") -> BulkResponse:
        """Send each line of `data` as a record's value, as `send_many` does, without a Python object for each.

        `data` is bytes, a bytearray or a memoryview, of at most 2 GiB. A delimiter of several bytes is allowed; one at
        the end adds no empty record. No serializer is called. With interceptors, or without the C accelerator, each
        line becomes an object after all.

        Raises TypeError or ValueError for other data: then none is sent. Otherwise as `send_many`.
        """
        return await self._append_many(topic, [self._core.lines_slice(topic, data, delimiter)])

    async def _send_arrow(self, topic: str, table: Any) -> BulkResponse:
        """Send the rows of a pyarrow.Table or RecordBatch, or of any object with an Arrow stream, as `send_many` does.

        Columns: value, and optionally key, headers (list<struct<key: string, value: binary>>), partition and timestamp.
        Keys and values are read from Arrow's buffers: no Python object is created for one.

        Raises EncodeError, which names the column, for what cannot be a record: then none is sent. Otherwise as
        `send_many`. Raises ConfigurationError if pyarrow is not installed: install kwire[arrow].
        """
        return await self._append_many(topic, self._core.arrow_slices(topic, table))

    async def _append_many(self, topic: str, slices: list[Slice]) -> BulkResponse:
        known = None if self._core.custom_partitioner is None else await self._known(topic)
        bulk = self._core.bulk(topic, slices, known, self._bulk_dispatch())
        try:
            return await self._append(bulk)
        except KwireError as error:
            if not bulk.has_begun:
                self._core.tell_refused(topic, None, error, bulk.left)
                raise
            return bulk.refuse(error)

    # -- a caller's own partitioner

    async def _placed(self, message: Message) -> Message:
        """Return the message with the partition that the caller's own partitioner chooses, if there is one."""
        check_message(message)
        if message.partition is not None or self._core.custom_partitioner is None:
            return message
        return message._replace(partition=self._core.choose_partition(message, await self._known(message.topic)))

    async def _known(self, topic: str) -> Topic:
        """Return the topic's metadata; wait for it for at most max_block_ms."""
        known = self._core.known(topic)
        if known is None:
            wanted = self._core.wait_for_topic(topic)
            try:
                await self._waiter.result_of(wanted, self._core.settings.max_block_ms / 1000)
            except RequestTimeoutError:
                if wanted.done():  # its own error
                    raise
                late = await self._on_loop_or_after(lambda: self._core.topic_timeout_error(topic), _GRACE)
                raise late from late.__cause__
            known = self._core.known(topic)
            assert known is not None
        return known

    # -- flush

    async def _flush(self, timeout: float | None = None) -> None:
        """Send all records without further linger, and wait until each has a result.

        A failed record does not make `flush` raise: its response does. Raises RequestTimeoutError after `timeout`
        seconds; the records that have no result then are still being sent.
        """
        await self._wait_until(self._core.flush, "flush()", timeout)

    async def _wait_until(
        self, start: Callable[[Callable[[], object]], object], what: str, timeout: float | None
    ) -> None:
        """Call `start(on_done)` and wait for the call of `on_done`."""
        check_wait(timeout)
        if self._core.is_started:
            done = self._waiter.signal()
            start(done.set)
            if not await done.wait(timeout):
                raise await self._late(what, timeout)

    # -- transactions

    async def _init_transactions(self, timeout: float | None = 60.0) -> None:
        """Get the producer id and fence each earlier producer with this transactional id. `begin` calls it.

        Raises FencedError, FatalError, or RequestTimeoutError after `timeout` seconds: then it may be called again.
        """
        await self._await_loop("init_transactions()", self._core.transaction().init, timeout)

    async def _begin(self, timeout: float | None = 60.0) -> None:
        """Begin a transaction: what is sent from now on becomes visible at once with `commit`, or never."""
        transaction = self._core.transaction()
        await self._init_transactions(timeout)
        await self._waiter.result_of(self._core.run(lambda: transaction.begin(self._core.runtime.view)), timeout)

    async def _send_offsets(
        self,
        offsets: Mapping[tuple[str, int], int] | ConsumedBatch,
        group: GroupMetadata | GroupSource | str,
        timeout: float | None = 60.0,
    ) -> None:
        """Make a group's positions a part of the transaction: {(topic, partition): next offset to read}, or a batch.

        `group` is the consumer, its `group_metadata()`, or the group's name, which fences nobody: with the member, one
        that has lost its partitions is refused (KIP-447). A batch of `poll_batch` ties its consumer to the transaction:
        `abort` has it read the batch again, and `commit` raises AbortableError if partitions of it were taken away.
        Raises AbortableError or FatalError; TypeError or ValueError for what cannot be committed.
        """
        transaction = self._core.transaction()
        member = member_of(group)
        if isinstance(offsets, Mapping):
            positions = positions_of(offsets)
        elif isinstance(offsets, ConsumedBatch):
            self._core.consumed.add(offsets)
            self._core.consumed.check()
            positions = positions_of(offsets.next_offsets())
        else:
            raise TypeError(
                f"offsets is {offsets!r:.60}: give {{(topic, partition): offset}}, or a batch of poll_batch()"
            )
        if not positions:
            return
        await self._await_loop(
            "send_offsets()", lambda future: transaction.add_offsets(positions, member, future), timeout
        )

    async def _commit(self, timeout: float | None = 60.0) -> None:
        """Deliver what was sent, then make it visible. Returns when that is certain.

        Raises AbortableError if something could not be delivered: call `abort`. FatalError or FencedError: close the
        producer. RequestTimeoutError: it is still being committed; call `commit` again.
        """
        self._core.consumed.check()
        await self._end("commit()", timeout, is_commit=True)
        self._core.consumed.clear()

    async def _abort(self, timeout: float | None = 60.0) -> None:
        """Discard the transaction: what was not sent yet fails with AbortableError. Raises what `commit` raises."""
        try:
            await self._end("abort()", timeout, is_commit=False)
        finally:
            self._core.consumed.rewind()

    async def _abort_after(self, error: BaseException, timeout: float | None) -> None:
        """Abort a transaction whose block or commit raised `error`, which the caller raises again.

        An abort that fails or takes long is logged: its error must not hide the first one.
        """
        if isinstance(error, FatalError):
            return
        try:
            await self._abort(_ABORT_SECONDS if timeout is None else min(timeout, _ABORT_SECONDS))
        except KwireError as failure:
            _log.error("%r: the transaction that raised %s is not aborted: %s", self, type(error).__name__, failure)

    async def _end(self, what: str, timeout: float | None, *, is_commit: bool) -> None:
        transaction, failures = self._core.transaction(), self._core.callbacks.failures
        try:
            await self._await_loop(
                what, lambda future: self._core.sender.end(transaction, future, is_commit=is_commit), timeout
            )
        except TransactionError:
            failures.clear()  # this error reports them
            raise
        failures.clear()

    async def _await_loop(self, what: str, start: Callable[[Future[None]], None], timeout: float | None) -> None:
        """Run `start(future)` on the loop's thread and wait until it resolves the future."""
        check_wait(timeout)
        future = self._core.on_loop(start)
        try:
            await self._waiter.result_of(future, timeout)
        except RequestTimeoutError:
            if future.done():  # its own error, or it has just been resolved
                return future.result()
            late = await self._late(what, timeout)
            raise late from late.__cause__

    async def _late(self, what: str, timeout: float | None) -> RequestTimeoutError:
        return await self._on_loop_or_after(lambda: self._core.timeout_error(what, timeout), _GRACE)

    # -- what it knows

    @property
    def client_id(self) -> str:
        return self._core.runtime.config.client_id

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that have no result yet."""
        return self._core.buffer_pool.used_bytes

    def partitions(self, topic: str) -> int | None:
        """Return how many partitions the topic has, as far as this producer knows; None if it does not."""
        known = self._core.known(topic)
        return None if known is None else len(known.partitions)

    async def _explain(self, topic: str, partition: int | None = None) -> Explanation:
        """Return why records of a partition, or of a whole topic, are not delivered now: print it, or read its reasons.

        It describes the present moment: no leader, an unreachable broker and the last failure, a back-off, a window
        closed to keep order, a producer id that is being requested, a linger, an outstanding response, full memory.
        """
        return await self._on_loop_or_after(lambda: self._core.explain(topic, partition))

    async def _metrics(self) -> ProducerMetrics:
        """Return the counts of records, batches and bytes, their results, and those of each broker: a copy of now."""
        return await self._on_loop_or_after(self._core.metrics)

    def collect_metrics(self) -> ProducerMetrics:
        """Return `metrics` from an exporter's thread, which blocks until the producer's own thread has responded."""
        return self._core.runtime.on_loop_or_after(self._core.metrics)

    async def _on_loop_or_after(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run a function on the loop's thread, or on this one while none runs."""
        runtime = self._core.runtime
        if runtime.is_running:
            try:
                return await self._waiter.result_of(self._core.run(function), timeout)
            except ClosedError:  # the loop ends now
                ended = self._waiter.signal()
                runtime.when_ended(ended.set)
                await ended.wait(timeout)
        return function()

    # -- the end

    @property
    def _telemetry(self) -> ClientTelemetry:
        return self._core.telemetry

    @property
    def _request_timeout(self) -> float:
        return self._core.runtime.config.request_timeout_ms / 1000

    async def _close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Accept no more records, deliver those accepted, for at most `timeout` seconds, and end the threads.

        `send` raises ClosedError from now on, also while it waits for memory. What is not delivered in time fails; in
        asyncio, at once if the task is cancelled. A transaction that was not committed is aborted, with a warning in
        the log. May be repeated.

        If records failed, or were not delivered in time, and no caller has seen their failure, an error in the log says
        how many, of which topics, and the first cause. It is not raised: a `with` block raises it.
        """
        check_timeout(timeout)
        undelivered = await self._shut_down(timeout, None)
        if undelivered is not None:
            _log.error("%r: %s", self, undelivered)

    async def _shut_down(
        self, timeout: float | None, unreached: float | None, patience: float = THREAD_END_SECONDS
    ) -> UndeliveredError | None:
        """See `ProducerClient.drain_steps`; `patience` is how many seconds the threads may take to end."""
        core, late = self._core, None
        if core.runtime.is_forked:  # the records are the parent's
            return None
        core.stop_accepting()
        try:
            for step in core.drain_steps(timeout, unreached):
                try:
                    await self._wait_until(core.drain, "close()", step)
                    late = None
                    break
                except RequestTimeoutError as error:
                    late = error
                except ClosedError:  # by another thread or task, just now
                    break
        finally:
            await core.telemetry.end(self._waiter, timeout)
            core.close_interceptors()
            await self._waiter.close(core.runtime, patience)
        return core.undelivered(late)

    async def _exit(self, error: BaseException | None) -> None:
        """Close at the end of a `with` block, which raised `error` or None."""
        if error is None:
            undelivered = await self._shut_down(CLOSE_SECONDS, UNREACHED_SECONDS)
            if undelivered is not None:
                raise undelivered
            return
        undelivered = await self._shut_down(RAISED_SECONDS, 0.0, RAISED_SECONDS)
        if undelivered is not None:
            _log.error("%r, closed because of %s: %s", self, type(error).__name__, undelivered)

    def __repr__(self) -> str:
        return self._core.describe()
