"""`kwire groups`: list and describe groups, show their lag, reset their offsets, delete them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kwire.cli.admin import duration, open_admin, partition_keys, report, show
from kwire.cli.connection import ConnectionOptions, connection_options
from kwire.cli.error_report import ExitCode
from kwire.cli.output import Output, counted, output_options, styled

if TYPE_CHECKING:
    from kwire.admin.groups import Group, GroupLag, GroupMember, Move, ResetTarget
    from kwire.errors import KwireError

_TYPES = ("classic", "consumer", "share", "streams")
_AGO = re.compile(r"-?\d+[a-z]+", re.ASCII)


@click.group(no_args_is_help=True)
def command() -> None:
    """Groups of consumers: list, describe, lag, reset, delete.

    \b
        kwire groups list -b localhost:9092
        kwire groups lag billing
        kwire groups reset billing --to -2h --dry-run
    """


# -- list


@command.command("list")
@click.option("--type", "types", type=click.Choice(_TYPES), multiple=True, help="Only groups of this type; repeatable.")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only groups in this state, such as Stable.")
@connection_options
@output_options
def list_groups(
    types: tuple[Any, ...], states: tuple[str, ...], connection: ConnectionOptions, output: Output
) -> ExitCode:
    """List the groups of the cluster, with type, state and coordinator."""
    with open_admin(connection) as admin:
        found = admin.groups.list(types=types, states=states, timeout=connection.timeout)
    if output.is_table:
        rows = [[one.id, one.type, one.state, one.protocol_type, one.coordinator] for one in found]
        output.table(["group", "type", "state", "protocol", "coordinator"], rows, right=["coordinator"])
    else:
        for one in found:
            output.json(
                {
                    "group": one.id,
                    "type": one.type,
                    "state": one.state,
                    "protocol_type": one.protocol_type,
                    "coordinator": one.coordinator,
                }
            )
    return ExitCode.OK


# -- describe


@command.command()
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@connection_options
@output_options
def describe(groups: tuple[str, ...], connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show the state and the members of groups, with what each member is assigned.

    The exit code is 1 if a group does not exist.
    """
    with open_admin(connection) as admin:
        results = admin.groups.describe_many(groups, timeout=connection.timeout)
    for group in results.ok.values():
        if output.is_table:
            _show_group(group, output)
        else:
            output.json(_group_json(group))
    return report(results.errors, results.ok)


def _show_group(group: Group, output: Output) -> None:
    epoch = f", epoch {group.epoch}" if group.epoch >= 0 else ""
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    output.text(f"{group.id}: {group.type} group, {group.state}{epoch}{assignor}, {_counted_members(group)}")
    rows = [
        [
            member.instance_id or member.id, member.client_id, member.host, "" if member.epoch < 0 else member.epoch,
            _ranges(member.assignment), "" if member.target in ((), member.assignment) else _ranges(member.target),
        ]
        for member in group.members
    ]  # fmt: skip
    if rows:
        output.table(["member", "client", "host", "epoch", "assignment", "target"], rows, right=["epoch"])
    output.text()


def _counted_members(group: Group) -> str:
    return counted(len(group.members), "member")


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "group": group.id, "type": group.type, "state": group.state, "protocol_type": group.protocol_type,
        "assignor": group.assignor, "epoch": group.epoch, "assignment_epoch": group.assignment_epoch,
        "members": [_member_json(member) for member in group.members],
    }  # fmt: skip


def _member_json(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.id, "instance_id": member.instance_id, "client_id": member.client_id, "host": member.host,
        "rack": member.rack, "epoch": member.epoch, "topics": list(member.topics), "pattern": member.pattern,
        "assignment": _by_topic(member.assignment), "target": _by_topic(member.target),
    }  # fmt: skip


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _ranges(partitions: Sequence[tuple[str, int]]) -> str:
    """Return partitions as text: "orders 0-3,7"."""
    return "; ".join(f"{topic} {_number_ranges(numbers)}" for topic, numbers in _by_topic(partitions).items())


def _number_ranges(numbers: list[int]) -> str:
    parts: list[str] = []
    start = previous = numbers[0]
    for number in [*numbers[1:], -1]:
        if number != previous + 1:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    return ",".join(parts)


# -- lag


@command.command()
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@click.option("--committed", is_flag=True, help="Count to the last stable offset, as read_committed members see it.")
@connection_options
@output_options
def lag(groups: tuple[str, ...], committed: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Show how many records groups have still to process, per partition.

    A partition that a member has and for which nothing is committed has no lag. The exit code is 1 if a group does not
    exist, or the end of a partition is not known, such as of one without a leader.
    """
    isolation: Any = "read_committed" if committed else "read_uncommitted"
    with open_admin(connection) as admin:
        results = admin.groups.lag_many(groups, isolation=isolation, timeout=connection.timeout)
    for found in results.ok.values():
        if output.is_table:
            _show_lag(found, output)
        else:
            for line in _lag_lines(found):
                output.json(line)
    partition_errors = {(one.group, key): error for one in results.ok.values() for key, error in one.errors.items()}
    return report({**results.errors, **partition_errors}, results.ok)


def _show_lag(found: GroupLag, output: Output) -> None:
    unknown = f"; the end of {counted(len(found.errors), 'partition')} is not known" if found.errors else ""
    output.text(f"{found.group}: {counted(found.total, 'record')} behind{unknown}")
    rows = [
        [
            one.topic, one.partition, "-" if one.committed is None else one.committed,
            "-" if one.end is None else one.end,
            "-" if one.records is None else styled(str(one.records), "yellow" if one.records else ""),
            "" if one.member is None else one.member.client_id, "" if one.member is None else one.member.host,
        ]
        for one in found.by_partition
    ]  # fmt: skip
    if rows:
        numbers = ["partition", "committed", "end", "lag"]
        output.table(["topic", *numbers, "client", "host"], rows, right=numbers)
    output.text()


def _lag_lines(found: GroupLag) -> Iterable[dict[str, Any]]:
    for one in found.by_partition:
        yield {
            "kind": "partition", "group": found.group, "topic": one.topic, "partition": one.partition,
            "committed": one.committed, "end": one.end, "lag": one.records,
            "member": None if one.member is None else one.member.id,
            "client_id": None if one.member is None else one.member.client_id,
            "host": None if one.member is None else one.member.host,
            "error": None if one.error is None else str(one.error),
        }  # fmt: skip
    yield {"kind": "group", "group": found.group, "lag": found.total}


# -- reset and delete


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("group")
@click.option(
    "--to", "target", metavar="WHERE",
    help='"earliest", "latest", "current", an offset, a time such as 2026-11-01T12:00 (UTC without a zone), '
    "or how long ago: -2h, -30m, -7d.",
)  # fmt: skip
@click.option("--by", type=int, metavar="RECORDS", help="Move by this many records; negative: back.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable. Default: all that are committed.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@connection_options
@output_options
def reset(
    group: str, target: str | None, by: int | None, topics: tuple[str, ...], dry_run: bool,
    connection: ConnectionOptions, output: Output,
) -> ExitCode:  # fmt: skip
    """Set what a group has committed to a point in its topics. The group must have no members.

    Offsets stay inside the log: one before its start becomes its start.
    """
    if (target is None) == (by is None):
        raise click.UsageError("give --to WHERE or --by RECORDS")
    with open_admin(connection) as admin:
        moves = admin.groups.reset(
            group, None if target is None else reset_target(target), by=by, topics=topics or None, dry_run=dry_run,
            timeout=connection.timeout,
        )  # fmt: skip
    if output.is_table:
        rows = [[one.topic, one.partition, "-" if one.before is None else one.before, one.after] for one in moves]
        output.table(["topic", "partition", "before", "after"], rows, right=["partition", "before", "after"])
    else:
        for one in moves:
            output.json(_move_json(one, dry_run))
    output.note(f"{counted(len(moves), 'partition')} {'would be' if dry_run else ''} reset".replace("  ", " "))
    return ExitCode.OK


def _move_json(one: Move, dry_run: bool) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "before": one.before,
        "after": one.after,
        "dry_run": dry_run,
    }


def reset_target(text: str) -> ResetTarget:
    """Return what --to means. Raises UsageError."""
    if text in ("earliest", "latest", "current"):
        return text  # type: ignore[return-value]
    if text.isascii() and text.isdigit():
        return int(text)
    if _AGO.fullmatch(text):
        return duration("--to", text.removeprefix("-"))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--to {text}: give earliest, latest, current, an offset, a time (2026-11-01T12:00) or -2h"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@command.command()
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show which groups would be deleted, and delete none.")
@connection_options
@output_options
def delete(groups: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output) -> ExitCode:
    """Delete groups with their committed offsets. A group with members is not deleted, and the exit code is 1."""
    from kwire.errors import ErrorCode, broker_error

    with open_admin(connection) as admin:
        errors: dict[str, KwireError]
        if dry_run:
            described = admin.groups.describe_many(groups, timeout=connection.timeout)
            done = [name for name, group in described.ok.items() if not group.members]
            errors = {
                **described.errors,
                **{
                    name: broker_error(ErrorCode.NON_EMPTY_GROUP, group=name)
                    for name, group in described.ok.items()
                    if group.members
                },
            }
        else:
            results = admin.groups.delete(list(groups), timeout=connection.timeout)
            done, errors = list(results.ok), results.errors
    for name in done:
        if output.is_table:
            output.text(f"{name}: {'would be deleted' if dry_run else 'deleted'}")
        else:
            output.json({"group": name, "deleted": not dry_run, "dry_run": dry_run})
    return report(errors, done)


@command.command()
@click.argument("group")
@click.option("--instance-id", "instance_ids", multiple=True, metavar="ID", help="A static member; repeatable.")
@click.option("--all", "every", is_flag=True, help="Every member. Those that run join again.")
@click.option("--reason", default="", help="For the brokers' logs.")
@click.option("--dry-run", is_flag=True, help="Show which members would be removed, and remove none.")
@connection_options
@output_options
def remove_members(
    group: str, instance_ids: tuple[str, ...], every: bool, reason: str, dry_run: bool, connection: ConnectionOptions,
    output: Output,
) -> ExitCode:  # fmt: skip
    """Remove members from a group, so that the others take their partitions."""
    if every == bool(instance_ids):
        raise click.UsageError("give --instance-id for each member, or --all")
    errors: Mapping[str, KwireError] = {}
    with open_admin(connection) as admin:
        if dry_run:
            members = admin.groups.describe(group, timeout=connection.timeout).members
            known = [one.instance_id or one.id for one in members]
            if missing := [one for one in instance_ids if one not in known]:
                raise click.UsageError(f"{group} has no member {', '.join(missing)}")
            removed = known if every else list(instance_ids)
        else:
            results = admin.groups.remove_members(
                group, instance_ids=instance_ids, every=every, reason=reason, timeout=connection.timeout
            )
            removed, errors = list(results.ok), results.errors
    show([{"group": group, "member": one, "removed": not dry_run, "dry_run": dry_run} for one in removed], output)
    return report(errors, removed)


@command.command()
@click.argument("group")
@click.argument("partitions", metavar="TOPIC:PARTITION...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show which offsets would be deleted, and delete none.")
@connection_options
@output_options
def delete_offsets(
    group: str, partitions: tuple[str, ...], dry_run: bool, connection: ConnectionOptions, output: Output
) -> ExitCode:
    """Delete committed offsets of topics that no member reads. Of a share group those of whole topics go."""
    keys = partition_keys(partitions)
    errors: Mapping[tuple[str, int], KwireError] = {}
    with open_admin(connection) as admin:
        if dry_run:
            committed = admin.groups.offsets(group, timeout=connection.timeout)
            deleted = [key for key in keys if key in committed]
        else:
            results = admin.groups.delete_offsets(group, keys, timeout=connection.timeout)
            deleted, errors = list(results.ok), results.errors
    rows = [
        {"group": group, "topic": topic, "partition": index, "deleted": not dry_run, "dry_run": dry_run}
        for topic, index in deleted
    ]
    show(rows, output, right=["partition"])
    return report(errors, deleted)
