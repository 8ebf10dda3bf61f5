"""Which moves a partition's state allows."""

from __future__ import annotations

import pytest

from kwire.consumer.offsets import StartOffset
from kwire.consumer.partition import FetchState, PartitionState

RESOLVING, FETCHING, PARKED, DONE = FetchState.RESOLVING, FetchState.FETCHING, FetchState.PARKED, FetchState.DONE
ALLOWED = {
    (RESOLVING, FETCHING),
    (RESOLVING, PARKED),
    (RESOLVING, DONE),
    (FETCHING, RESOLVING),
    (FETCHING, PARKED),
    (FETCHING, DONE),
    (DONE, PARKED),
}


@pytest.mark.parametrize("after", FetchState)
@pytest.mark.parametrize("before", FetchState)
def test_moves(before: FetchState, after: FetchState) -> None:
    position = PartitionState("t", 0, 1, "earliest", 100)
    position.state = before
    if (before, after) in ALLOWED:
        position.move(after)
        assert position.state is after
    else:
        with pytest.raises(AssertionError, match="cannot become"):
            position.move(after)


@pytest.mark.parametrize(("start", "state"), [(0, FETCHING), (7, FETCHING), ("earliest", RESOLVING)])
def test_where_it_begins(start: StartOffset, state: FetchState) -> None:
    position = PartitionState("t", 3, 1, start, 100)
    assert (position.state, position.key) == (state, ("t", 3))
    assert position.offset == (start if isinstance(start, int) else -1)


@pytest.mark.parametrize(
    ("end", "offset", "state"), [(None, 9, FETCHING), (9, 8, FETCHING), (9, 9, DONE), (9, 10, DONE), (0, 0, DONE)]
)
def test_nothing_is_fetched_from_the_end_on(end: int | None, offset: int, state: FetchState) -> None:
    position = PartitionState("t", 0, 1, offset, 100, end)
    assert (position.state, position.offset) == (state, offset)
    position = PartitionState("t", 0, 1, "earliest", 100, end)
    position.stand(offset)
    assert (position.state, position.offset) == (state, offset)
