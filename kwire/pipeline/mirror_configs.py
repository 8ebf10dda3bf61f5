"""The configs of mirrored topics: those that a topic of the source has of its own, for its copy on the target.

As MirrorMaker 2, a mirror leaves out what belongs to a cluster and not to a topic (`LEFT_OUT`), and takes from the copy
what the source's topic does not set. Defaults stay those of the target's brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.pipeline.mirror import MirrorPlan
from kwire.pipeline.sides import Cluster
from kwire.spark.client_options import admin_options

if TYPE_CHECKING:
    from kwire.admin import Admin

# MirrorMaker's DefaultConfigPropertyFilter.
LEFT_OUT = frozenset({
    "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "min.insync.replicas",
    "message.timestamp.difference.max.ms", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
    "message.timestamp.type", "unclean.leader.election.enable",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A config of a topic on the target. None: it is not set there (`before`), or will not be (`after`)."""

    topic: str
    name: str
    before: str | None
    after: str | None


def own_configs(admin: Admin, topic: str) -> dict[str, str]:
    """Return the configs that a topic has of its own and that a mirror carries."""
    found = admin.configs.get(topic=topic)
    return {
        name: entry.value
        for name, entry in found.items()
        if entry.source == "topic" and entry.value is not None and name not in LEFT_OUT
    }


def sync_configs(plan: MirrorPlan, source: Cluster, target: Cluster, *, dry_run: bool = False) -> list[ConfigChange]:
    """Make the configs of the copies those of their topics; return the changes. Topics must exist on both sides.

    With `dry_run` the target's brokers check the changes, and make none.
    """
    from kwire.admin import Admin

    changes: list[ConfigChange] = []
    with (
        Admin(**admin_options(source.client_options())) as there,
        Admin(**admin_options(target.client_options())) as here,
    ):
        for topic in plan.topics:
            name = plan.target_of(topic)
            found = config_changes(name, own_configs(there, topic), own_configs(here, name))
            if set_ones := {one.name: one.after for one in found if one.after is not None}:
                here.configs.set(set_ones, topic=name, dry_run=dry_run)
            if reset := [one.name for one in found if one.after is None]:
                here.configs.reset(reset, topic=name, dry_run=dry_run)
            changes += found
    return changes


def config_changes(topic: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> list[ConfigChange]:
    """Return what has to change so that `found` becomes `wanted`."""
    return [
        ConfigChange(topic, name, found.get(name), wanted.get(name))
        for name in sorted(wanted.keys() | found.keys())
        if found.get(name) != wanted.get(name)
    ]
