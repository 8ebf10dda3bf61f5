"""`kwire offsets`: where logs begin and end, and where the records of a time are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kwire.cli.admin import open_admin, partition_keys, report, show, time_of
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLACES = ("earliest", "latest", "max_timestamp", "local_earliest", "latest_tiered", "earliest_pending_upload")


@click.group(no_args_is_help=True)
def command() -> None:
    """Offsets of logs: list.

    \b
        kwire offsets list orders -b localhost:9092
        kwire offsets list orders:0 payments --at -2h
    """


@command.command("list", context_settings={"ignore_unknown_options": True})
@click.argument("partitions", metavar="TOPIC|TOPIC:PARTITION...", nargs=-1, required=True)
@click.option(
    "--at",
    "place",
    default="latest",
    show_default=True,
    metavar="PLACE",
    help=f"{', '.join(_PLACES)}, a time (2026-11-01T12:00), or -2h.",
)
@click.option("--committed", is_flag=True, help="The latest is the last stable offset, as read_committed sees it.")
@connection_options
@output_options
def list_offsets(
    partitions: tuple[str, ...], place: str, committed: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Show an offset in each partition, with the time and the leader epoch of its record where brokers say them."""
    at: Any = place if place in _PLACES else time_of("--at", place, also=_PLACES)
    with open_admin(connection) as admin:
        found = admin.offsets.list(
            named_partitions(partitions), at, isolation="read_committed" if committed else "read_uncommitted",
            timeout=connection.timeout,
        )  # fmt: skip
    rows = [
        {
            "topic": topic, "partition": index, "offset": one.offset, "timestamp_ms": one.timestamp_ms,
            "leader_epoch": one.leader_epoch,
        }
        for (topic, index), one in found.ok.items()
    ]  # fmt: skip
    show(rows, output, right=["partition", "offset", "timestamp_ms", "leader_epoch"])
    return report(found.errors, found.ok)


def named_partitions(texts: Iterable[str]) -> list[str | tuple[str, int]]:
    """Return topics by name, and single partitions written "topic:number"."""
    return [partition_keys([text])[0] if ":" in text else text for text in texts]
