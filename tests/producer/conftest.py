"""The default cluster of the tests; a test that needs another creates it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kwire.broker import Cluster

PARTITIONS = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers with a topic t, and no failure of their own."""
    with Cluster(brokers=3) as one:
        one.create_topic("t", partitions=PARTITIONS)
        yield one
        assert one.failures == ()
