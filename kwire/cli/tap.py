"""`kwire tap`: a proxy that shows, records and disturbs what clients and brokers say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.arguments import redaction, redaction_options, where_option
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode, by_options
from kwire.cli.output import Output, counted, output_options
from kwire.cli.view import require_terminal

if TYPE_CHECKING:
    from kwire.capture.filters import Filter
    from kwire.cli.tap_watch import LiveStats
    from kwire.cli.viewer import Viewer

_FILE = click.Path(exists=True, dir_okay=False, readable=True)
# How long the tap waits for connections that processes of the program of --exec leave open.
_LAST_SECONDS = 1.0
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def parse_address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; without a host, that of this machine alone."""
    host, _, port = value.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value} is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def _parse_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    number = value.removesuffix("B")
    unit = number[-1:] if number[-1:] in ("k", "M", "G") else ""
    digits = number.removesuffix(unit) if unit else number
    if not digits.isdigit() or not int(digits):
        raise click.BadParameter(f"{value} is not a size, such as 100MB")
    return int(digits) * _UNITS[unit]


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    callback=parse_address,
    help="Where clients connect. Port 0: any free port. Listeners for other brokers get free ports.",
)
@click.option("--advertise", metavar="HOST", help="The host by which clients reach the tap, if not that of --listen.")
@where_option
@click.option("-o", "--record", metavar="FILE", help="Write all traffic to a pcapng capture, whatever --where says.")
@click.option(
    "--rotate",
    "rotate_bytes",
    metavar="SIZE",
    callback=_parse_size,
    help="Begin a new capture at this size, such as 100MB: FILE.pcapng becomes FILE.1.pcapng.",
)
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Keep the newest N full captures. Default: all.")
@redaction_options[0]
@redaction_options[1]
@click.option("--unsafe-record", is_flag=True, help="Allow --show-secrets with --record: the file has passwords.")
@click.option("--tls-in", "cert_in", type=_FILE, metavar="FILE", help="Certificate chain for TLS with clients, PEM.")
@click.option("--key-in", type=_FILE, metavar="FILE", help="Private key of --tls-in, PEM.")
@click.option("--chaos", type=_FILE, metavar="RULES.TOML", help="Disturb the traffic by rules; see docs/howto/tap.md.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the chances of --chaos.")
@click.option("--lint", "lints", is_flag=True, help="Say what clients and brokers do wrong, as kwire lint does.")
@click.option("--stats", "stats_every", metavar="TIME", help="A table of counts for each such time, such as 10s.")
@click.option("--ui", "has_ui", is_flag=True, help="Show exchanges on the whole terminal, as kwire view does.")
@click.option(
    "--exec",
    "program",
    nargs=1,
    metavar="COMMAND",
    help="Run a shell command with KAFKA_BOOTSTRAP_SERVERS set to the tap, and end with its exit code.",
)
@connection_options
@output_options
def command(
    listen: tuple[str, int], advertise: str | None, where: Filter | None, record: str | None, rotate_bytes: int | None,
    keep: int | None, show_secrets: bool, redacts: tuple[str, ...], unsafe_record: bool, cert_in: str | None,
    key_in: str | None, chaos: str | None, seed: int, program: str | None, connection: ConnectionOptions,
    output: Output, has_ui: bool, lints: bool, stats_every: str | None, shows: bool = True,
) -> ExitCode | int:  # fmt: skip
    """Show, record and disturb what clients and brokers say.

    A proxy between them: clients use the tap's address as their bootstrap. The tap listens for each broker that a
    response names, and puts its own addresses there. All other bytes pass as they are. Passwords and tokens are masked
    on the screen and in the file. With SASL options the tap authenticates itself to the brokers, and clients connect
    without SASL; without them the clients' own authentication passes through.

    \b
        kwire tap -b broker:9092 --listen 127.0.0.1:9092
        kwire tap -b broker:9092 -q -o traffic.pcapng --rotate 100MB --keep 5
        kwire tap -b broker:9092 -w 'api == Produce and ms > 100'
        kwire tap -b broker:9092 -o run.pcapng --exec 'pytest tests/'
        kwire tap -b broker:9092 -q --lint --stats 10s
    """
    from kwire.capture.exchange_json import exchange_to_json
    from kwire.cli.decode.capture_view import PairTable
    from kwire.net import Tls
    from kwire.tap import Tap, load_rules

    if show_secrets and record is not None and not unsafe_record:
        raise click.UsageError("the capture would have passwords: leave out --show-secrets, or add --unsafe-record")
    if rotate_bytes is not None and record is None:
        raise click.UsageError("--rotate needs -o FILE")
    if keep is not None and rotate_bytes is None:
        raise click.UsageError("--keep needs --rotate SIZE")
    if (cert_in is None) != (key_in is None):
        raise click.UsageError("--tls-in and --key-in go together")
    if has_ui and (program is not None or output.quiet):
        raise click.UsageError("--ui has the terminal for itself: leave out --exec and -q")
    if has_ui and (lints or stats_every is not None):
        raise click.UsageError("--ui has the terminal for itself: leave out --lint and --stats")
    if has_ui:
        require_terminal()
    viewer = _viewer(connection.bootstrap, where) if has_ui else None
    table = PairTable(output, None)

    def show(exchange: Any) -> None:
        if output.is_table:
            table.show(exchange)
        else:
            output.json(exchange_to_json(exchange, annotate=False))
        sys.stdout.flush()

    tls = connection.tls

    def note(text: str) -> None:
        output.note(by_options(text))

    on_remark = note if viewer is None else _unheard
    on_exchange: Callable[[Any], object] | None = (
        viewer.feed if viewer is not None else show if shows and not output.quiet else None
    )
    stats = _stats(stats_every, output)
    watchers = _watchers(lints, stats, output)
    if watchers:
        from kwire.cli.tap_watch import watch

        on_exchange = watch(on_exchange, where, watchers)
        where = None  # rules and counts are about all exchanges
    ticks: dict[str, Any] = {} if stats is None else {"tick_seconds": stats.every_seconds, "on_tick": stats.tick}
    with Tap(
        connection.bootstrap, listen=listen, advertise=advertise, record=record, rotate_bytes=rotate_bytes, keep=keep,
        on_exchange=on_exchange, where=where if viewer is None else None,
        redaction=redaction(show_secrets, redacts), tls=tls, sasl=connection.sasl,
        tls_in=Tls(cert_file=cert_in, key_file=key_in) if cert_in else None,
        chaos=load_rules(chaos) if chaos else (), seed=seed, on_remark=on_remark,
        **ticks,
    ) as tap:  # fmt: skip
        click.echo(f"kwire: listening on {tap.address} for {connection.bootstrap}", err=True)
        try:
            status: int = ExitCode.OK
            if viewer is not None:
                viewer.place = f"{tap.address} for {connection.bootstrap}"
                viewer.run()
            elif program is not None:
                status = _run(program, tap.address)
                tap.wait_for_clients(_LAST_SECONDS)  # with acks=0 a program ends before its records are passed on
            else:
                status = _wait(tap)
        except KeyboardInterrupt:
            status = ExitCode.OK
    for watcher in watchers:
        watcher.end()
    output.note(f"{counted(tap.exchanges, 'exchange')}{f' in {record}' if record else ''}")
    return status


def _stats(every: str | None, output: Output) -> LiveStats | None:
    if every is None:
        return None  # the linter's rules are not imported for nothing
    from kwire.cli.stats import parse_seconds
    from kwire.cli.tap_watch import LiveStats

    return LiveStats(parse_seconds(every), output)


def _watchers(lints: bool, stats: LiveStats | None, output: Output) -> list[Any]:
    """Return what --lint and --stats ask for."""
    found: list[Any] = [] if stats is None else [stats]
    if lints:
        from kwire.cli.tap_watch import LiveLint

        found.append(LiveLint(output))
    return found


def _unheard(text: str) -> None:
    """Take a remark for which the screen has no place."""


def _viewer(bootstrap: str, where: Filter | None) -> Viewer:
    from kwire.cli.viewer import Viewer

    return Viewer(title=bootstrap, where=where)


def _wait(tap: Any) -> int:
    """Wait until Ctrl-C, SIGTERM, or an error that ends the tap."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    while not stopping.wait(0.2) and not tap.wait(0):
        pass
    return ExitCode.OK


def _run(program: str, address: str) -> int:
    """Run the program; return its exit code, or 128 and the signal that ended it, as shells do."""
    shell = shutil.which("sh") or "/bin/sh"
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": address, "KWIRE_BOOTSTRAP": address}
    code = subprocess.run([shell, "-c", program], env=environment, check=False).returncode
    return 128 - code if code < 0 else code
