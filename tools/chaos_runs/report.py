"""The table of verdicts, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from chaos_runs.proof import Proof
from chaos_runs.run import Verdict

_KINDS = ("lost", "duplicated", "disordered")


def table(verdicts: Sequence[Verdict]) -> Table:
    made = Table(title="chaos: what was sent and copied, against what is in the logs")
    made.add_column("scenario")
    for name in ("records", "lost", "twice", "order", "other"):
        made.add_column(name, justify="right")
    made.add_column("copied", justify="right", style="cyan")
    for name in ("lost", "twice", "order", "other"):
        made.add_column(name, justify="right", style="cyan")
    for name in ("transactions", "clients killed", "records/s", "stall s", "retries", "cuts"):
        made.add_column(name, justify="right")
    made.add_column("verdict")
    for one in verdicts:
        clients = one.clients
        transactions = f"{clients['committed']}+{clients['aborted']}" if one.copy is not None else "-"
        made.add_row(
            one.scenario.name,
            f"{one.log.records:,}",
            *_figures(one.log),
            f"{one.copy.records:,}" if one.copy is not None else "-",
            *(_figures(one.copy) if one.copy is not None else ["-"] * (len(_KINDS) + 1)),
            transactions,
            str(clients["killed"] + clients["frozen"]),
            f"{one.acknowledged / one.seconds:,.0f}" if one.seconds else "-",
            f"{one.longest_stall:.1f}",
            str(one.retries),
            str(one.cuts),
            "[green]holds[/green]" if one.holds else "[red]ANOMALY[/red]",
        )
    return made


def show(console: Console, verdicts: Sequence[Verdict]) -> None:
    console.print(table(verdicts))
    for one in verdicts:
        proofs = [("", one.log), ("copy: ", one.copy)]
        findings = [prefix + text for prefix, proof in proofs if proof is not None for text in proof.findings]
        for text in [*findings, *one.complaints]:
            console.print(f"{one.scenario.name}: {text}", markup=False, highlight=False)


def _figures(proof: Proof) -> list[str]:
    """Lost, twice, out of order, and everything else; what is tolerated is in brackets."""
    known = [_figure(proof, kind) for kind in _KINDS]
    return [*known, str(sum(count for kind, count in proof.counts.items() if kind not in _KINDS))]


def _figure(proof: Proof, kind: str) -> str:
    count = proof.counts[kind]
    return f"({count})" if kind in proof.tolerated else str(count)
