"""`kwire verifiable-consumer`: a group's member for Kafka's system tests (org.apache.kafka.tools.VerifiableConsumer).

Records are reported before they are committed, and commits before the partitions are revoked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.error_report import ExitCode, exit_code, report_error
from kwire.cli.verifiable import (
    Events,
    assignor_name,
    bootstrap_option,
    client_options,
    config_option,
    partition_list,
    reset_policy,
    text_of,
)
from kwire.errors import FencedInstanceError, KwireError

if TYPE_CHECKING:
    from kwire.consumer import Consumer, ConsumerRecord

_POLL_SECONDS = 1.0
_MAX_POLL_RECORDS = 500


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="Consume this topic.")
@click.option("--group-id", required=True, metavar="GROUP", help="The consumer group to join.")
@click.option("--group-instance-id", metavar="ID", help="Makes the member static.")
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"]),
    default="classic",
    show_default=True,
    help="consumer is the protocol of KIP-848.",
)
@click.option("--group-remote-assignor", metavar="NAME", help="With consumer: the broker's assignor. Default: its own.")
@click.option(
    "--session-timeout",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    metavar="MS",
    help="With classic: a member is dropped after this time without a heartbeat.",
)
@click.option(
    "--assignment-strategy",
    default="org.apache.kafka.clients.consumer.RangeAssignor",
    show_default=True,
    metavar="CLASS,...",
    help="With classic: assignors, as Java's classes or by name.",
)
@click.option("--max-messages", type=int, default=-1, show_default=True, metavar="N", help="Stop after N; -1: never.")
@click.option("--enable-autocommit", is_flag=True, help="Commit in the background, and not after each poll.")
@click.option(
    "--reset-policy",
    "policy",
    type=click.Choice(["earliest", "latest", "none"]),
    default="earliest",
    show_default=True,
    help="Where to begin without a committed offset.",
)
@click.option("--verbose", is_flag=True, help="Print every record, too.")
@config_option("--consumer.config")
def command(
    bootstrap: str, topic: str, group_id: str, group_instance_id: str | None, group_protocol: str,
    group_remote_assignor: str | None, session_timeout: int, assignment_strategy: str, max_messages: int,
    enable_autocommit: bool, policy: str, verbose: bool, config: str | None,
) -> ExitCode:  # fmt: skip
    """Consume as a group's member; report as JSON.

    For Kafka's system tests. SIGTERM ends it: it commits, leaves the group and prints shutdown_complete.
    """
    from kwire.cluster import ClientConfig
    from kwire.consumer import ConsumerOptions

    options: dict[str, Any] = client_options(config, ConsumerOptions.option_names() | ClientConfig.option_names())
    options |= {
        "bootstrap": bootstrap, "group": group_id, "group_protocol": group_protocol,
        "commit": "auto" if enable_autocommit else "manual", **reset_policy(policy),
    }  # fmt: skip
    if group_instance_id is not None:
        options["group_instance_id"] = group_instance_id
    if group_protocol == "classic":
        options["session_timeout_ms"] = session_timeout
        options["heartbeat_interval_ms"] = min(3_000, max(1, session_timeout // 3))
        options["assignors"] = [assignor_name(name) for name in assignment_strategy.split(",")]
    else:
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignors"):
            options.pop(name, None)
        if group_remote_assignor is not None:
            options["remote_assignor"] = group_remote_assignor
    return _run(options, topic, max_messages, verbose)


def _run(options: dict[str, Any], topic: str, max_messages: int, is_verbose: bool) -> ExitCode:
    from kwire.consumer import Consumer, stop_on_signals

    events = Events()
    status = ExitCode.OK
    with stop_on_signals() as stop:
        consumer = Consumer(**options)
        events.write("startup_complete")
        try:
            consumer.subscribe(
                [topic],
                on_assigned=lambda found: events.write("partitions_assigned", partitions=partition_list(found)),
                on_revoked=lambda found: events.write("partitions_revoked", partitions=partition_list(found)),
            )
            left = max_messages
            while left != 0 and not stop.is_set():
                records = consumer.poll(_MAX_POLL_RECORDS if left < 0 else min(_MAX_POLL_RECORDS, left), _POLL_SECONDS)
                if not records:
                    continue
                _report(events, records, is_verbose)
                left -= len(records) if left > 0 else 0
                if options["commit"] == "manual":
                    _commit(events, consumer, records)
            if options["commit"] == "auto":
                consumer.commit()  # all that was returned is processed: it was written
        except KwireError as error:
            report_error(error)
            status = exit_code(error)
        finally:
            consumer.close()
            events.write("shutdown_complete")
    return status


def _report(events: Events, records: Sequence[ConsumerRecord], is_verbose: bool) -> None:
    offsets: dict[tuple[str, int], list[int]] = {}
    for record in records:
        offsets.setdefault((record.topic, record.partition), []).append(record.offset)
        if is_verbose:
            events.write(
                "record_data", key=text_of(record.key), value=text_of(record.value), topic=record.topic,
                partition=record.partition, offset=record.offset,
            )  # fmt: skip
    events.write(
        "records_consumed", count=len(records),
        partitions=[
            {"topic": topic, "partition": partition, "count": len(of), "minOffset": of[0], "maxOffset": of[-1]}
            for (topic, partition), of in offsets.items()
        ],
    )  # fmt: skip


def _commit(events: Events, consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    """Commit the offsets after these records. Only a fenced member ends by an error: others were reported."""
    offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
    listed = [{"topic": topic, "partition": number, "offset": offset} for (topic, number), offset in offsets.items()]
    try:
        consumer.commit(offsets)
    except FencedInstanceError:
        raise
    except KwireError as error:
        events.write("offsets_committed", offsets=listed, error=str(error), success=False)
    else:
        events.write("offsets_committed", offsets=listed, success=True)
