"""What becomes of acquired records: the types of acknowledgement, and how a request carries them.

    Acknowledgements         offset -> type for one partition, coded as the batches of a request
    PendingAcknowledgements  acknowledgements on their way: waiting to be sent, then in flight
    SharePartition           the partition of a topic id

What is made while a request is in flight waits for the next one and never joins it (KAFKA-18016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby, pairwise
from typing import NamedTuple
from uuid import UUID

from kwire.errors import KwireError

# More equal types in a row than this have a batch of their own, with one type (Kafka's Acknowledgements).
_EQUAL_TYPES_MAX = 10


class AcknowledgeType(IntEnum):
    """What to do with a record. GAP is for offsets without a record; RENEW keeps the record and extends its lock."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class SharePartition(NamedTuple):
    """A partition by topic id: a topic that was deleted and created again is another one."""

    topic_id: UUID
    partition: int


class AcknowledgementBatch(NamedTuple):
    """Consecutive offsets in a request: one type for each, or a single one for all."""

    first_offset: int
    last_offset: int
    types: list[int]


class Acknowledgements:
    """Acknowledgements of one partition, each offset with one type: the last that was set."""

    __slots__ = ("_runs", "_types")

    def __init__(self, types: dict[int, AcknowledgeType] | None = None) -> None:
        self._types: dict[int, AcknowledgeType] = {} if types is None else types
        # Ranges of one type, so that records that are acknowledged in bulk cost nothing each.
        self._runs: list[tuple[int, int, AcknowledgeType]] = []

    def __bool__(self) -> bool:
        return bool(self._types) or bool(self._runs)

    def __len__(self) -> int:
        self._expand()
        return len(self._types)

    def __repr__(self) -> str:
        shown = ", ".join(f"{first}-{last}: {types}" for first, last, types in self.batches())
        return f"<Acknowledgements {shown}>"

    def set(self, offset: int, type: AcknowledgeType) -> None:
        if self._runs:
            self._expand()
        self._types[offset] = type

    def set_range(self, first: int, last: int, type: AcknowledgeType) -> None:
        """Set the type of the offsets from `first` to `last`, both included."""
        if self._types:
            self._types.update(dict.fromkeys(range(first, last + 1), type))
        elif self._runs and first <= self._runs[-1][1]:  # it may overlap
            self._expand()
            self._types.update(dict.fromkeys(range(first, last + 1), type))
        elif self._runs and self._runs[-1][1] + 1 == first and self._runs[-1][2] is type:
            self._runs[-1] = self._runs[-1][0], last, type
        else:
            self._runs.append((first, last, type))

    def update(self, newer: Acknowledgements) -> None:
        """Add acknowledgements that were made later: where both have an offset, theirs count."""
        for first, last, type in newer._runs:
            self.set_range(first, last, type)
        if newer._types:
            self._expand()
            self._types.update(newer._types)

    def offsets(self) -> list[int]:
        """Return the offsets in ascending order."""
        self._expand()
        return sorted(self._types)

    def of_type(self, type: AcknowledgeType) -> list[int]:
        """Return the offsets with this type in ascending order."""
        self._expand()
        return sorted(offset for offset, each in self._types.items() if each is type)

    def of_records(self) -> list[int]:
        """Return the offsets that have a record, in ascending order."""
        self._expand()
        return sorted(offset for offset, type in self._types.items() if type is not AcknowledgeType.GAP)

    @property
    def has_renewals(self) -> bool:
        renew = AcknowledgeType.RENEW
        return renew in self._types.values() or any(type is renew for _, _, type in self._runs)

    def counts(self) -> dict[AcknowledgeType, int]:
        """Return how many offsets have each type."""
        counts: dict[AcknowledgeType, int] = {}
        for first, last, run_type in self._runs:
            counts[run_type] = counts.get(run_type, 0) + last - first + 1
        for type in self._types.values():
            counts[type] = counts.get(type, 0) + 1
        return counts

    def batches(self) -> list[AcknowledgementBatch]:
        """Return the batches of a request, in the order of offsets, split as Kafka's Java client splits them."""
        if not self._types and all(last + 1 < first for (_, last, _), (first, _, _) in pairwise(self._runs)):
            return [AcknowledgementBatch(first, last, [int(type)]) for first, last, type in self._runs]
        self._expand()
        offsets, types = sorted(self._types), self._types
        batches: list[AcknowledgementBatch] = []
        for first, last in contiguous(offsets):
            batches += _split(first, [int(types[offset]) for offset in range(first, last + 1)])
        return batches

    def _expand(self) -> None:
        """Keep each offset by itself from now on."""
        for first, last, type in self._runs:
            self._types.update(dict.fromkeys(range(first, last + 1), type))
        self._runs = []


def contiguous(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return the ranges (first, last) of neighbouring offsets; `offsets` ascend."""
    first = last = None
    for offset in offsets:
        if first is None or last is None:
            first = offset
        elif offset != last + 1:
            yield first, last
            first = offset
        last = offset
    if first is not None and last is not None:
        yield first, last


def _split(first: int, types: list[int]) -> list[AcknowledgementBatch]:
    """Return the batches of neighbouring offsets: long runs of one type by themselves, the types between one by one."""
    batches: list[AcknowledgementBatch] = []
    mixed: list[int] = []

    def add(types: list[int]) -> None:
        nonlocal first
        if types:
            coded = types[:1] if len(set(types)) == 1 else types
            batches.append(AcknowledgementBatch(first, first + len(types) - 1, coded))
            first += len(types)

    for _, run in groupby(types):
        same = list(run)
        if len(same) > _EQUAL_TYPES_MAX:
            add(mixed)
            add(same)
            mixed = []
        else:
            mixed = mixed + same
    add(mixed)
    return batches


# Gets the acknowledgements with the error of their partition, or None, and the time.
OnDone = Callable[["PendingAcknowledgements", KwireError | None, float], None]


@dataclass(slots=True, eq=False)
class PendingAcknowledgements:
    """Acknowledgements for the broker that the records came from; only it has their locks.

    `on_done` is called exactly once, on the loop thread. `deadline` ends the retries of retriable errors.
    """

    topic: str
    key: SharePartition
    node: int
    acknowledgements: Acknowledgements
    deadline: float
    on_done: OnDone
    attempts: int = field(default=0, init=False)
    not_before: float = field(default=0.0, init=False)
    sent_at: float = field(default=0.0, init=False)  # when it was last sent
