"""Periodic commits of what was processed: commit="auto" and commit="marks"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from kwire.cluster.requests import ClusterView, PendingRequest
from kwire.consumer.arguments import TopicPartition
from kwire.consumer.commits import CommitManager
from kwire.consumer.offsets import Offset
from kwire.errors import KwireError

_log = logging.getLogger("kwire.consumer")


class AutoCommit:
    """A `StateMachine`: commits what `processed` returns, every `interval` seconds, where it has changed.

    One commit at a time. A failure is logged, and the next interval tries again with what is newest then. Offsets
    stored after a commit without a response are sent once more, when that commit can no longer arrive.
    """

    def __init__(
        self,
        interval: float,
        commits: CommitManager,
        processed: Callable[[], Mapping[TopicPartition, Offset]],
        on_done: Callable[[Mapping[TopicPartition, Offset], Mapping[TopicPartition, KwireError | None]], object],
    ) -> None:
        self.failures = 0
        self._interval = interval
        self._commits = commits
        self._processed = processed
        self._on_done = on_done
        self._next_at: float | None = None
        self._is_committing = False
        self._is_closed = False

    def turn(self, now: float, view: ClusterView) -> list[PendingRequest]:
        if self._next_at is None:
            self._next_at = now + self._interval
        elif now >= self._next_at:
            self._next_at = now + self._interval
            if not self._is_committing:
                self._commit({**self._commits.overtaken(now - self._interval), **self._processed()}, now)
        return []

    def _commit(self, offsets: Mapping[TopicPartition, Offset], now: float) -> None:
        if not offsets:
            return
        self._is_committing = True

        def done(results: Mapping[TopicPartition, KwireError | None]) -> None:
            self._is_committing = False
            failed = [error for error in results.values() if error is not None]
            if failed and not self._is_closed:
                self.failures += 1
                _log.warning("%d of %d processed offsets were not committed: %s", len(failed), len(results), failed[0])
            self._on_done(offsets, results)

        self._commits.commit(offsets, done, deadline=now + max(self._interval, 1.0), retries=True)

    def deadline(self) -> float | None:
        return self._next_at

    def topics(self) -> Collection[str]:
        return ()

    def closed(self, error: KwireError) -> None:
        self._is_closed = True
