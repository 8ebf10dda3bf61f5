"""The fetch state of a partition: which transitions are allowed."""

from __future__ import annotations

import pytest

from kwire.consumer.offsets import StartOffset
from kwire.consumer.partition import FetchState, PartitionState

RESOLVING, VALIDATING, FETCHING, FAILED, DONE = FetchState
ALLOWED = {
    (RESOLVING, FETCHING),
    (RESOLVING, FAILED),
    (RESOLVING, DONE),
    (FETCHING, RESOLVING),
    (FETCHING, VALIDATING),
    (VALIDATING, FETCHING),
    (VALIDATING, RESOLVING),
    (VALIDATING, FAILED),
    (VALIDATING, DONE),
    (FETCHING, FAILED),
    (FETCHING, DONE),
    (DONE, FAILED),
}


@pytest.mark.parametrize("after", FetchState)
@pytest.mark.parametrize("before", FetchState)
def test_allowed_transitions(before: FetchState, after: FetchState) -> None:
    partition = PartitionState("t", 0, 1, "earliest", 100)
    partition.fetch_state = before
    if (before, after) in ALLOWED:
        partition.move(after)
        assert partition.fetch_state is after
    else:
        with pytest.raises(AssertionError, match="cannot become"):
            partition.move(after)


@pytest.mark.parametrize(("start", "state"), [(0, FETCHING), (7, FETCHING), ("earliest", RESOLVING)])
def test_the_first_state_depends_on_the_start(start: StartOffset, state: FetchState) -> None:
    partition = PartitionState("t", 3, 1, start, 100)
    assert (partition.fetch_state, partition.key) == (state, ("t", 3))
    assert partition.offset == (start if isinstance(start, int) else -1)


@pytest.mark.parametrize(
    ("end", "offset", "state"), [(None, 9, FETCHING), (9, 8, FETCHING), (9, 9, DONE), (9, 10, DONE), (0, 0, DONE)]
)
def test_nothing_is_fetched_from_the_end_on(end: int | None, offset: int, state: FetchState) -> None:
    partition = PartitionState("t", 0, 1, offset, 100, end)
    assert (partition.fetch_state, partition.offset) == (state, offset)
    partition = PartitionState("t", 0, 1, "earliest", 100, end)
    partition.set_offset(offset, -1)
    assert (partition.fetch_state, partition.offset) == (state, offset)
