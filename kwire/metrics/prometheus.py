"""Prometheus: a Collector for a registry of prometheus-client, and its text format.

from prometheus_client import REGISTRY
REGISTRY.register(kwire.metrics.Collector(producer))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING

from kwire.cluster import Distribution
from kwire.cluster.metrics import BOUNDS
from kwire.errors import ConfigurationError
from kwire.metrics.table import TABLES, Series, Source, Value, check_sources, named

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily


class Collector:
    """Reads the metrics of clients at each scrape. Use one per process: a registry accepts each series once.

    The names of the series begin with kwire_ and what it is: producer, consumer, share_consumer, admin, queue,
    queue_tracker. The label `client` is the client_id.
    """

    def __init__(self, *producers: Source) -> None:
        check_sources(producers)
        self._producers = list(producers)

    def add(self, producer: Source) -> None:
        check_sources([producer])
        self._producers.append(producer)

    def remove(self, producer: Source) -> None:
        self._producers.remove(producer)

    def collect(self) -> Iterator[Metric]:
        read = named(tuple(self._producers))
        for role, (kind, table) in TABLES.items():
            of_kind = [(client, metrics) for client, metrics in read if isinstance(metrics, kind)]
            for series in table if of_kind else ():
                yield _family(role, series, [(client, series.read(metrics)) for client, metrics in of_kind])


def prometheus_text(*producers: Source) -> str:
    """Return the metrics of these clients in the text format that Prometheus scrapes."""
    library = _library()
    registry = library.CollectorRegistry()
    registry.register(Collector(*producers))
    text: bytes = library.generate_latest(registry)
    return text.decode()


def _library() -> ModuleType:
    """Import prometheus-client on first use: importing kwire.metrics must not require it."""
    try:
        return import_module("prometheus_client")
    except ImportError as error:
        raise ConfigurationError("prometheus-client is not installed", remedy="pip install kwire[metrics]") from error


def _family(role: str, series: Series, read: Iterable[tuple[str, Iterable[Value]]]) -> Metric:
    core = _library().metrics_core
    labels = ("client", *series.labels)
    name = f"kwire_{role}_{series.name}"
    if series.kind == "histogram":
        histogram: HistogramMetricFamily = core.HistogramMetricFamily(name, series.help, labels=labels)
        for client, values in read:
            for label, value in values:
                assert isinstance(value, Distribution)
                histogram.add_metric((client, *label), _buckets(value), value.total_seconds)
        return histogram
    make = core.CounterMetricFamily if series.kind == "counter" else core.GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make(name, series.help, labels=labels)
    for client, values in read:
        for label, value in values:
            assert not isinstance(value, Distribution)
            family.add_metric((client, *label), value)
    return family


def _buckets(distribution: Distribution) -> list[tuple[str, float]]:
    """Return cumulative buckets, as Prometheus counts."""
    return list(zip([*map(str, BOUNDS), "+Inf"], accumulate(distribution.counts), strict=True))
