"""Kill, stop, pause and cut off real brokers while kwire produces and copies, and then check the logs.

Each run starts its own brokers (fetched by Maven), sends numbered records from four threads with one idempotent
kwire.Producer, copies them with transactional processes that are killed too, and reads both logs back with librdkafka
and with kwire.Consumer. The exit code is 1 on any anomaly: a record lost, duplicated or out of order, or a partial
transaction. `tools/chaos spark` kills processes of Spark instead: see its --help.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from rich.console import Console

from chaos_runs.report import show
from chaos_runs.run import RunOutcome, run
from chaos_runs.scenarios import GROUPS, SCENARIOS, Scenario

_USUAL = ("new", "old")


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "spark":
        from chaos_runs import spark_table  # it needs PySpark

        return spark_table.main(arguments[1:])
    options = _parser().parse_args(arguments)
    console = Console()
    if options.list:
        for one in SCENARIOS.values():
            console.print(f"{one.name:18} {one.about}", highlight=False, soft_wrap=True)
        return 0
    seed = options.seed if options.seed is not None else str(random.randrange(1 << 31))
    console.print(f"seed {seed}", highlight=False)
    outcomes: list[RunOutcome] = []
    unjudged: list[str] = []
    for scenario in chosen(options.names):
        console.rule(f"{scenario.name}: {scenario.about}")
        records = options.records or scenario.records
        try:
            outcome = run(scenario, records, seed, lambda text: console.print(text, markup=False, highlight=False))
        except Exception:  # the other runs still give results
            console.print_exception()
            unjudged.append(scenario.name)
            continue
        outcomes.append(outcome)
        show(console, [outcome])
    if len(outcomes) > 1:
        show(console, outcomes)
    if unjudged:
        console.print(f"no outcome: {', '.join(unjudged)}", style="red")
    return 0 if not unjudged and all(one.holds for one in outcomes) else 1


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return the scenarios named by themselves or by their group."""
    return [one for name in names or _USUAL for one in GROUPS.get(name, ()) or (SCENARIOS[name],)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    groups = ", ".join(GROUPS)
    parser.add_argument(
        "names", nargs="*", type=_known, metavar="NAME", help=f"a scenario, or one of {groups} (default: new old)"
    )
    parser.add_argument("--records", type=_positive, help="minimum for each run (default: 200,000)")
    parser.add_argument("--seed", help="repeats the random choices, but not the timing of the computer")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    return parser


def _known(text: str) -> str:
    if text not in GROUPS and text not in SCENARIOS:
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join([*GROUPS, *SCENARIOS])}")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
