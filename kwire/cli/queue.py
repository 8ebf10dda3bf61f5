"""`kwire queue`: messages of queues, redelivery tracker, dead letters, and where a message is."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kwire.cli.connection import NO_ADDRESS, ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, output_options

if TYPE_CHECKING:
    from kwire.queue import DeadLetter, Message, MessageState, QueueStats, Service

_STOP_SECONDS = 0.2


@click.group(no_args_is_help=True)
def command() -> None:
    """Message queues: send, receive, tracker, dead letters.

    Options of the service are given by -X, such as -X message_topic=jobs -X redelivery_timeout_ms=10000.

    \b
        echo 'resize picture 1' | kwire queue send jobs -b localhost:9092
        kwire queue receive jobs --count 1
        kwire queue tracker --config kafka-mq.yaml
        kwire queue dead-letters jobs
    """


def _service(connection: ConnectionOptions, defaults: dict[str, Any] | None = None) -> Service:
    """Return the service; what the command line says goes before `defaults`."""
    from kwire.queue import Service

    options = {"setup_timeout_ms": _ms(connection.timeout), **(defaults or {}), **connection.client_options()}
    return Service(options.pop("bootstrap"), **options)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _time(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _headers(headers: Any) -> dict[str, str | None]:
    from kwire.records.rows import shown_name

    return {shown_name(name): _text(value) for name, value in headers}


# -- messages


@command.command()
@click.argument("queue")
@click.option("--delay", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="Deliver no earlier than this.")
@click.option("--expires-in", type=click.FloatRange(0.001), metavar="SECONDS", help="Not delivered after this time.")
@click.option("--id", "message_id", help="The id of the message; only with one line of input.")
@connection_options
@output_options
def send(
    queue: str, delay: float, expires_in: float | None, message_id: str | None, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Send each line of stdin as a message."""
    lines = [line.removesuffix(b"\n") for line in sys.stdin.buffer]
    if message_id is not None and len(lines) != 1:
        raise click.UsageError(f"--id is of one message; the input has {len(lines)} lines")
    options: dict[str, Any] = {"delay_ms": round(delay * 1000), "expires_in_ms": _ms(expires_in)}
    with _service(connection) as service, service.queue(queue).producer() as producer:
        sent = [producer.send(line, message_id=message_id, **options) for line in lines]
        for response in sent:
            response.result(connection.timeout)
    output.note(f"{len(sent)} messages sent to {queue}.")
    return ExitCode.OK


@command.command()
@click.argument("queue")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option("--wait", type=click.FloatRange(0), metavar="SECONDS", help="Stop when no message came for this long.")
@click.option("--release", "is_released", is_flag=True, help="Give each message back instead of acknowledging it.")
@click.option("--nack", "reason", metavar="REASON", help="Make each message a dead letter instead.")
@connection_options
@output_options
def receive(
    queue: str, count: int | None, wait: float | None, is_released: bool, reason: str | None,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Receive messages, print each as a JSON line, and acknowledge it."""
    if is_released and reason is not None:
        raise click.UsageError("--release and --nack exclude each other")
    limits = {"consumer_receive_buffer_capacity": min(count, 500)} if count else {}
    got = 0
    with _service(connection, limits) as service, service.queue(queue).consumer() as consumer:
        while count is None or got < count:
            message = consumer.receive(wait)
            if message is None:
                break
            output.json(_shown(message))
            if is_released:
                message.release()
            elif reason is not None:
                message.nack(reason)
            else:
                message.ack()
            got += 1
        consumer.flush(connection.timeout)
    return ExitCode.OK


def _shown(message: Message) -> dict[str, Any]:
    partition, offset = message.place
    return {
        "id": message.id,
        "payload": _text(message.payload),
        "deliveries": message.deliveries,
        "first_sent_at_ms": message.first_sent_at_ms,
        "partition": partition,
        "offset": offset,
        "headers": _headers(message.headers),
    }


@command.command()
@click.argument("queue")
@click.option("-c", "--count", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="How many.")
@connection_options
@output_options
def peek(queue: str, count: int, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the first messages that no consumer has taken; they stay in the queue."""
    with _service(connection) as service:
        for one in service.peek(queue, count):
            output.json({**asdict(one), "payload": _text(one.payload), "headers": _headers(one.headers)})
    return ExitCode.OK


@command.command()
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE...")
@click.option(
    "--warn-age",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Warn and exit with 1 if a message waits for longer, by the clock of this machine.",
)
@click.option("--warn-waiting", type=click.IntRange(0), metavar="N", help="Warn and exit with 1 if more than N wait.")
@connection_options
@output_options
def stats(
    queues: tuple[str, ...], warn_age: float | None, warn_waiting: int | None, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Show how many messages of a queue wait, are in progress, and are dead letters."""
    with _service(connection) as service:
        found = [service.stats(queue) for queue in queues]
        now_ms = service.clock.time_ms()
    if output.is_table:
        names = ["waiting", "in_progress", "dead_letters", "depth"]
        output.table(["queue", *names, "oldest"], [_row(one, names) for one in found], right=names)
    else:
        for one in found:
            output.json(asdict(one))
    warnings = [line for one in found for line in _warnings(one, now_ms, warn_age, warn_waiting)]
    for line in warnings:
        click.echo(line, err=True)
    return ExitCode.KAFKA if warnings else ExitCode.OK


def _warnings(stats: QueueStats, now_ms: int, age_max: float | None, waiting_max: int | None) -> list[str]:
    """Return what is beyond the limits: messages that nobody consumes die with the retention of their topic."""
    remedy = "run a consumer, or more of them, before the retention of the queue topic deletes them"
    lines = []
    if age_max is not None and stats.oldest_waiting_ms is not None:
        age = (now_ms - stats.oldest_waiting_ms) / 1000
        if age > age_max:
            lines.append(f"queue {stats.queue}: a message waits for {age:.1f} s, more than {age_max:g} s: {remedy}")
    if waiting_max is not None and stats.waiting > waiting_max:
        lines.append(f"queue {stats.queue}: {stats.waiting} of its messages wait, more than {waiting_max}: {remedy}")
    return lines


def _row(stats: QueueStats, names: list[str]) -> list[object]:
    numbers = ["" if getattr(stats, name) is None else getattr(stats, name) for name in names]
    return [stats.queue, *numbers, _time(stats.oldest_waiting_ms)]


# -- dead letters


@command.command("dead-letters")
@click.argument("queue", required=False)
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Show N at most.")
@connection_options
@output_options
def dead_letters(queue: str | None, count: int | None, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the dead letters of a queue, or of all queues, with their reasons."""
    with _service(connection) as service:
        found = service.dead_letters(queue, limit=count)
    if output.is_table:
        columns = ["queue", "id", "deliveries", "since", "reason", "payload"]
        output.table(columns, [_dead_row(one) for one in found], right=["deliveries"])
    else:
        for one in found:
            shown = {name: value for name, value in asdict(one).items() if name != "envelope"}
            output.json({**shown, "payload": _text(one.payload), "headers": _headers(one.headers)})
    return ExitCode.OK


def _dead_row(one: DeadLetter) -> list[object]:
    return [one.queue, one.id, one.deliveries, _time(one.dead_since_ms), one.reason, _text(one.payload)]


@command.command()
@click.argument("queue", required=False)
@click.option("--id", "ids", multiple=True, help="Only the dead letter with this id; repeatable.")
@click.option("--all", "is_all", is_flag=True, help="The dead letters of all queues.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Send N back at most.")
@connection_options
@output_options
def redrive(
    queue: str | None, ids: tuple[str, ...], is_all: bool, count: int | None, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Send dead letters back to their queue, as messages that were never delivered. Each goes back once."""
    if is_all == (queue is not None or bool(ids)):
        raise click.UsageError("name a queue, or give --id, or --all for the dead letters of all queues")
    with _service(connection) as service:
        sent = service.redrive(queue, ids=set(ids) or None, limit=count)
    output.note(f"{counted(sent, 'dead letter')} sent back.")
    missing = bool(ids) and not sent
    return ExitCode.KAFKA if missing else ExitCode.OK


# -- one message


@command.command()
@click.argument("message_id", metavar="ID")
@connection_options
@output_options
def explain(message_id: str, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Say where a message is, since when, and until when, from the topics."""
    with _service(connection) as service:
        found = service.explain(message_id)
    if output.is_table:
        output.text(_sentence(found))
    else:
        output.json(asdict(found))
    return ExitCode.KAFKA if found.state == "unknown" else ExitCode.OK


def _sentence(found: MessageState) -> str:
    parts = [f"{found.id} is {found.state}"]
    if found.queue:
        parts.append(f"in queue {found.queue}")
    if found.since_ms is not None:
        parts.append(f"since {_time(found.since_ms)}")
    if found.until_ms is not None:
        parts.append(f"until {_time(found.until_ms)}")
    if found.reason:
        parts.append(f"({found.reason})")
    lines = [" ".join(parts) + f"; delivered {found.deliveries} times before."]
    lines += [f"  {topic} {partition} {offset}" for topic, partition, offset in found.places]
    return "\n".join(lines)


# -- tracker


@command.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="A YAML file, as kafka-mq-go has it.")
@partial(connection_options, needs_address=False)
@output_options
def tracker(config: str | None, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Run a redelivery tracker until SIGINT or SIGTERM. Several share the work.

    -b and -X go before the file, and the file before KWIRE_BOOTSTRAP.
    """
    from kwire.consumer import stop_on_signals
    from kwire.queue import read_config

    options = read_config(config) if config else {}
    bootstrap = options.pop("bootstrap", None)
    of_environment = click.get_current_context().get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT
    if bootstrap and (of_environment or not connection.bootstrap):
        connection = replace(connection, bootstrap=bootstrap)
    if not connection.bootstrap:
        raise click.UsageError(NO_ADDRESS)
    with _service(connection, options) as service, stop_on_signals() as stopped:
        found = service.tracker()
        output.note(f"Tracking {service.options.marker_topic} for {service.options.message_topic}; Ctrl-C ends.")
        found.start()
        while found.is_running and not stopped.wait(_STOP_SECONDS):
            pass
        found.close()
        metrics = found.metrics()
        output.note(f"{metrics.redelivered} redelivered, {counted(metrics.dead_lettered, 'dead letter')}.")
    return ExitCode.OK
