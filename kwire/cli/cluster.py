"""`kwire cluster`: describe the cluster, its features and its quorum, and say what is wrong with it."""

from __future__ import annotations

from uuid import UUID

import click

from kwire.cli.admin import open_admin, pairs, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, output_options
from kwire.errors import ConfigurationError

_dry_run = click.option("--dry-run", is_flag=True, help="Check what can be checked, and change nothing.")


def _directory(context: click.Context, parameter: click.Parameter, value: str) -> UUID:
    """Return the id of a directory, in Kafka's text or as a UUID."""
    from kwire.admin.cluster import checked_directory

    try:
        return checked_directory(value)
    except ConfigurationError as error:
        raise click.BadParameter(f"{value!r:.60}: {error.remedy}") from None


@click.group(no_args_is_help=True)
def command() -> None:
    """The cluster: describe, explain, features, quorum, voters.

    \b
        kwire cluster explain -b localhost:9092
        kwire cluster features
    """


@command.command()
@connection_options
@output_options
def describe(connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the brokers of the cluster, and which is the controller."""
    with open_admin(connection) as admin:
        found = admin.cluster.describe(timeout=connection.timeout)
    rows = [
        {"broker": one.id, "host": one.host, "port": one.port, "rack": one.rack, "controller": one == found.controller}
        for one in found.brokers
    ]
    output.note(f"cluster {found.cluster_id}")
    show(rows, output, right=["broker", "port"])
    return ExitCode.OK


@command.command()
@connection_options
@output_options
def explain(connection: ConnectionOptions, output: Output) -> ExitCode:
    """Say what is wrong: partitions without a leader or with too few replicas. The exit code is 1 if anything is."""
    with open_admin(connection) as admin:
        found = admin.cluster.explain(timeout=connection.timeout)
    for line in found:
        if output.is_table:
            output.text(line)
        else:
            output.json({"finding": line})
    if not found:
        output.note("nothing is wrong")
    return ExitCode.KAFKA if found else ExitCode.OK


@command.command()
@connection_options
@output_options
def features(connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the features of the cluster: the level in force, and what the brokers support."""
    with open_admin(connection) as admin:
        found = admin.cluster.features(timeout=connection.timeout)
    rows = [
        {
            "feature": one.name, "level": one.level,
            "lowest": None if one.supported is None else one.supported[0],
            "highest": None if one.supported is None else one.supported[1],
        }
        for one in found.values()
    ]  # fmt: skip
    show(rows, output, right=["level", "lowest", "highest"])
    return ExitCode.OK


@command.command()
@click.argument("feature")
@click.argument("level", type=int)
@click.option(
    "--change", type=click.Choice(["upgrade", "downgrade", "unsafe-downgrade"]), default="upgrade", show_default=True,
    help="An unsafe downgrade may lose metadata.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Have the controller check it, and change nothing.")
@connection_options
@output_options
def set_feature(
    feature: str, level: int, change: str, dry_run: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Set the level of a feature; 0 turns it off."""
    with open_admin(connection) as admin:
        admin.cluster.set_feature(feature, level, change=change, dry_run=dry_run, timeout=connection.timeout)
    show([{"feature": feature, "level": level, "change": change, "dry_run": dry_run}], output, right=["level"])
    return ExitCode.OK


@command.command()
@connection_options
@output_options
def quorum(connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the voters and observers of the metadata log, and how far each is (KRaft)."""
    with open_admin(connection) as admin:
        found = admin.cluster.quorum(timeout=connection.timeout)
    rows = [
        {
            "node": one.id, "directory": str(one.directory_id),
            "role": "leader" if one.id == found.leader else role, "log_end": one.log_end,
            "behind": max(0, found.high_watermark - one.log_end), "last_caught_up_ms": one.last_caught_up_ms,
        }
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for one in replicas
    ]  # fmt: skip
    output.note(f"leader {found.leader} in epoch {found.leader_epoch}, high watermark {found.high_watermark}")
    show(rows, output, right=["node", "log_end", "behind", "last_caught_up_ms"])
    return ExitCode.OK


@command.command()
@click.argument("voter", type=int)
@click.argument("directory", callback=_directory)
@click.argument("listeners", metavar="LISTENER=HOST:PORT...", nargs=-1, required=True)
@_dry_run
@connection_options
@output_options
def add_voter(
    voter: int, directory: UUID, listeners: tuple[str, ...], dry_run: bool, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Make controller VOTER a voter of the quorum; DIRECTORY is the id in its meta.properties (Kafka 3.9)."""
    addresses = {}
    for name, address in pairs(listeners).items():
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit()):
            raise click.UsageError(f"{name}={address}: give HOST:PORT")
        addresses[name] = host, int(port)
    with open_admin(connection) as admin:
        known = admin.cluster.quorum(timeout=connection.timeout)
        if any(one.id == voter and one.directory_id == directory for one in known.voters):
            raise click.UsageError(f"controller {voter} with this directory is a voter already")
        if not dry_run:
            admin.cluster.add_voter(voter, directory, addresses, timeout=connection.timeout)
    show([{"voter": voter, "directory": str(directory), "change": "add", "dry_run": dry_run}], output, right=["voter"])
    return ExitCode.OK


@command.command()
@click.argument("voter", type=int)
@click.argument("directory", callback=_directory)
@_dry_run
@connection_options
@output_options
def remove_voter(voter: int, directory: UUID, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Take controller VOTER out of the quorum (Kafka 3.9)."""
    with open_admin(connection) as admin:
        known = admin.cluster.quorum(timeout=connection.timeout)
        if all((one.id, one.directory_id) != (voter, directory) for one in known.voters):
            raise click.UsageError(f"controller {voter} with this directory is no voter; see `kwire cluster quorum`")
        if not dry_run:
            admin.cluster.remove_voter(voter, directory, timeout=connection.timeout)
    row = {"voter": voter, "directory": str(directory), "change": "remove", "dry_run": dry_run}
    show([row], output, right=["voter"])
    return ExitCode.OK


@command.command()
@click.argument("broker", type=int)
@_dry_run
@connection_options
@output_options
def unregister_broker(broker: int, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Have the cluster forget a broker that is down for good (KRaft)."""
    with open_admin(connection) as admin:
        running = {one.id for one in admin.cluster.describe(timeout=connection.timeout).brokers}
        if broker in running:
            raise click.UsageError(f"broker {broker} is running: stop it first")
        if not dry_run:
            admin.cluster.unregister_broker(broker, timeout=connection.timeout)
    show([{"broker": broker, "change": "unregister", "dry_run": dry_run}], output, right=["broker"])
    return ExitCode.OK


@command.command()
@click.argument("controller", type=int)
@_dry_run
@connection_options
@output_options
def unregister_controller(controller: int, dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Have the cluster forget a controller that is down for good (Kafka 4.4)."""
    with open_admin(connection) as admin:
        if any(one.id == controller for one in admin.cluster.quorum(timeout=connection.timeout).voters):
            raise click.UsageError(f"controller {controller} is a voter: `kwire cluster remove-voter` comes first")
        if not dry_run:
            admin.cluster.unregister_controller(controller, timeout=connection.timeout)
    show([{"controller": controller, "change": "unregister", "dry_run": dry_run}], output, right=["controller"])
    return ExitCode.OK
