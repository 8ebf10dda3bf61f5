"""Which of a topic's partitions may get batches without a key, as long as leaders answer that they do not lead.

For seconds after a topic was created the metadata names leaders that have not heard of it. So a few partitions are
tried at first, and when one acknowledges, any will do. From the first that refuses on, batches go to partitions that
have acknowledged something, and of the others one is tried now and then, after a back-off that grows with every try
that fails, until enough tries in a row were acknowledged.

What is refused goes to another partition. It must not come behind what was sent later: so nothing else is given a
partition while a try is answered, though not for longer than a moment, and only the batch that was given one last may
come back. It refuses to know which partition is the best.
"""

from __future__ import annotations

from collections.abc import Callable

from kwire.producer.batch import Batch

_FIRST_TRIES = 4  # at once
_TRIES_ENOUGH = 16  # one by one, in a row
_TRIES_APART = 0.2  # seconds, of those that are acknowledged: batches go to the other partitions meanwhile
_AWAITED = 1.0  # seconds: behind other requests an answer may take its time


class Footing:
    """Of one topic."""

    def __init__(self) -> None:
        self.tries_at = 0.0  # no partition is tried before
        self.awaited_until = 0.0  # the last try's answer
        self.is_sure = False  # any partition will do
        self._was_refused = False
        self._failures = self._successes = 0  # of tries in a row; failures of one back-off are one
        self._tries: list[tuple[Batch, int]] = []  # whose answers are awaited, and how often they were sent again
        self.given = 0  # how many batches got a partition: the number of the last one

    def may_try(self, now: float) -> bool:
        """Whether a partition that has acknowledged nothing may get a batch. To be asked where nothing is sure."""
        self._tries = [
            (batch, retries) for batch, retries in self._tries if batch.retries == retries and not batch.is_decided
        ]
        return now >= self.tries_at and len(self._tries) < (1 if self._was_refused else _FIRST_TRIES)

    def awaits(self, now: float) -> bool:
        """Whether the answer to a try is to come first, where `may_try` was answered with no."""
        return bool(self._tries) and now < self.awaited_until

    def tries(self, batch: Batch, now: float) -> None:
        """A batch got a partition that has acknowledged nothing."""
        self._tries.append((batch, batch.retries))
        self.awaited_until = now + _AWAITED

    def take_back(self, batch: Batch) -> bool:
        """A batch is to get another partition: whether none that was sent later has got one."""
        is_last = batch.number == self.given
        self.given -= is_last
        return is_last

    def refused(self, now: float, pause: Callable[[int], float]) -> None:
        """A leader does not lead. What is refused during a back-off was under way when that began."""
        if now >= self.tries_at or not self._was_refused:
            self._failures += 1
            self.tries_at = now + pause(self._failures)
        self.is_sure, self._was_refused, self._successes = False, True, 0

    def acknowledged(self, now: float) -> None:
        """A partition has acknowledged its first batch."""
        self._failures = 0
        self._successes += 1
        self.tries_at = now + _TRIES_APART
        if not self._was_refused or self._successes == _TRIES_ENOUGH:
            self.is_sure, self._was_refused = True, False
            self._tries.clear()
