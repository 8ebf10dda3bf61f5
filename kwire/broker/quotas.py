"""The fetch quota of clients (KIP-124): bytes a second by client id, and how long a client over it has to wait.

The rate is measured over the last ten seconds, as Kafka's ClientQuotaManager does with its default samples. A client
over its quota gets an empty response with the time until its rate is allowed again; until then the broker does not
handle its next fetch (KIP-219).
"""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 10.0


class ClientQuota:
    """The bytes that one client has fetched."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._samples: deque[tuple[float, int]] = deque()
        self._total = 0
        self.muted_until = 0.0

    def throttle_ms(self, size: int, now: float) -> int:
        """Return how long the client must wait before it gets `size` bytes more; 0 notes that it gets them now."""
        while self._samples and self._samples[0][0] <= now - _WINDOW_SECONDS:
            self._total -= self._samples.popleft()[1]
        # A client that has fetched nothing for the whole window may exceed the quota once: a large batch needs it.
        if not self._total or (self._total + size) / _WINDOW_SECONDS <= self._bytes_per_second:
            self._samples.append((now, size))
            self._total += size
            return 0
        allowed = max(0, int(self._bytes_per_second * _WINDOW_SECONDS) - size)
        left = self._total
        for at, sample in self._samples:
            left -= sample
            if left <= allowed:
                wait_ms = max(1, round((at + _WINDOW_SECONDS - now) * 1000))
                self.muted_until = now + wait_ms / 1000
                return wait_ms
        return 0
