"""Every series: its name, kind and meaning, and the values it has in a producer's metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

from kwire.cluster import BrokerMetrics, Distribution
from kwire.producer.metrics import ProducerMetrics

Kind = Literal["counter", "gauge", "histogram"]
Value = tuple[tuple[str, ...], float | Distribution]  # the values of the series' labels, and the series' own


class Source(Protocol):
    """A producer, `kwire.Producer` or `kwire.aio.Producer`."""

    @property
    def client_id(self) -> str: ...

    def collect_metrics(self) -> ProducerMetrics: ...


class Series(NamedTuple):
    """`labels` are those beside the client's. Times are seconds; `unit` is "" for mere numbers."""

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...]
    read: Callable[[ProducerMetrics], Iterable[Value]]


def _one(
    name: str, kind: Kind, help: str, unit: str, read: Callable[[ProducerMetrics], float | Distribution]
) -> Series:
    return Series(name, kind, help, unit, (), lambda metrics: [((), read(metrics))])


def _per_broker(name: str, kind: Kind, help: str, unit: str, read: Callable[[BrokerMetrics], float]) -> Series:
    def values(metrics: ProducerMetrics) -> Iterable[Value]:
        return [((broker.address,), read(broker)) for broker in metrics.cluster.brokers.values()]

    return Series(name, kind, help, unit, ("broker",), values)


def _latency(metrics: ProducerMetrics) -> Iterable[Value]:
    for broker in metrics.cluster.brokers.values():
        for api, distribution in broker.latency.items():
            yield (broker.address, api), distribution


def _failures(metrics: ProducerMetrics) -> Iterable[Value]:
    return [((error,), count) for error, count in metrics.failures.items()]


def _metadata_age(metrics: ProducerMetrics) -> Iterable[Value]:
    age = metrics.cluster.metadata_age
    return [] if age is None else [((), age)]


SERIES = (
    _one("requests_sent", "counter", "Produce requests written, every attempt", "", lambda m: m.requests_sent),
    _one("batches_sent", "counter", "Batches in them", "", lambda m: m.batches_sent),
    _one("records_sent", "counter", "Records in them", "", lambda m: m.records_sent),
    _one("sent_bytes", "counter", "Bytes of the batches in them, compressed", "bytes", lambda m: m.bytes_sent),
    _one("batches_acknowledged", "counter", "Batches that are in the log", "", lambda m: m.batches_acknowledged),
    _one("records_acknowledged", "counter", "Records that are in the log", "", lambda m: m.records_acknowledged),
    _one("batches_retried", "counter", "Attempts after which a batch is sent again", "", lambda m: m.batches_retried),
    _one("records_retried", "counter", "Records in those batches", "", lambda m: m.records_retried),
    _one("batches_cut", "counter", "Batches that were too large for a broker", "", lambda m: m.batches_cut),
    _one("batches_failed", "counter", "Batches that were given up", "", lambda m: m.batches_failed),
    Series("records_failed", "counter", "Records that were given up, by error", "", ("error",), _failures),
    _one("batches_in_flight", "gauge", "Batches that wait for an answer", "", lambda m: m.batches_in_flight),
    _one("records_in_flight", "gauge", "Records in those batches", "", lambda m: m.records_in_flight),
    _one("batches_queued", "gauge", "Batches that wait to be sent", "", lambda m: m.batches_queued),
    _one("records_queued", "gauge", "Records that wait to be sent", "", lambda m: m.records_queued),
    _one("buffered_bytes", "gauge", "Bytes of records without an outcome", "bytes", lambda m: m.buffered_bytes),
    _one("buffered_max_bytes", "gauge", "The limit of that", "bytes", lambda m: m.buffered_bytes_max),
    _one("senders_waiting", "gauge", "Threads and tasks that wait for room", "", lambda m: m.senders_waiting),
    _one("queue_time_seconds", "histogram", "A batch's wait for its first request", "seconds", lambda m: m.queue_time),
    Series("metadata_age_seconds", "gauge", "Since the newest metadata came", "seconds", (), _metadata_age),
    _per_broker("broker_connected", "gauge", "1 while connected", "", lambda b: b.is_connected),
    _per_broker("broker_connects", "counter", "Connections made", "", lambda b: b.connects),
    _per_broker("broker_losses", "counter", "Connections lost or not made", "", lambda b: b.losses),
    _per_broker("broker_requests", "counter", "Requests to a broker", "", lambda b: b.requests),
    _per_broker("broker_requests_failed", "counter", "Requests without an answer", "", lambda b: b.failures),
    _per_broker("broker_requests_in_flight", "gauge", "Requests that wait for an answer", "", lambda b: b.in_flight),
    _per_broker("broker_sent_bytes", "counter", "Bytes to a broker", "bytes", lambda b: b.bytes_out),
    _per_broker("broker_received_bytes", "counter", "Bytes from a broker", "bytes", lambda b: b.bytes_in),
    Series("request_seconds", "histogram", "From request to answer", "seconds", ("broker", "api"), _latency),
)


def named(sources: Iterable[Source]) -> list[tuple[str, ProducerMetrics]]:
    """Each producer's metrics under its client_id; a second one of the same id gets a number behind it."""
    found: dict[str, ProducerMetrics] = {}
    for source in sources:
        name, number = source.client_id, 2
        while name in found:
            name, number = f"{source.client_id}-{number}", number + 1
        found[name] = source.collect_metrics()
    return list(found.items())
