"""OpenTelemetry: observable instruments of a Meter, which are read when its reader collects.

kwire.metrics.instrument(producer, meter=opentelemetry.metrics.get_meter("my.application"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kwire.cluster import Distribution
from kwire.metrics.table import SERIES, Series, Source, named

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_PREFIX = "kwire.producer."
_UNITS = {"seconds": "s", "bytes": "By", "": "1"}


def instrument(*producers: Source, meter: Meter) -> None:
    """Make an instrument for every series. The attributes are the labels that Prometheus shows.

    OpenTelemetry has no observable histogram: two counters take its place, `..._sum` and `..._count`.
    """
    for series in SERIES:
        unit = _UNITS[series.unit]
        if series.kind == "gauge":
            meter.create_observable_gauge(
                _PREFIX + series.name, [_callback(producers, series, _number)], unit, series.help
            )
        elif series.kind == "counter":
            meter.create_observable_counter(
                _PREFIX + series.name, [_callback(producers, series, _number)], unit, series.help
            )
        else:
            for suffix, read, of in (("_sum", _sum, unit), ("_count", _count, "1")):
                meter.create_observable_counter(
                    _PREFIX + series.name + suffix, [_callback(producers, series, read)], of, series.help
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
