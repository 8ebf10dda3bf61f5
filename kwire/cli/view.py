"""`kwire view FILE`: the exchanges of a capture on the terminal, with a filter line and both messages."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

import click

from kwire.cli.arguments import key_log_option, redaction, redaction_options, where_option
from kwire.cli.capture_input import print_remarks, status_of
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output

if TYPE_CHECKING:
    from kwire.capture import KeyLog
    from kwire.capture.filters import Filter


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--port", "ports", type=int, multiple=True, help="Only connections to brokers on this port.")
@where_option
@key_log_option
@redaction_options[0]
@redaction_options[1]
def command(
    source: str, ports: tuple[int, ...], where: Filter | None, key_log: KeyLog | None, show_secrets: bool,
    redacts: tuple[str, ...],
) -> ExitCode:  # fmt: skip
    """Look through a capture on the terminal.

    A list of the exchanges, both messages of the chosen one as a tree, and a filter line (/) with the language of -w.
    `?` shows the keys. Needs pip install 'kwire[tui]'.

    \b
        kwire view traffic.pcapng -w 'error != NONE'
    """
    from kwire.capture import Remark, read_exchanges

    remarks: list[Remark] = []
    exchanges = read_exchanges(
        source, ports=ports, redaction=redaction(show_secrets, redacts), on_remark=remarks.append, key_log=key_log
    )
    first = next(exchanges, None)
    if first is None:  # a screen could not say why it is empty
        print_remarks(0, remarks, Output(is_table=True, quiet=False, verbose=0))
        return status_of(0, remarks)
    require_terminal()
    from kwire.cli.viewer import Viewer

    Viewer(chain([first], exchanges), title=source, where=where).run()
    print_remarks(1, remarks, Output(is_table=True, quiet=False, verbose=0))
    return status_of(1, remarks)


def require_terminal() -> None:
    """Raise UsageError if there is none: the screen would be written into a file, and no key could end it."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("the screen needs a terminal; `kwire decode` prints lines, `kwire tap` without --ui too")
