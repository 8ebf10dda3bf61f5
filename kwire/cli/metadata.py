"""`kwire metadata`: brokers, topics and partitions of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.arguments import complete_topic
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, output_options, styled
from kwire.errors import error_name
from kwire.protocol.json import uuid_text
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from rich.text import Text

    from kwire.cluster import LoopThread

Topic = MetadataResponse.Topic
Partition = MetadataResponse.Topic.Partition
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
# The loop fails a request at its timeout; this much later it would not have run.
_GRACE_SECONDS = 5.0


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--partitions",
    "has_partitions",
    is_flag=True,
    help="List every partition of every topic. Default: only of named topics.",
)
@connection_options
@output_options
def command(topics: tuple[str, ...], has_partitions: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Brokers, topics and partitions of a cluster.

    A named topic is shown with its partitions; if it has an error, the exit code is 1. No topic is created.

    \b
        kwire metadata -b localhost:9092
        kwire metadata -b localhost:9092 orders
        kwire metadata | jq -r 'select(.kind == "topic") | .name'
    """
    from kwire.cluster import LoopThread

    with closing(LoopThread(connection.config())) as loop_thread:
        response = request_metadata(loop_thread, topics or None, connection.timeout)
    found = sorted(response.topics, key=lambda topic: topic.name or "")
    if output.is_table:
        _show(response, found, bool(topics) or has_partitions, output)
    else:
        for line in _lines(response, found):
            output.json(line)
    return ExitCode.KAFKA if topics and any(map(_has_error, found)) else ExitCode.OK


def request_metadata(loop_thread: LoopThread, topics: Sequence[str] | None, timeout: float) -> MetadataResponse:
    """Request the metadata of some topics, or of all. Creates none."""
    return begin_metadata(loop_thread, topics, timeout)()


def begin_metadata(
    loop_thread: LoopThread, topics: Sequence[str] | None, timeout: float
) -> Callable[[], MetadataResponse]:
    """As `request_metadata`, but return a function that waits for the response."""
    from kwire.cluster import ToAny

    def build(version: int) -> MetadataRequest:
        # Before v4, a request by name creates the topic, so request all topics.
        names = topics if version >= 4 else None
        if names is None:
            return MetadataRequest(topics=[] if version == 0 else None, allow_auto_topic_creation=version < 4)
        return MetadataRequest(
            topics=[MetadataRequest.Topic(name=name) for name in names], allow_auto_topic_creation=False
        )

    future = loop_thread.request_future(ToAny(), MetadataRequest, build, timeout)

    def wait() -> MetadataResponse:
        response = loop_thread.wait(future, timeout + _GRACE_SECONDS)
        if topics is not None:
            by_name = {topic.name: topic for topic in response.topics}
            response.topics = [by_name.get(name) or _unknown(name) for name in topics]
        return response

    return wait


def _unknown(name: str) -> Topic:
    return Topic(error_code=3, name=name, partitions=[])


def _has_error(topic: Topic) -> bool:
    return bool(topic.error_code) or any(partition.error_code for partition in topic.partitions)


def _error(code: int) -> str | None:
    return error_name(code) if code else None


def _lines(response: MetadataResponse, topics: Iterable[Topic]) -> Iterable[dict[str, Any]]:
    yield {"kind": "cluster", "cluster_id": response.cluster_id, "controller": response.controller_id}
    for broker in sorted(response.brokers, key=lambda broker: broker.node_id):
        yield {
            "kind": "broker", "id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack,
            "is_controller": broker.node_id == response.controller_id,
        }  # fmt: skip
    for topic in topics:
        topic_id = uuid_text(topic.topic_id)
        yield {
            "kind": "topic", "name": topic.name, "id": None if topic_id == _NO_ID else topic_id,
            "is_internal": topic.is_internal, "error": _error(topic.error_code),
            "partitions": [_partition_to_json(partition) for partition in _in_order(topic)],
        }  # fmt: skip


def _in_order(topic: Topic) -> list[Partition]:
    return sorted(topic.partitions, key=lambda partition: partition.partition_index)


def _partition_to_json(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.partition_index, "leader": partition.leader_id, "leader_epoch": partition.leader_epoch,
        "replicas": partition.replica_nodes, "isr": partition.isr_nodes, "offline": partition.offline_replicas,
        "error": _error(partition.error_code),
    }  # fmt: skip


def _show(response: MetadataResponse, topics: list[Topic], has_partitions: bool, output: Output) -> None:
    from kwire.net import show_address

    output.text(f"cluster {response.cluster_id or '(no id)'}, {counted(len(response.brokers), 'broker')}")
    output.text()
    brokers = sorted(response.brokers, key=lambda broker: broker.node_id)
    rows = (
        [b.node_id, show_address(b.host, b.port), b.rack, "controller" if b.node_id == response.controller_id else ""]
        for b in brokers
    )
    output.table(["broker", "address", "rack", "role"], rows, right=["broker"], whole=["address"])
    output.text()
    if not topics:
        output.text("no topics")
    elif has_partitions:
        _show_partitions(topics, output)
    else:
        columns = ["topic", "partitions", "replicas", "problems"]
        rows_of_topics = (_topic_row(topic) for topic in topics)
        output.table(columns, rows_of_topics, right=["partitions", "replicas"])


def _topic_row(topic: Topic) -> list[object]:
    replicas = {len(partition.replica_nodes) for partition in topic.partitions}
    problems = [error_name(topic.error_code)] if topic.error_code else []
    leaderless = sum(partition.leader_id < 0 for partition in topic.partitions)
    behind = sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in topic.partitions)
    if leaderless:
        problems.append(f"{leaderless} without leader")
    if behind:
        problems.append(f"{behind} under-replicated")
    counts = f"{min(replicas)}-{max(replicas)}" if len(replicas) > 1 else "".join(map(str, replicas))
    return [topic.name, len(topic.partitions), counts, _warning(", ".join(problems), is_severe=bool(leaderless))]


def _show_partitions(topics: list[Topic], output: Output) -> None:
    rows: list[list[object]] = []
    for topic in topics:
        if topic.error_code:
            rows.append([topic.name, "", "", "", "", "", _warning(error_name(topic.error_code), is_severe=True)])
        rows.extend([topic.name, *_partition_row(partition)] for partition in _in_order(topic))
    columns = ["topic", "partition", "leader", "epoch", "replicas", "in sync", "problems"]
    output.table(columns, rows, right=["partition", "leader", "epoch"])


def _partition_row(partition: Partition) -> list[object]:
    problems = [error_name(partition.error_code)] if partition.error_code else []
    if len(partition.isr_nodes) < len(partition.replica_nodes):
        problems.append("under-replicated")
    if partition.offline_replicas:
        problems.append(f"offline {_ids(partition.offline_replicas)}")
    has_leader = partition.leader_id >= 0
    return [
        partition.partition_index,
        partition.leader_id if has_leader else _warning("none", is_severe=True),
        partition.leader_epoch if partition.leader_epoch >= 0 else "",
        _ids(partition.replica_nodes),
        _ids(partition.isr_nodes),
        _warning(", ".join(problems), is_severe=not has_leader),
    ]


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def _warning(text: str, *, is_severe: bool) -> Text:
    return styled(text, "red" if is_severe else "yellow")
