"""The steps of a rebalance in both faces of the consumer: when they run, on which thread, and what they do.

The `Membership` on the loop thread posts each `RebalanceStep`. The call that polls takes it between two batches (see
`gate`), runs the callback, and reports back. A step for which no callback runs, and that touches nothing in the
program's hands, is done by the loop thread itself, if the consumer's lock is free.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from kwire.cluster.waiting import BLOCKING, run_blocking
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.buffer import PartitionBuffer
from kwire.consumer.commits import CommitManager
from kwire.consumer.fetcher import Start
from kwire.consumer.gate import PollGate
from kwire.consumer.group_commits import CommittingClient
from kwire.consumer.group_member import PollTimer
from kwire.consumer.membership import Membership
from kwire.consumer.offsets import COMMITTED
from kwire.consumer.rebalance import RebalanceListener, RebalanceStep
from kwire.errors import ClosedError, GroupError

_log = logging.getLogger("kwire.consumer")

_CALLBACK_NAMES = {"prepare": "", "revoke": "on_revoked", "assign": "on_assigned", "lost": "on_lost"}


class RebalancingClient(CommittingClient):
    """`CommittingClient` with the steps of rebalances."""

    def _set_up_group(self) -> CommitManager | None:
        self._gate = PollGate(PollTimer())
        self._listener = RebalanceListener()
        self._membership: Membership | None = None
        self._steps: deque[RebalanceStep] = deque()
        self._is_stepping = False
        self._has_revoked = False  # on_revoked ran, and on_assigned of the same round has not
        self._read_by: object = None  # the thread or task that polls now; only with commit="auto"
        self._called_back_by: tuple[object, str] | None = None  # who runs a callback now, and which
        self._pending_starts: dict[TopicPartition, Start] = {}  # of on_assigned, until it returns
        self._on_rebalance_pending: Callable[[list[TopicPartition]], object] | None = None
        self._is_exiting = False  # the interpreter ends: leave, but neither commit nor call back
        self._own_progress: Callable[[], object] | None = None  # of a program that reads its records from a buffer
        return super()._set_up_group()

    # -- the gate

    def _check_not_in_callback(self, what: str) -> None:
        called = self._called_back_by
        if called is not None and called[0] == self._waiter.caller():
            raise GroupError(
                f"{what} was called in {called[1]}, which the rebalance waits for",
                remedy="let the callback return, and call it then",
                group=self._options.group,
            )

    def _check_readable(self) -> None:
        super()._check_readable()
        if self._membership is not None and self._membership.fatal_error is not None:
            self._client_errors.clear()  # they have it too
            raise self._membership.fatal_error

    def _begin_read(self, what: str) -> None:
        self._check_not_in_callback(what)
        self._check_only_reader(what)
        super()._begin_read(what)
        with self._lock:
            counters = self._counters
            counters.polls += 1
            for buffer, first, _ in self._in_hand:
                counters.records_consumed += max(0, (buffer.position or first) - first)
            if self._commits is None:
                self._in_hand.clear()
                return
            self._gate.enter(self._runtime.clock.now)
            self._lost_in_hand.clear()
            self._mark_in_hand()

    def _check_only_reader(self, what: str) -> None:
        """Raise GroupError if another caller reads at this moment: with commit="auto" that loses records.

        Each caller would count as processed the records that the other has in hand.
        """
        if self._commits is None or self._options.commit != "auto":
            return
        caller = self._waiter.caller()
        with self._lock:
            if self._read_by is not None and self._read_by != caller:
                raise GroupError(
                    f"{what} was called while another thread or task reads from this consumer, which has "
                    'commit="auto": each counts what the other works on as processed',
                    remedy='give commit="marks" and mark() each record when its work is done, let consumer.process() '
                    "share the work out, or give each thread a consumer of its own",
                    group=self._options.group,
                )
            self._read_by = caller

    def _end_read(self, *, is_iteration: bool) -> None:
        self._read_by = None
        if self._commits is None:
            return
        with self._lock:
            has_records = bool(self._in_hand)
            self._iterating = self._in_hand[-1][0] if is_iteration and has_records else None
            self._gate.leave(self._runtime.clock.now(), has_records=has_records)

    def _progress(self) -> object:
        if self._own_progress is not None:
            return self._own_progress()
        buffer = self._iterating
        return None if buffer is None else (buffer, buffer.position)

    # -- steps, from the loop thread ...

    def _post(self, item: Any) -> None:
        self._fetch_buffer.post(item)
        if isinstance(item, RebalanceStep):
            self._step_waits()
            pending = self._on_rebalance_pending
            if pending is not None and item.kind in ("prepare", "lost") and not self._gate.is_open:
                self._runtime.dispatch(pending, list(item.partitions))

    def _step_waits(self) -> None:
        """Interrupt an iteration, and do the steps that need nothing of the program. Never waits for the lock."""
        self._reading = None
        if self._options.callbacks == "background":
            self._runtime.dispatch(self._run_in_background)
            return
        if self._lock.acquire(blocking=False):
            try:
                if self._is_closed and not self._is_leaving:
                    return
                self._receive()
                while self._steps and not self._is_stepping and self._needs_nobody(self._steps[0]):
                    step = self._steps.popleft()
                    self._finish_step(step, None)
            finally:
                self._lock.release()

    def _needs_nobody(self, step: RebalanceStep) -> bool:
        listener = self._listener
        if step.kind == "prepare":
            if listener.on_revoked is not None or self._processor is not None or self._gate.timer.since == float("inf"):
                return False
            if self._gate.is_open:
                return True
            in_hand = {(buffer.topic, buffer.partition) for buffer, _, _ in self._in_hand}
            return self._options.commit != "manual" and in_hand.isdisjoint(step.partitions)
        return listener.callback(step) is None and (step.kind != "assign" or self._processor is None)

    # -- ... and in the call that polls

    def _take_step(self, step: RebalanceStep) -> None:
        self._steps.append(step)
        if step.kind in ("prepare", "revoke"):
            for key in step.partitions:
                if key in self._buffers:
                    self._buffers[key].is_revoking = True
        elif step.kind == "lost":
            self._drop_partitions(step.partitions)

    def _next_step(self) -> RebalanceStep | None:
        if not self._steps or self._is_stepping or self._options.callbacks == "background":
            return None
        self._is_stepping = True
        return self._steps.popleft()

    def _next_buffer(self) -> PartitionBuffer | None:
        """Return no buffer between the callbacks of one round: on_assigned comes before the records after it (Java)."""
        if self._has_revoked and self._membership is not None and self._membership.will_assign:
            return None
        return super()._next_buffer()

    def _take_next_step(self) -> RebalanceStep | None:
        with self._lock:
            self._receive()
            return self._next_step()

    async def _run_step(self, step: RebalanceStep) -> BaseException | None:
        """Run a step, and its callback to the end; return what to raise: an interrupt, or the callback's error."""
        error: BaseException | None = None
        interrupt: BaseException | None = None

        async def call_back() -> None:  # of asyncio, in a task of its own
            nonlocal error
            try:
                if callback is not None:
                    self._called_back_by = self._waiter.caller(), _CALLBACK_NAMES[step.kind]
                    await self._waiter.call(callback, list(step.partitions))
                if self._processor is not None:
                    await self._processor.take_step(step)
            except BaseException as raised:
                error = raised
            finally:
                self._called_back_by = None

        try:
            with self._lock:
                if step.kind == "assign":
                    self._add_partitions(step.partitions)
            callback = self._listener.callback(step)
            if callback is not None or self._processor is not None:
                await self._waiter.shielded(call_back())
        except BaseException as raised:
            interrupt = raised
        finally:
            with self._lock:
                self._is_stepping = False
                self._finish_step(step, error)
        return interrupt or error

    def _run_in_background(self) -> None:
        """Run the waiting steps on the callback thread: callbacks="background"."""
        while True:
            with self._lock:
                self._receive()
                if not self._steps or self._is_stepping:
                    return
                self._is_stepping = True
                step = self._steps.popleft()
                if step.kind == "assign":
                    self._add_partitions(step.partitions)
            error: BaseException | None = None
            try:
                callback = self._listener.callback(step)
                if callback is not None:
                    run_blocking(BLOCKING.call(callback, list(step.partitions)))
            except Exception as raised:
                _log.exception("a callback of a rebalance raised")
                error = raised
            finally:
                with self._lock:
                    self._is_stepping = False
                    self._finish_step(step, error)
                self._fetch_buffer.wake_all()

    def _finish_step(self, step: RebalanceStep, error: BaseException | None) -> None:
        """Do what a step is for, and report it. The caller holds the lock."""
        membership, counters = self._membership, self._counters
        assert membership is not None
        counters.callbacks_failed += error is not None
        self._has_revoked = step.kind == "revoke"
        if step.kind == "assign":
            counters.rebalances += 1
            counters.partitions_assigned += len(step.partitions)
        elif step.kind == "revoke":
            counters.partitions_revoked += len(step.partitions)
        elif step.kind == "lost":
            counters.partitions_lost += len(step.partitions)
        with suppress(ClosedError):
            if step.kind == "prepare":
                has_none = self._options.commit == "manual" or self._is_exiting
                self._runtime.call_soon(membership.prepared, step, {} if has_none else self._processed_offsets())
                return
            if step.kind == "assign":
                self._add_partitions(step.partitions)
                starts = [self._take_start(key) for key in list(self._pending_starts)]
                self._runtime.call_soon(self._fetcher.add, starts)
            else:
                self._drop_partitions(step.partitions)
            self._runtime.call_soon(membership.step_done, step, error)

    # -- what a step adds and takes away

    def _add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            if key not in self._buffers:
                buffer = self._buffers[key] = self._new_buffer(key, COMMITTED)
                self._pending_starts[key] = Start(*key, buffer.assignment_epoch, COMMITTED)

    def _drop_partitions(self, partitions: Collection[TopicPartition]) -> None:
        self._reading = None
        if self._processor is not None:
            self._processor.dropped(partitions)
        for key in partitions:
            buffer = self._buffers.pop(key, None)
            self._pending_starts.pop(key, None)
            if buffer is not None:
                if any(one[0] is buffer for one in self._in_hand):
                    self._lost_in_hand.add(key)
                self._in_hand = [one for one in self._in_hand if one[0] is not buffer]
                if buffer.is_ready:
                    self._ready.remove(buffer)
                    buffer.is_ready = False
                self._drop(buffer)

    def _begin_fetching(self, start: Start) -> None:
        key = start.topic, start.partition
        if key in self._pending_starts:
            self._pending_starts[key] = start
        else:
            super()._begin_fetching(start)

    def _begin_pending(self, key: TopicPartition) -> None:
        if key in self._pending_starts:
            self._runtime.call_soon(self._fetcher.add, [self._take_start(key)])

    def _take_start(self, key: TopicPartition) -> Start:
        """Take the start of a new partition out, with the pause that the program may have asked for meanwhile."""
        return self._pending_starts.pop(key)._replace(is_paused=self._buffers[key].is_paused)
