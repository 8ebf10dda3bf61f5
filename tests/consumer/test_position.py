"""Which moves a partition's state allows."""

from __future__ import annotations

import pytest

from kwire.consumer.offsets import StartOffset
from kwire.consumer.position import Position, State

RESOLVING, FETCHING, PARKED = State.RESOLVING, State.FETCHING, State.PARKED
ALLOWED = {(RESOLVING, FETCHING), (RESOLVING, PARKED), (FETCHING, RESOLVING), (FETCHING, PARKED)}


@pytest.mark.parametrize("after", State)
@pytest.mark.parametrize("before", State)
def test_moves(before: State, after: State) -> None:
    position = Position("t", 0, 1, "earliest", 100)
    position.state = before
    if (before, after) in ALLOWED:
        position.move(after)
        assert position.state is after
    else:
        with pytest.raises(AssertionError, match="cannot become"):
            position.move(after)


@pytest.mark.parametrize(("start", "state"), [(0, FETCHING), (7, FETCHING), ("earliest", RESOLVING)])
def test_where_it_begins(start: StartOffset, state: State) -> None:
    position = Position("t", 3, 1, start, 100)
    assert (position.state, position.key) == (state, ("t", 3))
    assert position.offset == (start if isinstance(start, int) else -1)
