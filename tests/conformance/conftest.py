"""All tests here use Kafka's own classes or Wireshark's dissector."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance import oracle


def pytest_itemcollected(item: pytest.Item) -> None:
    """pytest calls this for the tests of this folder only."""
    item.add_marker(pytest.mark.live)


@pytest.fixture(scope="package", autouse=True)
def _programs() -> Iterator[None]:
    """Stop the Java programs after the last test that may use them."""
    yield
    oracle.end_programs()
