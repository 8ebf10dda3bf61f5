"""What kafka-mq-go's document asks for and no other file of these tests shows: topics, records, positions, knobs."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest

from kwire.consumer import Ago, AtTimestamp
from kwire.errors import ClosedError
from kwire.queue import Service
from kwire.queue.markers import MarkerType, decode_marker
from tests.queue.worlds import LEASE_MS, World, payloads, put, take
from tests.waiting import wait_until


def records(world: World, topic: str) -> list[Any]:
    partitions = world.cluster.call(lambda state, now: len(state.find_topic(topic).partitions))
    return [one for index in range(partitions) for one in world.cluster.log(topic, index).records()]


def test_q1_a_queue_is_a_name_and_contacts_no_broker() -> None:
    with Service("127.0.0.1:1") as service:
        names = {service.get_or_create_queue(f"queue-{number}").name for number in range(1_000)}
    assert len(names) == 1_000


def test_q1_a_name_that_utf_8_does_not_have_is_refused_at_once() -> None:
    with Service("127.0.0.1:1") as service, pytest.raises(ValueError, match="lone surrogate"):
        service.queue("jobs-\ud800")


def test_q2_all_queues_share_a_pair_of_topics(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    for name in ("jobs", "mails", "ünïcode"):
        put(service, name, b"hi")
        take(service.queue(name).consumer(), 1)
    topics = world.cluster.call(lambda state, now: {name for name in state.topics if not name.startswith("__")})
    assert topics == {"messages", "markers", "messages-dead-letters"}


def test_q3_messages_are_acknowledged_in_any_order(world: World) -> None:
    service = world.service(keep_alive=False, max_deliveries=None, partitions=1)
    world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(6)))
    consumer = service.queue("jobs").consumer()
    messages = take(consumer, 6)
    for message in reversed(messages[1::2]):
        message.ack()
    assert payloads(take(consumer, 3)) == sorted(message.payload or b"" for message in messages[::2])


def test_q4_q7_q8_a_record_has_the_queue_as_its_key_and_the_payload_untouched_in_any_partition(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    sent = {b"%d" % number for number in range(30)}
    for payload in sent:  # one after the other: each is a batch of its own
        put(service, "jobs", payload)
    stored = records(world, "messages")
    assert {(one.key, one.value) for one in stored} == {(b"jobs", payload) for payload in sent}
    assert all(list(world.cluster.log("messages", index).records()) for index in range(3))
    places = {message.place for message in take(service.queue("jobs").consumer(), 30)}
    assert len(places) == 30


def test_q5_q29_producers_and_consumers_are_closed_by_their_users(world: World) -> None:
    service = world.service()
    producer, consumer = service.queue("jobs").producer(), service.queue("jobs").consumer()
    other = service.queue("jobs").consumer()
    producer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        producer.send(b"hi")
    with pytest.raises(ClosedError):
        consumer.receive(0.0)
    put(service, "jobs", b"hi")
    assert payloads(take(other, 1)) == [b"hi"]


def test_q4_a_producer_for_each_message_is_freed_and_counted(world: World) -> None:
    service = world.service()
    queue = service.queue("jobs")
    producers = [queue.producer() for _ in range(20)]
    gone = [weakref.ref(producer) for producer in producers]
    for producer in producers:
        producer.send(b"hi").result(10)
    wait_until(lambda: service.metrics().queues["jobs"].producers.sent == 20)
    del producer, producers
    gc.collect()
    assert sum(one() is not None for one in gone) <= 1  # the loop may have the last one in hand
    assert service.metrics().queues["jobs"].producers.sent == 20
    service.close()
    with pytest.raises(ClosedError, match="the service is closed"):
        queue.producer()


def test_q12_q14_each_marker_has_the_fields_of_its_type(world: World) -> None:
    service = world.service(partitions=1)
    put(service, "jobs", b"hi", headers={"color": b"red"})
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    kept = MarkerType.KEEP_ALIVE
    wait_until(lambda: any(decode_marker(one.value).type == kept for one in records(world, "markers")))
    message.ack()
    consumer.flush()
    by_type = {marker.type: marker for marker in (decode_marker(one.value) for one in records(world, "markers"))}
    start, end, keep_alive = (by_type[kind] for kind in (MarkerType.START, MarkerType.END, kept))
    assert (start.key, start.value, start.redeliver_after_ms) == (b"jobs", b"hi", LEASE_MS)
    assert dict(start.headers)["color"] == b"red"
    assert (keep_alive.key, keep_alive.value, keep_alive.redeliver_after_ms) == (None, None, LEASE_MS)
    assert (end.key, end.value, end.redeliver_after_ms) == (None, None, 0)
    assert start.identity == keep_alive.identity == end.identity


def test_q23_no_keep_alive_follows_the_end_of_a_message(world: World) -> None:
    service = world.service(partitions=1)
    put(service, "jobs", *(b"%d" % number for number in range(50)))
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 50):
        consumer.receive(LEASE_MS / 20_000)  # so that keep-alives are due meanwhile
        message.ack()
    assert consumer.receive(LEASE_MS / 1000) is None
    consumer.flush()
    last = {}
    for one in records(world, "markers"):
        marker = decode_marker(one.value)
        last[marker.identity] = marker.type
    assert list(last.values()) == [MarkerType.END] * 50
    assert consumer.metrics().markers_sent["keep_alive"] > 0


def test_q43_q70_a_message_whose_record_is_gone_is_delivered_again(world: World) -> None:
    """Redelivery reads the markers only: neither retention nor other readers of the queue topic matter."""
    service = world.service(keep_alive=False, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)
    world.cluster.call(lambda state, now: state.find_topic("messages").partitions[0].log.delete_before(1))
    assert records(world, "messages") == []
    world.tracker(service)
    (again,) = take(consumer, 1)
    assert (again.payload, again.deliveries) == (b"hi", 2)


def test_q55_to_q57_what_was_sent_and_received_is_counted(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", b"a", b"b")
    consumer = service.queue("jobs").consumer()
    first, _ = take(consumer, 2)
    first.ack()
    consumer.flush()
    found = service.metrics().queues["jobs"]
    assert (found.producers.sent, found.consumers.received, found.consumers.acked) == (2, 2, 1)
    assert found.consumers.in_progress == 1
    assert found.producers.send_time.distribution().count == found.consumers.wait_time.distribution().count == 2


def test_q84_a_message_has_a_redelivery_timeout_of_its_own(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, keep_alive=False, partitions=1)
    world.tracker(service)
    put(service, "jobs", b"patient")
    put(service, "jobs", b"hasty", redelivery_timeout_ms=LEASE_MS)
    consumer = service.queue("jobs").consumer()
    take(consumer, 2)
    assert payloads(take(consumer, 1)) == [b"hasty"]


@pytest.mark.parametrize(("start", "expected"), [("earliest", [b"after", b"before"]), ("latest", [b"after"])])
def test_q90_a_new_queue_begins_at_its_start(world: World, start: str, expected: list[bytes]) -> None:
    service = world.service(start=start, redelivery_timeout_ms=60_000)
    put(service, "jobs", b"before")
    consumer = service.queue("jobs").consumer()
    early = [] if start == "latest" else take(consumer, 1)
    assert consumer.receive(1.0) is None
    wait_until(lambda: consumer.receive(0.1) is None and consumer._backend is not None)
    put(service, "jobs", b"after")
    assert payloads([*early, *take(consumer, 1)]) == expected


def test_q90_a_new_queue_begins_at_a_time(world: World) -> None:
    put(world.service(), "jobs", b"before")
    (stored,) = records(world, "messages")
    begin_ms = stored.timestamp_ms + 1
    wait_until(lambda: time.time() * 1000 > begin_ms)
    service = world.service(start=AtTimestamp(begin_ms), redelivery_timeout_ms=60_000)
    put(service, "jobs", b"after")
    consumer = service.queue("jobs").consumer()
    assert payloads(take(consumer, 1)) == [b"after"]
    assert consumer.receive(0.1) is None


def test_q90_a_new_queue_begins_some_time_ago(world: World) -> None:
    service = world.service(start=Ago(hours=1), redelivery_timeout_ms=60_000)
    put(service, "jobs", b"before")
    assert payloads(take(service.queue("jobs").consumer(), 1)) == [b"before"]


def test_q99_all_producers_of_a_service_share_one_idempotent_producer(world: World) -> None:
    service = world.service()
    for number in range(20):
        put(service, f"queue-{number}", b"hi")
    ids = {one.producer_id for index in range(3) for one in world.cluster.log("messages", index).batches()}
    assert len(ids) == 1
