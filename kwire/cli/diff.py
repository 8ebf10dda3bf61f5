"""`kwire diff`: what differs between two captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kwire.cli.arguments import key_log_option, where_option
from kwire.cli.capture_input import AcceptedExchanges
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, output_options

if TYPE_CHECKING:
    from kwire.capture import KeyLog
    from kwire.capture.filters import Filter

_FILE = click.Path(exists=True, dir_okay=False, readable=True)


@click.command()
@click.argument("a", metavar="A", type=_FILE)
@click.argument("b", metavar="B", type=_FILE)
@where_option
@key_log_option
@click.option(
    "--fail-on",
    "limits_text",
    default="",
    metavar="LIMITS",
    help="Exit with 1 if B differs in one of: errors, versions, order, any, requests+10%, p50+20%, p95+20%.",
)
@output_options
def command(a: str, b: str, where: Filter | None, key_log: KeyLog | None, limits_text: str, output: Output) -> ExitCode:
    """What differs between two captures.

    Compared by client and API are numbers and sizes of requests, versions, records in a batch, latencies, error codes,
    settings such as acks and session timeouts, and the order of requests. Correlation ids, times, member ids and
    producer ids are not. A client is known by its client id and the name of its library.

    \b
        kwire diff before.pcapng after.pcapng
        kwire diff before.pcapng after.pcapng --fail-on errors,p95+20%,requests+10%
    """
    from kwire.capture.comparison import Limits, compare, facts_of

    limits = Limits(limits_text)
    sides = [AcceptedExchanges(path, where, output, names_file=True, key_log=key_log) for path in (a, b)]
    facts = [facts_of(side) for side in sides]
    if any(side.is_unreadable for side in sides):
        return ExitCode.UNDECODABLE
    found = list(compare(*facts))
    failed = [one for one in found if limits.is_exceeded(one)]
    if output.is_table:
        if found:
            rows = [
                (one.client, one.api, one.what, _text(one.a), _text(one.b), _share(one.change), "x" * (one in failed))
                for one in found
            ]
            output.table(["client", "api", "what", "A", "B", "change", "failed"], rows, right=["A", "B", "change"])
    else:
        for one in found:
            output.json({**one._asdict(), "failed": one in failed})
    output.note(f"{counted(len(found), 'difference')}{f', {len(failed)} failed' if limits_text else ''}")
    return max(ExitCode.KAFKA if failed else ExitCode.OK, *(side.status for side in sides))


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _share(change: float | None) -> str:
    return "" if change is None else f"{change:+.0%}"
