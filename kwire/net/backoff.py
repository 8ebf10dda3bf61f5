"""How long to wait before trying again: exponential with jitter, up to a maximum (KIP-580, Kafka's ExponentialBackoff).

Random numbers and time are arguments; nothing here waits.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

# Kafka's: each wait is drawn from 20 % around the exponential, so that clients cut off together do not return together.
JITTER = 0.2
_EXPONENT_MAX = 30  # beyond this the maximum has long been reached, and 2.0**failures would overflow


class Backoff(NamedTuple):
    """The policy: `first_ms` after the first failure, doubling with each further one, never more than `max_ms`.

    >>> Backoff(100, 1_000).seconds(3, Random(1)) <= 0.4 * 1.2
    True
    """

    first_ms: float
    max_ms: float

    def seconds(self, failures: int, random: Random) -> float:
        """Return the wait after that many failures in a row."""
        exponent = min(max(failures - 1, 0), _EXPONENT_MAX)
        wait_ms = min(self.first_ms * 2.0**exponent, self.max_ms)
        return float(min(wait_ms * random.uniform(1 - JITTER, 1 + JITTER), self.max_ms) / 1000)


class ReconnectBackoff:
    """The failures of one node, and when the next attempt to connect may begin.

    A frame from the node resets the count. But a node that fails soon after its first frame (a refused password, a
    response that cannot be decoded) would then be tried for ever at the shortest wait. So a failure within the maximum
    wait after that frame continues the old count.
    """

    __slots__ = ("_backoff", "_before", "_failures", "_random", "_well_since", "ready_at")

    def __init__(self, backoff: Backoff, random: Random) -> None:
        self._backoff = backoff
        self._random = random
        self._failures = 0
        self._before = 0  # failures in a row until `_well_since`
        self._well_since: float | None = None
        self.ready_at = 0.0

    @property
    def failures(self) -> int:
        """Return the number of failures in a row."""
        return self._failures

    def failed(self, now: float) -> float:
        """Note a failure. Return when the next attempt may begin (also kept as `ready_at`)."""
        if self._well_since is not None and now - self._well_since < self._backoff.max_ms / 1000:
            self._failures = self._before
        self._well_since = None
        self._failures += 1
        self.ready_at = now + self._backoff.seconds(self._failures, self._random)
        return self.ready_at

    def recovered(self, now: float) -> None:
        """Note that a frame came: the next attempt need not wait."""
        self._before, self._failures = self._failures, 0
        self._well_since = now
        self.ready_at = 0.0
