"""Every series reaches the text of Prometheus and the reader of OpenTelemetry, with the producers' values."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import kwire
import kwire.aio
from kwire.broker import Cluster
from kwire.cluster import BrokerMetrics, ClusterMetrics, Distribution
from kwire.metrics import Collector, instrument, prometheus_text
from kwire.metrics.table import SERIES
from kwire.producer.metrics import ProducerMetrics

COUNTS = (1, 0, 2, *[0] * 11, 1)
LATENCY = Distribution(COUNTS, 40.5)
BROKER = BrokerMetrics(
    node=1,
    address="1 at host:9092",
    connections=1,
    in_flight=2,
    connects=3,
    losses=4,
    requests=5,
    failures=6,
    bytes_out=7,
    bytes_in=8,
    latency={"Produce": LATENCY},
    last_failure=None,
)
NUMBERS = {
    field.name: number
    for number, field in enumerate(fields(ProducerMetrics), start=100)
    if field.name not in ("failures", "queue_time", "cluster")
}
METRICS = ProducerMetrics(
    **NUMBERS,
    failures={"DeliveryError": 9},
    queue_time=LATENCY,
    cluster=ClusterMetrics({1: BROKER}, 12.5),
)


@dataclass
class Fixed:
    """A producer with given metrics."""

    metrics: ProducerMetrics = METRICS
    client_id: str = "me"

    def collect_metrics(self) -> ProducerMetrics:
        return self.metrics


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return {(name, sorted label values): value}."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


EXPECTED: dict[tuple[str, ...], float] = {
    ("requests_sent", "me"): METRICS.requests_sent,
    ("batches_sent", "me"): METRICS.batches_sent,
    ("records_sent", "me"): METRICS.records_sent,
    ("sent_bytes", "me"): METRICS.bytes_sent,
    ("batches_acknowledged", "me"): METRICS.batches_acknowledged,
    ("records_acknowledged", "me"): METRICS.records_acknowledged,
    ("batches_retried", "me"): METRICS.batches_retried,
    ("records_retried", "me"): METRICS.records_retried,
    ("batches_cut", "me"): METRICS.batches_cut,
    ("batches_failed", "me"): METRICS.batches_failed,
    ("records_failed", "me", "DeliveryError"): 9,
    ("batches_in_flight", "me"): METRICS.batches_in_flight,
    ("records_in_flight", "me"): METRICS.records_in_flight,
    ("batches_queued", "me"): METRICS.batches_queued,
    ("records_queued", "me"): METRICS.records_queued,
    ("buffered_bytes", "me"): METRICS.buffered_bytes,
    ("buffered_max_bytes", "me"): METRICS.buffered_bytes_max,
    ("senders_waiting", "me"): METRICS.senders_waiting,
    ("queue_time_seconds_sum", "me"): 40.5,
    ("queue_time_seconds_count", "me"): 4,
    ("metadata_age_seconds", "me"): 12.5,
    ("broker_connected", "me", "1 at host:9092"): 1,
    ("broker_requests_in_flight", "me", "1 at host:9092"): 2,
    ("broker_connects", "me", "1 at host:9092"): 3,
    ("broker_losses", "me", "1 at host:9092"): 4,
    ("broker_requests", "me", "1 at host:9092"): 5,
    ("broker_requests_failed", "me", "1 at host:9092"): 6,
    ("broker_sent_bytes", "me", "1 at host:9092"): 7,
    ("broker_received_bytes", "me", "1 at host:9092"): 8,
    ("request_seconds_sum", "me", "1 at host:9092", "Produce"): 40.5,
    ("request_seconds_count", "me", "1 at host:9092", "Produce"): 4,
}


def test_prometheus_shows_every_series() -> None:
    counters = {series.name for series in SERIES if series.kind == "counter"}
    expected = {
        (f"kwire_producer_{name}{'_total' if name in counters else ''}", *sorted(labels)): value
        for (name, *labels), value in EXPECTED.items()
    }
    assert samples(prometheus_text(Fixed())) == expected


def test_opentelemetry_shows_every_series() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    instrument(Fixed(), meter=provider.get_meter("test"))
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[tuple[object, ...], float] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            assert isinstance(point, NumberDataPoint)
            found[metric.name.removeprefix("kwire.producer."), *(point.attributes or {}).values()] = point.value
    provider.shutdown()
    assert found == EXPECTED


def test_buckets_are_cumulative() -> None:
    (family,) = [
        family
        for family in text_string_to_metric_families(prometheus_text(Fixed()))
        if family.name == "kwire_producer_queue_time_seconds"
    ]
    buckets = [(sample.labels["le"], sample.value) for sample in family.samples if sample.name.endswith("_bucket")]
    assert buckets[:4] == [("0.001", 1), ("0.0025", 1), ("0.005", 3), ("0.01", 3)]
    assert buckets[-2:] == [("30.0", 3), ("+Inf", 4)]


def test_one_collector_for_several_producers() -> None:
    collector, registry = Collector(Fixed()), CollectorRegistry()
    registry.register(collector)
    more = Fixed(replace(METRICS, records_sent=5))
    collector.add(more)
    value = registry.get_sample_value
    assert value("kwire_producer_records_sent_total", {"client": "me"}) == METRICS.records_sent
    assert value("kwire_producer_records_sent_total", {"client": "me-2"}) == 5
    collector.remove(more)
    assert value("kwire_producer_records_sent_total", {"client": "me-2"}) is None


def test_metadata_age_is_missing_before_the_first_metadata() -> None:
    early = replace(METRICS, cluster=ClusterMetrics({}, None), failures={})
    assert ("kwire_producer_metadata_age_seconds", "me") not in samples(prometheus_text(Fixed(early)))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as one:
        yield one


def test_the_producers_for_threads_and_asyncio(cluster: Cluster) -> None:
    async def main() -> str:
        async with kwire.aio.Producer(cluster.bootstrap, client_id="async") as awaited:
            await awaited.send_and_wait("t", b"x")
            return await asyncio.to_thread(prometheus_text, awaited, producer)

    with kwire.Producer(cluster.bootstrap, client_id="threads") as producer:
        producer.send("t", b"x").result(30)
        found = samples(asyncio.run(main()))
    for client in ("async", "threads"):
        assert found["kwire_producer_records_acknowledged_total", client] == 1


def test_the_admin_clients_for_threads_and_asyncio(cluster: Cluster) -> None:
    async def main() -> str:
        async with kwire.aio.Admin(cluster.bootstrap, client_id="async") as awaited:
            await awaited.topics.list()
            return await asyncio.to_thread(prometheus_text, awaited, admin)

    with kwire.Admin(cluster.bootstrap, client_id="threads") as admin:
        admin.topics.list()
        found = samples(asyncio.run(main()))
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader])
        instrument(admin, meter=provider.get_meter("test"))
        data = reader.get_metrics_data()
        provider.shutdown()
    asked = {label for (name, *labels) in found if name == "kwire_admin_broker_requests_total" for label in labels}
    assert asked >= {"async", "threads"}
    assert data is not None
    assert "kwire.admin.broker_requests" in {one.name for one in data.resource_metrics[0].scope_metrics[0].metrics}


@pytest.mark.parametrize("wrong", ["producer", None, kwire.Producer])
def test_what_has_no_metrics_is_refused(wrong: Any) -> None:
    """Not at the first scrape, which nobody watches."""
    for refused in (
        lambda: prometheus_text(wrong), lambda: Collector(Fixed(), wrong), lambda: Collector().add(wrong),
        lambda: instrument(wrong, meter=MeterProvider().get_meter("test")),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="give a producer, consumer, admin client, queue or tracker"):
            refused()


def test_the_libraries_are_imported_on_first_use() -> None:
    probe = "import sys, kwire.metrics; print({'prometheus_client', 'opentelemetry'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout.strip() == "set()"
