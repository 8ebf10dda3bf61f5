"""The table of all series: name, kind, help text, and how to read the values of a producer's metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

from kwire.cluster import BrokerMetrics, Distribution
from kwire.producer.metrics import ProducerMetrics

Kind = Literal["counter", "gauge", "histogram"]
Value = tuple[tuple[str, ...], float | Distribution]  # the values of its labels, and its value


class Source(Protocol):
    """A producer, `kwire.Producer` or `kwire.aio.Producer`."""

    @property
    def client_id(self) -> str: ...

    def collect_metrics(self) -> ProducerMetrics: ...


class Series(NamedTuple):
    """One series. `labels` are those beside `client`. Times are in seconds; `unit` is "" for a number."""

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


def named(sources: Iterable[Source]) -> list[tuple[str, ProducerMetrics]]:
    """Return each producer's metrics with its client_id; further producers of the same id get a number."""
    found: dict[str, ProducerMetrics] = {}
    for source in sources:
        name, number = source.client_id, 2
        while name in found:
            name, number = f"{source.client_id}-{number}", number + 1
        found[name] = source.collect_metrics()
    return list(found.items())
