"""The topology of a group of Kafka Streams: which tasks there are, and which internal topics it needs (KIP-1071).

A subtopology has a task for each partition of its source topics. Between subtopologies records go through repartition
topics, and each state store has a changelog topic; the coordinator decides their numbers of partitions, as Kafka's
InternalTopicManager does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED_TOPICS, MISSING_INTERNAL_TOPICS = 1, 2, 3

Counts = Mapping[str, int]  # partitions by topic
Status = tuple[int, str]


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic. 0 partitions: as many as its source has; replication factor 0: the default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a topology whose tasks need no other part. `copartitioned`: topics with equally many partitions."""

    id: str
    source_topics: tuple[str, ...]
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    copartitioned: tuple[frozenset[str], ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        return *self.source_topics, *(topic.name for topic in self.repartition_sources)


@dataclass(frozen=True, slots=True)
class Topology:
    """What a member sends when it joins."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def internal_topics(self) -> list[InternalTopic]:
        return [topic for one in self.subtopologies for topic in (*one.repartition_sources, *one.changelogs)]

    @property
    def required_topics(self) -> frozenset[str]:
        sources = [name for one in self.subtopologies for name in one.source_topics]
        return frozenset([*sources, *(topic.name for topic in self.internal_topics)])


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology beside the topics of the cluster. While it has a `status`, it has no tasks.

    tasks        how many tasks each subtopology has
    partitions   how many partitions each internal topic must have
    missing      the internal topics to be created
    """

    tasks: Counts = field(default_factory=dict)
    partitions: Counts = field(default_factory=dict)
    missing: tuple[InternalTopic, ...] = ()
    status: Status | None = None


class _UnsuitableError(Exception):
    """The topics do not suit the topology: (status code, detail)."""


def configure(topology: Topology, counts: Counts) -> ConfiguredTopology:
    """Return the tasks and internal topics for topics with these numbers of partitions."""
    try:
        _check_sources(topology, counts)
        decided = _decide(topology, counts)
        missing = _missing(topology, counts, decided)
    except _UnsuitableError as unsuitable:
        return ConfiguredTopology(status=unsuitable.args[0])
    if missing:
        names = ", ".join(topic.name for topic in missing)
        status = MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}"
        return ConfiguredTopology(partitions=decided, missing=missing, status=status)
    known = {**decided, **counts}
    tasks = {one.id: max(known[name] for name in one.sources) for one in topology.subtopologies}
    return ConfiguredTopology(tasks, decided)


def _check_sources(topology: Topology, counts: Counts) -> None:
    absent = {name for one in topology.subtopologies for name in one.source_topics} - counts.keys()
    if absent:
        raise _UnsuitableError((MISSING_SOURCE_TOPICS, f"Source topics {', '.join(sorted(absent))} are missing."))


def _decide(topology: Topology, counts: Counts) -> dict[str, int]:
    """Return how many partitions each internal topic must have."""
    repartition = [topic for one in topology.subtopologies for topic in one.repartition_sources]
    decided = {topic.name: topic.partitions for topic in repartition if topic.partitions}
    fixed = frozenset(decided)
    left = [topic.name for topic in repartition if not topic.partitions]
    while left:
        known = {**decided, **counts}
        found = {name: count for name in left if (count := _upstream(topology, name, known)) is not None}
        if not found:
            why = f"The partitions of repartition topics {', '.join(sorted(left))} depend on each other."
            raise _UnsuitableError((MISSING_SOURCE_TOPICS, why))
        decided |= found
        left = [name for name in left if name not in found]
    for one in topology.subtopologies:
        for group in one.copartitioned:
            decided |= _copartition(group, counts, decided, fixed)
    known = {**decided, **counts}
    for one in topology.subtopologies:
        decided |= {topic.name: max(known[name] for name in one.sources) for topic in one.changelogs}
    return decided


def _upstream(topology: Topology, repartition: str, known: Counts) -> int | None:
    """Return how many partitions the topics have from which a repartition topic is filled, None if not known yet."""
    sources = [name for one in topology.subtopologies if repartition in one.repartition_sinks for name in one.sources]
    return max((known[name] for name in sources), default=None) if all(name in known for name in sources) else None


def _copartition(group: frozenset[str], counts: Counts, decided: Counts, fixed: frozenset[str]) -> dict[str, int]:
    """Return the numbers of partitions for the repartition topics of a group that are free to have any."""
    free = [name for name in group if name in decided and name not in fixed]
    given = {name: decided[name] if name in fixed else counts[name] for name in sorted(group) if name not in free}
    if len(set(given.values())) > 1:
        why = f"Following topics do not have the same number of partitions: [{{{_shown(given)}}}]"
        raise _UnsuitableError((INCORRECTLY_PARTITIONED_TOPICS, why))
    wanted = next(iter(given.values())) if given else max(decided[name] for name in free)
    return dict.fromkeys(free, wanted)


def _missing(topology: Topology, counts: Counts, decided: Counts) -> tuple[InternalTopic, ...]:
    missing = []
    for topic in topology.internal_topics:
        wanted, has = decided[topic.name], counts.get(topic.name)
        if has is None:
            missing.append(topic)
        elif has != wanted:
            why = f"Existing topic {topic.name} has different number of partitions: expected {wanted}, found {has}"
            raise _UnsuitableError((INCORRECTLY_PARTITIONED_TOPICS, why))
    return tuple(missing)


def _shown(counts: Counts) -> str:
    return ", ".join(f"{name}={count}" for name, count in counts.items())


def invalid_changelog(topics: Iterable[InternalTopic]) -> InternalTopic | None:
    """Return a changelog topic whose number of partitions the member has chosen: only the coordinator may."""
    return next((topic for topic in topics if topic.partitions), None)
