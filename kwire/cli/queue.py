"""`kwire queue`: send and receive messages of queues, and run a redelivery tracker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options

if TYPE_CHECKING:
    from kwire.queue import Message, Service

_STOP_SECONDS = 0.2


@click.group(no_args_is_help=True)
def command() -> None:
    """Message queues: send, receive, redelivery tracker.

    Options of the service are given by -X, such as -X message_topic=jobs -X redelivery_timeout_ms=10000.

    \b
        echo 'resize picture 1' | kwire queue send jobs -b localhost:9092
        kwire queue receive jobs --count 1
        kwire queue tracker --config kafka-mq.yaml
    """


def _service(connection: ConnectionOptions, more: dict[str, Any] | None = None) -> Service:
    from kwire.queue import Service

    options = {**connection.client_options(), **(more or {})}
    return Service(options.pop("bootstrap"), **options)


@command.command()
@click.argument("queue")
@click.option("--delay", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="Deliver no earlier than this.")
@click.option("--id", "message_id", help="The id of the message; only with one line of input.")
@connection_options
@output_options
def send(queue: str, delay: float, message_id: str | None, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Send each line of stdin as a message."""
    lines = [line.removesuffix(b"\n") for line in sys.stdin.buffer]
    if message_id is not None and len(lines) != 1:
        raise click.UsageError(f"--id is of one message; the input has {len(lines)} lines")
    with _service(connection) as service, service.queue(queue).producer() as producer:
        sent = [producer.send(line, delay_ms=round(delay * 1000), message_id=message_id) for line in lines]
        for response in sent:
            response.result(connection.timeout)
    output.note(f"{len(sent)} messages sent to {queue}.")
    return ExitCode.OK


@command.command()
@click.argument("queue")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option("--wait", type=click.FloatRange(0), metavar="SECONDS", help="Stop when no message came for this long.")
@click.option("--release", "is_released", is_flag=True, help="Give each message back instead of acknowledging it.")
@connection_options
@output_options
def receive(
    queue: str, count: int | None, wait: float | None, is_released: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Receive messages, print each as a JSON line, and acknowledge it."""
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
            else:
                message.ack()
            got += 1
        consumer.flush(connection.timeout)
    return ExitCode.OK


def _shown(message: Message) -> dict[str, Any]:
    partition, offset = message.place
    return {
        "id": message.id,
        "payload": None if message.payload is None else message.payload.decode(errors="replace"),
        "deliveries": message.deliveries,
        "first_sent_at_ms": message.first_sent_at_ms,
        "partition": partition,
        "offset": offset,
        "headers": {name: None if value is None else value.decode(errors="replace") for name, value in message.headers},
    }


@command.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="A YAML file, as kafka-mq-go has it.")
@connection_options
@output_options
def tracker(config: str | None, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Run a redelivery tracker until SIGINT or SIGTERM. Several share the work."""
    from kwire.consumer import stop_on_signals
    from kwire.queue import read_config

    options = read_config(config) if config else {}
    options.pop("bootstrap", None)  # -b or KWIRE_BOOTSTRAP say which
    with _service(connection, options) as service, stop_on_signals() as stopped:
        found = service.tracker()
        output.note(f"Tracking {service.options.marker_topic} for {service.options.message_topic}; Ctrl-C ends.")
        found.start()
        while found.is_running and not stopped.wait(_STOP_SECONDS):
            pass
        found.close()
        counted = found.metrics()
        output.note(f"{counted.redelivered} redelivered, {counted.dead_lettered} dead letters.")
    return ExitCode.OK
