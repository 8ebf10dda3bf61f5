"""How long to wait before connecting again to a node that failed: exponential, with jitter, up to a ceiling.

Owns the count of failures in a row. Refuses to wait: the selector asks when the next attempt may begin.
"""
from __future__ import annotations

from random import Random

# Kafka's: each wait is drawn from 20 % around the exponential, so that clients cut off together do not return together.
JITTER = 0.2


class Backoff:
    """The failures of one node.

    A node counts as well again when it has sent a frame. A node that sends one and is at once found faulty (a refused
    password, an answer that cannot be read) would so be tried again without end at the shortest wait; therefore a
    failure within `max_seconds` of that first frame goes on counting where the earlier failures stopped.
    """

    __slots__ = ("_base", "_before", "_failures", "_max", "_random", "_well_since", "ready_at")

    def __init__(self, base_seconds: float, max_seconds: float, random: Random) -> None:
        self._base = base_seconds
        self._max = max_seconds
        self._random = random
        self._failures = 0
        self._before = 0  # failures in a row until `_well_since`
        self._well_since: float | None = None
        self.ready_at = 0.0

    @property
    def failures(self) -> int:
        return self._failures

    def failed(self, now: float) -> float:
        """Note a failure; answers when the next attempt may begin (also kept as `ready_at`)."""
        if self._well_since is not None and now - self._well_since < self._max:
            self._failures = self._before
        self._well_since = None
        self._failures += 1
        self.ready_at = now + self._delay()
        return self.ready_at

    def recovered(self, now: float) -> None:
        """A frame came: the next attempt need not wait."""
        self._before, self._failures = self._failures, 0
        self._well_since = now
        self.ready_at = 0.0

    def _delay(self) -> float:
        # The exponent is bounded, not the power: 2.0**1100 would overflow after a night of failures.
        doublings = min(self._failures - 1, 32)
        delay = min(self._base * 2.0**doublings, self._max)
        return min(delay * self._random.uniform(1 - JITTER, 1 + JITTER), self._max)
