"""How long to wait before trying again: exponential with jitter (KIP-580). Chance is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_JITTER = 0.2
_EXPONENT_MAX = 30  # beyond this the maximum has long been reached, and 2.0 ** attempts would overflow


@dataclass(frozen=True, slots=True)
class Backoff:
    """`seconds(attempts)` for the pause after that many failures in a row: first 1, doubling, within ±20 %.

    >>> Backoff(100, 1_000).seconds(3, Random(1)) <= 0.4 * 1.2
    True
    """

    first_ms: int
    max_ms: int

    def seconds(self, attempts: int, random: Random) -> float:
        exponent = min(max(attempts - 1, 0), _EXPONENT_MAX)
        base = min(self.first_ms * 2.0**exponent, self.max_ms)
        return float(base * random.uniform(1 - _JITTER, 1 + _JITTER) / 1000)
