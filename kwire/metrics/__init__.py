"""Exporters of the metrics of clients, queues and trackers for Prometheus and OpenTelemetry.

    table       the name, kind and help text of every series
    prometheus  a Collector, and the text format that Prometheus scrapes   (extra `metrics`)
    otel        instruments of an OpenTelemetry Meter                      (extra `otel`)

Nothing is counted here, and no thread runs: a scrape reads the producers' metrics.

Imports: cluster, consumer, producer, queue, share.
"""

from kwire.metrics.otel import instrument
from kwire.metrics.prometheus import Collector, prometheus_text

__all__ = ["Collector", "instrument", "prometheus_text"]
