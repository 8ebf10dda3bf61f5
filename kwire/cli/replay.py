"""`kwire replay`: the requests of a capture to a broker, or its responses to clients."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.arguments import key_log_option, where_option
from kwire.cli.capture_input import AcceptedExchanges
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.finite_range import FiniteRange
from kwire.cli.output import Output, counted, output_options, printable
from kwire.cli.tap import parse_address

if TYPE_CHECKING:
    from kwire.capture import Exchange, KeyLog
    from kwire.capture.filters import Filter
    from kwire.tap import Replayed


def _parse_serve(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    return None if value is None else parse_address(ctx, param, value)


@click.command()
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--to", metavar="HOST:PORT", help="Send the requests to this broker, as -b does.")
@click.option(
    "--serve", metavar="[HOST]:PORT", callback=_parse_serve, help="Serve the responses to clients that connect here."
)
@click.option("--yes", "writes", is_flag=True, help="With --to: also send what changes the cluster.")
@click.option(
    "--speed", type=FiniteRange(min=0, min_open=True), metavar="N",
    help="With --to: 1 keeps the capture's pace, 10 is ten times as fast. Default: wait only for responses.",
)  # fmt: skip
@click.option(
    "--map", "maps", multiple=True, metavar="topic=OLD:NEW", help="With --to: send to a topic under another name."
)
@click.option("--strict", is_flag=True, help="With --serve: give no response to a request that the capture lacks.")
@click.option("--port", "ports", type=int, multiple=True, help="Only connections to brokers on this port.")
@where_option
@key_log_option
@functools.partial(connection_options, needs_address=False)
@output_options
def command(
    source: str, to: str | None, serve: tuple[str, int] | None, writes: bool, speed: float | None,
    maps: tuple[str, ...], strict: bool, ports: tuple[int, ...], where: Filter | None, key_log: KeyLog | None,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Send a capture's requests to a broker, or serve its responses.

    With --to, ids, epochs, generations and sessions that the cluster gives out now replace those of the capture, and a
    request waits for the responses that came before it. Responses with other error codes than in the capture are
    shown, and the exit code is 1. What writes is left out without --yes.

    With --serve, a client meets the broker of the capture: it gets the response to the captured request that is equal
    or, but for ids, alike. Without --strict the most similar one of the API will do.

    \b
        kwire replay traffic.pcapng --to localhost:9092 --yes --map topic=orders:orders-test
        kwire replay traffic.pcapng --serve :9092 --strict
    """
    from kwire.capture.secrets import Redaction

    address = to or connection.bootstrap
    if (serve is None) == (to is None) and not (serve is None and address):
        raise click.UsageError("give either --to HOST:PORT or --serve HOST:PORT")
    redaction = Redaction(secrets=False)
    found = AcceptedExchanges(source, where, output, ports=ports, redaction=redaction, key_log=key_log)
    exchanges = list(found)
    if found.is_unreadable:
        return ExitCode.UNDECODABLE
    if serve is not None:
        return max(found.status, _serve(exchanges, serve, strict, output))
    return max(found.status, _send(exchanges, connection, address, writes, speed, _topics(maps), output))


def _send(
    exchanges: list[Exchange], connection: ConnectionOptions, address: str, writes: bool, speed: float | None,
    topics: dict[str, str], output: Output,
) -> ExitCode:  # fmt: skip
    from kwire.tap import WRITES, replay

    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for one in replay(
        exchanges, address, tls=connection.tls, sasl=connection.sasl, topics=topics, writes=writes, speed=speed,
        timeout=connection.timeout,
    ):  # fmt: skip
        counts[one.outcome] += 1
        if one.outcome == "skipped":
            skipped[one.text] += 1
        if not output.is_table:
            output.json(_replayed(one))
        elif one.outcome in ("differs", "unanswered"):
            output.text(printable(_described(one.exchange)))
            output.text(printable(f"    {one.outcome}: {one.text}"))
    for reason, number in skipped.items():
        remedy = ", and --yes was not given" if reason == WRITES else ""
        output.note(f"{counted(number, 'request')} left out: {reason}{remedy}")
    output.note(
        f"{counted(sum(counts.values()) - counts['skipped'], 'request')} sent, {counts['differs']} with other errors "
        f"than in the capture, {counts['unanswered']} without a response"
    )
    return ExitCode.KAFKA if counts["differs"] or counts["unanswered"] else ExitCode.OK


def _described(exchange: Exchange) -> str:
    from kwire.capture.summary import summary

    packet = f"packet {exchange.packets[0]}"
    return f"{packet}  {exchange.client_id or ''}  {exchange.api_name} v{exchange.version}  {summary(exchange)}"


def _replayed(one: Replayed) -> dict[str, Any]:
    exchange = one.exchange
    return {
        "packet": exchange.packets[0], "connection": exchange.connection.number, "client_id": exchange.client_id,
        "api": exchange.api_name, "version": exchange.version, "outcome": one.outcome, "text": one.text,
        "latency_ms": None if one.latency_ms is None else round(one.latency_ms, 3),
        "captured_latency_ms": exchange.latency_ms,
    }  # fmt: skip


def _serve(exchanges: list[Exchange], listen: tuple[str, int], strict: bool, output: Output) -> ExitCode:
    from kwire.tap import Answer, Playback

    def show(answer: Answer) -> None:
        if not output.is_table:
            output.json({"api": answer.api_name, "version": answer.version, "how": answer.how, "text": answer.text})
        elif answer.text:
            output.text(printable(f"{answer.how:8} {answer.api_name} v{answer.version}: {answer.text}"))
        sys.stdout.flush()

    stopping = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    with Playback(exchanges, listen=listen, strict=strict, on_answer=show) as playback:
        click.echo(f"kwire: serving {counted(len(exchanges), 'exchange')} on {playback.address}", err=True)
        try:
            while not stopping.wait(0.2) and not playback.wait(0):
                pass
        except KeyboardInterrupt:
            pass
    output.note(f"{counted(playback.answers, 'request')}, {playback.unknown} that the capture does not answer")
    return ExitCode.KAFKA if playback.unknown else ExitCode.OK


def _topics(maps: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in maps:
        kind, equals, names = text.partition("=")
        old, colon, new = names.partition(":")
        if kind != "topic" or not (equals and colon and old and new):
            raise click.UsageError(f"--map {text}: write topic=OLD:NEW")
        found[old] = new
    return found
