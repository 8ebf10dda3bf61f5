"""Queues with a tracker on the embedded broker: the functional tests of kafka-mq-go, and what must not go wrong."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kwire.broker import Delay, Refuse
from kwire.cluster.waiting import run_blocking
from kwire.errors import (
    AbortableError,
    ClosedError,
    ConfigurationError,
    ErrorCode,
    KwireError,
    LeaseLostError,
    MessageTooLargeError,
    RequestTimeoutError,
    SettledError,
)
from kwire.protocol import ApiKey
from kwire.queue import Consumer, Message
from kwire.queue.backend import Delivery
from kwire.queue.markers import MarkerType, decode_marker
from kwire.queue.tracker_backend import TrackerBackend
from tests.queue.worlds import LEASE_MS, World, begun, payloads, put, take
from tests.waiting import wait_until

# -- the functional tests of kafka-mq-go (Q63)


def test_q63_an_acknowledged_message_does_not_come_again(either: World) -> None:
    service = either.service()
    either.redeliverer(service)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    assert (message.payload, message.deliveries) == (b"hi", 1)
    message.ack()
    assert consumer.receive(2 * LEASE_MS / 1000) is None


def test_q63_a_refused_message_becomes_a_dead_letter(either: World) -> None:
    service = either.service()
    either.redeliverer(service)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)[0].nack("no such job")
    assert either.dead_letters() == [(b"hi", "no such job")]
    assert consumer.receive(2 * LEASE_MS / 1000) is None


def test_q63_f28_a_released_message_comes_again_at_once(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    put(service, "jobs", b"hi", headers={"color": b"red"}, message_id="job-1")
    consumer = service.queue("jobs").consumer()
    (first,) = take(consumer, 1)
    first.release()
    (again,) = take(consumer, 1)
    assert (again.payload, again.deliveries, again.id, again.headers) == (b"hi", 2, "job-1", (("color", b"red"),))
    assert again.first_sent_at_ms == first.first_sent_at_ms  # F16


@pytest.mark.slow
def test_q63_two_consumers_share_five_hundred_messages(either: World) -> None:
    service = either.service(consumer_receive_buffer_capacity=10, redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    queue = service.queue("jobs")
    consumers = [queue.consumer(), queue.consumer()]
    got: list[list[bytes | None]] = [[], []]

    def handle(number: int, message: Message) -> None:
        got[number].append(message.payload)
        if len(got[0] + got[1]) == 500:
            for consumer in consumers:
                consumer.stop()

    threads = [
        threading.Thread(target=consumer.handle, args=(partial(handle, number),))
        for number, consumer in enumerate(consumers)
    ]
    for thread in threads:
        thread.start()
    with queue.producer() as producer:
        number = 0
        while number < 500:
            for _ in range(100 if all(got) else 1):
                if number < 500 - (not all(got)):
                    producer.send(b"%d" % number)
                    number += 1
            producer.flush()
    for thread in threads:
        thread.join(60)
    assert all(got)
    assert Counter(got[0] + got[1]) == Counter(b"%d" % number for number in range(500))


def test_q63_two_queues_do_not_mix(either: World) -> None:
    service = either.service()
    put(service, "one", b"1", b"11")
    put(service, "two", b"2", b"22")
    assert payloads(take(service.queue("two").consumer(), 2)) == [b"2", b"22"]
    assert payloads(take(service.queue("one").consumer(), 2)) == [b"1", b"11"]


def test_q63_a_receive_ends_without_a_message(either: World) -> None:
    service = either.service()
    consumer = service.queue("jobs").consumer()
    assert consumer.receive(0.2) is None
    consumer.close()
    with pytest.raises(ClosedError, match="jobs"):
        consumer.receive()


# -- leases


def test_q25_q64_a_message_of_a_dead_consumer_comes_again(world: World) -> None:
    service = world.service(keep_alive=False)
    world.tracker(service)
    put(service, "jobs", b"hi")
    dead = service.queue("jobs").consumer()
    take(dead, 1)
    assert isinstance(dead._backend, TrackerBackend)
    run_blocking(dead._backend._records._close())  # its partitions are another's; of its message it says nothing
    (message,) = take(service.queue("jobs").consumer(), 1)
    assert (message.payload, message.deliveries) == (b"hi", 2)


def test_q31_q65_a_message_that_takes_longer_than_its_lease_is_kept_alive(either: World) -> None:
    lease_ms = 2_000
    service = either.service(redelivery_timeout_ms=lease_ms)
    either.redeliverer(service)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    assert consumer.receive(3 * lease_ms / 1000) is None
    message.ack()
    if either.backend == "tracker":
        assert consumer.metrics().markers_sent["keep_alive"] >= 6


def test_f11_f13_a_handler_that_hangs_loses_its_message(either: World) -> None:
    service = either.service(max_processing_ms=LEASE_MS)
    either.redeliverer(service)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    (again,) = take(consumer, 1)
    assert (again.payload, again.deliveries) == (b"hi", 2)
    with pytest.raises(LeaseLostError, match="delivered again"):
        message.ack()
    again.ack()
    assert consumer.metrics().lease_lost == 1


def test_ack_many_acknowledges_what_it_can_and_raises_the_first_error(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", *(b"%d" % number for number in range(5)))
    consumer = service.queue("jobs").consumer()
    lost, settled, *others = take(consumer, 5)
    lost._delivery.lease = lost._delivery.lease.copy()
    lost._delivery.lease.deadline = consumer.now() - 1.0
    settled.ack()
    with pytest.raises(SettledError):
        consumer.ack_many([settled, *others, lost])
    assert all(message.is_settled for message in others)
    assert (consumer.metrics().acked, consumer.metrics().lease_lost) == (4, 1)
    with pytest.raises(TypeError, match="messages of this consumer"):
        consumer.ack_many([b"hi"])  # type: ignore[list-item]


def test_what_ack_many_acknowledged_does_not_come_again(either: World) -> None:
    service = either.service()
    either.redeliverer(service)
    put(service, "jobs", *(b"%d" % number for number in range(20)))
    consumer = service.queue("jobs").consumer()
    consumer.ack_many(take(consumer, 20))
    assert consumer.receive(2 * LEASE_MS / 1000) is None
    assert (consumer.metrics().acked, consumer.metrics().in_progress) == (20, 0)


def test_q91_extend_prolongs_a_lease(world: World) -> None:
    service = world.service(keep_alive=False)
    world.tracker(service)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    message.extend(60_000)
    assert message.lease_seconds > 50
    assert consumer.receive(2 * LEASE_MS / 1000) is None
    message.ack()


def short_markers(world: World, retention_ms: int, **options: Any) -> tuple[Consumer, Message]:
    """Return a message in progress whose markers are kept for this time."""
    configs = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2", "retention.ms": str(retention_ms)}
    world.cluster.create_topic("markers", partitions=1, replication_factor=3, configs=configs)
    service = world.service(max_processing_ms=LEASE_MS, partitions=1, **options)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    return consumer, message


def test_f4_times_that_are_longer_than_the_markers_are_kept_are_refused(world: World) -> None:
    _, message = short_markers(world, 100_000)
    for call in (message.release, message.extend):
        with pytest.raises(ValueError, match=r"100001 ms are longer .* retention\.ms of the markers topic"):
            call(100_001)
    message._delivery.lease.leased_at -= 90.0  # its START has been in the log for so long
    with pytest.raises(ValueError, match="11000 ms are longer"):
        message.release(11_000)
    assert (message.is_settled, message._consumer.metrics().in_progress) == (False, 1)
    message.extend(5_000)
    message.release(5_000)
    assert message.is_settled


def test_f4_a_back_off_is_no_longer_than_the_markers_are_kept(world: World) -> None:
    consumer, message = short_markers(world, 30_000, backoff_ms=60_000, check_topics=False)
    with pytest.raises(ZeroDivisionError), message:
        _ = 1 / 0
    consumer.flush()
    last = [decode_marker(one.value or b"") for one in world.cluster.log("markers", 0).records()][-1]
    assert last.type == MarkerType.RELEASE
    assert 0 < last.redeliver_after_ms <= 30_000


def test_times_that_no_marker_can_hold_are_refused(world: World) -> None:
    consumer, message = short_markers(world, -1)
    for name, call in (("delay_ms", message.release), ("timeout_ms", message.extend)):
        with pytest.raises(TypeError, match=name):
            call(1 << 63)
    with pytest.raises(TypeError, match="delay_ms"):
        consumer._service.queue("jobs").producer().send(b"hi", delay_ms=1 << 63)
    message.extend((1 << 63) - 1)
    assert message.lease_seconds > 1e12


def test_a_message_is_settled_once(either: World) -> None:
    service = either.service()
    put(service, "jobs", b"hi")
    (message,) = take(service.queue("jobs").consumer(), 1)
    message.ack()
    for again in (message.ack, message.nack, message.release, message.extend):
        with pytest.raises(SettledError, match="settled already"):
            again()


@pytest.mark.parametrize("hook", ["_now", "_ack"])
def test_of_two_threads_that_acknowledge_at_once_one_does(
    either: World, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second thread comes between any two steps of the first: here it is a call within the first one's."""
    service = either.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    step, outcomes = getattr(consumer, hook), []

    def ack() -> None:
        try:
            message.ack()
        except SettledError:
            outcomes.append("settled")
        else:
            outcomes.append("acked")

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(consumer, hook, step)
        ack()
        return step(*arguments)

    monkeypatch.setattr(consumer, hook, interrupted)
    ack()
    assert sorted(outcomes) == ["acked", "settled"]
    consumer.flush()
    counters = consumer.metrics()
    assert (counters.acked, counters.in_progress, counters.processing_time.distribution().count) == (1, 0, 1)
    if either.backend == "tracker":
        assert counters.markers_sent == {"start": 1, "end": 1}


def test_threads_that_settle_the_same_messages_settle_each_once(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", *(b"%d" % number for number in range(300)))
    consumer = service.queue("jobs").consumer()
    messages, together, settled = take(consumer, 300), threading.Barrier(4), Counter[str]()

    def settle(number: int) -> None:
        together.wait(30)
        for message in messages:
            try:
                message.ack() if number % 2 else message.nack()
                settled[message.id] += 1
            except SettledError:
                pass

    threads = [threading.Thread(target=settle, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    consumer.flush()
    counters = consumer.metrics()
    assert settled == {message.id: 1 for message in messages}
    assert counters.acked + counters.nacked == 300
    assert len(either.dead_letters()) == counters.nacked
    assert counters.in_progress == 0


def test_an_acknowledgement_during_a_refusal_is_too_late_and_a_refusal_that_fails_may_be_tried_again(
    either: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = either.service(redelivery_timeout_ms=60_000, max_in_progress=1, consumer_receive_buffer_capacity=1)
    put(service, "jobs", b"hi", b"ho")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    backend = consumer._backend
    assert backend is not None

    async def refused(delivery: Delivery, reason: str) -> None:
        for settle in (message.ack, message.nack):
            with pytest.raises(SettledError):
                settle()
        assert consumer.metrics().in_progress == 1
        assert consumer.receive(0) is None
        raise RequestTimeoutError("no dead letter topic")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "dead_letter", refused)
        with pytest.raises(RequestTimeoutError):
            message.nack()
    assert not message.is_settled
    message.ack()
    assert consumer.metrics().acked == 1


def test_q94_a_block_acknowledges_or_gives_back(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    with pytest.raises(ZeroDivisionError), take(consumer, 1)[0]:
        _ = 1 / 0
    (again,) = take(consumer, 1)
    with again:
        assert again.deliveries == 2
    assert again.is_settled


def test_receive_many_returns_what_is_there_at_once(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", *(b"%d" % number for number in range(7)))
    found: list[Message] = []
    with service.queue("jobs").consumer() as consumer:
        while len(found) < 7:
            some = consumer.receive_many(5, 10.0)
            assert 1 <= len(some) <= 5
            found += some
        assert payloads(found) == [b"%d" % number for number in range(7)]
        counters = consumer.metrics()
        assert (counters.received, counters.in_progress, counters.acked) == (7, 7, 0)
        for message in found:
            message.ack()
        assert consumer.receive_many(5, 0.0) == []
        with pytest.raises(TypeError):
            consumer.receive_many(0)
        counters = consumer.metrics()
        assert (counters.in_progress, counters.acked, counters.processing_time.distribution().count) == (0, 7, 7)
        assert counters.total_time.distribution().count == counters.wait_time.distribution().count == 7


def test_receive_many_leaves_out_what_waited_longer_than_its_lease(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", *(b"%d" % number for number in range(5)))
    wait_until(lambda: world.cluster.log("messages", 0).high_watermark >= 5)
    with service.queue("jobs").consumer() as consumer:
        first = consumer.receive(10.0)
        assert first is not None
        assert len(consumer._buffer) == 4
        for late in list(consumer._buffer)[:3:2]:
            late.lease = late.lease.copy()
            late.lease.deadline = consumer.now() - 1.0
        assert payloads([first, *consumer.receive_many(9, 10.0)]) == [b"0", b"2", b"4"]
        assert consumer.metrics().in_progress == 3


def test_the_buffer_grows_while_it_is_emptied_fast_and_shrinks_while_it_lasts(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000, consumer_receive_buffer_capacity=1_500)
    consumer = service.queue("jobs").consumer()
    now = 0.0
    consumer._now = lambda: now
    sizes: list[int] = []
    for seconds, was_full in [(0.0, True), (0.05, True), (0.05, True), (0.5, True), (0.05, False), (2.0, True)]:
        now += seconds
        consumer._was_full = was_full and bool(sizes)
        sizes.append(consumer._begin_fetch())
        assert consumer._begin_fetch() == 0  # another fetches
        consumer._is_fetching, consumer._fetched_at = False, now
    assert sizes == [500, 1_000, 1_500, 1_500, 1_500, 750]


def test_f20_no_more_than_max_in_progress(either: World) -> None:
    service = either.service(max_in_progress=4, consumer_receive_buffer_capacity=4)
    put(service, "jobs", *(b"%d" % number for number in range(9)))
    consumer = service.queue("jobs").consumer()
    first = take(consumer, 4)
    assert consumer.receive(0.3) is None
    first[0].ack()
    take(consumer, 1)
    assert consumer.metrics().in_progress == 4


def test_a_receive_that_a_close_ends_says_that_the_consumer_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close on another thread aborts the transaction in which it marks its messages."""
    service = world.service()
    put(service, "jobs", b"x")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)

    async def fetch(backend: Any, limit: int, timeout: float) -> list[Delivery]:
        consumer._is_closed = True
        raise AbortableError("the transaction was aborted")

    monkeypatch.setattr(type(consumer._backend), "fetch", fetch)
    with pytest.raises(ClosedError, match="queue jobs is closed"):
        consumer.receive(timeout=5)
    consumer._is_closed = False


def test_q75_close_gives_back_what_is_in_progress_and_counts_only_what_was_handed_out(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(5)))
    first = service.queue("jobs").consumer()
    (message,) = take(first, 1)
    first.close()
    again = take(service.queue("jobs").consumer(), 5)
    assert payloads(again) == [b"0", b"1", b"2", b"3", b"4"]
    assert {one.payload for one in again if one.deliveries == 2} == {message.payload}


def held_up(world: World) -> Consumer:
    """Return a consumer whose acknowledgement the brokers take a second for."""
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    api = ApiKey.PRODUCE if world.backend == "tracker" else ApiKey.SHARE_ACKNOWLEDGE
    world.cluster.add_fault(Delay(ms=1_000), api=api)
    message.ack()
    return consumer


def test_a_flush_says_that_acknowledgements_are_not_stored_in_time(either: World) -> None:
    consumer = held_up(either)
    with pytest.raises(RequestTimeoutError):
        consumer.flush(0.1)
    if either.backend == "tracker":  # with share groups the brokers' result may be an error that is raised again
        consumer.flush(30.0)


def test_a_close_ends_cleanly_where_acknowledgements_are_not_stored_in_time(
    either: World, caplog: pytest.LogCaptureFixture
) -> None:
    held_up(either).close(0.1)
    if either.backend == "tracker":
        assert "markers were not stored" in caplog.text


# -- dead letters, delay, expiry


def test_q72_a_poison_message_is_a_dead_letter_after_exactly_max_deliveries(either: World) -> None:
    service = either.service(max_deliveries=3)
    either.redeliverer(service)
    put(service, "jobs", b"poison")
    consumer = service.queue("jobs").consumer()
    deliveries = []
    for _ in range(3):
        (message,) = take(consumer, 1)
        deliveries.append(message.deliveries)
        message.release()
    assert deliveries == [1, 2, 3]
    wait_until(lambda: consumer.receive(0.1) is None and either.dead_letters())
    assert either.dead_letters() == [(b"poison", "delivered 3 times")]


def test_q82_a_delayed_message_comes_after_its_delay_as_a_first_delivery(world: World) -> None:
    service = world.service()
    world.tracker(service)
    put(service, "jobs", b"late", delay_ms=600)
    put(service, "jobs", b"now")
    first, second = take(service.queue("jobs").consumer(), 2)
    assert [first.payload, second.payload] == [b"now", b"late"]
    assert second.deliveries == 1
    log = [one for index in range(3) for one in world.cluster.log("messages", index).records() if one.value == b"late"]
    sent, again = sorted(one.timestamp_ms for one in log)
    assert again - sent >= 600


def test_q83_an_expired_message_is_a_dead_letter(either: World) -> None:
    # The message that expires is read first, and is not redelivered meanwhile.
    service = either.service(partitions=1, redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    put(service, "jobs", b"stale", expires_in_ms=1)
    put(service, "jobs", b"fresh")
    with service.queue("jobs").consumer() as consumer:  # its end waits for the dead letter
        assert payloads(take(consumer, 1)) == [b"fresh"]
    assert either.dead_letters() == [(b"stale", "expired")]


def stale_buffer(world: World) -> tuple[Consumer, list[float]]:
    """Return a consumer with a, b and fresh in its buffer, of which a and b expire, and what its clock adds."""
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    consumer, ahead = service.queue("jobs").consumer(), [0.0]
    put(service, "jobs", b"first")
    put(service, "jobs", b"a", b"b", expires_in_ms=20_000)
    put(service, "jobs", b"fresh")
    topic = "messages" if world.backend == "tracker" else "messages-jobs"
    wait_until(lambda: world.cluster.log(topic, 0).high_watermark >= 4)
    take(consumer, 1)[0].ack()
    assert [one.payload for one in consumer._buffer] == [b"a", b"b", b"fresh"]
    now = consumer._now
    consumer._now = lambda: now() + ahead[0]
    return consumer, ahead


@pytest.mark.parametrize("takes_many", [False, True])
def test_q83_a_message_that_expires_in_the_buffer_is_not_handed_out(either: World, takes_many: bool) -> None:
    consumer, ahead = stale_buffer(either)
    if takes_many:
        found = take(consumer, 1)  # of the two that expire, while it does not
        ahead[0] = 25.0
        found += consumer.receive_many(9, 10.0)
        assert [message.payload for message in found] == [b"a", b"fresh"]
    else:
        ahead[0] = 25.0
        found = take(consumer, 1)
        assert [message.payload for message in found] == [b"fresh"]
    assert consumer.receive_many(9, 0.1) == []
    assert sorted(either.dead_letters()) == [(b"a", "expired"), (b"b", "expired")][takes_many:]
    assert (consumer.metrics().expired, consumer.metrics().in_progress) == (1 if takes_many else 2, len(found))


def test_q83_what_expired_while_messages_were_taken_at_once_is_a_dead_letter(either: World) -> None:
    consumer, ahead = stale_buffer(either)
    consumer._buffer.rotate(1)  # the fresh one is taken first, the others with it
    ahead[0] = 25.0
    assert payloads(consumer.receive_many(9, 10.0)) == [b"fresh"]
    assert consumer.receive(0.1) is None
    assert sorted(either.dead_letters()) == [(b"a", "expired"), (b"b", "expired")]
    assert (consumer.metrics().expired, consumer.metrics().in_progress) == (2, 1)


def test_q83_an_expired_message_that_cannot_be_a_dead_letter_is_left_to_the_tracker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, ahead = stale_buffer(world)
    stale = list(consumer._buffer)[:2]
    errors = iter([KeyboardInterrupt(), RequestTimeoutError("no dead letter topic"), RequestTimeoutError("still none")])

    async def refused(delivery: Delivery, reason: str) -> None:
        raise next(errors)

    monkeypatch.setattr(consumer._backend, "dead_letter", refused)
    ahead[0] = 25.0
    take(consumer, 1)
    with pytest.raises(KeyboardInterrupt):  # the call is given up, and the message is not
        consumer.receive(0.1)
    assert consumer.metrics().in_progress == 3
    assert consumer.receive(0.1) is None
    assert all(one.is_settled for one in stale)  # no keep-alive goes out
    assert consumer.metrics().in_progress == 1


def test_q83_a_message_that_expires_in_progress_is_not_delivered_again(world: World) -> None:
    service = world.service(keep_alive=False)
    world.tracker(service)
    consumer = service.queue("jobs").consumer()
    put(service, "jobs", b"first")
    take(consumer, 1)[0].ack()  # it has joined its group, so that the next message does not expire before
    put(service, "jobs", b"stale", expires_in_ms=LEASE_MS // 2)
    take(consumer, 1)
    assert consumer.receive(2 * LEASE_MS / 1000) is None
    wait_until(lambda: world.dead_letters() == [(b"stale", "expired")])


def test_f15_a_message_that_could_not_be_marked_is_refused_by_send(either: World) -> None:
    service = either.service()
    with service.queue("jobs").producer() as producer, pytest.raises(MessageTooLargeError, match="take"):
        producer.send(b"x" * 1_048_400)
    put(service, "jobs", b"x" * 1_000_000)
    assert len(take(service.queue("jobs").consumer(), 1)[0].payload or b"") == 1_000_000


def test_q71_empty_payloads_and_none_come_back_as_they_are(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    with service.queue("jobs").producer() as producer:
        producer.send(b"", headers={"n": b"empty"})
        producer.send(None, headers={"n": b"none", "v": None})
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 2):
        message.release()
    got = {dict(one.headers)["n"]: (one.payload, one.headers) for one in take(consumer, 2)}
    assert got == {
        b"empty": (b"", (("n", b"empty"),)),
        b"none": (None, (("n", b"none"), ("v", None))),
    }


# -- what fails


@pytest.mark.parametrize("is_transactional", [False, True])
def test_q30_q69_nothing_is_handed_out_that_is_not_marked(world: World, is_transactional: bool) -> None:
    service = world.service(transactional=is_transactional)
    consumer = begun(world, service)
    put(service, "jobs", b"hi")
    world.cluster.add_fault(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=ApiKey.PRODUCE, topic="markers")
    with pytest.raises(KwireError, match="TOPIC_AUTHORIZATION_FAILED"):
        consumer.receive(10)
    assert not any(world.cluster.committed(service.options.queue_group("jobs")).values())
    world.cluster.clear_faults()
    assert payloads(take(consumer, 1)) == [b"hi"]
    assert consumer.metrics().resets >= 1


def test_q30_q64_nothing_is_handed_out_that_is_not_committed(world: World) -> None:
    service = world.service()
    consumer = begun(world, service)
    put(service, "jobs", b"hi")
    world.cluster.add_fault(Refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE), api=ApiKey.OFFSET_COMMIT)
    with pytest.raises(KwireError):
        consumer.receive(10)
    world.cluster.clear_faults()
    assert payloads(take(consumer, 1)) == [b"hi"]
    assert consumer.metrics().commit_failures >= 1


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_q30_a_commit_that_fails_is_made_again_and_nothing_is_marked_again(world: World, code: ErrorCode) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    consumer = begun(world, service)
    put(service, "jobs", b"hi")
    world.cluster.add_fault(Refuse(code), api=ApiKey.OFFSET_COMMIT, times=3)
    refused = 0
    while refused < 3:
        with suppress(KwireError):
            assert consumer.receive(0.1) is None
        refused = consumer.metrics().commit_failures
    assert payloads(take(consumer, 1)) == [b"hi"]
    assert consumer.metrics().markers_sent == {"start": 1}


def test_q30_a_message_that_is_committed_after_its_lease_is_left_to_the_tracker(world: World) -> None:
    service = world.service()
    consumer = begun(world, service)
    put(service, "jobs", b"hi")
    world.cluster.add_fault(Refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE), api=ApiKey.OFFSET_COMMIT)
    with pytest.raises(KwireError):
        consumer.receive(10)
    tracker = world.tracker(service)
    wait_until(lambda: tracker.metrics().redelivered == 1)
    world.cluster.clear_faults()
    (message,) = take(consumer, 1)
    assert (message.payload, message.deliveries) == (b"hi", 2)
    assert consumer.metrics().lease_lost == 1


@pytest.mark.parametrize("is_transactional", [False, True])
def test_q26_q62_all_of_two_hundred_messages_once(world: World, is_transactional: bool) -> None:
    service = world.service(transactional=is_transactional, redelivery_timeout_ms=60_000)
    world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(200)))
    consumer = service.queue("jobs").consumer()
    messages = take(consumer, 200)
    for message in messages:
        message.ack()
    assert payloads(messages) == sorted(b"%d" % number for number in range(200))
    assert consumer.receive(0.5) is None


class _Unseen:
    """A producer whose first commit happens, and is reported as failed: its response was lost."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    async def _commit(self) -> None:
        await self._producer._commit()
        raise RequestTimeoutError("the response did not come")

    async def _abort_after(self, error: BaseException, timeout: float) -> None:
        pass


def test_q62_a_transaction_that_was_committed_unseen_is_not_read_again(world: World) -> None:
    """Its message is marked, so that the tracker delivers it: to hand it out as well could be a duplicate."""
    service = world.service(transactional=True, redelivery_timeout_ms=60_000, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    assert consumer.receive(0.0) is None
    backend = consumer._backend
    assert isinstance(backend, TrackerBackend)
    backend._transactions = _Unseen(run_blocking(backend._transactional_producer()))  # type: ignore[assignment]
    with pytest.raises(RequestTimeoutError):
        consumer.receive(10)
    assert consumer.receive(1.0) is None
    put(service, "jobs", b"next")
    assert payloads(take(consumer, 1)) == [b"next"]


def test_f17_messages_of_a_topic_that_was_created_again_are_other_messages(world: World) -> None:
    """The old message at offset 0 is in progress: it must not take the place of the new one there."""
    service = world.service(redelivery_timeout_ms=60_000, partitions=1)
    world.tracker(service)
    put(service, "jobs", b"old")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)
    world.cluster.delete_topic("messages")
    configs = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}
    world.cluster.create_topic("messages", partitions=1, replication_factor=3, configs=configs)
    put(service, "jobs", b"new")
    (message,) = take(consumer, 1, 30.0)
    assert (message.payload, message.place) == (b"new", (0, 0))
    message.release()
    assert payloads(take(consumer, 1)) == [b"new"]


# -- trackers


def test_f2_f3_a_new_tracker_does_not_redeliver_what_the_old_one_did(world: World) -> None:
    """The log has the expired START, its redelivery's END comes later: the second tracker reads both first."""
    service = world.service(keep_alive=False, partitions=1)
    put(service, "jobs", b"held", redelivery_timeout_ms=3_600_000)  # pins the committed offset
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    take(consumer, 2)
    with service.tracker() as first:
        take(consumer, 1)[0].ack()
        consumer.flush()
        wait_until(lambda: first.metrics().redelivered == 1)
    with service.tracker() as second:
        assert consumer.receive(2 * LEASE_MS / 1000) is None
        metrics = second.metrics()
        assert (metrics.redelivered, metrics.in_progress, metrics.replaying) == (0, 1, 0)


def test_q66_a_tracker_that_was_replaced_cannot_redeliver(world: World) -> None:
    """The zombie has the expired messages in memory, and its transaction is fenced by the successor's."""
    service = world.service(keep_alive=False, partitions=1)
    put(service, "jobs", b"hi")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)
    zombie = world.tracker(service)
    again = take(consumer, 1)[0]
    assert again.deliveries == 2
    partition = zombie._partitions[0]
    successor = zombie.new_producer(0)
    run_blocking(successor._init_transactions())
    (third,) = take(consumer, 1)  # its first attempt failed; it opened the partition again, and read to the end
    assert third.deliveries == 3
    assert zombie.metrics().failures >= 1
    assert partition.state.is_replaying is False
    run_blocking(successor._close(0))


def test_q32_trackers_share_the_partitions(world: World) -> None:
    service = world.service()
    first, second = world.tracker(service), world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(60)))
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 60):
        message.release()
    assert payloads(take(consumer, 60)) == sorted(b"%d" % number for number in range(60))
    wait_until(lambda: sorted([first.metrics().partitions, second.metrics().partitions]) == [1, 2])


# -- topics


@pytest.mark.parametrize(
    ("topic", "configs", "complaint"),
    [
        ("markers", {"message.timestamp.type": "CreateTime"}, "F1: CreateTime"),
        ("markers", {"cleanup.policy": "compact"}, "F5: compact"),
        ("messages", {"cleanup.policy": "compact"}, "F5: compact"),
        ("markers", {"retention.ms": "1000"}, "F4: retention.ms"),
        ("markers", {"retention.ms": "50000000"}, "F4: retention.ms"),
        ("markers", {"min.insync.replicas": "1"}, "F24: min.insync.replicas"),
    ],
)
def test_q97_topics_that_lose_or_repeat_messages_are_refused(
    world: World, topic: str, configs: dict[str, str], complaint: str
) -> None:
    right = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"}
    world.cluster.create_topic(topic, partitions=3, replication_factor=3, configs={**right, **configs})
    with pytest.raises(ConfigurationError, match=complaint.partition(": ")[2]):
        put(world.service(backoff_ms=500_000, backoff_ms_max=20_000_000), "jobs", b"hi")
    put(world.service(check_topics=False), "jobs", b"hi")


def test_q97_topics_are_not_created_against_the_will(world: World) -> None:
    with pytest.raises(ConfigurationError, match="create it"):
        put(world.service(create_topics=False), "jobs", b"hi")


def test_kafka_mq_v1_queues_keep_its_groups_and_its_partition_of_a_queue(world: World) -> None:
    service = world.service(marker_format="kafka-mq-v1", max_deliveries=None)
    world.tracker(service)
    put(service, "jobs", *(b"%d" % number for number in range(20)))
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 20):
        message.release()
    assert payloads(take(consumer, 20)) == sorted(b"%d" % number for number in range(20))
    assert ("messages", 0) in world.cluster.committed("kafka-mq-jobs")
    with_key = [one for index in range(3) for one in world.cluster.log("markers", index).records() if one.key]
    assert {one.key for one in with_key} == {b"jobs"}
    parts = [i for i in range(3) if any(one.key for one in world.cluster.log("markers", i).records())]
    assert len(parts) == 1
