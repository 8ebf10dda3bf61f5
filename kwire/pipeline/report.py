"""Captures to one HTML page: latency and errors for each client and API, and how they went over time.

`measure` reads one capture into a `Traffic` of bounded size; these merge, so any number of files are read in parallel:
by processes of this machine (`measure_files`), or by Spark's tasks (`measure_on_spark`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, BinaryIO

from kwire.capture import Exchange, Remark, read_exchanges
from kwire.capture.summary import is_routine
from kwire.lint.histogram import Histogram

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of clients and APIs together; what is beyond them counts as one. A page with more is not read.
KEYS_MAX = 10_000
PROBLEMS_MAX = 1_000
OTHERS = ("(others)", "")
BUCKET_NS = 1_000_000_000
# When there are more seconds with traffic, neighbours become one.
BUCKETS_MAX = 3_600
_BARS_MAX = 240


@dataclass(slots=True)
class Measured:
    """Requests of one client to one API. `errors` counts exchanges by the name of their first error code."""

    n: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    unanswered: int = 0
    latency_ms: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)

    def merge(self, other: Measured) -> None:
        self.n += other.n
        self.request_bytes += other.request_bytes
        self.response_bytes += other.response_bytes
        self.unanswered += other.unanswered
        self.latency_ms.merge(other.latency_ms)
        self.errors.update(other.errors)


@dataclass(slots=True)
class Traffic:
    """What captures hold: counts by (client, API), and by time: (requests, errors) of each bucket.

    A bucket is `width_ns` long. `problems` are remarks on what could not be read, with the file.
    """

    rows: dict[tuple[str, str], Measured] = field(default_factory=dict)
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    width_ns: int = BUCKET_NS
    files: int = 0
    connections: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    problems: list[str] = field(default_factory=list)

    def add(self, exchange: Exchange) -> None:
        one = self._row((_client(exchange), exchange.api_name))
        one.n += 1
        one.request_bytes += exchange.request_bytes
        one.response_bytes += exchange.response_bytes
        if exchange.latency_ms is not None:
            one.latency_ms.add(exchange.latency_ms)
        elif exchange.response is None and exchange.pair.frame.expects_response:
            one.unanswered += 1
        is_error = bool(exchange.errors) and not is_routine(exchange)
        if exchange.errors:
            one.errors[exchange.errors[0].name] += 1
        self._at(exchange.at_ns, 1, int(is_error))
        self.first_ns = exchange.at_ns if self.first_ns is None else min(self.first_ns, exchange.at_ns)
        self.last_ns = exchange.at_ns if self.last_ns is None else max(self.last_ns, exchange.at_ns)

    def merge(self, other: Traffic) -> None:
        """Add what other captures hold."""
        for key, one in other.rows.items():
            self._row(key).merge(one)
        while self.width_ns < other.width_ns:
            self._widen()
        for begin, (n, errors) in other.buckets.items():
            self._at(begin, n, errors)
        self.files += other.files
        self.connections += other.connections
        self.problems += other.problems[: PROBLEMS_MAX - len(self.problems)]
        times = [at for one in (self, other) for at in (one.first_ns, one.last_ns) if at is not None]
        if times:
            self.first_ns, self.last_ns = min(times), max(times)

    @property
    def requests(self) -> int:
        return sum(one.n for one in self.rows.values())

    def _row(self, key: tuple[str, str]) -> Measured:
        if key not in self.rows and len(self.rows) >= KEYS_MAX:
            key = OTHERS
        return self.rows.setdefault(key, Measured())

    def _at(self, at_ns: int, n: int, errors: int) -> None:
        begin = at_ns // self.width_ns * self.width_ns
        had = self.buckets.get(begin, (0, 0))
        self.buckets[begin] = had[0] + n, had[1] + errors
        while len(self.buckets) > BUCKETS_MAX:
            self._widen()

    def _widen(self) -> None:
        self.width_ns *= 2
        buckets, self.buckets = self.buckets, {}
        for begin, (n, errors) in buckets.items():
            self._at(begin, n, errors)


def _client(exchange: Exchange) -> str:
    names = (exchange.client_id or "", f"({exchange.software})" if exchange.software else "")
    return " ".join(filter(None, names)) or exchange.connection.client.rpartition(":")[0]


def measure(opened: Callable[[], BinaryIO], name: str) -> Traffic:
    """Read one capture."""
    traffic = Traffic(files=1)
    connections = set()

    def note(remark: Remark) -> None:
        if remark.is_problem and len(traffic.problems) < PROBLEMS_MAX:
            traffic.problems.append(f"{name}: {remark}")

    with opened() as file:
        for exchange in read_exchanges(file, on_remark=note):
            traffic.add(exchange)
            connections.add(exchange.connection.number)
    traffic.connections = len(connections)
    return traffic


def measure_file(path: str) -> Traffic:
    return measure(lambda: open(path, "rb", 1 << 20), path)


def measure_files(paths: Iterable[str], processes: int = 1) -> Traffic:
    """Read captures, several at once if there are several processes."""
    found = list(paths)
    total = Traffic()
    if processes <= 1 or len(found) <= 1:
        for path in found:
            total.merge(measure_file(path))
        return total
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(min(processes, len(found))) as pool:
        for one in pool.map(measure_file, found):
            total.merge(one)
    return total


def measure_on_spark(spark: SparkSession, paths: list[str]) -> Traffic:
    """Read captures in Spark's tasks, a file each. The paths are those of `format("kwire.capture")`."""
    from kwire.pipeline.session import map_in_tasks
    from kwire.spark.capture_source import list_captures

    total = Traffic()
    for one in map_in_tasks(spark, _measure_anywhere, [file.path for file in list_captures(paths)]):
        total.merge(one)
    return total


def _measure_anywhere(path: str) -> Traffic:
    from kwire.spark.files import open_file

    return measure(lambda: open_file(path), path)


# -- the page

_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;width:100%;margin:1em 0}th,td{padding:.25em .6em;text-align:right;white-space:nowrap}
th{border-bottom:2px solid #888}td{border-bottom:1px solid #ddd}th:first-child,td:first-child,.text{text-align:left}
td.text{white-space:normal;overflow-wrap:anywhere}.bad{color:#b00}svg{width:100%;height:8em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td{border-color:#333}.bad{color:#f77}}
"""
_HEADINGS = ("requests", "req/s", "in", "out", "p50 ms", "p95 ms", "p99 ms", "max ms", "unanswered", "errors")


def to_html(traffic: Traffic, title: str = "Kafka traffic") -> str:
    """Return one page that needs nothing else: no script, no font, no other file."""
    seconds = max(((traffic.last_ns or 0) - (traffic.first_ns or 0)) / 1e9, 0.001)
    errors = sum(sum(one.errors.values()) for one in traffic.rows.values())
    facts = [
        f"{traffic.requests:,} requests", f"{traffic.connections:,} connections", f"{traffic.files:,} files",
        f"{errors:,} responses with errors",
    ]  # fmt: skip
    if traffic.first_ns is not None and traffic.last_ns is not None:
        facts.append(f"{_time(traffic.first_ns)} to {_time(traffic.last_ns)} UTC")
    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(', '.join(facts))}</p>",
        _timeline(traffic),
        "<h2>By API</h2>", _table(("API",), _sums(traffic, 1), seconds),
        "<h2>By client</h2>", _table(("client",), _sums(traffic, 0), seconds),
        "<h2>By client and API</h2>", _table(("client", "API"), traffic.rows, seconds),
    ]  # fmt: skip
    if traffic.problems:
        items = "".join(f"<li>{escape(text)}</li>" for text in traffic.problems)
        parts.append(f'<h2 class="bad">Not read</h2><ul>{items}</ul>')
    return "\n".join([*parts, "</body></html>\n"])


def _table(names: tuple[str, ...], rows: Mapping[Any, Measured], seconds: float) -> str:
    found = sorted(rows.items(), key=lambda item: (-item[1].n, item[0]))
    head = "".join(f'<th class="text">{name}</th>' for name in names) + "".join(f"<th>{h}</th>" for h in _HEADINGS)
    lines = []
    for key, one in found:
        cells = "".join(f'<td class="text">{escape(part)}</td>' for part in key)
        errors = ", ".join(f"{count:,} {name}" for name, count in one.errors.most_common())
        numbers = [
            f"{one.n:,}", f"{one.n / seconds:,.1f}", _size(one.request_bytes), _size(one.response_bytes),
            *(f"{one.latency_ms.quantile(share):,.2f}" for share in (0.5, 0.95, 0.99)), f"{one.latency_ms.max:,.2f}",
            f"{one.unanswered:,}" if one.unanswered else "",
        ]  # fmt: skip
        cells += "".join(f"<td>{number}</td>" for number in numbers)
        lines.append(f'<tr>{cells}<td class="text bad">{escape(errors)}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _sums(traffic: Traffic, part: int) -> dict[tuple[str, ...], Measured]:
    """Return the sums by client (0) or by API (1)."""
    found: dict[tuple[str, ...], Measured] = {}
    for key, one in traffic.rows.items():
        found.setdefault((key[part],), Measured()).merge(one)
    return found


def _timeline(traffic: Traffic) -> str:
    """Return requests, and errors among them, over time as bars."""
    if traffic.first_ns is None or traffic.last_ns is None or not traffic.buckets:
        return "<p>No Kafka exchange is in the captures.</p>"
    begin = min(traffic.buckets)
    step = traffic.width_ns
    while (max(traffic.buckets) - begin) // step >= _BARS_MAX:
        step *= 2
    bars: dict[int, tuple[int, int]] = {}
    for at, (n, errors) in traffic.buckets.items():
        had = bars.get((at - begin) // step, (0, 0))
        bars[(at - begin) // step] = had[0] + n, had[1] + errors
    highest = max(n for n, _ in bars.values())
    width = max(bars) + 1
    drawn = []
    for index, (n, errors) in sorted(bars.items()):
        text = escape(f"{_time(begin + index * step)}: {n:,} requests, {errors:,} with errors")
        tall, bad = 100 * n / highest, 100 * errors / highest
        drawn.append(
            f'<g><title>{text}</title><rect x="{index}" y="{100 - tall:.2f}" width=".9" height="{tall:.2f}"'
            f' fill="#58a"/><rect x="{index}" y="{100 - bad:.2f}" width=".9" height="{bad:.2f}" fill="#d33"/></g>'
        )
    text = f"Requests, and in red those with errors, in steps of {step / 1e9:g} s; the highest is {highest:,}."
    return f'<svg viewBox="0 0 {width} 100" preserveAspectRatio="none">{"".join(drawn)}</svg><p>{text}</p>'


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _size(size: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} B"
