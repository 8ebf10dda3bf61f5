"""`kwire timeline`: a capture over time, as an HTML page or as text."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kwire.cli.arguments import key_log_option, redaction, redaction_options, where_option
from kwire.cli.capture_input import print_remarks, status_of
from kwire.cli.error_report import ExitCode, writes_file
from kwire.cli.output import Output, counted, output_options

if TYPE_CHECKING:
    from kwire.capture import KeyLog
    from kwire.capture.filters import Filter


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("-o", "--output", "page", metavar="PAGE.html", help="Write one HTML page, which needs no other file.")
@click.option("--ascii", "as_text", is_flag=True, help="Text for a terminal: a line for each connection.")
@click.option("--width", type=click.IntRange(40), help="Columns of the text. Default: those of the terminal.")
@click.option(
    "--max", "bars_max", type=click.IntRange(1), default=50_000, show_default=True, metavar="N",
    help="At most so many exchanges; the later ones are left out.",
)  # fmt: skip
@click.option("--port", "ports", type=int, multiple=True, help="Only connections to brokers on this port.")
@where_option
@key_log_option
@redaction_options[0]
@redaction_options[1]
@output_options
def command(
    source: str, page: str | None, as_text: bool, width: int | None, bars_max: int, ports: tuple[int, ...],
    where: Filter | None, key_log: KeyLog | None, show_secrets: bool, redacts: tuple[str, ...], output: Output,
) -> ExitCode:  # fmt: skip
    """Draw a capture over time.

    The page has a lane for each connection, a bar from each request to its response, what groups and transactions
    went through, and the linter's findings. A click on a bar shows both messages. Its filter box takes what -w takes;
    `?` shows the keys. Passwords and tokens are masked.

    \b
        kwire timeline traffic.pcapng -o page.html
        kwire timeline traffic.pcapng --ascii -w 'client == billing'
    """
    from kwire.timeline import collect_timeline, timeline_page, timeline_text

    if as_text == (page is not None):
        raise click.UsageError("give -o PAGE.html for a page, or --ascii for text")
    if page is not None and Path(page).exists() and Path(page).samefile(source):
        raise click.UsageError("-o names the capture itself, which the page would replace")
    found = collect_timeline(
        source, where=where, ports=ports, redaction=redaction(show_secrets, redacts), bars_max=bars_max,
        with_details=page is not None, key_log=key_log,
    )  # fmt: skip
    print_remarks(found.exchanges, found.remarks, output)
    if page is None:
        sys.stdout.write(timeline_text(found, width or shutil.get_terminal_size((120, 24)).columns))
    else:
        text = timeline_page(found)
        with writes_file(f"the page {page}"):
            Path(page).write_text(text, encoding="utf-8")
        output.note(f"{counted(len(found.bars), 'exchange')} in {page}, {len(text.encode()) / 1e6:.1f} MB")
    if found.left_out:
        output.note(f"{counted(found.left_out, 'later exchange')} left out; --max {bars_max} is the limit")
    return status_of(found.exchanges, found.remarks)
