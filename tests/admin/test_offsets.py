"""`Admin.offsets` and `Admin.records` with the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kwire import Admin, Producer
from kwire.admin import NewTopic
from kwire.broker import Cluster
from kwire.errors import BrokerError, ConfigurationError, ErrorCode, RequestTimeoutError, TopicError

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, auto_create_topics=False) as running:
        with Admin(running.bootstrap) as admin:
            admin.topics.create_many([
                NewTopic("t", assignments={0: [1], 1: [2]}), NewTopic("unled", assignments={0: [2]}),
            ])  # fmt: skip
        with Producer(running.bootstrap) as producer:
            for number in range(10):
                at = NEW_YEAR + timedelta(hours=number)
                producer.send("t", b"x", partition=0, timestamp_ms=int(at.timestamp() * 1000)).result(10)
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap) as running:
        yield running


def test_places_in_logs(admin: Admin) -> None:
    assert {key: one.offset for key, one in admin.offsets.list(["t"], "latest").items()} == {("t", 0): 10, ("t", 1): 0}
    assert admin.offsets.list([("t", 0)], "earliest")["t", 0].offset == 0
    assert admin.offsets.list([("t", 0)], NEW_YEAR + timedelta(hours=3))["t", 0].offset == 3
    assert admin.offsets.list([("t", 0)], NEW_YEAR + timedelta(days=1))["t", 0].offset == -1


def test_records_before_a_time_are_deleted(admin: Admin) -> None:
    starts = admin.records.delete_before("t", NEW_YEAR + timedelta(hours=4))
    assert starts.check() == {("t", 0): 4, ("t", 1): 0}
    assert admin.records.delete({("t", 0): -1})["t", 0] == 10


def test_records_beyond_the_end_are_not_deleted(admin: Admin) -> None:
    """The usual remedy for the code is for a consumer."""
    error = admin.records.delete({("t", 1): 1}).errors["t", 1]
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert str(error) == (
        "OFFSET_OUT_OF_RANGE (1): the offset is beyond the end of the partition [DeleteRecords, topic t, partition 1]: "
        "give at most its latest offset, or delete all records"
    )
    with pytest.raises(ConfigurationError, match="give an offset, or -1"):
        admin.records.delete({("t", 1): 2**63})


@pytest.mark.parametrize(
    ("partitions", "at", "error"),
    [
        ("t", "latest", ConfigurationError),
        (["t"], "newest", ConfigurationError),
        (["t"], 5, ConfigurationError),
        (["never"], "latest", TopicError),
    ],
)
def test_wrong_arguments(admin: Admin, partitions: object, at: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        admin.offsets.list(partitions, at)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [("t", 7), ("no-such-topic", 0)])
def test_what_does_not_exist_is_named_long_before_the_time_is_over(
    admin: Admin, missing: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.admin.offsets._UNKNOWN_TOPIC_TIMEOUT_MS", 50)
    found = admin.offsets.list([missing, ("t", 0)], "latest", timeout=120)
    assert found["t", 0].offset == 10
    assert isinstance(found.errors[missing], TopicError)


def test_a_partition_without_a_leader_is_named_when_the_time_is_over(cluster: Cluster, admin: Admin) -> None:
    cluster.stop(2)
    try:
        found = admin.offsets.list([("unled", 0), ("t", 0)], "latest", timeout=0.5)
        assert found["t", 0].offset == 10, "one partition hides no other"
        with pytest.raises(RequestTimeoutError) as caught:
            found["unled", 0]
        assert caught.value.where["topic"] == "unled", "not only that the client's thread did not respond"
        assert list(found.errors) == [("unled", 0)]
    finally:
        cluster.restart(2)
