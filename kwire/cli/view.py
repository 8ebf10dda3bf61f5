"""`kwire view FILE`: the exchanges of a capture on the terminal, with a filter line and both messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kwire.cli.arguments import key_log_option, redaction, redaction_options, where_option
from kwire.cli.error_report import ExitCode

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
    from kwire.capture import read_exchanges
    from kwire.cli.viewer import Viewer

    exchanges = read_exchanges(source, ports=ports, redaction=redaction(show_secrets, redacts), key_log=key_log)
    Viewer(exchanges, title=source, where=where).run()
    return ExitCode.OK
