"""`kwire verifiable-share-consumer`: a share group's member for Kafka's system tests.

It does what org.apache.kafka.tools.VerifiableShareConsumer does: acknowledges implicitly, by the next poll, or by a
commit after each poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import click

from kwire.cli.error_report import ExitCode, exit_code, report_error
from kwire.cli.verifiable import Events, bootstrap_option, client_options, config_option, text_of
from kwire.errors import KwireError, broker_error

_POLL_SECONDS = 1.0
_GROUP_RESOURCE = 32  # ConfigResource.Type of a group
_SET = 0
TopicPartition = tuple[str, int]


@click.command()
@bootstrap_option
@click.option("--topic", required=True, help="Consume this topic.")
@click.option("--group-id", required=True, metavar="GROUP", help="The share group to join.")
@click.option(
    "--max-messages",
    type=int,
    default=-1,
    show_default=True,
    metavar="N",
    help="Stop after N acknowledged records; -1: never.",
)
@click.option(
    "--acknowledgement-mode",
    "mode",
    type=click.Choice(["auto", "sync", "async"]),
    default="auto",
    show_default=True,
    help="auto: by the next poll. sync, async: by a commit after each poll.",
)
@click.option(
    "--offset-reset-strategy",
    "strategy",
    default="",
    metavar="WHERE",
    help="Set the group's share.auto.offset.reset first: earliest, latest, by_duration:PT1H.",
)
@click.option("--verbose", is_flag=True, help="Print every record, too.")
@config_option("--consumer.config")
def command(
    bootstrap: str, topic: str, group_id: str, max_messages: int, mode: str, strategy: str, verbose: bool,
    config: str | None,
) -> ExitCode:  # fmt: skip
    """Consume as a share group's member.

    For Kafka's system tests. SIGTERM ends it: it acknowledges, leaves the group and prints shutdown_complete.
    """
    from kwire.cluster import ClientConfig
    from kwire.consumer import stop_on_signals
    from kwire.share import ShareConsumer, ShareConsumerOptions

    options = client_options(config, ShareConsumerOptions.option_names() | ClientConfig.option_names())
    security = {name: value for name, value in options.items() if name in ("tls", "sasl")}
    options |= {"bootstrap": bootstrap, "group": group_id, "acknowledgement_mode": "implicit"}
    events = Events()
    acknowledged = 0
    status = ExitCode.OK

    def on_acknowledged(offsets: Mapping[TopicPartition, Sequence[int]], error: KwireError | None) -> None:
        nonlocal acknowledged
        count = sum(map(len, offsets.values()))
        acknowledged += 0 if error else count
        failure = {} if error is None else {"error": str(error)}
        events.write(
            "offsets_acknowledged", count=count, partitions=_by_partition(offsets), **failure, success=error is None
        )

    with stop_on_signals() as stop:
        consumer = ShareConsumer(**options)
        events.write("startup_complete")
        try:
            if strategy:
                _set_reset(bootstrap, security, group_id, strategy)
                events.write("offset_reset_strategy_set", offsetResetStrategy=strategy)
            consumer.subscribe([topic], on_acknowledged=on_acknowledged)
            while not stop.is_set() and not 0 <= max_messages <= acknowledged:
                records = consumer.poll(timeout=_POLL_SECONDS)
                if not records:
                    continue
                _report(events, records, verbose)
                if mode == "sync":
                    consumer.commit()
                elif mode == "async":
                    consumer.commit_async()
            if stop.is_set():
                consumer.commit()  # what was reported is processed
        except KwireError as error:
            report_error(error)
            status = exit_code(error)
        finally:
            consumer.close()
            events.write("shutdown_complete")
    return status


def _report(events: Events, records: Iterable[Any], is_verbose: bool) -> None:
    offsets: dict[TopicPartition, list[int]] = {}
    for record in records:
        offsets.setdefault((record.topic, record.partition), []).append(record.offset)
        if is_verbose:
            events.write(
                "record_data", key=text_of(record.key), value=text_of(record.value), topic=record.topic,
                partition=record.partition, offset=record.offset,
            )  # fmt: skip
    events.write("records_consumed", count=sum(map(len, offsets.values())), partitions=_by_partition(offsets))


def _by_partition(offsets: Mapping[TopicPartition, Sequence[int]]) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": partition, "count": len(of), "offsets": sorted(of)}
        for (topic, partition), of in offsets.items()
    ]


def _set_reset(bootstrap: str, security: Mapping[str, Any], group: str, strategy: str) -> None:
    """Set where the share group begins on partitions that it has not read yet."""
    from kwire.cluster import LoopThread, ToAny, client_config
    from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=_GROUP_RESOURCE,
        resource_name=group,
        configs=[
            IncrementalAlterConfigsRequest.Resource.Config(
                name="share.auto.offset.reset", config_operation=_SET, value=strategy
            )
        ],
    )
    with closing(LoopThread(client_config(bootstrap, security))) as loop_thread:
        response: Any = loop_thread.request(
            ToAny(),
            IncrementalAlterConfigsRequest,
            lambda _: IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        )
    for one in response.responses:
        if one.error_code:
            raise broker_error(one.error_code, one.error_message or "", api="IncrementalAlterConfigs", group=group)
