"""What the design of kafka-mq-go lacks, each flaw with what is done here; others are in the files of their rooms."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kwire import Producer
from kwire.broker import Disconnect
from kwire.cluster.waiting import run_blocking
from kwire.consumer import ConsumerRecord
from kwire.errors import LeaseLostError
from kwire.producer.bulk import BulkResponse, BulkResult
from kwire.protocol import ApiKey
from kwire.queue.backend import Delivery, Lease
from kwire.queue.markers import NO_TOPIC_ID, MarkerType, decode_marker
from kwire.queue.tracker_backend import KeepAlives, TrackerBackend
from tests.queue.worlds import LEASE_MS, World, begun, payloads, put, take
from tests.waiting import wait_until


def test_f6_the_markers_of_a_queue_are_in_all_partitions(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    consumer = service.queue("jobs").consumer()
    for _ in range(40):  # the markers of a batch go to one partition together
        put(service, "jobs", *(b"%d" % number for number in range(5)))
        take(consumer, 5)
    assert all(list(world.cluster.log("markers", index).records()) for index in range(3))


def test_f7_a_message_ends_where_it_began_also_when_partitions_were_added(world: World) -> None:
    service = world.service(keep_alive=False, partitions=1, metadata_max_age_ms=100)
    world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(4)))
    consumer = service.queue("jobs").consumer()
    messages = take(consumer, 4)
    backend = consumer._backend
    assert isinstance(backend, TrackerBackend)
    backend.run = 1  # their markers would go to partitions of their own now
    world.cluster.call(lambda state, now: state.add_partitions(state.topics["markers"], 5))
    runtime = service.markers._core.runtime
    wait_until(lambda: len(runtime.snapshot.topics["markers"].partitions) == 5)
    for message in messages:
        message.ack()
    assert consumer.receive(3 * LEASE_MS / 1000) is None
    later = [one for index in range(1, 5) for one in world.cluster.log("markers", index).records()]
    assert {decode_marker(one.value or b"").type for one in later} <= {MarkerType.TICK}


def test_f9_a_batch_has_one_commit(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", *(b"%d" % number for number in range(100)))
    consumer = service.queue("jobs").consumer()
    take(consumer, 100)
    assert 1 <= consumer.metrics().commits <= 3  # a first read may end in the middle


def test_f10_f12_messages_in_the_buffer_are_kept_alive_every_third_of_the_lease(world: World) -> None:
    service = world.service(partitions=1)
    world.tracker(service)
    put(service, "jobs", b"1", b"2")
    consumer = service.queue("jobs").consumer()
    (first,) = take(consumer, 1)
    assert service.queue("other").consumer().receive(3 * LEASE_MS / 1000) is None
    (second,) = take(consumer, 1)
    assert (payloads([first, second]), second.deliveries) == ([b"1", b"2"], 1)
    first.ack()
    second.ack()
    assert consumer.metrics().markers_sent["keep_alive"] >= 2 * 6


def test_q60_q74_a_message_whose_acknowledgement_is_lost_is_stored_once(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"before")
    world.cluster.add_fault(Disconnect(applied=True), api=ApiKey.PRODUCE, topic="messages", times=1)
    put(service, "jobs", b"hi")
    assert [one.value for one in world.cluster.log("messages", 0).records()] == [b"before", b"hi"]


def test_f13_a_keep_alive_that_is_stored_after_the_deadline_does_not_bring_the_lease_back(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi", b"ho")
    consumer = service.queue("jobs").consumer()
    late, early = (message._delivery for message in take(consumer, 2))
    backend, response = consumer._backend, SimpleNamespace(errors=())
    assert isinstance(backend, TrackerBackend)
    late.lease, early.lease = late.lease.copy(), early.lease.copy()
    late.lease.deadline, early.lease.deadline = backend.now() - 1.0, (before := backend.now() + 30.0)
    backend._extended([late, early], backend.now(), response)  # type: ignore[arg-type]
    assert late.lease.deadline < backend.now()
    assert early.lease.deadline > before


def leased(world: World, count: int) -> tuple[TrackerBackend, list[Delivery]]:
    """Return the backend of a consumer, and messages that share a lease of a minute."""
    service = world.service(redelivery_timeout_ms=60_000, max_processing_ms=60_000, partitions=1)
    put(service, "jobs", *(b"%d" % number for number in range(count)))
    consumer = service.queue("jobs").consumer()
    # From one response, as they were sent.
    wait_until(lambda: world.cluster.log("messages", 0).high_watermark >= count)
    deliveries = [message._delivery for message in take(consumer, count)]
    assert isinstance(consumer._backend, TrackerBackend)
    for one in deliveries:
        one.lease = deliveries[0].lease
    return consumer._backend, deliveries


def test_f11_a_handler_that_hangs_loses_its_message_though_its_neighbours_go_on(world: World) -> None:
    backend, (hung, live) = leased(world, 2)
    before = live.lease.deadline
    hung.handed_out_at, live.handed_out_at = backend.now() - 61.0, backend.now()
    backend._send_keep_alives([hung, live])
    wait_until(lambda: live.lease.deadline > before)
    assert hung.lease.deadline == before


def test_f11_messages_behind_a_handler_that_hangs_go_to_others_and_count_as_delivered_once(world: World) -> None:
    service = world.service(max_processing_ms=LEASE_MS)
    world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(20)))
    hung = service.queue("jobs").consumer()
    (message,) = take(hung, 1)  # and it never asks for another one
    others = take(service.queue("jobs").consumer(), 20)
    assert payloads(others) == sorted(b"%d" % number for number in range(20))
    assert {one.payload: one.deliveries for one in others if one.deliveries > 1} == {message.payload: 2}


def test_f11_f20_a_consumer_that_may_have_no_more_messages_stays_in_its_group(world: World) -> None:
    service = world.service(max_processing_ms=LEASE_MS, max_in_progress=1, consumer_receive_buffer_capacity=1)
    put(service, "jobs", b"1", b"2")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    backend = consumer._backend
    assert isinstance(backend, TrackerBackend)
    member = backend._records.member
    interval_ms = service.options.poll_interval_ms
    assert interval_ms is not None
    end = backend.now() + 3 * interval_ms / 1000
    while backend.now() < end:  # it keeps the message up to date, and waits for room
        message.extend()
        assert consumer.receive(0.1) is None
    assert backend._records.member == member
    message.ack()
    assert take(consumer, 1)[0].payload == b"2"


def test_a_consumer_that_joins_gets_partitions_while_the_handlers_of_others_run(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", b"slow")
    take(service.queue("jobs").consumer(), 1)  # and it does not ask for another one
    joined = service.queue("jobs").consumer()
    assert joined.receive(0.1) is None
    with Producer(world.cluster.bootstrap) as producer:
        for partition in range(3):
            producer.send("messages", b"later", key=b"jobs", partition=partition)
    assert take(joined, 1)[0].payload == b"later"


def test_f12_a_lease_does_not_go_on_where_a_keep_alive_was_not_stored(world: World) -> None:
    backend, deliveries = leased(world, 2)
    before = deliveries[0].lease.deadline
    response: Any = SimpleNamespace(errors=[(1, LeaseLostError("not stored"))])
    backend._extended(deliveries, backend.now() + 1.0, response)
    assert [one.lease.deadline for one in deliveries] == [before, before]
    backend._extended(deliveries, backend.now() + 1.0, SimpleNamespace(errors=()))  # type: ignore[arg-type]
    assert all(one.lease.deadline > before for one in deliveries)


def test_an_extension_is_of_one_message_alone(world: World) -> None:
    backend, (extended, other) = leased(world, 2)
    before = other.lease.deadline
    run_blocking(backend.extend(extended, 600_000))
    assert extended.lease.deadline > before + 500
    assert other.lease.deadline == before


def test_an_extension_that_is_shorter_than_the_lease_takes_nothing_away(world: World) -> None:
    backend, (delivery,) = leased(world, 1)
    before = delivery.lease.deadline
    run_blocking(backend.extend(delivery, 1_000))
    assert delivery.lease.deadline >= before
    markers = [decode_marker(one.value or b"") for one in world.cluster.log("markers", 0).records()]
    assert markers[-1].type == MarkerType.KEEP_ALIVE
    assert markers[-1].redeliver_after_ms > 30_000  # so the tracker knows, too


def test_f13_an_extension_that_is_stored_after_the_deadline_does_not_bring_the_lease_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    backend, delivery = consumer._backend, message._delivery
    assert isinstance(backend, TrackerBackend)
    stored = backend._stored

    async def stored_late(response: BulkResponse) -> BulkResult:
        result = await stored(response)
        delivery.lease.deadline = backend.now() - 1.0
        return result

    monkeypatch.setattr(backend, "_stored", stored_late)
    with pytest.raises(LeaseLostError, match=r"is over.*topic messages, partition 0, offset 0"):
        message.extend(120_000)
    assert message.lease_seconds <= 0


def test_q27_the_position_is_committed_after_so_many_messages_of_other_queues(world: World) -> None:
    service = world.service(consumer_max_messages_per_commit=50, partitions=1)
    put(service, "other", *(b"%d" % number for number in range(120)))
    consumer = service.queue("jobs").consumer()
    wait_until(lambda: consumer.receive(0.1) is None and consumer.metrics().filtered_foreign == 120)
    position = world.cluster.committed(service.options.queue_group("jobs"))["messages", 0]
    assert position >= 50


def test_settled_deliveries_are_forgotten_before_their_keep_alive_is_due() -> None:
    """They would keep their payloads in memory, a third of the timeout long."""
    runtime: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: 0.0), wakeup=lambda: None)
    keep_alives = KeepAlives(runtime, lambda deliveries: None)
    record, live = ConsumerRecord("messages", 0, 1, 1, 1, b"jobs", b"hi", ()), []
    for number in range(100):
        lease = Lease(NO_TOPIC_ID, 60_000, 60.0, 0.0, 0)
        some = [Delivery(record, lease) for _ in range(1_000)]
        keep_alives.add(some)
        if number % 10 == 0:
            live.append(some.pop())
        for one in some:
            one.is_settled = True
    held = [one for _, _, some in keep_alives._heap for one in some]
    assert len(held) < 5_000
    assert set(live) <= set(held)


def test_f17_offsets_that_begin_anew_within_a_batch_are_of_the_topic_that_is_there_now(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)
    backend, before = consumer._backend, UUID(int=1)
    assert isinstance(backend, TrackerBackend)
    backend._logs[0] = before, 5
    records = [ConsumerRecord("messages", 0, offset, 1, 1, b"jobs", b"hi", ()) for offset in (5, 7, 0, 1)]
    runs = backend._runs(records)
    now = world.cluster.call(lambda state, time: state.find_topic("messages").id)
    assert [(id, [one.offset for one in run]) for id, run in runs] == [(before, [5, 7]), (now, [0, 1])]
    assert backend._logs[0] == (now, 2)


def test_f18_a_consumer_that_read_nothing_keeps_the_place_of_its_queue(world: World) -> None:
    service = world.service(start="latest", redelivery_timeout_ms=60_000)
    put(service, "jobs", b"before")
    begun(world, service).close()
    put(service, "jobs", b"meanwhile")
    assert payloads(take(service.queue("jobs").consumer(), 1)) == [b"meanwhile"]


def test_f18_a_new_partition_of_an_old_queue_begins_at_its_first_message(world: World) -> None:
    service = world.service(start="latest", redelivery_timeout_ms=60_000)
    put(service, "jobs", b"before")
    begun(world, service).close()
    world.cluster.call(lambda state, now: state.add_partitions(state.topics["messages"], 4))
    with Producer(world.cluster.bootstrap) as producer:
        producer.send("messages", b"sent to the new one", key=b"jobs", partition=3).result(10)
    assert payloads(take(service.queue("jobs").consumer(), 1)) == [b"sent to the new one"]


def test_f18_a_queue_without_a_position_says_where_it_begins(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kwire.queue")
    service = world.service(partitions=1)
    put(service, "jobs", b"1", b"2")
    take(service.queue("jobs").consumer(), 2)
    assert "has no position, and begins at earliest: partition 0 at 0" in caplog.text
