"""The marker of a batch: what it says, and how much fits."""

from __future__ import annotations

import pytest

from kwire.errors import ConfigurationError, DecodeError
from kwire.spark.marker import METADATA_BYTES_MAX, Marker, Side, parse_marker, side_id

RUN = "0123456789ab"


def side(task: int, run: str = RUN) -> Side:
    return Side(run, task, 3, 1_000_000 + task, 7, 100_000 + task, (1 << 64) - 1 - task)


@pytest.mark.parametrize("sides", [(), (side(0),), (side(0), side(1, "another-run"), side(9))])
def test_a_marker_comes_back(sides: tuple[Side, ...]) -> None:
    marker = Marker("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 41, 2, sides)
    assert marker.offset == 42
    assert parse_marker(42, marker.metadata()) == marker


def test_a_hundred_and_thirty_sides_fit_and_more_are_refused() -> None:
    fitting = Marker("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 1 << 40, 2, tuple(map(side, range(130))))
    assert len(fitting.metadata().encode()) <= METADATA_BYTES_MAX
    with pytest.raises(ConfigurationError, match=r"batch 1 has 300 tasks .*coalesce.*inlineMaxBytes"):
        Marker("q", 1, 2, tuple(map(side, range(300)))).metadata()


@pytest.mark.parametrize("metadata", [None, "", "text", "[]", '{"v":2}', '{"v":1,"query":"q","batch":8,"tv":2}'])
def test_what_is_no_marker_is_refused(metadata: str | None) -> None:
    with pytest.raises(DecodeError, match=r"a committed offset is no marker of kwire.*: another program"):
        parse_marker(9, metadata)


def test_an_offset_of_another_batch_is_refused() -> None:
    with pytest.raises(DecodeError, match="offset 8"):
        parse_marker(8, Marker("q", 8, 1, ()).metadata())


def test_the_id_of_a_side_names_run_task_and_attempt() -> None:
    assert side(5).transactional_id("kwire-q") == side_id("kwire-q", RUN, 5, 3) == f"kwire-q-side-{RUN}-5-3"
