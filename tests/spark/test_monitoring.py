"""The progress of a query as offsets of a group: committed if it changed, and never a reason to fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import kwire
from kwire.broker import Cluster
from kwire.errors import ErrorCode, broker_error
from kwire.net import VirtualClock
from kwire.spark.columns import read_schema
from kwire.spark.monitoring import COMMIT_TIMEOUT, PAUSE, ProgressPublisher
from kwire.spark.options import read_options
from kwire.spark.reader import StreamReader
from tests.consumer.embedded import fill

FENCED = broker_error(ErrorCode.UNKNOWN_MEMBER_ID)


class FakeAdmin:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.committed: list[tuple[str, dict[tuple[str, int], int]]] = []

    def set_offsets(self, group: str, offsets: Mapping[tuple[str, int], int], *, timeout: float | None = None) -> Any:
        assert timeout == COMMIT_TIMEOUT
        self.committed.append((group, dict(offsets)))
        return self

    def check(self) -> None:
        if self.error is not None:
            raise self.error


def test_only_what_changed_is_committed() -> None:
    admin, publisher = FakeAdmin(), ProgressPublisher("g", VirtualClock())
    publisher.publish({("t", 0): 1, ("t", 1): 2}, admin)
    publisher.publish({("t", 0): 1, ("t", 1): 2}, admin)
    publisher.publish({("t", 0): 1, ("t", 1): 3}, admin)
    assert admin.committed == [("g", {("t", 0): 1, ("t", 1): 2}), ("g", {("t", 1): 3})]


@pytest.mark.parametrize("error", [FENCED, ExceptionGroup("2 of 2 failed", [FENCED, FENCED])])
def test_a_failure_is_logged_and_tried_again_later(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    clock, admin = VirtualClock(), FakeAdmin()
    publisher = ProgressPublisher("g", clock)
    admin.error = error
    publisher.publish({("t", 0): 1}, admin)
    assert "the group g does not show the query's progress" in caplog.text
    admin.error = None
    clock.advance(PAUSE - 1)
    publisher.publish({("t", 0): 2}, admin)
    assert len(admin.committed) == 1
    clock.advance(1)
    publisher.publish({("t", 0): 2}, admin)
    assert admin.committed[1:] == [("g", {("t", 0): 2})]


def test_a_query_shows_its_lag(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the offsets of a group cannot be committed, as it has a member, the query goes on."""
    with Cluster(brokers=1, topics={"t": 2}) as cluster, kwire.Admin(cluster.bootstrap) as admin:
        fill(cluster, "t", 0, range(7))
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "monitoringgroup": "g"}
        given["startingOffsets"] = "earliest"
        reader = StreamReader(read_options(given, is_stream=True), read_schema(with_headers=False))
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert {key: one.offset for key, one in admin.groups.offsets("g").items()} == {("t", 0): 0, ("t", 1): 0}
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert {key: one.offset for key, one in admin.groups.offsets("g").items()} == {("t", 0): 7, ("t", 1): 0}
        reader.stop()
        with kwire.Consumer(cluster.bootstrap, group="g") as member:
            member.subscribe(["t"])
            fill(cluster, "t", 1, range(1))
            assert [record.partition for record in member.poll(timeout=10.0)] == [1]  # it has joined
            reader.latestOffset(start, ReadAllAvailable())
        assert "the group g does not show the query's progress" in caplog.text
        reader.stop()
