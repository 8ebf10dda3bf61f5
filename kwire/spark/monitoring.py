"""The progress of a streaming query as the offsets of a consumer group, for tools that show lag.

Only for people and tools: the query reads its checkpoint, never the group. So a failure is logged and forgotten, and
tried again later. The group must have no members; kafka-consumer-groups shows it as empty, with its lag.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from kwire.errors import KwireError
from kwire.net import Clock
from kwire.spark.option_parsers import TopicPartition

_log = logging.getLogger("kwire.spark")

# Seconds that a micro-batch waits for the coordinator at most, and until a failed commit is tried again.
COMMIT_TIMEOUT = 5.0
PAUSE = 60.0


class Outcome(Protocol):
    def check(self) -> object: ...


class GroupOffsets(Protocol):
    """The part of `Admin.groups` that commits for a group without members."""

    def set_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = ...
    ) -> Outcome: ...


class ProgressPublisher:
    """Commits where a query has got to, if that changed since."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._published: dict[TopicPartition, int] = {}
        self._retry_at = 0.0

    def publish(self, progress: Mapping[TopicPartition, int], admin: GroupOffsets) -> None:
        """Commit the offsets of the next records to read."""
        changed = {key: offset for key, offset in progress.items() if self._published.get(key) != offset}
        if not changed or self._clock.now() < self._retry_at:
            return
        try:
            admin.set_offsets(self._group, changed, timeout=COMMIT_TIMEOUT).check()
        except (KwireError, ExceptionGroup) as error:
            self._retry_at = self._clock.now() + PAUSE
            _log.warning(
                "the group %s does not show the query's progress: %s; next try in %d s", self._group, error, PAUSE
            )
        else:
            self._published.update(changed)
