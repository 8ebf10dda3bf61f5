"""What both faces of the consumer commit: what counts as processed, `commit`, `mark`, and batches in a transaction.

Of each partition there are four numbers. The fetch position is the fetcher's. The position is the next offset that the
program gets. All below `processed` was processed: returned before the program last polled, or marked. All below
`committed` is known to be the coordinator's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from kwire.cluster import Backoff
from kwire.cluster.dropped import weakly
from kwire.consumer.arguments import TopicPartition, checked_partitions
from kwire.consumer.auto_commit import AutoCommit
from kwire.consumer.buffer import PartitionBuffer
from kwire.consumer.client import GRACE_SECONDS, ConsumerClient
from kwire.consumer.columns import BatchSpan, PolledBatch
from kwire.consumer.commits import CommitManager
from kwire.consumer.metrics import ConsumerCounters
from kwire.consumer.offsets import CommittedRequest, Offset
from kwire.consumer.record import ConsumerRecord
from kwire.errors import ClosedError, CommitError, CommitFailedError, ConfigurationError, KwireError

if TYPE_CHECKING:
    from kwire.consumer.processor import ParallelProcessor

_log = logging.getLogger("kwire.consumer")

# What can be committed or marked: a record, records, a batch of `poll_batch`, or offsets of next records.
Committable = ConsumerRecord | Iterable[ConsumerRecord] | PolledBatch | Mapping[TopicPartition, Offset | int]
OnCommitted = Callable[[Mapping[TopicPartition, Offset], KwireError | None], object]

_NO_GROUP = 'give the consumer a group: Consumer(bootstrap, group="billing")'


class CommittingClient(ConsumerClient):
    """`ConsumerClient` with commits."""

    def _set_up_group(self) -> CommitManager | None:
        options, config = self._options, self._config
        self._counters = ConsumerCounters()
        self._auto_commit: AutoCommit | None = None
        self._last_commit: Future[None] | None = None  # of the partitions before the last `assign`
        self._iterating: PartitionBuffer | None = None
        # Partitions that went while the program had records of them; until it polls, also if they have come back.
        self._lost_in_hand: set[TopicPartition] = set()
        self._swept_at = 0.0
        self._processor: ParallelProcessor | None = None
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

    def _begin_own_assignment(self) -> None:
        if self._commits is None:
            return
        self._runtime.call_soon(self._commits.end_membership)
        self._start_auto_commit()
        offsets = {} if self._options.commit == "manual" else self._processed_offsets()
        if offsets:
            last: Future[None] = Future()
            self._last_commit = last

            def done(results: Mapping[TopicPartition, KwireError | None]) -> None:
                self._note_committed(offsets, results)
                error = commit_error(results)
                if error is not None:
                    _log.warning("what was processed before assign() was not committed: %s", error)
                last.set_result(None)

            self._send_commit(offsets, self._runtime.clock.now() + self._timeout(None), True, done)

    # -- what was processed

    def _mark_in_hand(self) -> None:
        """Count the program's records as processed, unless it marks them itself. The caller holds the lock."""
        self._iterating = None
        is_marked = self._options.commit == "marks"
        in_hand, self._in_hand = self._in_hand, []
        if is_marked:
            return
        for buffer, _, epoch in in_hand:
            if buffer.first is not None:  # else it is of a log that is no more
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
        epochs = {buffer: epoch for buffer, _, epoch in self._in_hand if buffer.first is not None}
        for key, buffer in self._buffers.items():
            if self._options.commit == "marks":
                if buffer.processed is not None:
                    found[key] = Offset(buffer.processed, buffer.processed_epoch)
            elif buffer.position is not None:
                found[key] = Offset(buffer.position, epochs.get(buffer, buffer.processed_epoch))
        return found

    def mark(self, what: Committable) -> None:
        """Count records, and all before them in their partitions, as processed; for commit="marks".

        `what` is as in `commit`. Partitions that this consumer does not have any more are left out, and records that it
        has not handed out since it got the partition, or since the last seek: others may have gone on.
        """
        if self._options.commit != "marks":
            raise ConfigurationError(
                f'this consumer has commit="{self._options.commit}"', remedy='mark() needs commit="marks"'
            )
        self._group_commits()
        with self._lock:
            self._check_usable()
            for key, offset in self._offsets_of(what).items():
                buffer = self._buffers.get(key)
                if buffer is not None and (isinstance(what, Mapping) or _is_progress(buffer, offset.offset)):
                    buffer.processed, buffer.processed_epoch = offset.offset, offset.leader_epoch

    def offsets(self) -> dict[TopicPartition, Offset]:
        """Return what `commit()` would send now."""
        with self._lock:
            self._receive()
            return self._all_offsets()

    # -- commits

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
        results = await self._waiter.result_of(future, seconds + GRACE_SECONDS)
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
        deadline = self._runtime.clock.now() + seconds
        requests: dict[TopicPartition, tuple[CommittedRequest, Future[Offset | None]]] = {}
        for key in keys:
            future: Future[Offset | None] = Future()
            requests[key] = CommittedRequest(*key, partial(_resolve, future), deadline), future
        for request, _ in requests.values():
            self._runtime.call_soon(commits.lookup, request)
        try:
            return {
                key: await self._waiter.result_of(future, seconds + GRACE_SECONDS)
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
                weakly(self._processed_offsets, {}),
                weakly(self._note_committed, None),
            )
            self._runtime.add(self._auto_commit)

    # -- what a caller commits

    def _checked_offsets(self, what: Committable | None) -> dict[TopicPartition, Offset]:
        self._group_commits()
        if what is None:
            self._receive()
            offsets = self._all_offsets()
        else:
            offsets = self._offsets_of(what)
            for key in offsets:
                if key in self._lost_in_hand:
                    raise self._taken_away(key)
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
        for buffer, first, epoch in reversed(self._in_hand):  # a poll may take from a partition more than once
            if (buffer.topic, buffer.partition) == key and first < offset and buffer.position is not None:
                return epoch if offset <= buffer.position else None
        return None

    def _batch_offsets(self, batch: PolledBatch) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        for span in batch.spans:
            key = span.topic, span.partition
            if self._buffers.get(key) is not span.buffer:
                raise self._taken_away(key)
            found[key] = Offset(span.end, span.leader_epoch)
        return found

    def _taken_away(self, key: TopicPartition) -> CommitFailedError:
        return CommitFailedError(
            "the partition was taken away since the program polled: nothing was committed",
            topic=key[0],
            partition=key[1],
            group=self._options.group,
            remedy="its new owner processes from the last committed offset",
        )

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


def _is_progress(buffer: PartitionBuffer, offset: int) -> bool:
    """Return whether records before `offset` were handed out since the last seek, and are not processed yet."""
    before = buffer.first if buffer.processed is None else buffer.processed
    return before is not None and buffer.position is not None and before < offset <= buffer.position


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


__all__ = ["Committable", "CommittingClient", "OnCommitted", "commit_error"]
