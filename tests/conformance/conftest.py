"""Everything here asks Kafka's own classes, or Wireshark's dissector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import oracle


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.live)


@pytest.fixture(scope="package", autouse=True)
def _programs() -> Iterator[None]:
    """The Java programs live as long as somebody here may ask them."""
    yield
    oracle.end_programs()
