"""Compares two sides record by record: what is lost, doubled, foreign or reordered on the target.

A record is known by a digest of its timestamp, key, value and headers, since offsets differ between clusters. The n-th
of several equal records on the source belongs to the n-th on the target.

    lost        on the source, not on the target. `behind` of these come after the last one that arrived
    doubled     on the target more often than on the source
    foreign     on the target, and not on the source at all
    reordered   on the target after a record that it precedes on the source; within a partition, or within a key

Memory holds about 200 bytes for each record of the source's partition, or by key of all partitions: in each process.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Literal, Protocol

from kwire.errors import ConfigurationError, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

By = Literal["partition", "key"]
ASPECTS = ("timestamp", "key", "value", "headers")
EXAMPLES_MAX = 5
_DIGEST_BYTES = 16
_HEAD = struct.Struct(">qii")
_LENGTHS = struct.Struct(">ii")
_PLACE_BITS = 48  # an offset: 280 million million
_TAKEN: deque[int] = deque(maxlen=0)  # the place of a digest that was on the source once, and has arrived

# offset, timestamp in ms, key, value, headers
SideRecord = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


class Side(Protocol):
    """Where records come from. `name` is for people; `has_all_partitions`: also those without records."""

    @property
    def has_all_partitions(self) -> bool: ...
    @property
    def name(self) -> str: ...
    def partitions(self) -> list[int]: ...
    def read(self, partition: int) -> Iterator[SideRecord]:
        """Yield the records of a partition in the order of offsets, up to where it ended when the audit began."""
        ...

    def close(self) -> None:
        """Close its clients. A side can be pickled, and has no client then."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is, as an example of what was found."""

    partition: int
    offset: int


@dataclass(slots=True)
class Counts:
    """What was found, of a partition or of all. Examples are the first places: of `lost` on the source, else target."""

    source: int = 0
    target: int = 0
    matched: int = 0
    lost: int = 0
    behind: int = 0
    doubled: int = 0
    foreign: int = 0
    reordered: int = 0
    examples: dict[str, list[Place]] = field(default_factory=dict)

    def note(self, what: Literal["lost", "doubled", "foreign", "reordered"], place: Place) -> None:
        setattr(self, what, getattr(self, what) + 1)
        examples = self.examples.setdefault(what, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(place)

    def add(self, other: Counts) -> None:
        for name in ("source", "target", "matched", "lost", "behind", "doubled", "foreign", "reordered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for what, places in other.examples.items():
            mine = self.examples.setdefault(what, [])
            mine += places[: EXAMPLES_MAX - len(mine)]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result. `by_partition` is empty if order was compared by key."""

    source: str
    target: str
    total: Counts
    by_partition: dict[int, Counts]

    def is_clean(self, *, allows_behind: bool = False) -> bool:
        """Return whether nothing is lost, doubled, foreign or reordered; `allows_behind`: the target may lag."""
        total = self.total
        lost = total.lost - total.behind if allows_behind else total.lost
        return not (lost or total.doubled or total.foreign or total.reordered)


def record_digest(record: SideRecord, ignored: Collection[str] = ()) -> bytes:
    """Return 16 bytes that two records share if they agree in all aspects but the ignored ones."""
    _, timestamp_ms, key, value, headers = record
    timestamp_ms = 0 if "timestamp" in ignored else timestamp_ms
    key = None if "key" in ignored else key
    value = None if "value" in ignored else value
    parts = [
        _HEAD.pack(timestamp_ms, -1 if key is None else len(key), -1 if value is None else len(value)),
        key or b"", value or b"",
    ]  # fmt: skip
    for name, content in () if "headers" in ignored else headers:
        encoded = name.encode(errors="surrogateescape")
        parts += [_LENGTHS.pack(len(encoded), -1 if content is None else len(content)), encoded, content or b""]
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()


class Comparison:
    """Compares records whose order matters within a group: first the whole source, then the target."""

    def __init__(self) -> None:
        self.counts = Counts()
        # Digest -> the places on the source that no record of the target has taken: one, or a list, first to last.
        self._open: dict[bytes, int | deque[int]] = {}
        self._highest: dict[object, int] = {}  # group -> the highest place that arrived
        self._arrived: dict[int, int] = {}  # the same by the source's partition

    def add_source(self, digest: bytes, partition: int, offset: int) -> None:
        self.counts.source += 1
        place = partition << _PLACE_BITS | offset
        held = self._open.get(digest)
        if held is None:
            self._open[digest] = place
        elif isinstance(held, int):
            self._open[digest] = deque((held, place))
        else:
            held.append(place)

    def add_target(self, digest: bytes, partition: int, offset: int, group: object) -> None:
        """Compare a record of the target. Order does not matter in the group None."""
        counts = self.counts
        counts.target += 1
        held = self._open.get(digest)
        if held is None:
            counts.note("foreign", Place(partition, offset))
            return
        if isinstance(held, int):
            place, self._open[digest] = held, _TAKEN
        elif held:
            place = held.popleft()
        else:
            counts.note("doubled", Place(partition, offset))
            return
        counts.matched += 1
        of_source = place >> _PLACE_BITS
        if place > self._arrived.get(of_source, -1):
            self._arrived[of_source] = place
        highest = self._highest.get(group, -1)
        if place > highest:
            self._highest[group] = place
        elif group is not None:
            counts.note("reordered", Place(partition, offset))

    def finish(self) -> Counts:
        """Count what is left on the source."""
        left = sorted(place for held in self._open.values() for place in ((held,) if isinstance(held, int) else held))
        for place in left:
            partition, offset = place >> _PLACE_BITS, place & (1 << _PLACE_BITS) - 1
            self.counts.note("lost", Place(partition, offset))
            self.counts.behind += place > self._arrived.get(partition, -1)
        return self.counts


def check_partitions(source: Sequence[int], target: Sequence[int]) -> None:
    """Raise ConfigurationError if partitions do not belong to each other one to one."""
    if missing := sorted(set(source) - set(target)):
        raise ConfigurationError(
            f"the target has {counted(len(target), 'partition')}, the source {len(source)}: {missing[0]} is missing",
            remedy="compare by key (--by key), if records went to partitions by their keys",
        )


def audit(
    source: Side, target: Side, *, by: By = "partition", ignored: Collection[str] = (), processes: int = 1,
    spark: SparkSession | None = None,
) -> AuditReport:  # fmt: skip
    """Compare two sides. Raises the sides' errors, and ConfigurationError if their partitions do not fit.

    With more `processes`, or in the tasks of `spark`, each compares a partition at a time, by clients of its own; `by`
    key takes one process.
    """
    of_source, of_target = source.partitions(), target.partitions()
    total = Counts()
    if by == "key":
        total = _compare(source, of_source, target, of_target, by, ignored)
        return AuditReport(source.name, target.name, total, {})
    if target.has_all_partitions:
        check_partitions(of_source, of_target)
    pairs = [
        (partition, partition in of_source, partition in of_target) for partition in sorted({*of_source, *of_target})
    ]
    compare = partial(_compare_partition, source, target, ignored)
    if spark is not None:
        from kwire.pipeline.session import map_in_tasks

        found = dict(map_in_tasks(spark, partial(_compare_and_close, compare), pairs))
    elif min(processes, len(pairs)) < 2:
        found = dict(map(compare, pairs))
    else:
        # Not forked: the clients of this process have threads.
        with ProcessPoolExecutor(min(processes, len(pairs)), mp_context=get_context("spawn")) as pool:
            found = dict(pool.map(partial(_compare_and_close, compare), pairs))
    found = dict(sorted(found.items()))
    for counts in found.values():
        total.add(counts)
    return AuditReport(source.name, target.name, total, found)


Pair = tuple[int, bool, bool]  # a partition, whether the source has it, and whether the target does


def _compare_partition(source: Side, target: Side, ignored: Collection[str], pair: Pair) -> tuple[int, Counts]:
    number, is_of_source, is_of_target = pair
    return number, _compare(source, [number] * is_of_source, target, [number] * is_of_target, "partition", ignored)


def _compare_and_close(compare: partial[tuple[int, Counts]], pair: Pair) -> tuple[int, Counts]:
    """Compare in a process of a pool or in a task, whose sides have clients of their own."""
    try:
        return compare(pair)
    finally:
        for side in compare.args[:2]:
            side.close()


def _compare(
    source: Side, of_source: Iterable[int], target: Side, of_target: Iterable[int], by: By, ignored: Collection[str]
) -> Counts:
    comparison = Comparison()
    for partition in of_source:
        for record in source.read(partition):
            comparison.add_source(record_digest(record, ignored), partition, record[0])
    for partition in of_target:
        for record in target.read(partition):
            # Records without a key went anywhere: they have no order.
            group = partition if by == "partition" else record[2]
            comparison.add_target(record_digest(record, ignored), partition, record[0], group)
    return comparison.finish()
