"""`GroupClient`: what both faces of the consumer do as members of a group, from `subscribe` to `close`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from re import Pattern
from typing import Any, ClassVar

from kwire.arguments import check_timeout
from kwire.cluster import Backoff, Cluster, GroupMetadata, LoopThread
from kwire.cluster.dropped import weakly
from kwire.cluster.group_metadata import LOST_GENERATION
from kwire.cluster.waiting import BLOCKING, run_blocking
from kwire.consumer.assignors import make_assignors
from kwire.consumer.columns import PolledBatch
from kwire.consumer.commits import CommitManager
from kwire.consumer.dropped import EXIT_SECONDS, say_farewell
from kwire.consumer.gate import GateWatch
from kwire.consumer.group_member import GroupContext, GroupOptions, LeaveMode
from kwire.consumer.group_reports import ReportingClient
from kwire.consumer.membership import Membership
from kwire.consumer.rebalance import RebalanceCallback, RebalanceListener, RebalanceStep
from kwire.consumer.signals import stop_with_signals
from kwire.consumer.subscription import Regex, Subscription
from kwire.errors import (
    ClosedError,
    ConfigurationError,
    KwireError,
    RequestTimeoutError,
)

_log = logging.getLogger("kwire.consumer")

_WAIT_MAX = 1.0
# How long `close` waits for the loop to write the ends of the fetch sessions.
_SESSIONS_SECONDS = 1.0
_LEAVE_MODES: Mapping[bool | None, LeaveMode] = {None: "default", True: "leave", False: "remain"}


class GroupClient(ReportingClient):
    """`ReportingClient` with `subscribe` and `close`."""

    _make_batch: ClassVar[type[PolledBatch]] = PolledBatch

    def _set_up(self, bootstrap: str | Sequence[str] | Cluster, options: Mapping[str, Any]) -> None:
        super()._set_up(bootstrap, options)
        stop_with_signals(self)

    def _set_up_group(self) -> CommitManager | None:
        self._runtime.deliver_before_end(weakly(self._close_with_cluster, None))
        return super()._set_up_group()

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
                self._remains.joined(self, partial(say_farewell, self._runtime, self._membership))
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
            await self._end_assignment(self._deadline(timeout))
            return
        if not await self._waiter.shielded(self._end_subscription(self._deadline(timeout))):
            raise RequestTimeoutError(
                "the consumer could not leave its group in time",
                remedy="it is leaving, and reads nothing: call unsubscribe() again, or close()",
                group=self._options.group,
            )

    async def _end_assignment(self, deadline: float | None) -> None:
        try:
            await self._commit_assigned(deadline)
        except KwireError as error:
            _log.warning("before unsubscribe(): %s", error)
        with self._lock:
            for buffer in self._buffers.values():
                self._drop(buffer)
            self._buffers, self._is_assigned = {}, False
            if self._is_started:
                self._runtime.call_soon(self._fetcher.assign, [])

    async def _commit_assigned(self, deadline: float | None) -> None:
        """Commit what was processed of the partitions that the program assigned, those of before `assign` too."""
        if self._subscription is not None or self._commits is None or self._options.commit == "manual":
            return
        seconds = 30.0 if deadline is None else max(0.0, deadline - self._runtime.clock.now())
        offsets = self._processed_offsets()
        if offsets:
            await self._commit_offsets(offsets, seconds)
        if self._last_commit is not None:
            await self._waiter.result_of(self._last_commit, seconds)

    async def _end_subscription(self, deadline: float | None) -> bool:
        """Leave the group, after which `subscribe` and `assign` are possible; return whether it was done in time."""
        is_done = await self._leave_group("default", deadline)
        if is_done:
            with self._lock:
                self._subscription, self._is_assigned = None, False
        return is_done

    def group_metadata(self) -> GroupMetadata:
        """Return the group and the member at this moment, for `Producer.send_offsets`.

        While the program has records of partitions that were taken away, it is a generation that brokers refuse:
        without callbacks the member may be in its group again, and the records are those of another owner.
        """
        generation = self._group_commits().generation
        return generation._replace(generation_id=LOST_GENERATION) if self._lost_in_hand else generation

    @property
    def rebalance_pending(self) -> bool:
        """Return whether a rebalance waits until the program polls."""
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

    def _how_to_assign(self) -> str:
        if self._subscription is None:
            return super()._how_to_assign()
        return "the group assigns partitions while the program polls: see assignment(), or act in on_assigned"

    def _check_not_subscribed(self) -> None:
        if self._subscription is not None:
            raise ConfigurationError(
                "the group assigns the partitions of this consumer", remedy="call unsubscribe() first"
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
            post=weakly(self._post, None),
            poll_timer=self._gate.timer,
            backoff=Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_ms_max),
            random=self._new_random(),
            request_timeout_ms=self._config.request_timeout_ms,
            in_background=partial(_in_background, self._runtime),
            wake=self._runtime.wakeup,
        )
        return Membership(context)

    def _new_watch(self, membership: Membership) -> GateWatch:
        interval = self._options.max_poll_interval_ms
        return GateWatch(
            self._gate.timer,
            None if interval is None else interval / 1000,
            weakly(self._progress, None),
            lambda: membership.pending_step is not None,
            weakly(self._step_waits, None),
        )

    # -- the end

    def stop(self, is_stopping: bool = True) -> None:
        """End iterations, and have polls return at once: what `stop_on_signals` does. False ends that."""
        self._is_stopping = is_stopping
        self._wake_polls()

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
        self._remains.detach()
        try:
            if self._runtime.is_running:
                self._fetch_buffer.wake_all()
                await self._waiter.shielded(self._end_membership(_LEAVE_MODES[leave], deadline))
                await self._waiter.shielded(self._end_sessions())
        finally:
            await self._client_telemetry.end(
                self._waiter, None if deadline is None else deadline - self._runtime.clock.now()
            )
            if self._interceptors is not None:
                self._runtime.when_ended(self._interceptors.close_soon)
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
        self._close_with_cluster(EXIT_SECONDS)

    async def _end_membership(self, mode: LeaveMode, deadline: float | None) -> None:
        try:
            if not self._is_exiting:
                await self._commit_assigned(deadline)
            is_done = await self._leave_group(mode, deadline)
            if not is_done:
                _log.warning("group %s: the consumer is closed before it could leave", self._options.group)
                await self._lose_rest()
        except KwireError as error:
            _log.warning("while the consumer is closed: %s", error)

    async def _end_sessions(self) -> None:
        """Have the brokers end the fetch sessions. It waits until that is written, and for no response."""
        if not self._is_started:
            return
        written: Future[None] = Future()

        def queued() -> None:
            try:  # the loop writes what is queued after it has called what was posted
                self._runtime.call_soon(written.set_result, None)
            except ClosedError:
                written.set_result(None)

        with suppress(ClosedError, RequestTimeoutError):
            self._runtime.call_soon(self._fetcher.end_sessions, queued)
            await self._waiter.result_of(written, _SESSIONS_SECONDS)

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


def _in_background(runtime: LoopThread, work: Callable[[], Any], on_done: Callable[[Any], object]) -> None:
    """Run work of the membership on the callback thread, and give the loop its result."""

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            result = error
        with suppress(ClosedError):
            runtime.call_soon(on_done, result)

    runtime.dispatch(run)


def _checked_listener(
    listener: object,
    on_assigned: RebalanceCallback | None,
    on_revoked: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> RebalanceListener:
    given = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
    has_empty = not isinstance(listener, RebalanceListener) or listener.has_empty
    if listener is not None:
        if any(callback is not None for callback in given.values()):
            raise ConfigurationError("a listener and callbacks were given", remedy="give one or the other")
        given = {name: getattr(listener, name, None) for name in given}
        if all(callback is None for callback in given.values()):
            raise TypeError(f"{listener!r:.60} has none of on_assigned, on_revoked and on_lost")
    for name, callback in given.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} is {callback!r:.60}: give a function of a list of (topic, partition)")
    return RebalanceListener(given["on_assigned"], given["on_revoked"], given["on_lost"], has_empty)
