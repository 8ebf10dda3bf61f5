"""The window in which messages with the same id are delivered once (Q89, F27)."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.consumer.group_client import GroupClient
from kwire.errors import RequestTimeoutError
from kwire.queue.dedup import DedupWindow
from tests.queue.worlds import World, payloads, put, take
from tests.waiting import wait_until


def test_an_id_is_a_duplicate_within_the_window_only() -> None:
    window = DedupWindow(1_000)
    assert not window.is_duplicate("a", 0, 5_000)
    assert window.is_duplicate("a", 1, 5_999)
    assert not window.is_duplicate("a", 0, 5_999)  # the same record, read again
    assert not window.is_duplicate("a", 2, 6_000)
    assert window.is_duplicate("a", 3, 6_999)
    assert not window.is_duplicate("b", 4, 7_000)
    assert len(window) == 1  # "a" of 6,000 is over


def test_q89_a_message_that_is_sent_twice_is_delivered_once(world: World) -> None:
    service = world.service(dedup_window_ms=60_000, redelivery_timeout_ms=60_000)
    world.tracker(service)
    for _ in range(3):
        put(service, "jobs", b"hi", message_id="job-1")
    put(service, "jobs", b"other", message_id="job-2")
    put(service, "jobs", b"without an id", b"without an id")
    put(service, "more", b"another queue", message_id="job-1")
    consumer = service.queue("jobs").consumer()
    messages = take(consumer, 4)
    assert payloads(messages) == [b"hi", b"other", b"without an id", b"without an id"]
    wait_until(lambda: consumer.receive(0.1) is None and consumer.metrics().deduplicated == 2)
    messages[0].release()
    assert take(consumer, 1)[0].payload == messages[0].payload  # delivered again, which is no duplicate
    assert payloads(take(service.queue("more").consumer(), 1)) == [b"another queue"]


def test_q89_a_new_consumer_reads_the_window_again(world: World) -> None:
    service = world.service(dedup_window_ms=60_000, redelivery_timeout_ms=60_000)
    put(service, "jobs", *(b"%d" % number for number in range(20)))
    put(service, "jobs", b"hi", message_id="job-1")
    first = service.queue("jobs").consumer()
    for message in take(first, 21):
        message.ack()
    first.close()
    group = service.options.queue_group("jobs")
    committed = world.cluster.committed(group)
    put(service, "jobs", b"hi", message_id="job-1")
    put(service, "jobs", b"new", message_id="job-3")
    second = service.queue("jobs").consumer()
    assert payloads(take(second, 1)) == [b"new"]
    wait_until(lambda: second.receive(0.1) is None and second.metrics().deduplicated == 1)
    now = world.cluster.committed(group)
    assert all(now[key] >= committed[key] for key in committed)  # no step back


def test_q89_the_window_begins_at_the_position_not_at_the_consumers_time(world: World) -> None:
    """A consumer that comes late has the ids of the window before its next message, not of the last seconds."""
    service = world.service(dedup_window_ms=5_000, redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi", message_id="job-1")
    put(service, "jobs", b"hi", b"new", message_id=None)
    first = service.queue("jobs").consumer()
    for message in take(first, 3):
        message.ack()
    first.close()
    put(service, "jobs", b"hi", message_id="job-1")
    assert service.queue("other").consumer().receive(5.5) is None  # the window of now is behind both
    second = service.queue("jobs").consumer()
    wait_until(lambda: second.receive(0.1) is None and second.metrics().deduplicated == 1)


def test_q89_a_window_that_was_not_found_is_looked_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    service = world.service(dedup_window_ms=60_000, redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi", message_id="job-1")
    with service.queue("jobs").consumer() as first:
        take(first, 1)[0].ack()
    put(service, "jobs", b"hi", message_id="job-1")
    committed, failures = GroupClient._committed, [RequestTimeoutError("no offsets came")]

    async def fails_once(*args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await committed(*args, **options)

    monkeypatch.setattr(GroupClient, "_committed", fails_once)
    second = service.queue("jobs").consumer()
    with pytest.raises(RequestTimeoutError, match="no offsets came"):
        second.receive(10)
    wait_until(lambda: second.receive(0.1) is None and second.metrics().deduplicated == 1)


def test_q88_q89_a_dead_letter_that_goes_back_is_no_duplicate(world: World) -> None:
    service = world.service(dedup_window_ms=60_000, partitions=1)
    put(service, "jobs", b"hi", message_id="job-1")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)[0].nack()
    assert service.redrive() == 1
    assert payloads(take(consumer, 1)) == [b"hi"]
