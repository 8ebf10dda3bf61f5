"""Read gigabytes of captures with Spark, and a tenth of them with tshark: megabytes a second of each.

tools/capture-speed [CAPTURE...] [--gigabytes N]

Without captures it makes those of tools/tshark-table: seven clients that use a real broker. They are repeated by links
until they have N gigabytes. Spark runs `format("kwire.capture")` with all columns, a task a file, one on each
processor; so does tshark, which shows all fields of Kafka's frames as JSON. Then the rows of each capture are compared
with `kwire decode -f json`, and so is how many there are of each repetition. The exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from checks.tshark_table import count_by_kwire, record, tshark_command
from kwire.pipeline.session import get_session

# Columns that `kwire decode` prints under the same names.
_COMPARED = ("connection", "client", "broker", "api", "version", "correlation_id", "latency_ms", "summary", "errors")


class Speed(NamedTuple):
    """How long it took to read so many bytes."""

    size_bytes: int
    seconds: float

    def __str__(self) -> str:
        megabytes = self.size_bytes / 1e6
        return f"{megabytes:,.0f} MB in {self.seconds:,.1f} s: {megabytes / self.seconds:,.1f} MB/s"


def repeat(captures: Sequence[Path], folder: Path, size_bytes: int) -> dict[Path, Path]:
    """Return links to the captures, in turns, that have so many bytes together, or a little more; each with its own."""
    links: dict[Path, Path] = {}
    left = size_bytes
    while left > 0:
        for capture in captures:
            link = folder / f"{len(links):06}-{capture.name}"
            os.link(capture, link)
            links[link] = capture
            left -= capture.stat().st_size
    return links


def read_by_spark(spark: Any, folder: Path) -> tuple[Speed, dict[str, int]]:
    """Read all columns of all files; return the speed, and how many rows each file has."""
    from pyspark.sql.functions import col, count, length
    from pyspark.sql.functions import sum as total

    begin = time.monotonic()
    frame = spark.read.format("kwire.capture").load(str(folder))
    sizes = (total(length(col(name))) for name in ("request", "response", "summary"))
    found = frame.groupBy("file").agg(count("*").alias("rows"), *sizes).collect()
    seconds = time.monotonic() - begin
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return Speed(size_bytes, seconds), {row["file"]: row["rows"] for row in found}


def read_by_tshark(captures: Sequence[Path], ports: Mapping[Path, set[int]]) -> Speed:
    """Read the captures with as many tsharks at once as there are processors."""

    def run(capture: Path) -> None:
        command = tshark_command(capture, ports[capture], "json", "-J", "kafka")
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    begin = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, captures))
    return Speed(sum(path.stat().st_size for path in captures), time.monotonic() - begin)


def decode(capture: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "kwire", "decode", "-f", "json", str(capture)]
    text = subprocess.run(command, capture_output=True, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def differences(rows: Sequence[Mapping[str, Any]], decoded: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how the rows of a capture differ from what `kwire decode` prints, each kind once."""
    if len(rows) != len(decoded):
        return [f"{len(rows)} rows, and {len(decoded)} lines of kwire decode"]
    found: dict[str, str] = {}
    for number, (row, line) in enumerate(zip(rows, decoded, strict=True)):
        for name in (*_COMPARED, "request", "response"):
            value = row[name]
            if name in ("request", "response") and value is not None:
                value = json.loads(value)
            if value != line[name]:
                found.setdefault(name, f"row {number}, {name}: {value!r:.200}, not {line[name]!r:.200}")
    return list(found.values())


def rows_of(spark: Any, capture: Path) -> list[dict[str, Any]]:
    frame = spark.read.format("kwire.capture").load(str(capture))
    return [row.asDict(recursive=True) for row in frame.collect()]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/capture-speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", nargs="*", type=Path, metavar="CAPTURE", help="pcap or pcapng")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="to be read by Spark (10)")
    parser.add_argument("--records", type=int, default=100_000, help="that each client writes (100,000)")
    options = parser.parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    home = options.captures[0].parent if options.captures else None  # links stay within a file system
    with tempfile.TemporaryDirectory(dir=home) as made:
        captures: list[Path] = options.captures or list(record(Path(made), options.records, console).values())
        folder = Path(made, "repeated")
        folder.mkdir()
        links = repeat(captures, folder, int(options.gigabytes * 1e9))
        return _compare(captures, folder, links, console)


def _compare(captures: Sequence[Path], folder: Path, links: Mapping[Path, Path], console: Console) -> int:
    console.print(f"{len(captures)} captures, {len(links)} links to them")
    ports = {capture: count_by_kwire(capture)[1] for capture in captures}
    tenth = list(links.values())[: max(len(captures), len(links) // 10)]
    console.print(f"tshark: {read_by_tshark(tenth, ports)}")
    spark = get_session("captures", log_level="OFF")
    wrong: list[str] = []
    lines = {}
    for capture in captures:
        decoded = decode(capture)
        lines[capture] = len(decoded)
        wrong += [f"{capture.name}: {one}" for one in differences(rows_of(spark, capture), decoded)]
    speed, counts = read_by_spark(spark, folder)
    spark.stop()
    for link, capture in links.items():
        if counts.get(str(link)) != lines[capture]:
            wrong.append(f"{link.name}: {counts.get(str(link))} rows, not {lines[capture]}")
    console.print(f"Spark: {speed}, {sum(counts.values()):,} exchanges")
    for one in wrong[:20]:
        console.print(one)
    if not wrong:
        console.print("each row is as kwire decode prints it")
    return 1 if wrong else 0
