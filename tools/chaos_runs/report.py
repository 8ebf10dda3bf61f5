"""Show the results of the runs as a table, with their findings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from chaos_runs.proof import Proof
from chaos_runs.run import RunOutcome

_KINDS = ("lost", "duplicated", "disordered")
_FAULTS = "lost, twice,\norder, other"


def table(outcomes: Sequence[RunOutcome]) -> Table:
    made = Table(title="chaos: what was sent and copied, against what is in the logs", box=SIMPLE_HEAD)
    made.add_column("scenario")
    for name in ("in the log", _FAULTS):
        made.add_column(name, justify="right")
    for name in ("copied", _FAULTS, "transactions\n+ aborted", "clients\nkilled"):
        made.add_column(name, justify="right", style="cyan")
    for name in ("records/s", "longest\nstall, s", "retries", "cuts"):
        made.add_column(name, justify="right")
    made.add_column("outcome")
    for one in outcomes:
        made.add_row(*_row(one))
    return made


def _row(one: RunOutcome) -> list[str]:
    copied = ["-"] * 4
    if one.copy is not None:
        clients = one.clients
        ended = f"{clients['committed']} + {clients['aborted']}"
        copied = [f"{one.copy.records:,}", _faults(one.copy), ended, str(clients["killed"] + clients["frozen"])]
    return [
        one.scenario.name,
        f"{one.log.records:,}",
        _faults(one.log),
        *copied,
        f"{one.acknowledged / one.seconds:,.0f}" if one.seconds else "-",
        f"{one.longest_stall:.1f}",
        str(one.retries),
        str(one.cuts),
        "[green]holds[/green]" if one.holds else "[red]ANOMALY[/red]",
    ]


def show(console: Console, outcomes: Sequence[RunOutcome]) -> None:
    console.print(table(outcomes))
    for one in outcomes:
        proofs = [("", one.log), ("copy: ", one.copy)]
        findings = [prefix + text for prefix, proof in proofs if proof is not None for text in proof.findings]
        for text in [*findings, *one.complaints]:
            console.print(f"{one.scenario.name}: {text}", markup=False, highlight=False)


def _faults(proof: Proof) -> str:
    """Return the counts of lost, duplicated, disordered and other records, tolerated ones in brackets."""
    shown = [f"({proof.counts[kind]})" if kind in proof.tolerated else str(proof.counts[kind]) for kind in _KINDS]
    others = {kind: count for kind, count in proof.counts.items() if kind not in _KINDS and count}
    tolerated = sum(count for kind, count in others.items() if kind in proof.tolerated)
    rest = str(sum(others.values()) - tolerated)
    return " ".join([*shown, f"{rest} ({tolerated})" if tolerated else rest])
