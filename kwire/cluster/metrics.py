"""What a client counts about its brokers: connections, requests, bytes, and the latency of responses.

Counting happens per request on the event loop's thread, without a lock, and is always on. A `ClusterMetrics` is a copy
at one moment. Numbers only grow until the client is closed, except those that describe that moment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kwire.errors import KwireError

# Upper bounds in seconds: a loopback broker responds within the first, a broker that restarts within the last.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram of durations. `counts` has one number for each of BOUNDS, and one for longer durations."""

    counts: tuple[int, ...]
    total_seconds: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Return the mean in seconds; 0.0 when nothing was counted."""
        return self.total_seconds / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """Return about the duration that the share `part` (0.5, 0.99) did not exceed, interpolated between bounds.

        It is 0.0 when nothing was counted, and the last bound for longer durations.
        """
        wanted = part * self.count
        for place, reached in enumerate(accumulate(self.counts)):
            if reached >= wanted and self.counts[place]:
                if place == len(BOUNDS):
                    return BOUNDS[-1]
                low = BOUNDS[place - 1] if place else 0.0
                into = 1 - (reached - wanted) / self.counts[place]
                return low + (BOUNDS[place] - low) * into
        return 0.0


class Histogram:
    """The counts behind a `Distribution`."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Count a duration, `count` times."""
        self._counts[bisect_left(BOUNDS, seconds)] += count
        self._total += seconds * count

    def observe_all(self, seconds: Sequence[float]) -> None:
        """Count each of these durations; one below 0, by clocks that differ, is 0."""
        # Durations of neighbours are alike: to sort them costs less than to look for the place of each.
        ordered = sorted(seconds)
        first = 0
        while first < len(ordered):
            place = bisect_left(BOUNDS, ordered[first])
            after = bisect_right(ordered, BOUNDS[place], first) if place < len(BOUNDS) else len(ordered)
            self._counts[place] += after - first
            first = after
        self._total += sum(ordered[bisect_left(ordered, 0.0) :])

    def add(self, other: Histogram) -> None:
        """Count what another histogram has counted."""
        self._counts = [own + more for own, more in zip(self._counts, other._counts, strict=True)]
        self._total += other._total

    def distribution(self) -> Distribution:
        return Distribution(tuple(self._counts), self._total)


class BrokerCounters:
    """The counts of one broker."""

    __slots__ = ("bytes_in", "bytes_out", "connects", "failures", "latency", "losses", "requests")

    def __init__(self) -> None:
        self.connects = 0
        self.losses = 0
        self.requests = 0
        self.failures = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.latency: defaultdict[str, Histogram] = defaultdict(Histogram)  # by the request's name


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """`node` is the broker's id, or below 0 for a bootstrap address. `latency` is by API: {"Produce": ...}.

    connects, losses       connections made; connections that failed or could not be made
    requests, failures     requests sent; requests without a response
    connections            connections that are open now: up to one for each purpose
    in_flight              requests that wait for their response now
    """

    node: int
    address: str
    connections: int
    in_flight: int
    connects: int
    losses: int
    requests: int
    failures: int
    bytes_out: int
    bytes_in: int
    latency: Mapping[str, Distribution]
    last_failure: KwireError | None

    @property
    def is_connected(self) -> bool:
        return self.connections > 0


@dataclass(frozen=True, slots=True)
class ClusterMetrics:
    """`metadata_age` is seconds since the newest metadata came; None before the first."""

    brokers: Mapping[int, BrokerMetrics]
    metadata_age: float | None

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return sum(broker.connections for broker in self.brokers.values())


def broker_metrics(
    node: int,
    address: str,
    traffic: BrokerCounters,
    *,
    connections: int,
    in_flight: int,
    last_failure: KwireError | None,
) -> BrokerMetrics:
    return BrokerMetrics(
        node,
        address,
        connections,
        in_flight,
        traffic.connects,
        traffic.losses,
        traffic.requests,
        traffic.failures,
        traffic.bytes_out,
        traffic.bytes_in,
        {name.removesuffix("Request"): one.distribution() for name, one in traffic.latency.items()},
        last_failure,
    )
