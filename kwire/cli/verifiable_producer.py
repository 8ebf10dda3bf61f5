"""`kwire verifiable-producer`: increasing numbers for Kafka's system tests, as its VerifiableProducer sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kwire.cli.error_report import ExitCode
from kwire.cli.verifiable import Events, bootstrap_option, client_options, config_option
from kwire.errors import KwireError
from kwire.net import SystemClock

if TYPE_CHECKING:
    import threading

    from kwire.producer import Producer, ProduceResponse


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="Produce to this topic.")
@click.option("--max-messages", type=int, default=-1, show_default=True, metavar="N", help="Stop after N; -1: never.")
@click.option(
    "--throughput",
    type=float,
    default=-1,
    show_default=True,
    metavar="N",
    help="Send about N records a second; -1: as many as possible.",
)
@click.option(
    "--acks",
    type=click.Choice(["-1", "0", "1"]),
    default="-1",
    show_default=True,
    help="-1: all replicas that are in sync acknowledge a record.",
)
@click.option(
    "--message-create-time",
    type=int,
    default=-1,
    metavar="MS",
    help="The first record's timestamp; it goes on with the clock. Default: now.",
)
@click.option("--value-prefix", type=int, metavar="N", help="Values are N.0, N.1, ... and not 0, 1, ...")
@click.option("--repeating-keys", type=click.IntRange(1), metavar="N", help="Keys are 0 to N-1, again and again.")
@config_option("--producer.config")
def command(
    bootstrap: str, topic: str, max_messages: int, throughput: float, acks: str, message_create_time: int,
    value_prefix: int | None, repeating_keys: int | None, config: str | None,
) -> ExitCode:  # fmt: skip
    """Produce numbers; report each as JSON.

    For Kafka's system tests. SIGTERM ends it: it delivers what it has sent, and prints shutdown_complete and tool_data.
    """
    from kwire.consumer import stop_on_signals
    from kwire.producer import Producer
    from kwire.producer.options import ProducerKwargs

    options: dict[str, Any] = {"acks": int(acks)}
    if acks != "-1":
        options["idempotence"] = False
    options |= client_options(config, ProducerKwargs.__annotations__)
    events, clock = Events(), SystemClock()
    with stop_on_signals() as stop:
        with Producer(bootstrap, **options) as producer:
            run = _Run(events, producer, topic, throughput, repeating_keys)
            events.write("startup_complete")
            base = clock.time_ms()
            number = 0
            while number != max_messages and not stop.is_set():
                value = str(number) if value_prefix is None else f"{value_prefix}.{number}"
                created = None if message_create_time < 0 else message_create_time + clock.time_ms() - base
                run.send(value, created)
                number += 1
                run.throttle(stop)
        events.write("shutdown_complete")
    run.write_summary()
    return ExitCode.OK


class _Run:
    """One run: what was sent, and what became of it."""

    def __init__(
        self, events: Events, producer: Producer, topic: str, throughput: float, repeating_keys: int | None
    ) -> None:
        self._events, self._producer, self._topic = events, producer, topic
        self._throughput, self._repeating_keys = throughput, repeating_keys
        self._clock = SystemClock()
        self._start = self._clock.now()
        self._sent = 0
        self._acked = 0

    def send(self, value: str, created_ms: int | None) -> None:
        key = None if self._repeating_keys is None else str(self._sent % self._repeating_keys)
        self._sent += 1

        def on_delivery(response: ProduceResponse) -> None:
            error = response.exception()
            if error is not None:
                self._write_failure(key, value, error)
                return
            self._acked += 1  # callbacks run on one thread
            stored = response.result()
            self._events.write(
                "producer_send_success", key=key, value=value, topic=stored.topic, partition=stored.partition,
                offset=stored.offset,
            )  # fmt: skip

        try:
            self._producer.send(
                self._topic, value.encode(), key=None if key is None else key.encode(), timestamp_ms=created_ms,
                on_delivery=on_delivery,
            )  # fmt: skip
        except KwireError as error:
            self._write_failure(key, value, error)

    def _write_failure(self, key: str | None, value: str, error: KwireError) -> None:
        self._events.write(
            "producer_send_error", topic=self._topic, key=key, value=value, exception=type(error).__name__,
            message=str(error),
        )  # fmt: skip

    def throttle(self, stop: threading.Event) -> None:
        """Wait until the next record is due; not at all after `stop`."""
        if self._throughput < 0:
            return
        if self._throughput == 0:
            stop.wait()
            return
        wait = self._start + self._sent / self._throughput - self._clock.now()
        if wait > 0:
            stop.wait(wait)

    def write_summary(self) -> None:
        seconds = max(self._clock.now() - self._start, 1e-3)
        self._events.write(
            "tool_data", sent=self._sent, acked=self._acked, target_throughput=round(self._throughput),
            avg_throughput=self._acked / seconds,
        )  # fmt: skip
