"""Everything here asks Kafka's own classes, or Wireshark's dissector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance import oracle


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called for what is in this folder only."""
    item.add_marker(pytest.mark.live)


@pytest.fixture(scope="package", autouse=True)
def _programs() -> Iterator[None]:
    """The Java programs live as long as somebody here may ask them."""
    yield
    oracle.end_programs()
