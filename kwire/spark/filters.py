"""Filters of a batch read that leave out partitions and offsets before anything is fetched.

With `pushFilters`, Spark 4.1 and later hands over the conditions of WHERE. What they say of topic, partition, offset
and timestamp narrows the ranges to read. Spark still checks every row, so a range may be too wide, never too narrow. A
time is only a lower bound: with CreateTime a later record may be older than an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from kwire.spark.offsets import OffsetRange
from kwire.spark.option_parsers import TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeReader(Protocol):
    """The part of `kwire.Consumer` that finds offsets by time."""

    def offsets_at(self, times: Sequence[tuple[str, int, int]]) -> Mapping[TopicPartition, int | None]: ...


@dataclass(slots=True)
class PushedFilters:
    """Conditions that all must hold."""

    tests: dict[str, list[Callable[[Any], bool]]] = field(default_factory=lambda: {"topic": [], "partition": []})
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    @classmethod
    def of(cls, filters: Iterable[object]) -> PushedFilters:
        """Return what can be used of Spark's filters; others, and those of other columns, are left to Spark."""
        found = cls()
        for one in filters:
            path: tuple[str, ...] = getattr(one, "attribute", ())
            value = getattr(one, "value", None)
            if len(path) == 1 and value is not None:
                found._add(type(one).__name__, path[0].lower(), value)
        return found

    def _add(self, kind: str, column: str, value: Any) -> None:
        if column in self.tests:
            if kind in _TESTS:
                self.tests[column].append(lambda cell: _TESTS[kind](cell, value))
        elif column == "offset":
            self._add_offset(kind, value)
        elif column == "timestamp" and kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            since_ms = _in_ms(value)
            if since_ms is not None:
                self.since_ms = max(since_ms, self.since_ms or 0)

    def _add_offset(self, kind: str, value: Any) -> None:
        if kind in ("EqualTo", "EqualNullSafe"):
            first, last = value, value
        elif kind == "In":
            numbers = [one for one in value if one is not None]
            first, last = (min(numbers), max(numbers)) if numbers else (0, -1)
        elif kind in ("GreaterThan", "GreaterThanOrEqual"):
            first, last = value + (kind == "GreaterThan"), None
        elif kind in ("LessThan", "LessThanOrEqual"):
            first, last = 0, value - (kind == "LessThan")
        else:
            return
        self.first_offset = max(self.first_offset, first)
        if last is not None:
            self.end_offset = last + 1 if self.end_offset is None else min(self.end_offset, last + 1)

    def narrow(self, ranges: Iterable[OffsetRange], time_reader: TimeReader) -> list[OffsetRange]:
        """Return the parts of `ranges` that may hold rows for which all conditions hold."""
        chosen = [
            OffsetRange(
                one.topic,
                one.partition,
                max(one.start, self.first_offset),
                one.end if self.end_offset is None else min(one.end, self.end_offset),
            )
            for one in ranges
            if all(test(one.topic) for test in self.tests["topic"])
            and all(test(one.partition) for test in self.tests["partition"])
        ]
        chosen = [one for one in chosen if one.size]
        if self.since_ms is not None and chosen:
            since_ms = self.since_ms
            found = time_reader.offsets_at([(one.topic, one.partition, since_ms) for one in chosen])
            firsts = [found[one.topic, one.partition] for one in chosen]
            chosen = [
                one._replace(start=max(one.start, first))
                for one, first in zip(chosen, firsts, strict=True)
                if first is not None  # None: no record is as young as that
            ]
        return [one for one in chosen if one.size]


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda cell, value: cell == value,
    "EqualNullSafe": lambda cell, value: cell == value,
    "In": lambda cell, value: cell in value,
    "GreaterThan": lambda cell, value: cell > value,
    "GreaterThanOrEqual": lambda cell, value: cell >= value,
    "LessThan": lambda cell, value: cell < value,
    "LessThanOrEqual": lambda cell, value: cell <= value,
}


def _in_ms(value: object) -> int | None:
    """Return a time in whole milliseconds, rounded down; None if it has no time zone, or is before 1970."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - _EPOCH
    milliseconds = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    return milliseconds if milliseconds > 0 else None
