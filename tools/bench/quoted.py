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


class Line(NamedTuple):
    """One line about groups: a measure of kwire in one case of `docs/bench/groups-PART.json`, and of another client.

    `theirs` is empty for a measure that stands alone. The ratio is above 1 where kwire is better.
    """

    part: str
    case: str
    ours: str
    theirs: str
    measure: str
    unit: str
    what: str
    aim: str = ""
    is_less_better: bool = False


_JOIN, _ONE_MORE = "50 members join at once, ", "1 joins 10 members at once, "
_WORK, _KEYED = "process: 25,600 records", "process: 200,000 records, a key each"
_THOUSAND = "a member that waits for records for 20 s, partitions: 1,000"

LINES = [
    Line("consume", "", "kwire C, classic", "confluent-kafka, classic", "per_cpu", "records/CPU-s",
         "subscribed, classic, `poll(500)`", "4x"),
    Line("consume", "", "kwire C, 848", "confluent-kafka, 848", "per_cpu", "records/CPU-s",
         "subscribed, KIP-848, `poll(500)`", "4x"),
    Line("consume", "", "kwire C, classic", "aiokafka, classic", "per_cpu", "records/CPU-s",
         "subscribed, classic, `poll(500)`"),
    Line("consume", "", "kwire C, classic", "kwire C, assign", "per_second", "records/s",
         "subscribed, classic, against assigned", "0.97x"),
    Line("consume", "", "kwire C, 848", "kwire C, assign", "per_second", "records/s",
         "subscribed, KIP-848, against assigned", "0.97x"),
    Line("consume", "", "kwire C, async iteration, classic", "kwire C, iteration, classic", "per_second", "records/s",
         "`async for` against `for`", "0.6x"),
    Line("rebalance", _JOIN + "classic, 100 partitions", "kwire C", "confluent-kafka", "seconds", "s",
         "50 members start, classic", "1.43x", True),
    Line("rebalance", _JOIN + "classic, 100 partitions, which", "kwire C", "confluent-kafka", "seconds", "s",
         "the same, the broker first waits for 3 s", "1.43x", True),
    Line("rebalance", _JOIN + "848", "kwire C", "confluent-kafka", "seconds", "s",
         "50 members start, KIP-848", "1.43x", True),
    Line("rebalance", _ONE_MORE + "classic", "kwire C", "confluent-kafka", "seconds", "s",
         "one joins ten, classic", "", True),
    Line("rebalance", _ONE_MORE + "848", "kwire C", "confluent-kafka", "seconds", "s",
         "one joins ten, KIP-848", "", True),
    Line("process", _WORK, "kwire C, threads", "", "percent", "% of the ideal",
         "`process`, 10 ms of work, threads", "80"),
    Line("process", _WORK, "kwire C, tasks", "", "percent", "% of the ideal",
         "`process`, 10 ms of work, tasks", "80"),
    Line("process", _KEYED, "kwire C, threads", "", "us_cpu", "us CPU", "`process`, no work, threads", "7"),
    Line("process", _KEYED, "kwire C, tasks", "", "us_cpu", "us CPU", "`process`, no work, tasks", "7"),
    Line("idle", _THOUSAND, "kwire C, classic", "Java, classic", "fetch_bytes_s", "bytes/s",
         "fetches of 1,000 idle partitions, classic", "0.9x", True),
    Line("idle", _THOUSAND, "kwire C, 848", "Java, 848", "fetch_bytes_s", "bytes/s",
         "fetches of 1,000 idle partitions, KIP-848", "0.9x", True),
    Line("idle", _THOUSAND, "kwire C, 848", "", "cpu_percent", "% of a processor", "a member of these", "0.3"),
    Line("share", "", "kwire C, implicit", "Java, implicit", "per_second", "records/s", "share group, implicit"),
    Line("share", "", "kwire C, implicit", "kwire C, plain", "per_second", "records/s",
         "share group against assigned", "0.82x"),
]  # fmt: skip


class Kept(NamedTuple):
    command: str
    result: Result

    @classmethod
    def read(cls, path: Path, case: str = "") -> Kept:
        """Read the first case of an output whose title begins so."""
        output: dict[str, Any] = json.loads(path.read_text())
        found = next(one for one in output["cases"] if one["title"].startswith(case))
        samples = {name: [Sample(**sample) for sample in samples] for name, samples in found["samples"].items()}
        return cls(" ".join(_of_the_bench(output["command"])), Result(found["title"], samples))

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


# Of `LINES`, what the README has, too.
_IN_README = (0, 6, 8)


def for_readme(outputs: Mapping[str, Kept]) -> list[str]:
    table, before = ["| kwire | against | has | command |", "|---|---|---|---|"], ""
    for pair in PAIRS:
        output = outputs[pair.bench]
        command = "the same" if output.command == before else f"`{output.command}`"
        table.append(f"| {pair.way} | {pair.against} | {output.ratio(pair, 'per_cpu')} | {command} |")
        before = output.command
    for line in (LINES[at] for at in _IN_README):
        part = Kept.read(KEPT / f"groups-{line.part}.json", line.case)
        names = (line.theirs, line.ours) if line.is_less_better else (line.ours, line.theirs)
        spread = part.result.ratio(*names, line.measure)
        assert spread is not None
        against = "librdkafka's time" if line.is_less_better else "`consume(500)`"
        ratio = f"{spread.median:.1f}x" + (" as fast" if line.is_less_better else "")
        table.append(f"| {line.what} | {against} | {ratio} | `{part.command}` |")
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


def for_groups(outputs: Mapping[str, Kept]) -> list[str]:
    heads = ["groups", "kwire", "against", "theirs", "ratio", "aim"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for line in LINES:
        result = Kept.read(KEPT / f"groups-{line.part}.json", line.case).result
        ours = f"{_figure(result.spread(line.ours, line.measure).median)} {line.unit}"
        theirs = ratio = ""
        if line.theirs:
            names = (line.theirs, line.ours) if line.is_less_better else (line.ours, line.theirs)
            spread = result.ratio(*names, line.measure)
            if spread is None:
                raise ValueError(f"{line.ours} or {line.theirs} did not finish {result.title}")
            theirs, ratio = _figure(result.spread(line.theirs, line.measure).median), f"{spread.median:.2f}x"
        table.append(f"| {line.what} | {ours} | {line.theirs} | {theirs} | {ratio} | {line.aim} |")
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


QUOTES = [
    ("README.md", "## Speed", for_readme),
    ("docs/speed.md", "## Against confluent-kafka", for_speed),
    ("docs/speed.md", "## Groups", for_groups),
]


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
    for name, heading, table in QUOTES:
        document, lines = ROOT / name, table(outputs)
        document.write_text(quoting(document.read_text(), heading, lines))
        print(f"{name}, {heading[3:]}: {len(lines) - 2} rows")
