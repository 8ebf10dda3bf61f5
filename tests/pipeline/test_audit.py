"""The audit finds planted losses, doubles and reorderings, and none where there are none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kwire.errors import ConfigurationError
from kwire.pipeline.audit import EXAMPLES_MAX, AuditReport, Place, Side, SideRecord, audit, record_digest


class Records:
    """A side made of lists; offsets are the places in them, with gaps as transactions leave them."""

    has_all_partitions = True

    def __init__(self, partitions: list[list[SideRecord]], gap: int = 1) -> None:
        self.name = "records"
        self._partitions = partitions
        self._gap = gap

    def partitions(self) -> list[int]:
        return list(range(len(self._partitions)))

    def read(self, partition: int) -> Iterator[SideRecord]:
        for index, record in enumerate(self._partitions[partition]):
            yield index * self._gap, *record[1:]

    def close(self) -> None:
        """There is nothing to close."""


def record(number: int, key: bytes | None = b"k") -> SideRecord:
    return 0, 1_000 + number, key, b"value %d" % number, (("n", b"%d" % number),)


def found(source: list[SideRecord], target: list[SideRecord], **options: Any) -> dict[str, int]:
    report = audit(Records([source]), Records([target], gap=2), **options)
    names = ("lost", "behind", "doubled", "foreign", "reordered")
    return {name: getattr(report.total, name) for name in names if getattr(report.total, name)}


TEN = [record(number) for number in range(10)]


def test_nothing_where_there_is_nothing() -> None:
    report = audit(Records([TEN, TEN[:3], []]), Records([TEN, TEN[:3], []], gap=3))
    assert report.is_clean()
    assert (report.total.source, report.total.target, report.total.matched) == (13, 13, 13)
    assert {number: counts.matched for number, counts in report.by_partition.items()} == {0: 10, 1: 3, 2: 0}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (TEN[:3] + TEN[4:], {"lost": 1}),
        (TEN[:8], {"lost": 2, "behind": 2}),
        (TEN[1:8], {"lost": 3, "behind": 2}),
        ([], {"lost": 10, "behind": 10}),
        (TEN + TEN[-1:], {"doubled": 1}),
        (TEN[:4] + TEN[2:], {"doubled": 2}),  # a batch that was sent twice
        (TEN + TEN[4:5], {"doubled": 1}),  # is not also out of order
        ([*TEN[:5], record(99), *TEN[5:]], {"foreign": 1}),
        ([TEN[1], TEN[0], *TEN[2:]], {"reordered": 1}),
        (TEN[5:8] + TEN[:5] + TEN[8:], {"reordered": 5}),  # a batch that came after the next one
        (TEN[1:] + TEN[:1], {"reordered": 1}),
        ([TEN[0], TEN[2], TEN[1], *TEN[4:], TEN[5], record(50)],
         {"lost": 1, "doubled": 1, "foreign": 1, "reordered": 1}),
    ],
)  # fmt: skip
def test_what_is_planted_is_found(target: list[SideRecord], expected: dict[str, int]) -> None:
    assert found(TEN, target) == expected


def test_equal_records_are_counted() -> None:
    same = [record(1)] * 3
    assert found(same, same) == {}
    assert found(same, same[:2]) == {"lost": 1, "behind": 1}
    assert found(same, [record(1)] * 4) == {"doubled": 1}
    assert found([record(1), record(2), record(1)], [record(1), record(1), record(2)]) == {"reordered": 1}


def test_any_mixture_of_losses_doubles_and_foreigners_is_counted() -> None:
    chance = random.Random(7)
    for _ in range(50):
        source = [record(number) for number in range(200)]
        lost = set(chance.sample(range(199), chance.randrange(20)))  # the last record stays: nothing is behind
        doubled = set(chance.sample(sorted(set(range(200)) - lost), chance.randrange(20)))
        target = [one for index, one in enumerate(source) for _ in range((index not in lost) + (index in doubled))]
        foreign = chance.randrange(5)
        target += [record(1_000 + number) for number in range(foreign)]
        counts = {"lost": len(lost), "doubled": len(doubled), "foreign": foreign}
        assert found(source, target) == {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(
    ("aspect", "changed"),
    [
        ("timestamp", (0, 7, b"k", b"v", (("h", b"1"),))),
        ("key", (0, 1, b"other", b"v", (("h", b"1"),))),
        ("key", (0, 1, None, b"v", (("h", b"1"),))),
        ("value", (0, 1, b"k", b"", (("h", b"1"),))),
        ("value", (0, 1, b"k", None, (("h", b"1"),))),
        ("headers", (0, 1, b"k", b"v", ())),
        ("headers", (0, 1, b"k", b"v", (("h", None),))),
        ("headers", (0, 1, b"k", b"v", (("h", b"1"), ("h", b"1")))),
    ],
)
def test_each_aspect_counts_unless_it_is_ignored(aspect: str, changed: SideRecord) -> None:
    original: SideRecord = (0, 1, b"k", b"v", (("h", b"1"),))
    assert record_digest(original) != record_digest(changed)
    assert record_digest(original, [aspect]) == record_digest(changed, [aspect])
    assert record_digest((5, *original[1:])) == record_digest(original)  # offsets differ between clusters


def test_where_one_field_ends_matters() -> None:
    assert record_digest((0, 1, b"ab", b"c", ())) != record_digest((0, 1, b"a", b"bc", ()))
    assert record_digest((0, 1, b"", b"", (("a", b"b"),))) != record_digest((0, 1, b"", b"", (("ab", b""),)))


def by_key(source: list[list[SideRecord]], target: list[list[SideRecord]]) -> AuditReport:
    return audit(Records(source), Records(target), by="key")


def test_by_key_partitions_do_not_matter() -> None:
    keyed = [record(number, b"key-%d" % (number % 3)) for number in range(12)]
    unkeyed = [record(number, None) for number in range(20, 24)]
    source = [[one for one in keyed if one[2] != b"key-0"], [one for one in keyed if one[2] == b"key-0"] + unkeyed]
    target = [[one for one in keyed if one[2] == b"key-2"], [*reversed(unkeyed), *keyed[0::3]], keyed[1::3]]
    assert by_key(source, target).is_clean()
    swapped = [target[0][1::-1] + target[0][2:], *target[1:]]
    report = by_key(source, swapped)
    assert (report.total.reordered, report.total.lost) == (1, 0)
    assert report.by_partition == {}


def test_by_key_what_is_behind_is_told_by_partition() -> None:
    source = [[record(number, None) for number in range(start, start + 4)] for start in (0, 10)]
    report = by_key(source, [source[0][:2] + source[1]])
    assert (report.total.lost, report.total.behind) == (2, 2)
    report = by_key(source, [source[0][1:] + source[1]])
    assert (report.total.lost, report.total.behind) == (1, 0)


def test_partitions_must_fit() -> None:
    with pytest.raises(ConfigurationError, match=r"the target has 1 partition, the source 2: 1 is missing.*--by key"):
        audit(Records([TEN, TEN]), Records([TEN]))
    assert audit(Records([TEN]), Records([TEN, TEN[:2]])).total.foreign == 2


def test_a_target_that_lags_may_be_allowed() -> None:
    report = audit(Records([TEN]), Records([TEN[:8]]))
    assert not report.is_clean()
    assert report.is_clean(allows_behind=True)
    assert not audit(Records([TEN]), Records([TEN[1:8]])).is_clean(allows_behind=True)


def test_examples_are_the_first_places() -> None:
    source: Side = Records([TEN, TEN])
    report = audit(source, Records([TEN[:4] + TEN[5:], TEN[:2]], gap=2))
    assert report.by_partition[0].examples == {"lost": [Place(0, 4)]}
    assert report.total.examples["lost"] == [Place(0, 4), *(Place(1, offset) for offset in range(2, 6))]
    assert len(report.total.examples["lost"]) == EXAMPLES_MAX
    doubled = audit(Records([TEN]), Records([TEN + TEN[3:4]], gap=2))
    assert doubled.total.examples == {"doubled": [Place(0, 20)]}
