"""What both faces of the consumer do as members of a group: subscribe, rebalance, commit.

The `Membership` on the loop thread posts each `RebalanceStep`. The call that polls takes it between two batches (see
`gate`), runs the callback, and reports back. A step for which no callback runs, and that touches nothing in the
program's hands, is done by the loop thread itself, if the consumer's lock is free.

Of each partition there are four numbers. The fetch position is the fetcher's. The position is the next offset that the
program gets. All below `processed` was processed: returned before the program last polled, or marked. All below
`committed` is known to be the coordinator's.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from math import inf
from re import Pattern
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from kwire.arguments import check_timeout
from kwire.cluster import Backoff, ClusterMetrics, Distribution, GroupMetadata, LoopThread
from kwire.cluster.metrics import Histogram
from kwire.cluster.waiting import BLOCKING, run_blocking
from kwire.consumer.arguments import TopicPartition, checked_partitions
from kwire.consumer.assignors import make_assignors
from kwire.consumer.auto_commit import AutoCommit
from kwire.consumer.buffer import PartitionBuffer
from kwire.consumer.client import ConsumerClient
from kwire.consumer.columns import BatchSpan, PolledBatch
from kwire.consumer.commits import CommitManager
from kwire.consumer.explain import ConsumerExplanation, WaitReason, explain_group, explain_partitions
from kwire.consumer.fetcher import Start
from kwire.consumer.gate import GateWatch, PollGate
from kwire.consumer.group_member import GroupContext, GroupOptions, LeaveMode, Member, MemberState, PollTimer
from kwire.consumer.lag import Lag, lag_of
from kwire.consumer.membership import Membership
from kwire.consumer.metrics import ConsumerCounters, ConsumerMetrics
from kwire.consumer.offsets import COMMITTED, AtTimestamp, CommittedRequest, Offset, StartOffset
from kwire.consumer.rebalance import RebalanceCallback, RebalanceListener, RebalanceStep
from kwire.consumer.record import ConsumerRecord
from kwire.consumer.signals import consumers
from kwire.consumer.subscription import Regex, Subscription
from kwire.errors import (
    ClosedError,
    CommitError,
    CommitFailedError,
    ConfigurationError,
    GroupError,
    KwireError,
    RequestTimeoutError,
)

if TYPE_CHECKING:
    from kwire.consumer.processor import ParallelProcessor

_log = logging.getLogger("kwire.consumer")

# What can be committed or marked: a record, records, a batch of `poll_batch`, or offsets of next records.
Committable = ConsumerRecord | Iterable[ConsumerRecord] | PolledBatch | Mapping[TopicPartition, Offset | int]
OnCommitted = Callable[[Mapping[TopicPartition, Offset], KwireError | None], object]
SeekTarget = datetime | timedelta | Literal["earliest", "latest"]

T = TypeVar("T")

_WAIT_MAX = 1.0
# When the interpreter ends, a consumer that nobody closed has so long to leave its group.
_EXIT_SECONDS = 1.0
_CALLBACK_NAMES = {"prepare": "", "revoke": "on_revoked", "assign": "on_assigned", "lost": "on_lost"}
_LEAVE_MODES: Mapping[bool | None, LeaveMode] = {None: "default", True: "leave", False: "remain"}
_NO_GROUP = 'give the consumer a group: Consumer(bootstrap, group="billing")'


class GroupClient(ConsumerClient):
    """`ConsumerClient` with the methods of group members."""

    _make_batch: ClassVar[type[PolledBatch]] = PolledBatch

    def _new_commits(self) -> CommitManager | None:
        options, config = self._options, self._config
        consumers.add(self)
        self._counters = ConsumerCounters()
        self._gate = PollGate(PollTimer())
        self._listener = RebalanceListener()
        self._subscription: Subscription | None = None
        self._membership: Membership | None = None
        self._auto_commit: AutoCommit | None = None
        self._steps: deque[RebalanceStep] = deque()
        self._is_stepping = False
        self._called_back_by: tuple[object, str] | None = None  # who runs a callback now, and which
        self._pending_starts: dict[TopicPartition, Start] = {}  # of on_assigned, until it returns
        self._iterating: PartitionBuffer | None = None
        self._swept_at = 0.0
        self._processor: ParallelProcessor | None = None
        self._on_rebalance_pending: Callable[[list[TopicPartition]], object] | None = None
        self._is_exiting = False  # the interpreter ends: leave, but neither commit nor call back
        self._at_exit: weakref.finalize[[weakref.ref[GroupClient]], LoopThread] | None = None
        self._runtime.deliver_before_end(self._close_with_cluster)
        if options.group is None:
            return None
        return CommitManager(
            options.group,
            instance_id=options.group_instance_id,
            unknown_topic_timeout_ms=options.unknown_topic_timeout_ms,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max),
            random=self._new_random(),
            wake=self._runtime.wakeup,
        )

    def _group_commits(self) -> CommitManager:
        if self._commits is None:
            raise ConfigurationError("this consumer has no group", remedy=_NO_GROUP)
        return self._commits

    # -- subscription

    async def _subscribe(
        self,
        topics: Iterable[str | Regex] | Pattern[str] | Regex,
        *,
        listener: object = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        on_rebalance_pending: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; it decides which of their partitions this consumer reads.

        `topics` are names, a compiled pattern that is matched here, or a `kwire.Regex`, which the broker matches. The
        callbacks get a list of (topic, partition) and run in the call that polls, between two batches; of asyncio they
        may be coroutine functions. A `listener` is an object with these methods, any of them. They may seek, commit and
        pause, but not poll, subscribe or close. What they raise is raised by that call, after the rebalance went on.

        on_assigned           these partitions are new, before anything of them is read: a seek in it decides where
        on_revoked            these will be another member's, after what was processed of them was committed
        on_lost               these are another member's already; without it on_revoked is called
        on_rebalance_pending  a rebalance waits until the program polls; called on a thread of kwire's
        """
        self._check_not_in_callback("subscribe()")
        self._group_commits()
        subscription = Subscription.of(topics)
        found = _checked_listener(listener, on_assigned, on_revoked, on_lost)
        self._check_callbacks(found)
        if on_rebalance_pending is not None and not callable(on_rebalance_pending):
            raise TypeError(f"on_rebalance_pending is {on_rebalance_pending!r:.60}: give a function")
        with self._lock:
            self._check_usable()
            if self._is_assigned and self._subscription is None:
                raise ConfigurationError(
                    "this consumer has partitions by assign()", remedy="make another one, or call unsubscribe() first"
                )
            self._listener, self._subscription, self._is_assigned = found, subscription, True
            self._on_rebalance_pending = on_rebalance_pending
            self._start()
            if self._membership is None:
                self._membership = self._new_membership()
                if self._runtime.has_system_clock:  # made after that of the runtime, it runs before it
                    self._at_exit = weakref.finalize(self._runtime, _leave_at_exit, weakref.ref(self))
                self._runtime.add(self._membership)
                self._runtime.add(self._new_watch(self._membership))
            self._start_auto_commit()
            self._gate.allow(self._runtime.clock.now())
            self._runtime.call_soon(self._membership.subscribe, subscription)

    async def _unsubscribe(self, timeout: float | None = 30.0) -> None:
        """Release all partitions and leave the group. What was processed is committed, and on_revoked called.

        Also ends an `assign`. RequestTimeoutError after `timeout` seconds.
        """
        self._check_not_in_callback("unsubscribe()")
        check_timeout(timeout)
        with self._lock:
            self._check_usable()
            if self._subscription is None:
                for buffer in self._buffers.values():
                    self._drop(buffer)
                self._buffers, self._is_assigned = {}, False
                if self._is_started:
                    self._runtime.call_soon(self._fetcher.assign, [])
                return
        if not await self._leave_group("default", self._deadline(timeout)):
            raise RequestTimeoutError("the consumer could not leave its group in time", group=self._options.group)
        with self._lock:
            self._subscription, self._is_assigned = None, False

    def subscription(self) -> Subscription | None:
        """Return what the consumer is subscribed to, or None."""
        return self._subscription

    @property
    def member(self) -> Member:
        """The member of the group that this consumer is now: id, epoch or generation, state, protocol."""
        if self._membership is None:
            return Member("", -1, MemberState.UNSUBSCRIBED, None, self._options.group_instance_id)
        return self._membership.member()

    def group_metadata(self) -> GroupMetadata:
        """Return the group and the member at this moment, for `Producer.send_offsets`."""
        return self._group_commits().generation

    @property
    def rebalance_pending(self) -> bool:
        """Whether a rebalance waits until the program polls."""
        return self._membership is not None and self._membership.pending_step is not None

    def keep_alive(self) -> None:
        """Restart the poll interval: for one very slow record. Rebalances go on waiting."""
        self._check_usable()
        self._gate.timer.poll_ended(self._runtime.clock.now())

    async def _allow_rebalance(self) -> None:
        """Let a rebalance go on: the program has processed the records that it got, and does not poll yet."""
        self._check_not_in_callback("allow_rebalance()")
        with self._lock:
            self._check_usable()
            self._mark_in_hand()
            self._receive()
            self._gate.allow(self._runtime.clock.now())
        while (step := self._take_next_step()) is not None:
            failure = await self._run_step(step)
            if failure is not None:
                raise failure

    def _check_callbacks(self, listener: RebalanceListener) -> None:
        """Refuse coroutine functions where no event loop runs them."""
        is_background = self._options.callbacks == "background"
        if self._waiter.shares_thread and not is_background:
            return
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if inspect.iscoroutinefunction(getattr(listener, name)):
                where = 'with callbacks="background" it runs on a thread' if is_background else "this consumer has none"
                raise ConfigurationError(
                    f"{name} is a coroutine function, which needs an event loop: {where}",
                    remedy='give a plain function, or use kwire.aio.Consumer with callbacks="poll"',
                )

    def _new_membership(self) -> Membership:
        options, commits = self._options, self._group_commits()
        assignors = make_assignors(options.assignors or "cooperative-sticky")
        context = GroupContext(
            options=GroupOptions(
                group=commits.generation.group_id,
                protocol=options.group_protocol,
                instance_id=options.group_instance_id,
                assignors=tuple(assignors),
                remote_assignor=options.remote_assignor,
                session_timeout_ms=options.session_timeout_ms or 45_000,
                heartbeat_interval_ms=options.heartbeat_interval_ms or 3_000,
                max_poll_interval_ms=options.max_poll_interval_ms,
                rack=options.rack,
                fence_on_session_loss=options.fence_on_session_loss,
                is_classic_wanted=options.is_classic_wanted,
            ),
            fetcher=self._fetcher,
            commits=commits,
            post=self._post,
            poll_timer=self._gate.timer,
            backoff=Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_ms_max),
            random=self._new_random(),
            request_timeout_ms=self._config.request_timeout_ms,
            in_background=self._in_background,
            wake=self._runtime.wakeup,
        )
        return Membership(context)

    def _new_watch(self, membership: Membership) -> GateWatch:
        interval = self._options.max_poll_interval_ms
        return GateWatch(
            self._gate.timer,
            None if interval is None else interval / 1000,
            self._progress,
            lambda: membership.pending_step is not None,
            self._step_waits,
        )

    def _in_background(self, work: Callable[[], Any], on_done: Callable[[Any], object]) -> None:
        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                result = error
            with suppress(ClosedError):
                self._runtime.call_soon(on_done, result)

        self._runtime.dispatch(run)

    # -- the gate

    def _how_to_assign(self) -> str:
        if self._subscription is None:
            return super()._how_to_assign()
        return "the group assigns partitions while the program polls: see assignment(), or act in on_assigned"

    def _check_not_subscribed(self) -> None:
        if self._subscription is not None:
            raise ConfigurationError(
                "the group assigns the partitions of this consumer", remedy="call unsubscribe() first"
            )

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
            self._mark_in_hand()

    def _end_read(self, *, is_iteration: bool) -> None:
        if self._commits is None:
            return
        with self._lock:
            has_records = bool(self._in_hand)
            self._iterating = self._in_hand[-1][0] if is_iteration and has_records else None
            self._gate.leave(self._runtime.clock.now(), has_records=has_records)

    def _mark_in_hand(self) -> None:
        """Count what the program got as processed, unless it marks that itself. The caller holds the lock."""
        self._iterating = None
        is_marked = self._options.commit == "marks"
        in_hand, self._in_hand = self._in_hand, []
        if is_marked:
            return
        for buffer, _, epoch in in_hand:
            buffer.processed, buffer.processed_epoch = buffer.position, epoch
        now = self._runtime.clock.now()
        if now >= self._swept_at + self._options.commit_interval_ms / 1000:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        """Count as processed what lies between records: control batches, and records that compaction removed."""
        self._swept_at = now
        for buffer in self._buffers.values():
            if buffer.processed is not None and not buffer.is_revoking and buffer.position is not None:
                buffer.processed = max(buffer.processed, buffer.position)

    def _progress(self) -> object:
        buffer = self._iterating
        return None if buffer is None else (buffer, buffer.position)

    # -- rebalance steps, from the loop thread ...

    def _post(self, item: Any) -> None:
        self._fetch_buffer.post(item)
        if isinstance(item, RebalanceStep):
            self._step_waits()
            pending = self._on_rebalance_pending
            if pending is not None and item.kind in ("prepare", "lost") and not self._gate.is_open:
                self._runtime.dispatch(pending, list(item.partitions))

    def _step_waits(self) -> None:
        """Have an iteration come by, and do steps here that need nothing of the program. Never waits for the lock."""
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

    def _take_next_step(self) -> RebalanceStep | None:
        with self._lock:
            self._receive()
            return self._next_step()

    async def _run_step(self, step: RebalanceStep) -> BaseException | None:
        error: BaseException | None = None
        try:
            with self._lock:
                if step.kind == "assign":
                    self._add_partitions(step.partitions)
            callback = self._listener.callback(step)
            if callback is not None:
                self._called_back_by = self._waiter.caller(), _CALLBACK_NAMES[step.kind]
                await self._waiter.call(callback, list(step.partitions))
            if self._processor is not None:
                await self._processor.take_step(step)
        except BaseException as raised:
            error = raised
        finally:
            self._called_back_by = None
            with self._lock:
                self._is_stepping = False
                self._finish_step(step, error)
        return error

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
                starts, self._pending_starts = list(self._pending_starts.values()), {}
                self._runtime.call_soon(self._fetcher.add, starts)
            else:
                self._drop_partitions(step.partitions)
            self._runtime.call_soon(membership.step_done, step, error)

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
        start = self._pending_starts.pop(key, None)
        if start is not None:
            self._runtime.call_soon(self._fetcher.add, [start])

    # -- commits

    def mark(self, what: Committable) -> None:
        """Count records, and all before them in their partitions, as processed; for commit="marks".

        `what` is as in `commit`. Partitions that this consumer does not have any more are left out.
        """
        if self._options.commit != "marks":
            raise ConfigurationError(
                f'this consumer has commit="{self._options.commit}"', remedy='mark() needs commit="marks"'
            )
        with self._lock:
            self._check_usable()
            for key, offset in self._offsets_of(what).items():
                buffer = self._buffers.get(key)
                if buffer is not None and (
                    isinstance(what, Mapping) or buffer.processed is None or offset.offset > buffer.processed
                ):
                    buffer.processed, buffer.processed_epoch = offset.offset, offset.leader_epoch

    def offsets(self) -> dict[TopicPartition, Offset]:
        """Return what `commit()` would send now."""
        with self._lock:
            self._receive()
            return self._all_offsets()

    async def _commit(self, what: Committable | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets to the group, and wait until its coordinator has them.

        None: everything that was returned, or marked with commit="marks"; that which is in the program's hands counts
        as processed. A record, records or a batch of `poll_batch`: up to these, inclusive. A mapping of (topic,
        partition): the offsets of next records, as numbers or `Offset`.

        CommitFailedError: a partition belongs to another member. RebalanceInProgressError: poll, then commit.
        CommitError: other errors of some partitions. RequestTimeoutError after `timeout` seconds, by default
        request_timeout_ms.
        """
        seconds = self._timeout(timeout)
        with self._lock:
            self._check_usable()
            offsets = self._checked_offsets(what)
        if offsets:
            await self._commit_offsets(offsets, seconds)

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, Offset], seconds: float) -> None:
        future: Future[Mapping[TopicPartition, KwireError | None]] = Future()
        self._send_commit(offsets, self._runtime.clock.now() + seconds, True, future.set_result)
        results = await self._waiter.result_of(future, seconds + 5.0)
        self._note_committed(offsets, results)
        error = commit_error(results)
        if error is not None:
            raise error

    def commit_async(self, what: Committable | None = None, *, on_done: OnCommitted | None = None) -> None:
        """Commit as `commit` does, without waiting. An error is not retried.

        `on_done(offsets, error or None)` is called on a thread of kwire's; of asyncio, in the running loop.
        """
        if on_done is not None and not callable(on_done):
            raise TypeError(f"on_done is {on_done!r:.60}: give a function of the offsets and the error")
        with self._lock:
            self._check_usable()
            offsets = self._checked_offsets(what)
        dispatch = self._waiter.dispatcher(self._runtime)

        def done(results: Mapping[TopicPartition, KwireError | None]) -> None:
            self._note_committed(offsets, results)
            error = commit_error(results)
            if on_done is not None:
                dispatch(on_done, offsets, error)
            elif error is not None:
                _log.warning("commit_async: %s", error)

        self._send_commit(offsets, self._runtime.clock.now() + self._timeout(None), False, done)

    async def _committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, Offset | None]:
        """Return the group's committed offsets of these partitions (None: of the assigned); None for one without.

        RequestTimeoutError after `timeout` seconds, by default request_timeout_ms.
        """
        commits, seconds = self._group_commits(), self._timeout(timeout)
        keys = self.assignment() if partitions is None else checked_partitions(partitions)
        self._check_usable()
        with self._lock:
            self._start()
        requests: dict[TopicPartition, tuple[CommittedRequest, Future[Offset | None]]] = {}
        for key in keys:
            future: Future[Offset | None] = Future()
            requests[key] = CommittedRequest(*key, partial(_resolve, future)), future
        for request, _ in requests.values():
            self._runtime.call_soon(commits.lookup, request)
        deadline = self._runtime.clock.now() + seconds
        try:
            return {
                key: await self._waiter.result_of(future, max(0.0, deadline - self._runtime.clock.now()))
                for key, (_, future) in requests.items()
            }
        finally:
            with suppress(ClosedError):
                for request, future in requests.values():
                    if not future.done():
                        self._runtime.call_soon(commits.cancel, request)

    def _send_commit(
        self,
        offsets: Mapping[TopicPartition, Offset],
        deadline: float,
        retries: bool,
        on_done: Callable[[Mapping[TopicPartition, KwireError | None]], None],
    ) -> None:
        commits = self._group_commits()
        self._start()
        self._runtime.call_soon(partial(commits.commit, offsets, on_done, deadline=deadline, retries=retries))

    def _note_committed(
        self, offsets: Mapping[TopicPartition, Offset], results: Mapping[TopicPartition, KwireError | None]
    ) -> None:
        if self._processor is not None:
            self._processor.committed({key: offsets[key] for key, error in results.items() if error is None})
        for key, error in results.items():
            buffer = self._buffers.get(key)
            if error is not None:
                self._counters.commits_failed += 1
                continue
            self._counters.offsets_committed += 1
            if buffer is not None:
                buffer.committed = offsets[key].offset

    def _start_auto_commit(self) -> None:
        if self._auto_commit is None and self._options.commit != "manual":
            self._auto_commit = AutoCommit(
                self._options.commit_interval_ms / 1000,
                self._group_commits(),
                self._processed_offsets,
                self._note_committed,
            )
            self._runtime.add(self._auto_commit)

    def _processed_offsets(self) -> dict[TopicPartition, Offset]:
        """Return what was processed and is not committed. No lock: see `_processed`."""
        if self._processor is not None:
            return self._processor.to_commit()
        found: dict[TopicPartition, Offset] = {}
        for key, buffer in list(self._buffers.items()):
            processed = self._processed(buffer)
            if processed is not None and processed.offset != buffer.committed:
                found[key] = processed
        return found

    def _processed(self, buffer: PartitionBuffer) -> Offset | None:
        """Return up to where a partition was processed.

        The loop thread may read it while the program is handed records: so `processed` is set before the position
        moves, and an iteration is noted after it has started and no longer noted before its reader is used otherwise.
        """
        position = buffer.position
        if self._iterating is buffer and position is not None and self._options.commit != "marks":
            last = None if buffer.reader is None else buffer.reader.last_offset
            if last is not None and self._iterating is buffer:
                buffer.iterated = buffer.assignment_epoch, last  # all before the one in hand
        if buffer.processed is not None:
            epoch, iterated = buffer.iterated
            if epoch == buffer.assignment_epoch and iterated > buffer.processed:
                return Offset(iterated, buffer.leader_epoch)
            return Offset(buffer.processed, buffer.processed_epoch)
        if position is None or self._options.commit == "marks":
            return None
        return Offset(position)  # where it begins: nothing of it was returned yet

    def _all_offsets(self) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        epochs = {buffer: epoch for buffer, _, epoch in self._in_hand}
        for key, buffer in self._buffers.items():
            if self._options.commit == "marks":
                if buffer.processed is not None:
                    found[key] = Offset(buffer.processed, buffer.processed_epoch)
            elif buffer.position is not None:
                found[key] = Offset(buffer.position, epochs.get(buffer, buffer.processed_epoch))
        return found

    def _checked_offsets(self, what: Committable | None) -> dict[TopicPartition, Offset]:
        self._group_commits()
        if what is None:
            self._receive()
            offsets = self._all_offsets()
        else:
            offsets = self._offsets_of(what)
        for key, offset in offsets.items():
            buffer = self._buffers.get(key)
            if buffer is not None:  # else the coordinator's errors say so
                buffer.processed, buffer.processed_epoch = offset.offset, offset.leader_epoch
        return offsets

    def _offsets_of(self, what: Committable) -> dict[TopicPartition, Offset]:
        """Return the offsets of the next records. Raises TypeError, ConfigurationError, CommitFailedError."""
        if isinstance(what, PolledBatch):
            return self._batch_offsets(what)
        if isinstance(what, Mapping):
            offsets = cast("Mapping[TopicPartition, object]", what)
            return dict(zip(checked_partitions(offsets), map(_checked_offset, offsets.values()), strict=True))
        found: dict[TopicPartition, int] = {}
        for record in _records_of(what):
            if not isinstance(record, ConsumerRecord):
                raise TypeError(f"{record!r:.60} is not a record of a consumer")
            key = record.topic, record.partition
            found[key] = max(found.get(key, 0), record.offset + 1)
        return {key: Offset(offset, self._epoch_before(key, offset)) for key, offset in found.items()}

    def _epoch_before(self, key: TopicPartition, offset: int) -> int | None:
        """Return the leader epoch of the record before `offset`, if it is in the program's hands."""
        for buffer, first, epoch in self._in_hand:
            if (buffer.topic, buffer.partition) == key and first < offset and buffer.position is not None:
                return epoch if offset <= buffer.position else None
        return None

    def _batch_offsets(self, batch: PolledBatch) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        for span in batch.spans:
            key = span.topic, span.partition
            if self._buffers.get(key) is not span.buffer:
                raise CommitFailedError(
                    "the partition was taken away since the batch was polled: nothing was committed",
                    topic=span.topic,
                    partition=span.partition,
                    group=self._options.group,
                    remedy="its new owner processes from the last committed offset",
                )
            found[key] = Offset(span.end, span.leader_epoch)
        return found

    # -- transactions

    def owns(self, spans: Iterable[BatchSpan]) -> bool:
        """Return whether this consumer still has the partitions of a batch, as it had them then."""
        with self._lock:
            self._receive()
            return all(self._buffers.get((span.topic, span.partition)) is span.buffer for span in spans)

    def rewind(self, spans: Iterable[BatchSpan]) -> None:
        """Read a batch again, of the partitions that this consumer still has."""
        with suppress(ClosedError), self._lock:
            self._receive()
            for span in spans:
                buffer = span.buffer
                if self._buffers.get((span.topic, span.partition)) is buffer and not buffer.is_revoking:
                    self._in_hand = [one for one in self._in_hand if one[0] is not buffer]
                    buffer.processed, buffer.processed_epoch = span.first, None
                    self._fetch_from(buffer, span.first)

    # -- seeking

    def seek_to(self, where: SeekTarget, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue to read partitions (None: all assigned) from a time or an end of their logs.

        A datetime with a time zone; a timedelta back from now, such as timedelta(hours=-2); "earliest" or "latest". A
        log without a record that young continues at its end. In on_assigned it wins over committed offsets.
        """
        start: StartOffset
        if isinstance(where, timedelta):
            ago = abs(where) // timedelta(milliseconds=1)
            start = AtTimestamp(max(0, self._runtime.clock.time_ms() - ago))
        elif isinstance(where, datetime):
            if where.tzinfo is None:
                raise ConfigurationError(f"{where!r} has no time zone", remedy="give one, such as datetime.UTC")
            start = AtTimestamp(max(0, int(where.timestamp() * 1000)))
        elif where in ("earliest", "latest"):
            start = where
        else:
            raise TypeError(f'where is {where!r:.60}: give a datetime, a timedelta, "earliest" or "latest"')
        keys = self.assignment() if partitions is None else checked_partitions(partitions)
        for key in keys:
            self.seek(*key, start)

    async def _lag(self, fresh: bool = False, timeout: float | None = None) -> dict[TopicPartition, Lag]:
        """Return how far each assigned partition is behind its end, by the last responses of brokers.

        With `fresh` the ends are requested now. Partitions whose position or end is not known yet are left out.
        """
        ends: Mapping[TopicPartition, int] = await self._end_offsets(self.assignment(), timeout) if fresh else {}
        with self._lock:
            self._check_usable()
            self._receive()
            return self._known_lag(ends)

    def _known_lag(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Lag]:
        now_ms = self._runtime.clock.time_ms()
        found: dict[TopicPartition, Lag] = {}
        for key, buffer in self._buffers.items():
            watermarks = self._fetch_buffer.watermarks.get(buffer.assignment_epoch)
            lag = lag_of(buffer, watermarks, ends.get(key), self._options.is_committed_only, now_ms)
            if lag is not None:
                found[key] = lag
        return found

    async def _explain(self) -> ConsumerExplanation:
        """Return why `poll` returns nothing now: what is missing, by name, and the last failures.

        >>> print(consumer.explain())                                   # doctest: +SKIP
        the consumer joins; partitions assigned: 0
          unreachable: no broker can be reached; the last failure was: ...
        """
        runtime, membership = self._runtime, self._membership
        with self._lock:
            self._receive()
            buffered = {key: buffer.has_next() for key, buffer in self._buffers.items() if not buffer.is_revoking}
        count = len(buffered)

        def on_loop() -> list[WaitReason]:
            view = runtime.view_for("fetch")
            step = None if membership is None else membership.pending_step
            subscription = self._subscription if view.snapshot.brokers else None
            missing = {} if subscription is None else subscription.missing(view.snapshot)
            reasons = explain_group(
                None if membership is None else membership.member(),
                None if membership is None else membership.fatal_error,
                None if step is None else step.kind,
                self._is_assigned,
                count,
                missing,
                view,
                None if self._commits is None else runtime.coordinator_error(self._commits.route),
            )
            return reasons + explain_partitions(
                self._fetcher.states(), buffered, self._fetch_buffer, self._options.is_committed_only,
                runtime.clock.now(), view,
            )  # fmt: skip

        reasons = await self._on_loop_or_after(on_loop)
        return ConsumerExplanation(self.member, count, tuple(reasons))

    async def _metrics(self) -> ConsumerMetrics:
        """Return counts of polls, records, rebalances, commits and brokers, and the lag: one moment's copy."""
        return self._all_metrics(*await self._on_loop_or_after(self._loop_metrics))

    def collect_metrics(self) -> ConsumerMetrics:
        """Return what `metrics` returns, to an exporter's thread: wait for the loop thread instead of awaiting it."""
        return self._all_metrics(*self._runtime.on_loop_or_after(self._loop_metrics))

    @property
    def client_id(self) -> str:
        return self._config.client_id

    def _loop_metrics(self) -> tuple[ClusterMetrics, Distribution, Distribution]:
        commits = Histogram() if self._commits is None else self._commits.latency
        rebalances = Histogram() if self._membership is None else self._membership.latency
        return self._runtime.metrics(), commits.distribution(), rebalances.distribution()

    def _all_metrics(
        self, cluster: ClusterMetrics, commit_time: Distribution, rebalance_time: Distribution
    ) -> ConsumerMetrics:
        now, since = self._runtime.clock.now(), self._gate.timer.since
        with self._lock:
            return ConsumerMetrics(
                **asdict(self._counters),
                assigned_partitions=len(self._buffers),
                buffered_bytes=self._fetch_buffer.buffered_bytes,
                gate_closed_seconds=self._gate.closed_seconds(now),
                commit_time=commit_time,
                rebalance_time=rebalance_time,
                last_poll_seconds=0.0 if since == inf else max(0.0, now - since),
                lag=self._known_lag({}),
                cluster=cluster,
            )

    async def _on_loop_or_after(self, function: Callable[[], T]) -> T:
        if self._runtime.is_running:
            with suppress(ClosedError):  # it is ending just now
                future: Future[T] = Future()
                self._runtime.call_soon(_complete, future, function)
                return await self._waiter.result_of(future, 5.0)
        return function()

    def stop(self, is_stopping: bool = True) -> None:
        """End iterations, and have polls return at once: what `stop_on_signals` does. False ends that."""
        self._is_stopping = is_stopping
        self._reading = None
        with suppress(ClosedError):
            if self._is_started:
                self._runtime.call_soon(self._fetch_buffer.wake_all)

    # -- the end

    def _deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._runtime.clock.now() + timeout

    async def _leave_group(self, mode: LeaveMode, deadline: float | None) -> bool:
        """Leave the group, running the steps that this takes; return whether it was done by `deadline`."""
        membership = self._membership
        if membership is None:
            return True
        left: Future[None] = Future()

        def on_left() -> None:
            if not left.done():
                left.set_result(None)
                self._fetch_buffer.wake_all()

        self._is_leaving = True
        try:
            with self._lock:
                if self._iterating is not None:
                    self._processed(self._iterating)  # to note how far it is
                self._in_hand.clear()  # the program did not poll again: it is not processed
                self._iterating = None
                self._gate.enter(self._runtime.clock.now)
                self._runtime.call_soon(membership.leave, mode, on_left, deadline)
            while not left.done():
                wakeups = self._fetch_buffer.wakeups
                step = self._take_next_step()
                if step is not None:
                    failure = await self._run_step(step)
                    if failure is not None:
                        if not isinstance(failure, Exception):
                            raise failure
                        _log.error("a callback raised while the consumer left its group", exc_info=failure)
                    continue
                wait = _WAIT_MAX if deadline is None else min(_WAIT_MAX, deadline - self._runtime.clock.now())
                if wait <= 0:
                    return False
                if self._fetch_buffer.end is not None:
                    return False
                if not left.done():
                    await self._fetch_buffer.wait(wakeups, wait, self._waiter)
            return True
        finally:
            self._is_leaving = False

    async def _close(self, timeout: float | None = 30.0, *, leave: bool | None = None) -> None:
        """Commit what was processed, leave the group, end the thread and the connections, within `timeout` seconds.

        What the program got last is not committed, unless it polled since or commits it itself. `leave` says
        whether the group gives the partitions to others at once; None: unless this is a static member, which may come
        back. Calls that wait in `poll` raise ClosedError, and iterations end. A second call does nothing.
        """
        self._check_not_in_callback("close()")
        check_timeout(timeout)
        if leave not in _LEAVE_MODES:
            raise TypeError(f"leave is {leave!r}: give True, False or None")
        if self._is_closed or self._runtime.is_forked:
            return
        deadline = self._deadline(timeout)
        self._is_closed = True
        self._reading = None
        if self._at_exit is not None:
            self._at_exit.detach()
        try:
            if self._runtime.is_running:
                self._fetch_buffer.wake_all()
                await self._waiter.shielded(self._end_membership(_LEAVE_MODES[leave], deadline))
        finally:
            await self._waiter.close(
                self._runtime, None if deadline is None else max(1.0, deadline - self._runtime.clock.now())
            )
            self._fetch_buffer.close(ClosedError("the consumer is closed"))
            self._free_memory()

    def _close_with_cluster(self, timeout: float | None) -> None:
        """Close because the `kwire.Cluster` of this consumer ends, on the thread that ends it.

        The callbacks run there. Coroutine functions cannot: an error in the log says so.
        """
        self._waiter = BLOCKING
        run_blocking(self._close(timeout))

    def _close_at_exit(self) -> None:
        """Leave the group, so that the others need not wait for the end of the session."""
        self._is_exiting = True
        self._listener, self._processor = RebalanceListener(), None
        self._close_with_cluster(_EXIT_SECONDS)

    async def _end_membership(self, mode: LeaveMode, deadline: float | None) -> None:
        try:
            is_manual = self._options.commit == "manual" or self._is_exiting
            if self._subscription is None and self._commits is not None and not is_manual:
                offsets = self._processed_offsets()
                if offsets:
                    seconds = 30.0 if deadline is None else max(0.0, deadline - self._runtime.clock.now())
                    await self._commit_offsets(offsets, seconds)
            is_done = await self._leave_group(mode, deadline)
            if not is_done:
                _log.warning("group %s: the consumer is closed before it could leave", self._options.group)
                await self._lose_rest()
        except KwireError as error:
            _log.warning("while the consumer is closed: %s", error)

    async def _lose_rest(self) -> None:
        """Call on_lost for the partitions that could not be revoked properly."""
        with self._lock:
            if self._is_stepping:
                return
            partitions = tuple(sorted(self._buffers))
            self._drop_partitions(partitions)
        callback = self._listener.callback(RebalanceStep("lost", partitions, -1, {}))
        if callback is not None:
            try:
                await self._waiter.call(callback, list(partitions))
            except Exception:
                _log.exception("on_lost raised")

    # -- batches

    def _new_batch(self, pieces: list[Any], taken_from: list[Any]) -> PolledBatch:
        return self._make_batch(pieces, taken_from, self)


def _leave_at_exit(reference: weakref.ref[GroupClient]) -> None:
    client = reference()
    if client is not None:
        client._close_at_exit()


def _complete(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


def _resolve(future: Future[Offset | None], result: Offset | KwireError | None, now: float) -> None:
    if isinstance(result, KwireError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _records_of(what: object) -> Iterable[object]:
    if isinstance(what, ConsumerRecord):
        return [what]
    if isinstance(what, (str, bytes)) or not isinstance(what, Iterable):
        raise TypeError(f"{what!r:.60} cannot be committed: give records, a batch, or {{(topic, partition): offset}}")
    return what


def _checked_offset(value: object) -> Offset:
    if isinstance(value, Offset):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Offset(value)
    raise TypeError(f"{value!r:.60} is not an offset: give the number of the next record, or an Offset")


def _checked_listener(
    listener: object,
    on_assigned: RebalanceCallback | None,
    on_revoked: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> RebalanceListener:
    given = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
    if listener is not None:
        if any(callback is not None for callback in given.values()):
            raise ConfigurationError("a listener and callbacks were given", remedy="give one or the other")
        given = {name: getattr(listener, name, None) for name in given}
        if all(callback is None for callback in given.values()):
            raise TypeError(f"{listener!r:.60} has none of on_assigned, on_revoked and on_lost")
    for name, callback in given.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} is {callback!r:.60}: give a function of a list of (topic, partition)")
    return RebalanceListener(**given)


def commit_error(results: Mapping[TopicPartition, KwireError | None]) -> KwireError | None:
    """Return the error of a commit: of one kind, if nothing was committed and all failed alike, else CommitError."""
    failed = {key: error for key, error in results.items() if error is not None}
    if not failed:
        return None
    first = next(iter(failed.values()))
    if len(failed) == len(results) and len({type(error) for error in failed.values()}) == 1:
        return first
    committed = [key for key in results if key not in failed]
    error = CommitError(
        f"{len(failed)} of {len(results)} offsets were not committed; the first: {first}",
        failed=failed,
        committed=committed,
        remedy=first.remedy,
    )
    error.__cause__ = first
    return error


__all__ = ["Committable", "GroupClient", "OnCommitted", "SeekTarget", "commit_error"]
