"""Counts for monitoring systems: what `producer.metrics()` tells, as Prometheus or OpenTelemetry want to read it.

    table       the names, kinds and meanings of all series
    prometheus  a Collector, and the text that Prometheus scrapes     (extra `metrics`)
    otel        instruments of an OpenTelemetry Meter                 (extra `otel`)

Nothing is counted here and nothing runs by itself: a scrape asks the producers.

Imports: cluster, producer.
"""

from kwire.metrics.otel import instrument
from kwire.metrics.prometheus import Collector, prometheus_text

__all__ = ["Collector", "instrument", "prometheus_text"]
