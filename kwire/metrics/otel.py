"""OpenTelemetry: observable instruments of a Meter, which are read when its reader collects.

kwire.metrics.instrument(producer, meter=opentelemetry.metrics.get_meter("my.application"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kwire.cluster import Distribution
from kwire.metrics.table import TABLES, Series, Source, check_sources, named

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_UNITS = {"seconds": "s", "bytes": "By", "": "1"}


def instrument(*producers: Source, meter: Meter) -> None:
    """Make an instrument for every series. The attributes are the labels that Prometheus shows.

    OpenTelemetry has no observable histogram: two counters take its place, `..._sum` and `..._count`.
    """
    check_sources(producers)
    for role, (kind, table) in TABLES.items():
        of_kind = [source for source in producers if isinstance(source.collect_metrics(), kind)]
        if of_kind:
            for series in table:
                _instrument(role, tuple(of_kind), series, meter)


def _instrument(role: str, sources: tuple[Source, ...], series: Series, meter: Meter) -> None:
    prefix = f"kwire.{role}."
    unit = _UNITS[series.unit]
    if series.kind == "gauge":
        meter.create_observable_gauge(prefix + series.name, [_callback(sources, series, _number)], unit, series.help)
    elif series.kind == "counter":
        meter.create_observable_counter(prefix + series.name, [_callback(sources, series, _number)], unit, series.help)
    else:
        for suffix, read, of in (("_sum", _sum, unit), ("_count", _count, "1")):
            meter.create_observable_counter(
                prefix + series.name + suffix, [_callback(sources, series, read)], of, series.help
            )


def _callback(
    producers: tuple[Source, ...], series: Series, read: Callable[[float | Distribution], float]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(options: CallbackOptions) -> Iterable[Observation]:
        for client, metrics in named(producers):
            for labels, value in series.read(metrics):
                yield Observation(read(value), {"client": client, **dict(zip(series.labels, labels, strict=True))})

    return observe


def _number(value: float | Distribution) -> float:
    assert not isinstance(value, Distribution)
    return value


def _sum(value: float | Distribution) -> float:
    assert isinstance(value, Distribution)
    return value.total_seconds


def _count(value: float | Distribution) -> float:
    assert isinstance(value, Distribution)
    return value.count
