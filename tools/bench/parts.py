"""Parts of a bench that --parts chooses: each measures something else, and has columns of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.contest import Result, Tell
from bench.report import Column
from bench.stand import Stand


class Part(NamedTuple):
    """Name a part of the bench, its function, and the columns of its tables. --rounds overrides `rounds`."""

    run: Callable[[argparse.Namespace, Stand, Tell], Iterator[Result]]
    columns: Sequence[Column]
    help: str
    rounds: int | None = None


def add_parts(one: argparse.ArgumentParser, parts: Mapping[str, Part]) -> None:
    said = "; ".join(f"{name}: {part.help}" for name, part in parts.items())
    one.add_argument("--parts", type=lambda text: text.split(","), default=list(parts), metavar="PART,...", help=said)


def run_parts(
    parts: Mapping[str, Part], options: argparse.Namespace, stand: Stand, tell: Tell
) -> Iterator[tuple[Result, Sequence[Column]]]:
    """Yield the results of the chosen parts, each with its columns."""
    unknown = [name for name in options.parts if name not in parts]
    if unknown:
        raise SystemExit(f"there is no part {unknown[0]!r}; there are: {', '.join(parts)}")
    for name in options.parts:
        part = parts[name]
        chosen = argparse.Namespace(**{**vars(options), "rounds": options.rounds or part.rounds})
        for result in part.run(chosen, stand, tell):
            yield result, part.columns
