"""`kwire topics`: list, describe, create and delete topics, add partitions."""

from __future__ import annotations

import click

from kwire.cli.admin import open_admin, pairs, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options


@click.group(no_args_is_help=True)
def command() -> None:
    """Topics: list, describe, create, delete, add partitions.

    \b
        kwire topics create orders --partitions 6 --config retention.ms=3600000 -b localhost:9092
        kwire topics describe orders
    """


@command.command("list")
@click.option("--internal", is_flag=True, help="Kafka's own topics too, such as __consumer_offsets.")
@connection_options
@output_options
def list_topics(internal: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """List the topics of the cluster."""
    with open_admin(connection) as admin:
        known = admin.cluster.metadata(timeout=connection.timeout)
    topics = sorted(known.topics.values(), key=lambda one: one.name)
    rows = [
        {"topic": one.name, "partitions": len(one.partitions), "internal": one.is_internal}
        for one in topics
        if internal or not one.is_internal
    ]
    show(rows, output, right=["partitions"])
    return ExitCode.OK


@command.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@connection_options
@output_options
def describe(topics: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the partitions of topics: leader, replicas, which are in sync. The exit code is 1 if one does not exist."""
    with open_admin(connection) as admin:
        results = admin.topics.describe_many(topics, timeout=connection.timeout)
    rows = [
        {
            "topic": topic.name, "partition": one.index, "leader": None if one.leader < 0 else one.leader,
            "epoch": one.leader_epoch, "replicas": list(one.replicas), "isr": list(one.isr),
            "offline": list(one.offline),
        }
        for topic in results.ok.values()
        for one in topic.partitions
    ]  # fmt: skip
    show(rows, output, right=["partition", "leader", "epoch"])
    return report(results.errors, results.ok)


@command.command()
@click.argument("topic")
@click.option("--partitions", type=int, default=-1, help="Their number. Default: the brokers'.")
@click.option("--replication-factor", type=int, default=-1, help="The number of replicas. Default: the brokers'.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A config of the topic; repeatable.")
@click.option("--dry-run", is_flag=True, help="Have the controller check the topic, and create nothing.")
@connection_options
@output_options
def create(
    topic: str, partitions: int, replication_factor: int, configs: tuple[str, ...], dry_run: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Create a topic. It can be used when the command ends."""
    with open_admin(connection) as admin:
        made = admin.topics.create(
            topic, partitions=partitions, replication_factor=replication_factor, configs=dict(pairs(configs)),
            dry_run=dry_run, timeout=connection.timeout,
        )  # fmt: skip
    row = {"topic": made.name, "partitions": made.partitions, "replication_factor": made.replication_factor}
    show([{**row, "dry_run": dry_run}], output, right=["partitions", "replication_factor"])
    return ExitCode.OK


@command.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show which topics would be deleted, and delete none.")
@connection_options
@output_options
def delete(topics: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Delete topics with all of their records."""
    with open_admin(connection) as admin:
        if dry_run:
            described = admin.topics.describe_many(topics, timeout=connection.timeout)
            done, errors = list(described.ok), described.errors
        else:
            results = admin.topics.delete(list(topics), timeout=connection.timeout)
            done, errors = list(results.ok), results.errors
    show([{"topic": name, "deleted": not dry_run, "dry_run": dry_run} for name in done], output)
    return report(errors, done)


@command.command()
@click.argument("topic")
@click.argument("total", type=int)
@click.option("--dry-run", is_flag=True, help="Have the controller check it, and change nothing.")
@connection_options
@output_options
def add_partitions(topic: str, total: int, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Give TOPIC more partitions, so that it has TOTAL. Keys move to other partitions by that."""
    with open_admin(connection) as admin:
        admin.topics.add_partitions(topic, total, dry_run=dry_run, timeout=connection.timeout)
    show([{"topic": topic, "partitions": total, "dry_run": dry_run}], output, right=["partitions"])
    return ExitCode.OK
