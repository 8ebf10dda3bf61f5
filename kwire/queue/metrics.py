"""What producers, consumers and trackers of queues count."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ProducerCounters:
    """Messages that a producer has sent; `failed` were not acknowledged."""

    sent: int = 0
    failed: int = 0


@dataclass(slots=True)
class ConsumerCounters:
    """What a consumer has counted, and what it has now.

    received             messages handed out
    filtered_foreign     records of other queues
    delayed              messages that were put off until their time
    lease_lost           acknowledgements that came too late
    expired              messages whose time was over
    markers_sent         by type
    marker_failures      markers that were not acknowledged
    resets               reads that began again, since a message could not be marked or the position not committed
    in_progress, buffered  gauges
    """

    received: int = 0
    filtered_foreign: int = 0
    delayed: int = 0
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
    in_progress: int = 0
    buffered: int = 0


@dataclass(slots=True)
class TrackerCounters:
    """What a tracker has counted, and what it has now.

    redelivered          messages sent again, delayed ones included
    dead_lettered        messages that had been delivered too often, or whose time was over
    unreadable           markers that could not be read
    failures             transactions that failed, and were made again
    partitions, replaying, in_progress, in_progress_bytes    gauges; `replaying` partitions redeliver nothing yet
    committed_distance   the markers that a successor would read
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
    lateness_ms: int = 0
