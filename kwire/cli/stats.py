"""`kwire stats`: rates, sizes, latencies and errors of a capture."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kwire.capture.times import utc_text_of_ns
from kwire.cli.arguments import key_log_option
from kwire.cli.capture_input import AcceptedExchanges
from kwire.cli.error_report import ExitCode
from kwire.cli.finite_range import SECONDS_MAX
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from kwire.capture import KeyLog
    from kwire.lint.statistics import Row, Statistics

_BY = ("api", "client", "topic", "connection", "broker")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BUFFER_BYTES = 256 * 1024
_RATE_SECONDS_MIN = 0.001
_RIGHT = ["n", "req/s", "in", "out", "p50 ms", "p95 ms", "p99 ms", "max ms", "rec/req", "ratio", "unanswered"]


def parse_seconds(text: str) -> float:
    """Return the seconds that "10s", "500ms", "2m" or "5" mean. Raises UsageError."""
    number = text.rstrip("mhs")
    try:
        seconds = float(number) * _UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 1e-9 <= seconds <= SECONDS_MAX:
        raise click.UsageError(f"{text!r} is no time: write 10s, 500ms or 2m")
    return seconds


@click.command()
@click.argument("source", metavar="FILE|-", type=click.File("rb"))
@click.option("--by", type=click.Choice(_BY), default="api", show_default=True, help="What a row is.")
@click.option("--every", metavar="TIME", help="A table for each such time, such as 1s or 500ms. Default: one for all.")
@click.option("--port", "ports", type=int, multiple=True, help="Only connections to brokers on this port.")
@key_log_option
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one for each row.")
@output_options
def command(
    source: BinaryIO, by: Any, every: str | None, ports: tuple[int, ...], key_log: KeyLog | None, as_json: bool,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Count a capture: rates, sizes, latencies, errors, records.

    A row has the number of requests, requests per second, bytes of requests and responses, quantiles of the latency,
    records per Produce or Fetch, how many times smaller compression made them, error codes and versions. The memory
    does not depend on the size of the capture.

    \b
        kwire stats traffic.pcapng --by client
        tcpdump -i any -U -w - port 9092 | kwire stats - --every 10s
    """
    from kwire.capture import PrefixedFile
    from kwire.lint.statistics import spans

    seconds = None if every is None else parse_seconds(every)
    # Of a live capture it takes what there is, and does not wait for a full buffer.
    buffered: Any = io.BufferedReader(PrefixedFile(b"", source), _BUFFER_BYTES)
    exchanges = AcceptedExchanges(buffered, None, output, ports=ports, key_log=key_log)
    for one in spans(exchanges, by, seconds):
        show_statistics(one, seconds, output, as_json=as_json)
        sys.stdout.flush()
    return exchanges.status


def show_statistics(one: Statistics, seconds: float | None, output: Output, *, as_json: bool = False) -> None:
    """Print a table, or JSON lines; `seconds` is the length of the span that it is of."""
    if as_json or not output.is_table:
        for line in _lines(one, seconds):
            output.json(line)
        return
    if seconds is not None:
        output.text(utc_text_of_ns(one.begin_ns)[11 : 19 if seconds % 1 == 0 else 23])
    output.table([one.by, *_RIGHT, "errors", "versions"], _cells(one, seconds), right=_RIGHT)


def _rate(row: Row, one: Statistics, every: float | None) -> float | None:
    """Return requests per second; None if all came at once, so that there is no time to divide by."""
    seconds = every or one.seconds
    return row.n / seconds if seconds >= _RATE_SECONDS_MIN else None


def _cells(one: Statistics, every: float | None) -> Iterator[list[object]]:
    for row in one.sorted_rows():
        rate = _rate(row, one, every)
        yield [
            row.key, row.n, "" if rate is None else f"{rate:.1f}", size_text(row.request_bytes),
            size_text(row.response_bytes), *(f"{row.latency.quantile(share):.2f}" for share in (0.5, 0.95, 0.99)),
            f"{row.latency.max:.2f}",
            "" if row.records_a_request is None else f"{row.records_a_request:.1f}",
            "" if row.compression is None else f"{row.compression:.1f}",
            row.unanswered or "", errors_text(row.errors), _versions(row.versions),
        ]  # fmt: skip


def _lines(one: Statistics, every: float | None) -> Iterator[dict[str, Any]]:
    for row in one.sorted_rows():
        rate = _rate(row, one, every)
        yield {
            "at_ms": one.begin_ns // 1_000_000, one.by: row.key, "n": row.n,
            "requests_per_second": None if rate is None else round(rate, 3), "request_bytes": row.request_bytes,
            "response_bytes": row.response_bytes, "unanswered": row.unanswered,
            "latency_ms": {
                "p50": round(row.latency.quantile(0.5), 3), "p95": round(row.latency.quantile(0.95), 3),
                "p99": round(row.latency.quantile(0.99), 3), "max": round(row.latency.max, 3),
            },
            "records": row.records, "records_per_request": row.records_a_request, "compression": row.compression,
            "errors": dict(row.errors), "versions": sorted(row.versions),
        }  # fmt: skip


def size_text(size: int) -> str:
    """Return a number of bytes with a unit: 512 B, 1.4 kB, 20.0 MB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def errors_text(errors: Counter[str]) -> str:
    """Return counts of errors as text, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in errors.most_common())


def _versions(versions: set[int]) -> str:
    return ", ".join(map(str, sorted(versions)))
