"""`kwire transactional-message-copier`: copies records in transactions for Kafka's system tests.

It does what org.apache.kafka.tools.TransactionalMessageCopier does: the copies and the positions of the group become
visible together, or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.error_report import ExitCode, exit_code, report_error
from kwire.cli.verifiable import Events, bootstrap_option, client_options, config_option
from kwire.errors import FatalError, KwireError

if TYPE_CHECKING:
    from kwire.consumer import Consumer, ConsumerRecord
    from kwire.producer import Producer

TopicPartition = tuple[str, int]
_POLL_SECONDS = 0.2
# Small batches, so that a transaction has several requests in flight.
_BATCH_BYTES = 512


@click.command()
@bootstrap_option
@click.option("--input-topic", required=True, metavar="TOPIC", help="Copy the records of this topic.")
@click.option(
    "--input-partition",
    required=True,
    type=click.IntRange(0),
    metavar="N",
    help="Copy this partition. With --group-mode it has no meaning.",
)
@click.option("--output-topic", required=True, metavar="TOPIC", help="Copy to this topic, to the same partitions.")
@click.option(
    "--max-messages",
    type=int,
    default=-1,
    show_default=True,
    metavar="N",
    help="Stop after N records; -1: at the end that the partition has when the command starts.",
)
@click.option("--consumer-group", default="-1", metavar="GROUP", help="The group that has the positions.")
@click.option(
    "--transaction-size",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    metavar="N",
    help="The most records of a transaction.",
)
@click.option(
    "--transaction-timeout",
    type=click.IntRange(1),
    default=60_000,
    show_default=True,
    metavar="MS",
    help="The coordinator aborts a transaction after this time.",
)
@click.option("--transactional-id", required=True, metavar="ID", help="The producer's name; a second one fences it.")
@click.option("--enable-random-aborts", is_flag=True, help="Abort every third transaction, by chance.")
@click.option("--group-mode", is_flag=True, help="Subscribe to the topic as a member, instead of one partition.")
@click.option(
    "--use-group-metadata", is_flag=True, help="Commit positions as the member, which fences others (KIP-447)."
)
@config_option("--consumer.config")
def command(
    bootstrap: str, input_topic: str, input_partition: int, output_topic: str, max_messages: int, consumer_group: str,
    transaction_size: int, transaction_timeout: int, transactional_id: str, enable_random_aborts: bool,
    group_mode: bool, use_group_metadata: bool, config: str | None,
) -> ExitCode:  # fmt: skip
    """Copy records in transactions.

    The positions of a consumer group are in them. For Kafka's system tests. SIGTERM ends it after the transaction that
    it is in. With --group-mode it waits while it has no partitions, where Java's ends at once.
    """
    from kwire.cluster import ClientConfig
    from kwire.consumer import Consumer, ConsumerOptions, stop_on_signals
    from kwire.producer import Producer

    shared = client_options(config, ClientConfig.option_names() | ConsumerOptions.option_names())
    client = {name: value for name, value in shared.items() if name in ClientConfig.option_names()}
    reading = {"group_protocol": "classic", "session_timeout_ms": 10_000, "max_poll_interval_ms": 180_000, **shared}
    if reading["group_protocol"] != "classic":
        del reading["session_timeout_ms"]
    reading |= {"group": consumer_group, "isolation": "read_committed", "commit": "manual"}
    writing = {**client, "transactional_id": transactional_id, "transaction_timeout_ms": transaction_timeout}
    with (
        stop_on_signals() as stop,
        Producer(bootstrap, batch_bytes=_BATCH_BYTES, **writing) as producer,
        Consumer(bootstrap, **reading) as consumer,
    ):
        group = consumer if use_group_metadata else consumer_group
        copier = _Copier(producer, consumer, output_topic, group, transactional_id, enable_random_aborts)
        try:
            if group_mode:
                consumer.subscribe([input_topic], on_assigned=copier.on_assigned)
            else:
                consumer.assign([(input_topic, input_partition, "earliest")])
                copier.begin_at_committed()
                copier.remaining = copier.to_the_end()
            if max_messages >= 0:
                copier.remaining = min(copier.remaining or max_messages, max_messages)
            producer.init_transactions()
            while copier.remaining != 0 and not stop.is_set():
                copier.write("ProcessLoop")
                records = consumer.poll(transaction_size, _POLL_SECONDS)
                if records:
                    copier.copy(records)
        except KwireError as error:
            report_error(error)
            return exit_code(error)
    copier.write_end()
    return ExitCode.OK


class _Copier:
    """What was copied so far, and what is left; None while a member has no partitions."""

    def __init__(
        self, producer: Producer, consumer: Consumer, output_topic: str, group: Any, transactional_id: str,
        has_aborts: bool,
    ) -> None:  # fmt: skip
        self._producer, self._consumer, self._output_topic = producer, consumer, output_topic
        self._group, self._id, self._has_aborts = group, transactional_id, has_aborts
        self._events = Events()
        self._total = 0
        self._consumed = 0
        self.remaining: int | None = None

    def on_assigned(self, _: Sequence[TopicPartition]) -> None:
        """Count what is left of all that the member owns: a cooperative rebalance names only what is new.

        Without a partition nothing is known: it waits for those that others have to give up first.
        """
        owned = self._consumer.assignment()
        committed = self._consumer.committed(owned)
        ends = self._consumer.end_offsets(owned)
        begins = self._consumer.beginning_offsets(owned)
        starts = {key: begins[key] if offset is None else offset.offset for key, offset in committed.items()}
        self.remaining = sum(ends[key] - starts[key] for key in owned) if owned else None
        self._consumed = 0
        self.write("RebalanceComplete")

    def begin_at_committed(self) -> None:
        """Read again from the last positions of the group."""
        for key, offset in self._consumer.committed().items():
            self._consumer.seek(*key, "earliest" if offset is None else offset.offset)

    def to_the_end(self) -> int:
        keys = self._consumer.assignment()
        ends = self._consumer.end_offsets(keys)
        return sum(ends[key] - self._consumer.position(*key) for key in keys)

    def copy(self, records: list[ConsumerRecord]) -> None:
        """Copy records in one transaction, or abort it. Raises FatalError if this producer can go on no more."""
        producer = self._producer
        # The position is past the markers of transactions, which are no records.
        positions = {key: self._consumer.position(*key) for key in {(one.topic, one.partition) for one in records}}
        try:
            producer.begin()
            for record in records:
                producer.send(self._output_topic, record.value, key=record.key, partition=record.partition)
            producer.send_offsets(positions, self._group)
            if self._has_aborts and random.randrange(3) == 0:
                producer.abort()
                self.begin_at_committed()
                return
            producer.commit()
        except FatalError:
            raise
        except KwireError as error:
            report_error(error)
            producer.abort()
            self.begin_at_committed()
            return
        self._total += len(records)
        self._consumed += len(records)
        if self.remaining is not None:
            self.remaining = max(0, self.remaining - len(records))

    def write(self, stage: str) -> None:
        self._events.write_line({"progress": self._id, "transactionalId": self._id, **self._counts(), "stage": stage})

    def write_end(self) -> None:
        self._events.write_line({"shutdown_complete": self._id, "transactionalId": self._id, **self._counts()})

    def _counts(self) -> dict[str, object]:
        return {
            "totalProcessed": self._total, "consumed": self._consumed, "remaining": self.remaining,
            "time": f"{datetime.now():%Y-%m-%d %H:%M:%S:%f}"[:-3],
        }  # fmt: skip
