"""Make the two tables that README.md and docs/speed.md quote from the outputs in docs/bench/, one for each bench.

`tools/bench/run quote` writes them into the documents, and a test fails if a document differs. The outputs come from
the commands that the tables show, run with `--json docs/bench/NAME.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest import Result
from bench.task import Sample

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "bench"


class Pair(NamedTuple):
    """Pair a contestant of kwire with one of confluent-kafka, with their labels in the table and the target ratio."""

    bench: str
    ours: str
    theirs: str
    way: str
    against: str
    aim: str = ""


_BATCH = "`produce_batch`, no reports"

PAIRS = [
    Pair("produce", "kwire C", "confluent-kafka", "`send`, a report for each record", "`produce`", "5x, 2x"),
    Pair("bulk", "kwire C, send_many", "confluent-kafka, produce", "`send_many`", "`produce`", "20x"),
    Pair("bulk", "kwire C, send_arrow", "confluent-kafka, produce", "`send_arrow`", "`produce`", "20x"),
    Pair("bulk", "kwire C, send_many", "confluent-kafka, produce_batch", "`send_many`", _BATCH),
    Pair("bulk", "kwire C, send_arrow", "confluent-kafka, produce_batch", "`send_arrow`", _BATCH),
    Pair("consume", "kwire C", "confluent-kafka", "`poll(500)`, each value read", "`consume(500)`", "4x"),
    Pair("consume", "kwire C, iteration", "confluent-kafka, poll", "`for record in consumer`", "`poll`"),
    Pair("bulk-consume", "kwire C, poll_batch", "confluent-kafka", "`poll_batch`", "`consume(500)`", "15x"),
    Pair("bulk-consume", "kwire C, poll_arrow", "confluent-kafka", "`poll_arrow`", "`consume(500)`", "15x"),
]


class Kept(NamedTuple):
    command: str
    result: Result

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Read the first case of an output."""
        output: dict[str, Any] = json.loads(path.read_text())
        case = output["cases"][0]
        samples = {name: [Sample(**sample) for sample in samples] for name, samples in case["samples"].items()}
        return cls(" ".join(_of_the_bench(output["command"])), Result(case["title"], samples))

    def median(self, name: str, measure: str) -> str:
        return f"{self.result.spread(name, measure).median:.2f}"

    def ratio(self, pair: Pair, measure: str) -> str:
        spread = self.result.ratio(pair.ours, pair.theirs, measure)
        if spread is None:
            raise ValueError(f"{pair.ours} or {pair.theirs} did not finish {self.command}")
        return f"{spread.median:.1f}x"


def _of_the_bench(command: list[str]) -> Iterator[str]:
    """Leave out the options that name the output files."""
    words = iter(command)
    for word in words:
        if word in ("--json", "--svg"):
            next(words)
        else:
            yield word


def kept(folder: Path = KEPT) -> dict[str, Kept]:
    return {bench: Kept.read(folder / f"{bench}.json") for bench in dict.fromkeys(pair.bench for pair in PAIRS)}


def for_readme(outputs: Mapping[str, Kept]) -> list[str]:
    table, before = ["| kwire | against | has | command |", "|---|---|---|---|"], ""
    for pair in PAIRS:
        output = outputs[pair.bench]
        command = "the same" if output.command == before else f"`{output.command}`"
        table.append(f"| {pair.way} | {pair.against} | {output.ratio(pair, 'per_cpu')} | {command} |")
        before = output.command
    return table


def for_speed(outputs: Mapping[str, Kept]) -> list[str]:
    heads = ["kwire", "against", "kwire, us", "theirs, us", "by CPU", "by the clock", "aim"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for pair in PAIRS:
        output = outputs[pair.bench]
        ours, theirs = (output.median(name, "us_cpu") for name in (pair.ours, pair.theirs))
        by_cpu, by_clock = (output.ratio(pair, measure) for measure in ("per_cpu", "per_second"))
        table.append(f"| {pair.way} | {pair.against} | {ours} | {theirs} | {by_cpu} | {by_clock} | {pair.aim} |")
    return table


QUOTES = {"README.md": ("## Speed", for_readme), "docs/speed.md": ("## Against confluent-kafka", for_speed)}


def quoting(text: str, heading: str, table: list[str]) -> str:
    """Return the text with `table` in place of the first table after a line that begins with the heading."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(heading))
    first = next(number for number in range(at, len(lines)) if lines[number].startswith("|"))
    last = next(number for number in range(first, len(lines)) if not lines[number].startswith("|"))
    return "\n".join([*lines[:first], *table, *lines[last:]]) + "\n"


def write() -> None:
    """Write the tables into the documents."""
    outputs = kept()
    for name, (heading, table) in QUOTES.items():
        document = ROOT / name
        document.write_text(quoting(document.read_text(), heading, table(outputs)))
        print(f"{name}: {len(PAIRS)} rows")
