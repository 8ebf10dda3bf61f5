"""The committed offsets of groups, carried by a mirror: where a group goes on if its consumers move to the target.

Offsets differ between the clusters, so an offset is translated by its record: the one that the group reads next is
looked for on the target, by its timestamp and then by all that it is. A group that has read all there is goes on behind
the last record. A record that is not mirrored yet is where the target ends. So a group skips nothing; of several equal
records in a row it may read some again.

As MirrorMaker 2, a mirror leaves alone a group that has members on the target, and sets no offset back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kwire.errors import BrokerError, ConfigurationError, ErrorCode
from kwire.pipeline.audit import record_digest
from kwire.pipeline.mirror import MirrorPlan
from kwire.pipeline.sides import Cluster
from kwire.spark.client_options import admin_options

if TYPE_CHECKING:
    from kwire.admin import Admin
    from kwire.consumer import Consumer, ConsumerRecord

TopicPartition = tuple[str, int]
# Records of the target that are compared with one of the source: they have its timestamp or a later one.
_COMPARED_MAX = 200_000
_POLL_RECORDS, _POLL_S = 2_000, 1.0
# Groups that hold markers of `format("kwire")` with delivery exactly-once.
_MARKERS = "kwire-"
_TYPES = ("classic", "consumer")
_MEMBERLESS = frozenset({"", "Empty", "Dead"})


@dataclass(frozen=True, slots=True)
class GroupMove:
    """A committed offset that is set on the target; `of_source` is the one on the source."""

    group: str
    topic: str
    partition: int
    of_source: int
    before: int | None
    after: int


@dataclass(slots=True)
class GroupSync:
    """What was set, and what was left alone and why: ("group billing", "it has members on the target")."""

    moves: list[GroupMove] = field(default_factory=list)
    left_alone: list[tuple[str, str]] = field(default_factory=list)


def sync_groups(
    plan: MirrorPlan, source: Cluster, target: Cluster, pattern: str, *, dry_run: bool = False
) -> GroupSync:
    """Set the offsets of the source's groups whose whole name matches `pattern` on the target, for the plan's topics.

    Raises ConfigurationError where offsets cannot be translated: records that keys send to other partitions, or whose
    timestamps the target changes.
    """
    from kwire.admin import Admin
    from kwire.consumer import Consumer

    if not plan.keeps_partitions:
        raise ConfigurationError(
            "offsets of groups cannot be mirrored: records go to other partitions",
            remedy="let them keep their partitions (--partitions same), or leave out --groups",
        )
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{pattern!r} is no regular expression: {error}", remedy="try .*") from None
    done = GroupSync()
    committed: dict[str, Any] = {"isolation": "read_committed"}
    there_options, here_options = source.client_options(), target.client_options()
    with (
        Admin(**admin_options(there_options)) as there,
        Admin(**admin_options(here_options)) as here,
        Consumer(**{**there_options, **committed}) as log_there,
        Consumer(**{**here_options, **committed}) as log_here,
    ):
        for topic in plan.topics:
            _check_timestamps(here, plan.target_of(topic))
        for listing in sorted(there.groups.list(), key=lambda one: one.id):
            name = listing.id
            if wanted.fullmatch(name) is None or name.startswith(_MARKERS) or listing.type not in _TYPES:
                continue
            offsets = {key: one for key, one in there.groups.offsets(name).items() if key[0] in plan.topics}
            if not offsets:
                continue
            if _has_members(here, name):
                done.left_alone.append((f"group {name}", "it has members on the target"))
                continue
            existing = here.groups.offsets(name)
            moves = []
            for (topic, partition), one in sorted(offsets.items()):
                key = plan.target_of(topic), partition
                after = translate(log_there, (topic, partition), log_here, key, one.offset)
                before = existing[key].offset if key in existing else None
                if after is None:
                    where = f"group {name}, {key[0]}-{partition}"
                    done.left_alone.append((where, f"no record equals that at offset {one.offset} of the source"))
                elif before is None or after > before:
                    moves.append(GroupMove(name, *key, one.offset, before, after))
            if moves and not dry_run:
                results = here.groups.set_offsets(name, {(one.topic, one.partition): one.after for one in moves})
                for result in results.values():
                    if result is not None:
                        raise result
            done.moves += moves
    return done


def translate(
    there: Consumer, source: TopicPartition, here: Consumer, target: TopicPartition, offset: int
) -> int | None:
    """Return the offset on the target that means what `offset` means on the source; None if it cannot be found out."""
    first, last = there.beginning_offsets([source])[source], there.end_offsets([source])[source]
    target_first, target_last = here.beginning_offsets([target])[target], here.end_offsets([target])[target]
    record, behind = next(_records(there, source, max(offset, first), last), None), 0
    if record is None:
        record, behind = _last_record(there, source, first, last), 1
    if record is None:
        return target_last
    try:
        found = _find(here, target, record, target_last)
        if found is not None:
            return found + behind
        # Not mirrored yet, or deleted on the target: the target's last record says which.
        newest = _last_record(here, target, target_first, target_last)
        place = None if newest is None else _find(there, source, newest, last)
    except _TooManyError:
        return None
    return target_last if place is None or place < record.offset else target_first


class _TooManyError(Exception):
    """More records than are compared have the timestamp that is looked for, or a later one."""


def _find(log: Consumer, key: TopicPartition, wanted: ConsumerRecord, end: int) -> int | None:
    """Return the offset of the first record that equals `wanted`."""
    first = log.offsets_at([(*key, wanted.timestamp_ms)])[key]
    if first is None:
        return None
    digest = _digest(wanted)
    for count, record in enumerate(_records(log, key, first, end)):
        if _digest(record) == digest:
            return record.offset
        if count >= _COMPARED_MAX:
            raise _TooManyError
    return None


def _digest(record: ConsumerRecord) -> bytes:
    return record_digest((0, record.timestamp_ms, record.key, record.value, record.headers))


def _last_record(log: Consumer, key: TopicPartition, first: int, end: int) -> ConsumerRecord | None:
    """Return the last committed record before `end`: markers and aborted records may be behind it."""
    span = 1
    while True:
        begin = max(first, end - span)
        newest = None
        for newest in _records(log, key, begin, end):  # noqa: B007
            pass
        if newest is not None or begin == first:
            return newest
        span *= 16


def _records(log: Consumer, key: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    """Yield the committed records from `begin` to `end`."""
    if begin >= end:
        return
    log.assign([(*key, begin)], ends={key: end})
    while log.position(*key) < end:
        yield from log.poll(_POLL_RECORDS, _POLL_S)


def _has_members(admin: Admin, group: str) -> bool:
    try:
        return admin.groups.describe(group).state not in _MEMBERLESS
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False


def _check_timestamps(admin: Admin, topic: str) -> None:
    found = admin.configs.get(["message.timestamp.type"], topic=topic)
    entry = found.get("message.timestamp.type")
    if entry is not None and entry.value == "LogAppendTime":
        raise ConfigurationError(
            f"offsets of groups cannot be mirrored: {topic} has timestamps of its own on the target",
            remedy="set its message.timestamp.type to CreateTime, or leave out --groups",
        )
