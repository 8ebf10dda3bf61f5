"""Offset arithmetic: checkpoints, ranges, portions and limits, as tables."""

from __future__ import annotations

import json
from random import Random

import pytest

from kwire.errors import ConfigurationError
from kwire.spark.offsets import OffsetRange, from_checkpoint, lag, limited, ranges, split, to_checkpoint

R = OffsetRange


def test_a_checkpoint_is_one_text_whatever_the_order() -> None:
    offsets = {("b", 10): 3, ("a", 0): 1, ("b", 2): 2}
    text = '{"a": {"0": 1}, "b": {"2": 2, "10": 3}}'
    assert json.dumps(to_checkpoint(offsets)) == text
    assert json.dumps(to_checkpoint(dict(reversed(offsets.items())))) == text
    assert from_checkpoint(json.loads(text)) == offsets
    assert to_checkpoint({}) == {}


@pytest.mark.parametrize("shape", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}, [1]])
def test_a_foreign_checkpoint_is_refused(shape: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint"):
        from_checkpoint(shape)  # type: ignore[arg-type]


def test_ranges_leaves_out_what_is_empty_or_only_on_one_side() -> None:
    start = {("t", 0): 0, ("t", 1): 5, ("t", 2): 9, ("t", 3): 1}
    end = {("t", 0): 4, ("t", 1): 5, ("t", 2): 3, ("t", 4): 1}
    assert ranges(start, end) == [R("t", 0, 0, 4)]


@pytest.mark.parametrize(
    ("whole", "at_least", "records_max", "sizes"),
    [
        ([R("t", 0, 0, 10)], None, None, [10]),
        ([R("t", 0, 0, 10), R("t", 1, 5, 5)], None, None, [10]),
        ([], 4, None, []),
        ([R("t", 0, 0, 10)], None, 3, [2, 3, 2, 3]),
        ([R("t", 0, 0, 10)], None, 10, [10]),
        ([R("t", 0, 0, 10)], 3, None, [3, 3, 4]),
        ([R("t", 0, 0, 2)], 5, None, [1, 1]),
        ([R("t", 0, 0, 100), R("t", 1, 0, 10)], 3, None, [50, 50, 10]),
        ([R("t", 0, 0, 100), R("t", 1, 0, 10)], 2, None, [100, 10]),
        ([R("t", 0, 0, 100), R("t", 1, 0, 10)], 4, 60, [33, 33, 34, 10]),
    ],
)
def test_split(whole: list[OffsetRange], at_least: int | None, records_max: int | None, sizes: list[int]) -> None:
    assert [portion.size for portion in split(whole, at_least=at_least, records_max=records_max)] == sizes


def test_split_loses_and_repeats_no_offset() -> None:
    random = Random(3)
    for _ in range(300):
        whole = [R("t", index, start := random.randrange(100), start + random.randrange(50)) for index in range(3)]
        at_least, records_max = random.choice([None, 1, 7, 40]), random.choice([None, 1, 9])
        portions = split(whole, at_least=at_least, records_max=records_max)
        for offset_range in whole:
            covered = [o for p in portions if p.partition == offset_range.partition for o in range(p.start, p.end)]
            assert covered == list(range(offset_range.start, offset_range.end))
        assert all(0 < portion.size <= (records_max or 100) for portion in portions)
        assert len(portions) >= min(at_least or 0, sum(offset_range.size for offset_range in whole))


@pytest.mark.parametrize(
    ("start", "end", "rows_max", "expected"),
    [
        ([0, 0], [5, 5], 10, [5, 5]),
        ([0, 0], [5, 5], 4, [2, 2]),
        ([0, 0], [90, 10], 10, [9, 1]),
        ([0, 0], [999, 1], 10, [10, 0]),
        ([7, 3], [7, 13], 5, [7, 8]),
        ([9, 0], [4, 100], 10, [4, 10]),  # a log that was cut is not hidden by the limit
        ([0, 0, 0], [1, 1, 1], 2, [1, 1, 0]),
    ],
)
def test_limited(start: list[int], end: list[int], rows_max: int, expected: list[int]) -> None:
    def by_partition(offsets: list[int]) -> dict[tuple[str, int], int]:
        return {("t", index): offset for index, offset in enumerate(offsets)}

    assert limited(by_partition(start), by_partition(end), rows_max) == by_partition(expected)


def test_limited_is_exact_and_everything_comes_in_the_end() -> None:
    random = Random(4)
    for _ in range(100):
        end = {("t", index): random.choice([0, 1, 3, 1000]) for index in range(4)}
        position = dict.fromkeys(end, 0)
        rows_max = random.choice([1, 7, 100])
        while left := lag(position, end):
            after = limited(position, end, rows_max)
            assert lag(position, after) == min(left, rows_max)
            assert all(position[key] <= after[key] <= end[key] for key in end)
            position = after
        assert position == end
