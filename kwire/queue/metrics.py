"""What producers, consumers and trackers of queues count."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from kwire.cluster.metrics import Histogram

# So many queues of a service have metrics of their own; later ones share one name, since users may make any number.
_NAMES_MAX = 100
OTHER_QUEUES = "(other queues)"


class _Counters:
    """Numbers, counts by name, and histograms, which can be added and copied."""

    __slots__ = ()

    def add(self, other: Self) -> None:
        """Add what `other` has counted."""
        for each in fields(self):  # type: ignore[arg-type]
            own, more = getattr(self, each.name), getattr(other, each.name)
            if isinstance(own, Histogram):
                own.add(more)
            elif isinstance(own, dict):
                for name, count in dict(more).items():
                    own[name] = own.get(name, 0) + count
            else:
                setattr(self, each.name, own + more)

    def copy(self) -> Self:
        """Return what was counted until now."""
        made = type(self)()
        made.add(self)
        return made


@dataclass(slots=True)
class ProducerCounters(_Counters):
    """Messages that a producer has sent; `failed` were not acknowledged. `send_time` is from `send` to the result."""

    sent: int = 0
    failed: int = 0
    send_time: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class ConsumerCounters(_Counters):
    """What a consumer has counted, and what it has now.

    received             messages handed out
    filtered_foreign     records of other queues
    delayed              messages that were put off until their time
    deduplicated         messages that were dropped, since one with their id came before
    lease_lost           acknowledgements that came too late
    expired              messages whose time was over
    markers_sent         by type
    marker_failures      markers that were not acknowledged
    resets               reads that failed, since a message could not be marked or the position not committed
    deliveries           messages handed out by how often they had been delivered; from 10 on together
    wait_time            from the append of a message to its lease
    processing_time      from the hand-out of a message to its end
    total_time           from the append of a message to its acknowledgement
    commit_time          of the position; with transactional=True of the transaction
    in_progress, buffered  gauges
    oldest_in_progress_seconds  since the first of the messages in progress was handed out
    """

    received: int = 0
    filtered_foreign: int = 0
    delayed: int = 0
    deduplicated: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    extended: int = 0
    lease_lost: int = 0
    expired: int = 0
    dead_lettered: int = 0
    markers_sent: dict[str, int] = field(default_factory=dict)
    marker_failures: int = 0
    commits: int = 0
    commit_failures: int = 0
    resets: int = 0
    deliveries: dict[str, int] = field(default_factory=dict)
    wait_time: Histogram = field(default_factory=Histogram)
    processing_time: Histogram = field(default_factory=Histogram)
    total_time: Histogram = field(default_factory=Histogram)
    commit_time: Histogram = field(default_factory=Histogram)
    in_progress: int = 0
    buffered: int = 0
    oldest_in_progress_seconds: float = 0.0


@dataclass(slots=True)
class QueueMetrics:
    """What the producers and the consumers of one queue have counted in one service."""

    producers: ProducerCounters = field(default_factory=ProducerCounters)
    consumers: ConsumerCounters = field(default_factory=ConsumerCounters)

    def add(self, counters: ProducerCounters | ConsumerCounters) -> None:
        """Add what a producer or a consumer has counted."""
        if isinstance(counters, ProducerCounters):
            self.producers.add(counters)
        else:
            self.consumers.add(counters)


@dataclass(slots=True)
class ServiceMetrics:
    """What a service has counted, by queue. Queues after the first hundred are counted together."""

    queues: dict[str, QueueMetrics] = field(default_factory=dict)

    def add(self, queue: str, counters: ProducerCounters | ConsumerCounters) -> None:
        """Add what a producer or a consumer of a queue has counted."""
        self.of(queue).add(counters)

    def of(self, queue: str) -> QueueMetrics:
        """Return what counts for a queue."""
        is_known = queue in self.queues or len(self.queues) < _NAMES_MAX
        return self.queues.setdefault(queue if is_known else OTHER_QUEUES, QueueMetrics())

    def copy(self) -> ServiceMetrics:
        """Return what was counted until now."""
        made = ServiceMetrics()
        for queue, metrics in self.queues.items():
            made.add(queue, metrics.producers)
            made.add(queue, metrics.consumers)
        return made


@dataclass(slots=True)
class TrackerCounters:
    """What a tracker has counted, and what it has now.

    redelivered          messages sent again, delayed ones included
    dead_lettered        messages that had been delivered too often, or whose time was over
    unreadable           markers that could not be read
    failures             transactions that failed, and were made again
    partitions, replaying, in_progress, in_progress_bytes    gauges; `replaying` partitions redeliver nothing yet
    committed_distance   the markers that a successor would read
    clock_ms             the least of the clocks of its partitions, which are the brokers'
    stalled_seconds      since when one of them stands still, though messages are in progress there
    lateness_ms          of the last redelivery: from the deadline to its transaction, by the broker's clock
    """

    markers: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    unreadable: int = 0
    failures: int = 0
    commits: int = 0
    ticks: int = 0
    clock_jumps: int = 0
    partitions: int = 0
    replaying: int = 0
    in_progress: int = 0
    in_progress_bytes: int = 0
    committed_distance: int = 0
    clock_ms: int = 0
    stalled_seconds: float = 0.0
    lateness_ms: int = 0
