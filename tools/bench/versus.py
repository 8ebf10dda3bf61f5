"""Measure two commits of kwire against each other: the same bench on the same broker, in turns.

Each round runs the bench once in the older tree and once in this one, so that a ratio compares two runs that follow
each other. Peers are in both runs: their ratio shows how far apart two runs of the same code are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.contest import Result
from bench.ratios import shown
from bench.stand import Stand
from bench.task import Sample

_ROOT = Path(__file__).resolve().parents[2]
_MEASURES = (("us_cpu", "us CPU a record"), ("per_second", "records a second"))


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Check out `commit` into a temporary work tree with an environment of its own; remove both at the end."""
    with tempfile.TemporaryDirectory(prefix="kwire-versus-") as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            subprocess.run([str(tree / "tools/env"), "python"], check=True, env=_own(tree), stdout=sys.stderr)
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _own(tree: Path) -> dict[str, str]:
    """Return this process's environment without what points into this tree."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "VENV")}
    places = [place for place in kept["PATH"].split(os.pathsep) if not place.startswith(str(_ROOT))]
    return {**kept, "PATH": os.pathsep.join([str(tree / ".venv/bin"), *places])}


def run_once(tree: Path, bench: Sequence[str], bootstrap: str) -> list[Result]:
    """Run one round of `bench` in `tree`, and return its results."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.json")
        command = [
            str(tree / "tools/bench/run"),
            *bench,
            "--bootstrap",
            bootstrap,
            "--rounds",
            "1",
            "--json",
            str(path),
        ]
        # `python -m` imports from the current folder first.
        ran = subprocess.run(
            command, cwd=tree, env=_own(tree), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{ran.stdout[-2_000:]}")
        return read_results(path.read_text())


def read_results(text: str) -> list[Result]:
    """Return the results in the JSON that `tools/bench/run --json` writes."""
    return [
        Result(case["title"], {name: [Sample(**one) for one in all] for name, all in case["samples"].items()})
        for case in json.loads(text)["cases"]
    ]


def merge(rounds: Sequence[Sequence[Result]], tree: str) -> dict[str, Result]:
    """Join rounds of one tree by title; a contestant is named with its tree."""
    merged: dict[str, Result] = {}
    for results in rounds:
        for result in results:
            into = merged.setdefault(result.title, Result(result.title)).samples
            for name, samples in result.samples.items():
                into.setdefault(f"{name} {tree}", []).extend(samples)
    return merged


def rows(before: Result, after: Result) -> Iterator[tuple[str, ...]]:
    """Return a row for each contestant of both trees: each measure before, after, and after divided by before."""
    both = Result(before.title, {**before.samples, **after.samples})
    for name in (name.removesuffix(" before") for name in before.samples):
        if f"{name} after" not in both.samples:
            continue
        row = [name]
        for measure, _ in _MEASURES:
            ratio = both.ratio(f"{name} after", f"{name} before", measure)
            if ratio is None:
                row += ["failed", "failed", ""]
            else:
                row += [shown(both.spread(f"{name} {tree}", measure), "") for tree in ("before", "after")]
                row.append(shown(ratio))
        yield tuple(row)


def show(before: dict[str, Result], after: dict[str, Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 190, highlight=False)
    for title in before:
        table = Table(title=title, title_justify="left", title_style="bold")
        table.add_column("median (spread)", no_wrap=True)
        for _, label in _MEASURES:
            for column in (f"{label}\nbefore", f"{label}\nafter", "after /\nbefore"):
                table.add_column(column, justify="right")
        for row in rows(before[title], after[title]):
            table.add_row(*row)
        console.print(table)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/bench/versus",
        description="Run a bench of tools/bench/run in an older commit and in this tree, in turns, on one real broker.",
        epilog="example: tools/bench/versus HEAD~20 --rounds 5 -- produce --only kwire,confluent",
    )
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="of the broker, such as /dev/shm")
    parser.add_argument("bench", nargs="+", metavar="BENCH", help="the bench and its options, after --")
    options = parser.parse_args(arguments)
    found: dict[str, list[list[Result]]] = {"before": [], "after": []}
    with tree_of(options.commit) as old, Stand(files=options.files) as stand:
        for number in range(options.rounds):
            trees = [("before", old), ("after", _ROOT)]
            for name, tree in trees if number % 2 == 0 else reversed(trees):
                print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
                found[name].append(run_once(tree, options.bench, stand.bootstrap))
    show(merge(found["before"], "before"), merge(found["after"], "after"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
