"""Fixtures of the tests of queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.queue.worlds import World


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, "tracker")


@pytest.fixture(params=["tracker", "share"])
def either(request: pytest.FixtureRequest) -> Iterator[World]:
    """Return a world of each backend: what these tests say holds for both."""
    with ExitStack() as stack:
        yield World(stack, request.param)
