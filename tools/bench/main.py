"""Read the arguments of `tools/bench/run`, run the bench, and show its results.

The exit code is 0 only if every contestant completed its task.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import (
    codec_speed,
    groups,
    latency,
    memory,
    protocol,
    queues,
    quoted,
    records,
    report,
    spark_speed,
    throughput,
)
from bench.contest import Result, Tell
from bench.parts import add_parts, run_parts
from bench.plot import write_svg
from bench.report import Column, ratio_columns
from bench.stand import Stand

BOTH = ("kwire C", "kwire Python")


class Bench(NamedTuple):
    """Name the function of a bench, the columns of its table, and the measure of its plot."""

    run: Callable[[argparse.Namespace, Stand, Tell], Iterator[Result]]
    columns: Sequence[Column]
    plotted: tuple[str, str]
    help: str
    records: int
    rounds: int = 5
    warmup: int = 20_000


def _speeds(ours: Sequence[str]) -> list[Column]:
    return [
        Column("us CPU\na record", "us_cpu"),
        *ratio_columns("per_cpu", "records a CPU-second", ours),
        Column("records\na second", "per_second"),
        *ratio_columns("per_second", "records a second", [name for name in ours if name != "kwire Python"]),
    ]


_PER_CPU = ("per_cpu", "records per second of the client's processor")
_SPARK = [*_speeds(["kwire", "nothing"]), Column("MiB, largest\nPython worker", "worker_mib")]
_BULK = ("kwire C, send_many", "kwire C, send_arrow", "kwire C, poll_batch", "kwire C, poll_arrow")
_LATENCIES = [
    *(Column(f"p{percent} ms", f"p{percent}_ms") for percent in (50, 90, 99)),
    *(
        column
        for percent in (50, 99)
        for column in ratio_columns(f"p{percent}_ms", f"p{percent}", BOTH[:1], is_less_better=True)
    ),
    Column("us CPU\na record", "us_cpu"),
]
_MEMORY = [
    Column("bytes a\nqueued record", "bytes_per_record"),
    *ratio_columns("bytes_per_record", "bytes", BOTH, is_less_better=True),
    Column("records\nqueued", "records"),
    Column("MB at\nthe peak", "peak_mb"),
]


def _bulk(options: argparse.Namespace, stand: Stand, tell: Tell) -> Iterator[Result]:
    if options.consume:
        return throughput.consume(options, stand, tell, "bulk-consume")
    return throughput.produce(options, stand, tell, "bulk")


_CODECS = [
    Column("MB a\nCPU-second", "mb_s"),
    *ratio_columns("mb_s", "MB a CPU-second", ["kwire"]),
    Column("bytes\nof the result", "size"),
]

BENCHES = {
    "produce": Bench(
        lambda options, stand, tell: throughput.produce(options, stand, tell, "produce"),
        _speeds(BOTH), _PER_CPU, "one record at a time, with a delivery report for each", 500_000,
    ),
    "consume": Bench(
        lambda options, stand, tell: throughput.consume(options, stand, tell, "consume"),
        _speeds(BOTH), _PER_CPU, "record by record, each value read", 500_000,
    ),
    "bulk": Bench(_bulk, _speeds(_BULK), _PER_CPU, "many records in a call; with --consume, columns out", 1_000_000),
    "latency": Bench(
        latency.latency, _LATENCIES, ("p99_ms", "ms, 99th percentile"), "an acknowledged send at linger 0", 400
    ),
    "memory": Bench(
        memory.memory, _MEMORY, ("bytes_per_record", "bytes for each queued record"),
        "queued records while the broker does not answer", 200_000, 3,
    ),
    "spark": Bench(
        spark_speed.spark, _SPARK, _PER_CPU,
        "the PySpark data source against Spark's own connector", 10_000_000, 3, 1_000_000,
    ),
}  # fmt: skip


_FILES = "of that broker (default: where temporary files are); in memory, as /dev/shm, its disk is not measured too"


def _numbers(text: str) -> list[int]:
    found = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give numbers from 1 on, such as 100,1000")
    return found


def _words(text: str) -> list[str]:
    return text.split(",")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tools/bench/run", description="Benchmarks against named peers, in one run.")
    verbs = top.add_subparsers(required=True, metavar="BENCH", dest="bench")
    for name, bench in BENCHES.items():
        one = verbs.add_parser(name, help=bench.help, description=bench.help)
        one.add_argument("--bootstrap", help="an existing cluster (default: start one broker)")
        one.add_argument("--files", type=Path, metavar="FOLDER", help=_FILES)
        one.add_argument("--rounds", type=int, default=bench.rounds, help=f"default: {bench.rounds}")
        one.add_argument("--records", type=int, default=bench.records, help=f"default: {bench.records:,}")
        warm = "records before the clock starts"
        one.add_argument("--warmup", type=int, default=bench.warmup, help=f"{warm} (default: {bench.warmup:,})")
        one.add_argument("--sizes", type=_numbers, default=[100], help="bytes of a value, such as 100,1000")
        one.add_argument("--compression", type=_words, default=["none"], help="such as none,lz4")
        one.add_argument("--partitions", type=_numbers, default=[4], help="such as 1,4,1000 (default: 4)")
        one.add_argument("--keys", type=int, default=0, help="number of different keys (default: none)")
        one.add_argument("--only", type=_words, help="only the contestants whose names begin so")
        _outputs(one)
        if name == "bulk":
            one.add_argument("--consume", action="store_true", help="read in bulk instead")
        if name == "spark":
            ways = spark_speed.WAYS
            one.add_argument(
                "--way",
                nargs=1,
                choices=[*ways, spark_speed.BATCHES, spark_speed.VALUES],
                default=ways,
                help="only this one (default: write and read); batches: exactly once against at least once; values: "
                "read the column value alone",
            )
    one = verbs.add_parser("codecs", help="gzip, snappy, lz4, zstd: in one process, without a broker")
    one.add_argument("--rounds", type=int, default=7, help="default: 7")
    one.add_argument("--bytes", type=int, default=100_000, help="size of the data to compress (default: 100,000)")
    one.add_argument("--sizes", type=_numbers, default=[100], help="bytes of a value, such as 100,1000")
    _outputs(one)
    one = verbs.add_parser("protocol", help="messages: kwire, kafka-python, kio; without a broker")
    protocol.add_arguments(one)
    one = verbs.add_parser("records", help="record batches: kwire, kafka-python; without a broker")
    records.add_arguments(one)
    one = verbs.add_parser("groups", help="consumers in groups: reads, rebalances, parallel work, idle members, shares")
    one.add_argument("--bootstrap", help="an existing cluster (default: start brokers)")
    one.add_argument("--files", type=Path, metavar="FOLDER", help=_FILES)
    one.add_argument("--rounds", type=int, help="default: by part, 2 to 5")
    one.add_argument(
        "--records", type=int, default=4_000_000, help="that subscribed consumers read (default: 4,000,000)"
    )
    one.add_argument("--only", type=_words, help="only the contestants whose names begin so")
    one.add_argument("--json", type=Path, help="write every sample to this file")
    add_parts(one, groups.PARTS)
    one = verbs.add_parser("queue", help="queues: consumers, handlers, producers, latency, memory, many queues, shares")
    one.add_argument("--bootstrap", help="an existing cluster (default: start one broker)")
    one.add_argument("--files", type=Path, metavar="FOLDER", help=_FILES)
    one.add_argument("--rounds", type=int, default=3, help="default: 3")
    one.add_argument("--records", type=int, default=100_000, help="default: 100,000")
    one.add_argument("--warmup", type=int, default=5_000, help="messages before the clock starts (default: 5,000)")
    one.add_argument("--sizes", type=_numbers, default=[256, 1_024, 8_192], help="default: 256,1024,8192")
    one.add_argument("--senders", type=_numbers, default=[1, 25, 100, 250], help="default: 1,25,100,250 threads")
    one.add_argument("--only", type=_words, help="only the contestants whose names begin so")
    one.add_argument("--json", type=Path, help="write every sample to this file")
    add_parts(one, queues.PARTS)
    verbs.add_parser("settings", help="the settings of every contestant, with reasons")
    verbs.add_parser("quote", help="write the tables of README.md and docs/speed.md from docs/bench/")
    return top


def _outputs(one: argparse.ArgumentParser) -> None:
    one.add_argument("--json", type=Path, help="write every sample to this file")
    one.add_argument("--svg", type=Path, help="draw the medians into this file")


def run(options: argparse.Namespace, command: Sequence[str], tell: Tell) -> list[Result]:
    if options.bench == "codecs":
        found = codec_speed.compression(options, tell)
        return show(found, options, report.circumstances("no broker", command), _CODECS, ("mb_s", "MB a CPU-second"))
    parts = {"groups": groups.PARTS, "queue": queues.PARTS}
    if options.bench in parts:
        with Stand(options.bootstrap, options.files) as stand:
            about = report.circumstances(stand.broker, command)
            return show_each(run_parts(parts[options.bench], options, stand, tell), options, about, None)
    bench = BENCHES[options.bench]
    with Stand(options.bootstrap, options.files) as stand:
        about = report.circumstances(stand.broker, command)
        return show(bench.run(options, stand, tell), options, about, bench.columns, bench.plotted)


def show(
    found: Iterator[Result],
    options: argparse.Namespace,
    about: Mapping[str, Any],
    columns: Sequence[Column],
    plotted: tuple[str, str],
) -> list[Result]:
    """Show each result when it is complete, and write the results so far to the files."""
    return show_each(((result, columns) for result in found), options, about, plotted)


def show_each(
    found: Iterator[tuple[Result, Sequence[Column]]],
    options: argparse.Namespace,
    about: Mapping[str, Any],
    plotted: tuple[str, str] | None,
) -> list[Result]:
    """Show results whose tables have different columns."""
    results: list[Result] = []
    print(f"{about['broker']}; {about['machine']}, load {about['load']:.1f}; Python {about['python']}", flush=True)
    for result, columns in found:
        report.print_result(result, columns)
        results.append(result)
        if options.json:
            report.write_json(options.json, about, results)
        if plotted is not None and options.svg:
            write_svg(options.svg, results, *plotted)
    return results


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    others: dict[str, Callable[[], None]] = {
        "settings": report.print_settings,
        "quote": quoted.write,
        "protocol": partial(protocol.run, options),
        "records": partial(records.run, options),
    }
    if options.bench in others:
        others[options.bench]()
        return 0
    results = run(options, arguments, tell)
    return 1 if any(result.failures for result in results) else 0


def tell(words: str) -> None:
    """Print the progress on a line that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\033[K{words[:100]}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
