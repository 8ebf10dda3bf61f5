"""Run producers and brokers in one thread on virtual time: many seeds, or one seed again.

Without --replay: run seeds of every scenario, or of the named ones, and print a table. A seed with an anomaly runs
again with fewer and fewer faults; the faults that remain are printed with the command that replays them. Exit code 1 on
any anomaly.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from kwire.simulation import (
    GROUP_SCENARIOS,
    PRODUCER_SCENARIOS,
    QUEUE_SCENARIOS,
    SCENARIOS,
    Plan,
    Report,
    plan,
    run,
    shrink,
)

_KINDS = {"all": SCENARIOS, "producers": PRODUCER_SCENARIOS, "groups": GROUP_SCENARIOS, "queue": QUEUE_SCENARIOS}
_SHOWN_MAX = 10  # anomalies of a run
_SHOWN_EVERY = 100  # seeds, where there is no terminal for a running count


class _Task(NamedTuple):
    scenario: str
    seed: int


class _Result(NamedTuple):
    scenario: str
    seed: int
    records: int
    faults: int  # that had something to disturb
    anomalies: int
    kinds: frozenset[str]
    seconds: float  # of CPU time


class _Row:
    """A row of the table."""

    def __init__(self) -> None:
        self.seeds = self.records = self.faults = self.anomalies = 0
        self.seconds = 0.0

    def add(self, result: _Result | _Row) -> None:
        self.seeds += result.seeds if isinstance(result, _Row) else 1
        self.records += result.records
        self.faults += result.faults
        self.anomalies += result.anomalies
        self.seconds += result.seconds


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    # The trace has the failures that the producers log.
    logging.getLogger("kwire").setLevel(logging.CRITICAL)
    if options.list:
        for one in SCENARIOS.values():
            console.print(f"{one.name:12} {one.about}")
        return 0
    if options.replay:
        scenario, seed = options.replay
        return _replay(console, _plan(scenario, int(seed), options.only), shows_trace=options.trace)
    names = options.scenario or list(_KINDS[options.kind])
    if options.until_anomaly:
        return _run_until_anomaly(console, _tasks(names, options.first, options.seeds), options.jobs)
    return _run_many(console, names, options.first, options.seeds, options.jobs)


# Many.


def _run_many(console: Console, names: Sequence[str], first: int, seeds: int, jobs: int) -> int:
    tasks = _tasks(names, first, seeds)
    rows = {name: _Row() for name in names}
    failed: list[_Result] = []
    with console.status("") as status:
        for number, result in enumerate(_results(tasks, jobs), start=1):
            rows[result.scenario].add(result)
            if result.anomalies:
                failed.append(result)
                if not console.is_terminal:  # of a file or a pipe: the rest may take hours
                    console.print(f"anomalies in {result.scenario} {result.seed}: {', '.join(sorted(result.kinds))}")
            if not console.is_terminal and number % _SHOWN_EVERY == 0:
                console.print(f"{number:,} of {len(tasks):,} seeds, {len(failed)} with anomalies")
            status.update(f"{number} of {len(tasks)} seeds, {len(failed)} with anomalies")
    for result in sorted(failed):
        _explain(console, result)
    console.print(_table(rows))
    return 1 if failed else 0


def _tasks(names: Sequence[str], first: int, seeds: int) -> list[_Task]:
    """Return `seeds` tasks, spread evenly over the scenarios."""
    return [_Task(names[number % len(names)], first + number // len(names)) for number in range(seeds)]


def _run_until_anomaly(console: Console, tasks: Sequence[_Task], jobs: int) -> int:
    """Print the first seed that shows an anomaly, without reducing its faults."""
    for result in _results(tasks, jobs):
        if result.anomalies:
            console.print(f"seed {result.scenario} {result.seed}: {', '.join(sorted(result.kinds))}")
            return 1
    return 0


def _results(tasks: Sequence[_Task], jobs: int) -> Iterator[_Result]:
    if jobs == 1:
        yield from map(_run_one, tasks)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(_run_one, tasks, chunksize=5)


def _run_one(task: _Task) -> _Result:
    began = time.process_time()
    report = run(plan(SCENARIOS[task.scenario], task.seed))
    return _Result(
        task.scenario, task.seed, report.coverage["records: sent"], report.faults, len(report.anomalies),
        report.kinds, time.process_time() - began,
    )  # fmt: skip


def _explain(console: Console, result: _Result) -> None:
    """Print the anomalies of a run, reduced to the faults that matter."""
    whole = plan(SCENARIOS[result.scenario], result.seed)
    numbers = shrink(whole, result.kinds)
    console.rule(f"{result.scenario} {result.seed}")
    _show_anomalies(console, run(whole.with_disturbances([whole.disturbances[number] for number in numbers])))
    console.print(f"{len(numbers)} of {len(whole.disturbances)} faults are enough:")
    _show_faults(console, whole, numbers)
    only = ",".join(map(str, numbers)) or "none"
    console.print(f"replay: tools/simulate --replay {result.scenario} {result.seed} --only {only} --trace")


def _table(rows: dict[str, _Row]) -> Table:
    table = Table("scenario")
    for heading in ("seeds", "records", "faults", "anomalies", "seconds"):
        table.add_column(heading, justify="right")
    total = _Row()
    for name, row in rows.items():
        total.add(row)
        _add_row(table, name, row)
    table.add_section()
    _add_row(table, "all", total)
    return table


def _add_row(table: Table, name: str, row: _Row) -> None:
    table.add_row(
        name, f"{row.seeds:,}", f"{row.records:,}", f"{row.faults:,}", f"{row.anomalies:,}", f"{row.seconds:,.0f}"
    )


# One.


def _plan(scenario: str, seed: int, only: str | None) -> Plan:
    whole = plan(SCENARIOS[scenario], seed)
    if only is None:
        return whole
    numbers = [] if only == "none" else [int(number) for number in only.split(",")]
    return whole.with_disturbances([whole.disturbances[number] for number in numbers])


def _replay(console: Console, one: Plan, *, shows_trace: bool) -> int:
    report = run(one, keeps_trace=shows_trace)
    if report.trace is not None:
        for line in report.trace:
            console.print(line)
    console.print(f"Kafka {one.kafka}, brokers with {dict(one.options)}, topics {dict(one.topics)}")
    for client in one.clients:
        console.print(f"{client.name}: {dict(client.settings)}, {dict(client.config)}")
    _show_faults(console, one, range(len(one.disturbances)))
    for name, count in sorted(report.coverage.items()):
        console.print(f"{count:8,} {name}")
    _show_anomalies(console, report)
    console.print(f"{report.seconds:.1f} s of virtual time; trace {report.digest}")
    return 1 if report.anomalies else 0


def _show_anomalies(console: Console, report: Report) -> None:
    for anomaly in report.anomalies[:_SHOWN_MAX]:
        console.print(str(anomaly))
    if len(report.anomalies) > _SHOWN_MAX:
        console.print(f"... and {len(report.anomalies) - _SHOWN_MAX} more anomalies")
    if not report.anomalies:
        console.print("no anomaly")


def _show_faults(console: Console, one: Plan, numbers: Iterable[int]) -> None:
    for number in numbers:
        console.print(f"  {number:2} {one.disturbances[number]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=_positive, default=10_000, help="number of seeds, spread over the scenarios (10,000)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, metavar="NAME", help="may be repeated")
    parser.add_argument("--kind", choices=_KINDS, default="all", help="run the scenarios of this kind (all)")
    parser.add_argument("--jobs", type=_positive, default=2, help="processes (2)")
    parser.add_argument("--until-anomaly", action="store_true", help="end at the first seed that shows an anomaly")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--replay", nargs=2, metavar=("SCENARIO", "SEED"), help="run one seed again, with all details")
    parser.add_argument("--only", metavar="NUMBERS", help="with --replay: only these faults, as 0,3,4 or none")
    parser.add_argument("--trace", action="store_true", help="with --replay: print every event")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
