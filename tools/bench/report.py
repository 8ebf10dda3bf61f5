"""Show the results of a bench as a table, and write them all as JSON."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest import Result
from bench.ratios import shown
from bench.settings import SETTINGS

WIDTH = 190  # without a terminal: wide enough for every table

_OPTIONAL = {"percent"}  # what only some cases of a bench have


class Column(NamedTuple):
    """Show `measure` of each contestant or, with `ours`, the ratio of `ours` to the row's contestant.

    `is_less_better` inverts the ratio, so that a value above 1 is always good for `ours`.
    """

    title: str
    measure: str
    unit: str = ""
    ours: str | None = None
    is_less_better: bool = False


def ratio_columns(measure: str, what: str, ours: Sequence[str], *, is_less_better: bool = False) -> list[Column]:
    said = "times\n{}'s {}" if is_less_better else "{} has\n{}"
    return [Column(said.format(name, what), measure, "x", name, is_less_better) for name in ours]


def cell(result: Result, name: str, column: Column) -> str:
    if column.measure in _OPTIONAL and column.measure not in result.samples[name][0].measures:
        return ""
    if column.ours is None:
        return shown(result.spread(name, column.measure), column.unit)
    if name == column.ours:
        return ""
    first, second = (name, column.ours) if column.is_less_better else (column.ours, name)
    spread = result.ratio(first, second, column.measure)
    return "" if spread is None else shown(spread, column.unit)


def print_result(result: Result, columns: Sequence[Column]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    table = Table(title=result.title, title_justify="left", title_style="bold")
    table.add_column("median (quartiles)", no_wrap=True)
    columns = [column for column in columns if column.ours is None or column.ours in result.samples]
    for column in columns:
        table.add_column(column.title, justify="right")
    for name, samples in result.samples.items():
        failure = result.failure(name)
        if failure is not None:
            table.add_row(name, f"[red]failed: {failure.splitlines()[0][:60]}")
        else:
            label = f"{name} [dim]{samples[0].version}"
            table.add_row(label, *(cell(result, name, column) for column in columns))
    console.print(table)
    for name, failure in result.failures.items():
        console.print(f"{name} failed: {failure}", style="red", markup=False)


def print_settings() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("client", "setting", "reason", title="Settings", title_justify="left", title_style="bold")
    for setting in SETTINGS:
        table.add_row(*setting)
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


def circumstances(stand: str, command: Sequence[str]) -> dict[str, Any]:
    """Return what a reader must know to judge the figures: broker, command, computer, load, versions."""
    return {
        "command": ["tools/bench/run", *command],
        "commit": commit(),
        "broker": stand,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {processor()}, {os.cpu_count()} processors",
        "load": os.getloadavg()[0],
    }


def commit() -> str:
    """Return the commit that was measured and whether the tree had changes; empty without git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    if shutil.which("git") is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown processor"


def write_json(path: Path, about: Mapping[str, Any], results: Sequence[Result]) -> None:
    cases = [
        {"title": result.title, "samples": {name: [asdict(one) for one in all] for name, all in result.samples.items()}}
        for result in results
    ]
    path.write_text(json.dumps({**about, "cases": cases}, indent=1) + "\n")
