"""Metrics in OpenTelemetry's format, as brokers take them: the protobuf message `MetricsData` of OTLP 1.

Only what a client pushes is here: gauges, and sums that only grow, of one number each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import pack
from typing import NamedTuple

from kwire.wire.varint import encode_uvarint as _varint

_DELTA, _CUMULATIVE = 1, 2
_SCOPE = "kwire"


class Sample(NamedTuple):
    """One number to push. `is_sum`: it only grows, or is what was added since the last push; else it is a gauge."""

    name: str
    value: float
    is_sum: bool = False
    labels: Mapping[str, str] = {}


def encode_metrics(
    samples: Iterable[Sample], resource: Mapping[str, str], *, since_ms: int, now_ms: int, is_delta: bool
) -> bytes:
    """Return a `MetricsData` with these samples of one client, which `resource` describes.

    Times are milliseconds since 1970: `since_ms` is when counting began or, with `is_delta`, when the last push was.
    """
    times = _fixed(2, since_ms * 1_000_000) + _fixed(3, now_ms * 1_000_000)
    metrics = [_field(2, _metric(sample, times, is_delta=is_delta)) for sample in samples]
    scope = _field(1, _text(1, _SCOPE))
    described = b"".join(_field(1, _key_value(name, value)) for name, value in resource.items())
    return _field(1, _field(1, described) + _field(2, scope + b"".join(metrics)))


def _metric(sample: Sample, times: bytes, *, is_delta: bool) -> bytes:
    labels = b"".join(_field(7, _key_value(name, value)) for name, value in sample.labels.items())
    point = _field(1, times + b"\x21" + pack("<d", sample.value) + labels)  # 4: as_double
    if not sample.is_sum:
        return _text(1, sample.name) + _field(5, point)
    temporality = b"\x10" + _varint(_DELTA if is_delta else _CUMULATIVE)
    return _text(1, sample.name) + _field(7, point + temporality + b"\x18\x01")  # 3: is_monotonic


def _key_value(name: str, value: str) -> bytes:
    return _text(1, name) + _field(2, _text(1, value))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    """Return a field of bytes: text, or a message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fixed(number: int, value: int) -> bytes:
    """Return a field of type fixed64."""
    return _varint(number << 3 | 1) + pack("<Q", value)
