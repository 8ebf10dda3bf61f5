"""Groups whose members join, leave, are killed and frozen while records go through three groups in a chain.

Each run starts three real brokers of a version (fetched by Maven). A writer spreads the records over the storm; each
member copies from one topic to the next; a reader counts what arrives at the end of the chain, and its longest wait.
Afterwards static members are restarted, which must not cause a rebalance. The exit code is 1 if a record is lost, one
is duplicated with --exactly-once, a static restart causes a rebalance, or a member ends by itself.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from storm_runs.storm import Outcome, Plan, run

VERSIONS = ("2.8.2", "3.9.1", "4.3.1")


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else str(random.randrange(1 << 31))
    holds = True
    for version in options.versions or VERSIONS:
        for exactly_once in {"both": [False, True], "no": [False], "yes": [True]}[options.exactly_once]:
            plan = Plan(version, options.members, options.minutes, options.records, exactly_once, seed)
            mode = "exactly once" if exactly_once else "at least once"
            print(f"-- Kafka {version}, {mode}, {plan.members} members, {plan.minutes:g} min, seed {seed}", flush=True)
            outcome = run(plan, lambda text: print(text, flush=True))
            print(described(outcome), flush=True)
            holds = holds and outcome.holds
    return 0 if holds else 1


def described(outcome: Outcome) -> str:
    lines = [
        f"{outcome.plan.records:,} records through {outcome.plan.members} members in {outcome.seconds:.0f} s: "
        f"{outcome.lost:,} lost, {outcome.duplicated:,} duplicated",
        f"longest stall {outcome.stall:.1f} s; all there {outcome.after:.1f} s after the last disturbance",
        f"{dict(outcome.actions)}; {dict(outcome.rebalances)}",
        f"static members restarted: {outcome.static} rebalances",
        *outcome.complaints,
        "holds" if outcome.holds else "FAILED",
    ]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/storm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of Kafka (default: {' '.join(VERSIONS)})")
    parser.add_argument("--members", type=int, default=20, help="in all three groups (default: 20)")
    parser.add_argument("--minutes", type=float, default=10, help="how long the storm lasts (default: 10)")
    parser.add_argument("--records", type=int, default=500_000, help="(default: 500,000)")
    parser.add_argument("--exactly-once", choices=["yes", "no", "both"], default="both", help="(default: both)")
    parser.add_argument("--seed", help="repeats the choices of the storm, but not the timing of the computer")
    return parser
