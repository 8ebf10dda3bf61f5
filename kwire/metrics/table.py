"""The table of all series: name, kind, help text, and how to read the values of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from kwire.arguments import wrong_type
from kwire.cluster import BrokerMetrics, ClusterMetrics, Distribution
from kwire.consumer.lag import Lag
from kwire.consumer.metrics import ConsumerMetrics
from kwire.producer.metrics import ProducerMetrics
from kwire.queue.metrics import QueueMetrics, ServiceMetrics, TrackerCounters
from kwire.share.metrics import ShareConsumerMetrics

Kind = Literal["counter", "gauge", "histogram"]
Value = tuple[tuple[str, ...], float | Distribution]  # the values of its labels, and its value


Metrics = ProducerMetrics | ConsumerMetrics | ShareConsumerMetrics | ServiceMetrics | TrackerCounters | ClusterMetrics


class _OfCluster(Protocol):
    """The metrics of a client, with those of the cluster as it sees it."""

    @property
    def cluster(self) -> ClusterMetrics: ...


class Source(Protocol):
    """A producer, a consumer, an admin client, a queue service or a tracker, of threads or of asyncio."""

    @property
    def client_id(self) -> str: ...

    def collect_metrics(self) -> Metrics: ...


class Series(NamedTuple):
    """One series. `labels` are those beside `client`. Times are in seconds; `unit` is "" for a number."""

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...]
    read: Callable[[Any], Iterable[Value]]


def _one(name: str, kind: Kind, help: str, unit: str, read: Callable[[Any], float | Distribution]) -> Series:
    return Series(name, kind, help, unit, (), lambda metrics: [((), read(metrics))])


def _per_broker(name: str, kind: Kind, help: str, unit: str, read: Callable[[BrokerMetrics], float]) -> Series:
    def values(metrics: _OfCluster) -> Iterable[Value]:
        return [((broker.address,), read(broker)) for broker in metrics.cluster.brokers.values()]

    return Series(name, kind, help, unit, ("broker",), values)


def _latency(metrics: _OfCluster) -> Iterable[Value]:
    for broker in metrics.cluster.brokers.values():
        for api, distribution in broker.latency.items():
            yield (broker.address, api), distribution


def _failures(metrics: ProducerMetrics) -> Iterable[Value]:
    return [((error,), count) for error, count in metrics.failures.items()]


def _metadata_age(metrics: _OfCluster) -> Iterable[Value]:
    age = metrics.cluster.metadata_age
    return [] if age is None else [((), age)]


def _lag(read: Callable[[Lag], float | None]) -> Callable[[ConsumerMetrics], Iterable[Value]]:
    def values(metrics: ConsumerMetrics) -> Iterable[Value]:
        found = [(key, read(lag)) for key, lag in metrics.lag.items()]
        return [((topic, str(partition)), value) for (topic, partition), value in found if value is not None]

    return values


# Of both kinds of client.
_CLUSTER = (
    Series("metadata_age_seconds", "gauge", "Age of the newest metadata", "seconds", (), _metadata_age),
    _per_broker("broker_connected", "gauge", "1 while connected", "", lambda b: b.is_connected),
    _per_broker("broker_connects", "counter", "Connections made", "", lambda b: b.connects),
    _per_broker("broker_losses", "counter", "Connections lost or failed", "", lambda b: b.losses),
    _per_broker("broker_requests", "counter", "Requests to a broker", "", lambda b: b.requests),
    _per_broker("broker_requests_failed", "counter", "Requests without a response", "", lambda b: b.failures),
    _per_broker("broker_requests_in_flight", "gauge", "Requests in flight", "", lambda b: b.in_flight),
    _per_broker("broker_sent_bytes", "counter", "Bytes to a broker", "bytes", lambda b: b.bytes_out),
    _per_broker("broker_received_bytes", "counter", "Bytes from a broker", "bytes", lambda b: b.bytes_in),
    Series("request_seconds", "histogram", "Time from request to response", "seconds", ("broker", "api"), _latency),
)

SERIES = (
    _one("requests_sent", "counter", "Produce requests written, every attempt", "", lambda m: m.requests_sent),
    _one("batches_sent", "counter", "Batches in them", "", lambda m: m.batches_sent),
    _one("records_sent", "counter", "Records in them", "", lambda m: m.records_sent),
    _one("sent_bytes", "counter", "Bytes of the batches in them, compressed", "bytes", lambda m: m.bytes_sent),
    _one(
        "batches_acknowledged", "counter", "Batches that the brokers acknowledged", "", lambda m: m.batches_acknowledged
    ),
    _one(
        "records_acknowledged", "counter", "Records that the brokers acknowledged", "", lambda m: m.records_acknowledged
    ),
    _one("batches_retried", "counter", "Attempts after which a batch was retried", "", lambda m: m.batches_retried),
    _one("records_retried", "counter", "Records in those batches", "", lambda m: m.records_retried),
    _one(
        "batches_cut",
        "counter",
        "Batches that were split because they were too large for a broker",
        "",
        lambda m: m.batches_cut,
    ),
    _one("batches_failed", "counter", "Batches that failed", "", lambda m: m.batches_failed),
    Series("records_failed", "counter", "Records that failed, by error", "", ("error",), _failures),
    _one("batches_in_flight", "gauge", "Batches without a response", "", lambda m: m.batches_in_flight),
    _one("records_in_flight", "gauge", "Records in those batches", "", lambda m: m.records_in_flight),
    _one("batches_queued", "gauge", "Batches that wait to be sent", "", lambda m: m.batches_queued),
    _one("records_queued", "gauge", "Records that wait to be sent", "", lambda m: m.records_queued),
    _one("buffered_bytes", "gauge", "Bytes of records without a result", "bytes", lambda m: m.buffered_bytes),
    _one("buffered_max_bytes", "gauge", "The limit of buffered_bytes", "bytes", lambda m: m.buffered_bytes_max),
    _one("senders_waiting", "gauge", "Threads and tasks that wait for buffer memory", "", lambda m: m.senders_waiting),
    _one(
        "queue_time_seconds",
        "histogram",
        "Time from a batch's creation to its first request",
        "seconds",
        lambda m: m.queue_time,
    ),
    *_CLUSTER,
)

CONSUMER_SERIES = (
    _one("polls", "counter", "Calls that requested records", "", lambda m: m.polls),
    _one("records_consumed", "counter", "Offsets that the program went past", "", lambda m: m.records_consumed),
    _one("rebalances", "counter", "Rebalances that ended", "", lambda m: m.rebalances),
    _one("partitions_assigned", "counter", "Partitions assigned", "", lambda m: m.partitions_assigned),
    _one("partitions_revoked", "counter", "Partitions revoked", "", lambda m: m.partitions_revoked),
    _one("partitions_lost", "counter", "Partitions lost without notice", "", lambda m: m.partitions_lost),
    _one("callbacks_failed", "counter", "Rebalance callbacks that raised", "", lambda m: m.callbacks_failed),
    _one("offsets_committed", "counter", "Offsets that the coordinator took", "", lambda m: m.offsets_committed),
    _one("commits_failed", "counter", "Offsets that it did not take", "", lambda m: m.commits_failed),
    _one("assigned_partitions", "gauge", "Partitions assigned now", "", lambda m: m.assigned_partitions),
    _one("buffered_bytes", "gauge", "Bytes fetched and not read", "bytes", lambda m: m.buffered_bytes),
    _one(
        "gate_closed_seconds", "counter", "Time with records in the program's hands", "seconds",
        lambda m: m.gate_closed_seconds,
    ),
    _one("commit_seconds", "histogram", "Time from a commit to its response", "seconds", lambda m: m.commit_time),
    _one("rebalance_seconds", "histogram", "Time from a rebalance's begin", "seconds", lambda m: m.rebalance_time),
    _one("last_poll_seconds", "gauge", "Time since the last poll", "seconds", lambda m: m.last_poll_seconds),
    Series(
        "lag_records", "gauge", "Offsets to the end", "", ("topic", "partition"), _lag(lambda lag: lag.records)
    ),
    Series(
        "lag_seconds", "gauge", "Age of the records read now, while there are more", "seconds",
        ("topic", "partition"), _lag(lambda lag: lag.seconds),
    ),
    *_CLUSTER,
)  # fmt: skip

SHARE_SERIES = (
    _one("fetches", "counter", "ShareFetch requests", "", lambda m: m.fetches),
    _one("acknowledge_requests", "counter", "ShareAcknowledge requests", "", lambda m: m.acknowledge_requests),
    _one("sessions_opened", "counter", "Share sessions opened", "", lambda m: m.sessions_opened),
    _one("records_acquired", "counter", "Offsets locked for this consumer", "", lambda m: m.acquired_records),
    _one("records_consumed", "counter", "Records that the program has got", "", lambda m: m.polled_records),
    _one("records_accepted", "counter", "Records accepted", "", lambda m: m.accepted),
    _one("records_released", "counter", "Records released", "", lambda m: m.released),
    _one("records_rejected", "counter", "Records rejected", "", lambda m: m.rejected),
    _one("locks_renewed", "counter", "Locks renewed", "", lambda m: m.renewed),
    _one("locks_expired", "counter", "Offsets whose lock ended unread", "", lambda m: m.expired_records),
    _one(
        "acknowledgements_failed", "counter", "Acknowledgements that did not count", "",
        lambda m: m.failed_acknowledgements,
    ),
    _one("records_in_hand", "gauge", "Records without an acknowledgement", "", lambda m: m.in_hand_records),
    _one("assigned_partitions", "gauge", "Partitions assigned now", "", lambda m: m.assigned_partitions),
    _one("rejoins", "counter", "Times that the member was fenced", "", lambda m: m.rejoins),
    *_CLUSTER,
)  # fmt: skip


def _per_queue(
    name: str, kind: Kind, help: str, unit: str, read: Callable[[QueueMetrics], float | Distribution]
) -> Series:
    def values(metrics: ServiceMetrics) -> Iterable[Value]:
        return [((queue,), read(one)) for queue, one in metrics.queues.items()]

    return Series(name, kind, help, unit, ("queue",), values)


def _by_name(name: str, help: str, label: str, read: Callable[[QueueMetrics], Mapping[str, int]]) -> Series:
    def values(metrics: ServiceMetrics) -> Iterable[Value]:
        return [((queue, each), count) for queue, one in metrics.queues.items() for each, count in read(one).items()]

    return Series(name, "counter", help, "", ("queue", label), values)


def _received(name: str, help: str) -> Series:
    """Return the series of a counter that consumers of a queue have under this name."""
    return _per_queue(name, "counter", help, "", lambda m: getattr(m.consumers, name))


# The label queue has a hundred values at most: those of further queues are counted together.
QUEUE_SERIES = (
    _per_queue("sent", "counter", "Messages stored", "", lambda m: m.producers.sent),
    _per_queue("send_failed", "counter", "Messages that were not stored", "", lambda m: m.producers.failed),
    _received("received", "Messages handed out"),
    _received("filtered_foreign", "Records of other queues that were read"),
    _received("acked", "Messages acknowledged"),
    _received("nacked", "Messages refused"),
    _received("released", "Messages given back"),
    _received("extended", "Leases extended by the program"),
    _received("lease_lost", "Messages settled after their lease was over"),
    _received("delayed", "Messages put off until their time"),
    _received("expired", "Messages whose time was over"),
    _received("deduplicated", "Messages dropped since one with their id came before"),
    _received("dead_lettered", "Messages that became dead letters"),
    _received("marker_failures", "Markers that were not stored"),
    _received("commits", "Positions committed"),
    _received("commit_failures", "Positions that could not be committed"),
    _received("resets", "Reads that failed: messages not marked, or not committed"),
    _by_name("markers_sent", "Markers, by type", "type", lambda m: m.consumers.markers_sent),
    _by_name("deliveries", "Messages handed out, by how often so far", "count", lambda m: m.consumers.deliveries),
    _per_queue("in_progress", "gauge", "Messages not settled", "", lambda m: m.consumers.in_progress),
    _per_queue("buffered", "gauge", "Of them not handed out", "", lambda m: m.consumers.buffered),
    _per_queue(
        "oldest_in_progress_seconds", "gauge", "Time since the oldest message in progress was handed out", "seconds",
        lambda m: m.consumers.oldest_in_progress_seconds,
    ),
    _per_queue(
        "send_seconds", "histogram", "Time from send to the result", "seconds",
        lambda m: m.producers.send_time.distribution(),
    ),
    _per_queue(
        "wait_seconds", "histogram", "Time from the append of a message to its lease", "seconds",
        lambda m: m.consumers.wait_time.distribution(),
    ),
    _per_queue(
        "processing_seconds", "histogram", "Time from the hand-out of a message to its end", "seconds",
        lambda m: m.consumers.processing_time.distribution(),
    ),
    _per_queue(
        "total_seconds", "histogram", "Time from the append of a message to its acknowledgement", "seconds",
        lambda m: m.consumers.total_time.distribution(),
    ),
    _per_queue(
        "commit_seconds", "histogram", "Time of a commit of the position", "seconds",
        lambda m: m.consumers.commit_time.distribution(),
    ),
)  # fmt: skip

TRACKER_SERIES = (
    _one("markers", "counter", "Markers read", "", lambda m: m.markers),
    _one("redelivered", "counter", "Messages sent again, delayed ones included", "", lambda m: m.redelivered),
    _one("dead_lettered", "counter", "Messages that became dead letters", "", lambda m: m.dead_lettered),
    _one("dropped", "counter", "Messages given up without a dead letter", "", lambda m: m.dropped),
    _one("unreadable", "counter", "Markers that could not be read", "", lambda m: m.unreadable),
    _one("failures", "counter", "Transactions that failed and were made again", "", lambda m: m.failures),
    _one("commits", "counter", "Positions committed", "", lambda m: m.commits),
    _one("ticks", "counter", "TICKs written", "", lambda m: m.ticks),
    _one("clock_jumps", "counter", "Append times that were distrusted", "", lambda m: m.clock_jumps),
    _one("partitions", "gauge", "Partitions of the markers topic", "", lambda m: m.partitions),
    _one("replaying", "gauge", "Partitions that redeliver nothing yet", "", lambda m: m.replaying),
    _one("in_progress", "gauge", "Messages in progress", "", lambda m: m.in_progress),
    _one("in_progress_bytes", "gauge", "Bytes of these messages", "bytes", lambda m: m.in_progress_bytes),
    _one("committed_distance", "gauge", "Markers that a successor would read", "", lambda m: m.committed_distance),
    _one("clock_seconds", "gauge", "The brokers' time, as markers tell it", "seconds", lambda m: m.clock_ms / 1000),
    _one(
        "clock_stalled_seconds", "gauge", "Time since a marker was read, while messages are in progress", "seconds",
        lambda m: m.stalled_seconds,
    ),
    _one(
        "redelivery_lateness_seconds", "gauge", "Of the last redelivery, from its deadline on", "seconds",
        lambda m: m.lateness_ms / 1000,
    ),
)  # fmt: skip


class _Admin(NamedTuple):
    """An admin client counts nothing of its own."""

    cluster: ClusterMetrics


def _of_admin(series: Series) -> Series:
    return series._replace(read=lambda metrics: series.read(_Admin(metrics)))


# By the kind of client, whose name is in the names of the series.
TABLES: dict[str, tuple[type[Metrics], tuple[Series, ...]]] = {
    "producer": (ProducerMetrics, SERIES),
    "consumer": (ConsumerMetrics, CONSUMER_SERIES),
    "share_consumer": (ShareConsumerMetrics, SHARE_SERIES),
    "queue": (ServiceMetrics, QUEUE_SERIES),
    "queue_tracker": (TrackerCounters, TRACKER_SERIES),
    "admin": (ClusterMetrics, tuple(map(_of_admin, _CLUSTER))),
}


def check_sources(sources: Iterable[Source]) -> None:
    """Raise TypeError for an object without metrics."""
    for source in sources:
        if isinstance(source, type) or not hasattr(source, "collect_metrics"):
            raise wrong_type("a source of metrics", source, "a producer, consumer, admin client, queue or tracker")


def named(sources: Iterable[Source]) -> list[tuple[str, Metrics]]:
    """Return each client's metrics with its client_id; further clients of the same kind and id get a number."""
    found: dict[tuple[type[Metrics], str], Metrics] = {}
    for source in sources:
        metrics = source.collect_metrics()
        name, number = source.client_id, 2
        while (type(metrics), name) in found:
            name, number = f"{source.client_id}-{number}", number + 1
        found[type(metrics), name] = metrics
    return [(name, metrics) for (_, name), metrics in found.items()]
