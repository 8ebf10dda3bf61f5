"""Dead letters, redrive, peek, stats, explain: on both backends, but for what only markers tell."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kwire import Producer
from kwire.broker import Refuse
from kwire.errors import ErrorCode, KwireError
from kwire.protocol import ApiKey
from kwire.queue import QueueStats, Service
from kwire.queue.browser import Browser
from kwire.queue.envelope import read_number
from tests.queue.worlds import LEASE_MS, World, payloads, put, take
from tests.waiting import wait_until


def test_q88_dead_letters_go_back_once_and_count_as_not_delivered(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    put(service, "jobs", b"bad", headers={"color": b"red"}, message_id="job-1")
    put(service, "other", b"worse")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    first_sent = message.first_sent_at_ms
    message.nack("no such job")
    take(service.queue("other").consumer(), 1)[0].nack()
    (letter,) = service.dead_letters("jobs")
    assert (letter.id, letter.payload, letter.reason, letter.queue) == ("job-1", b"bad", "no such job", "jobs")
    assert letter.headers == (("color", b"red"),)
    assert len(service.dead_letters()) == 2
    assert service.redrive("jobs") == 1
    assert service.redrive("jobs") == 0
    assert [one.queue for one in service.dead_letters()] == ["other"]
    (again,) = take(consumer, 1)
    assert (again.payload, again.deliveries, again.id, again.headers) == (b"bad", 1, "job-1", (("color", b"red"),))
    assert again.first_sent_at_ms == first_sent
    again.ack()
    assert consumer.receive(0.5) is None


def test_q88_only_some_dead_letters_go_back(world: World) -> None:
    service = world.service()
    for name in ("a", "b", "c"):
        put(service, "jobs", name.encode(), message_id=name)
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 3):
        message.nack()
    assert service.redrive(ids={"a", "c"}, limit=5) == 2
    assert payloads(take(consumer, 2)) == [b"a", b"c"]
    assert [one.id for one in service.dead_letters()] == ["b"]
    with pytest.raises(TypeError, match="limit"):
        service.redrive(limit=0)


def test_who_only_looks_creates_no_topic(either: World) -> None:
    """A markers topic would make `auto` choose trackers, and a misspelt name would leave a topic behind."""
    service = either.service()
    nothing = QueueStats("jbos", 0, None if either.backend == "share" else 0, 0, 0, None)
    assert (service.stats("jbos"), service.peek("jbos"), service.dead_letters("jbos")) == (nothing, [], [])
    assert service.explain("no such id").state == "unknown"
    assert service.redrive("jbos") == 0
    topics = either.cluster.call(lambda state, now: {name for name in state.topics if not name.startswith("__")})
    assert topics == set()


@pytest.mark.parametrize("ids", ["a", b"a", 5, [1]])
def test_what_are_no_ids_of_dead_letters_is_refused(ids: Any) -> None:
    with Service("localhost:1") as service, pytest.raises(TypeError, match="ids is"):
        service.redrive(ids=ids)


@pytest.mark.parametrize("call", [Service.dead_letters, Service.redrive])
def test_what_is_no_queue_of_dead_letters_is_refused(call: Any) -> None:
    with Service("localhost:1") as service:
        for name in (5, b"jobs"):
            with pytest.raises(TypeError, match="queue is"):
                call(service, name)
        with pytest.raises(ValueError, match="queue must not be empty"):
            call(service, "")


def test_q88_a_redrive_that_fails_in_its_transaction_sends_nothing(world: World) -> None:
    service = world.service()
    put(service, "jobs", b"bad")
    consumer = service.queue("jobs").consumer()
    take(consumer, 1)[0].nack()
    world.cluster.add_fault(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=ApiKey.PRODUCE, topic="messages")
    with pytest.raises(KwireError):
        service.redrive("jobs")
    world.cluster.clear_faults()
    assert len(service.dead_letters("jobs")) == 1
    assert consumer.receive(0.3) is None
    assert service.redrive("jobs") == 1
    assert payloads(take(consumer, 1)) == [b"bad"]


def test_q88_two_redrives_at_once_send_each_dead_letter_once(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", *(b"%d" % number for number in range(30)))
    consumer = service.queue("jobs").consumer()
    for message in take(consumer, 30):
        message.nack()
    sent: list[int] = []

    def redrive() -> None:
        try:
            sent.append(service.redrive("jobs"))
        except KwireError:
            sent.append(0)  # fenced by the other one

    threads = [threading.Thread(target=redrive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    service.redrive("jobs")
    assert payloads(take(consumer, 30)) == sorted(b"%d" % number for number in range(30))
    assert consumer.receive(0.5) is None
    assert service.dead_letters() == []


def test_an_expired_dead_letter_does_not_expire_at_once_when_it_went_back(world: World) -> None:
    service = world.service()
    put(service, "jobs", b"stale", expires_in_ms=1)
    consumer = service.queue("jobs").consumer()
    wait_until(lambda: consumer.receive(0.1) is None and service.dead_letters())
    assert service.redrive() == 1
    assert payloads(take(consumer, 1)) == [b"stale"]


def test_a_service_without_dead_letters_has_none(world: World) -> None:
    service = world.service(dead_letter_topic="")
    assert service.dead_letters() == []
    assert service.redrive() == 0


def test_q96_peek_and_stats_take_no_messages(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000, consumer_receive_buffer_capacity=1)
    put(service, "jobs", b"one", b"two", b"three")
    put(service, "other", b"four")
    assert sorted(one.payload or b"" for one in service.peek("jobs")) == [b"one", b"three", b"two"]
    assert len(service.peek("jobs", 2)) == 2
    consumer = service.queue("jobs").consumer()
    taken = take(consumer, 3)
    taken[0].ack()
    consumer.flush()
    stats = service.stats("jobs")
    if either.backend == "tracker":
        assert (stats.waiting, stats.in_progress, stats.dead_letters) == (0, 2, 0)
    else:
        assert stats.in_progress is None
        assert stats.waiting <= 3
    assert service.stats("other").waiting == 1
    assert service.stats("other").oldest_waiting_ms is not None


def test_q96_stats_are_of_one_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    service = world.service()
    put(service, "jobs", b"one", b"two")
    read = Browser._in_progress

    async def send_meanwhile(self: Browser) -> Any:
        put(service, "jobs", b"three")
        return await read(self)

    monkeypatch.setattr(Browser, "_in_progress", send_meanwhile)
    stats = service.stats("jobs")
    assert (stats.waiting, stats.depth) == (2, 2)
    stats = service.stats("jobs")
    assert (stats.waiting, stats.depth) == (3, 3)


def test_q96_explain_says_where_a_message_is(world: World) -> None:
    service = world.service(redelivery_timeout_ms=60_000)
    put(service, "jobs", b"hi", message_id="job-1")
    assert (service.explain("job-1").state, service.explain("job-1").queue) == ("waiting", "jobs")
    consumer = service.queue("jobs").consumer()
    (message,) = take(consumer, 1)
    found = service.explain("job-1")
    assert found.state == "in progress"
    assert found.since_ms is not None
    assert found.until_ms == found.since_ms + 60_000
    assert found.places == (("messages", *message.place),)
    message.release(50_000)
    consumer.flush()
    assert service.explain("job-1").state == "released"
    put(service, "jobs", b"late", message_id="job-2", delay_ms=30_000)
    wait_until(lambda: consumer.receive(0.1) is None and service.explain("job-2").state == "delayed")
    put(service, "jobs", b"done", message_id="job-3")
    take(consumer, 1)[0].ack()
    consumer.flush()
    assert service.explain("job-3").state == "processed"
    put(service, "jobs", b"bad", message_id="job-4")
    take(consumer, 1)[0].nack("no")
    assert (service.explain("job-4").state, service.explain("job-4").reason) == ("dead letter", "no")
    assert service.explain("nobody").state == "unknown"


def test_f14_the_reasons_and_the_counts_of_dead_letters(either: World) -> None:
    service = either.service(max_deliveries=2, redelivery_timeout_ms=LEASE_MS)
    either.redeliverer(service)
    put(service, "jobs", b"poison")
    consumer = service.queue("jobs").consumer()
    for _ in range(2):
        take(consumer, 1)[0].release()
    wait_until(lambda: consumer.receive(0.1) is None and service.dead_letters("jobs"))
    (letter,) = service.dead_letters("jobs")
    assert (letter.reason, letter.deliveries) == ("delivered 2 times", 2)
    assert letter.source.startswith("messages")


def test_a_refused_message_counts_the_delivery_in_which_it_was_refused(either: World) -> None:
    service = either.service(redelivery_timeout_ms=60_000)
    either.redeliverer(service)
    consumer = service.queue("jobs").consumer()
    put(service, "jobs", b"at once")
    take(consumer, 1)[0].nack()
    put(service, "jobs", b"later")
    take(consumer, 1)[0].release()
    take(consumer, 1)[0].nack()
    put(service, "jobs", b"never", expires_in_ms=1)
    wait_until(lambda: consumer.receive(0.1) is None and len(service.dead_letters()) == 3)
    found = {letter.payload: letter.deliveries for letter in service.dead_letters()}
    assert found == {b"at once": 1, b"later": 2, b"never": 0}


def test_headers_of_others_with_numbers_beyond_64_bits_count_as_absent(either: World) -> None:
    """int() refuses 5,000 digits: one such record must not make a queue, or its dead letters, unreadable."""
    service = either.service(partitions=1)
    put(service, "jobs", b"first")
    topic = "messages" if either.backend == "tracker" else "messages-jobs"
    huge = b"9" * 5_000
    with Producer(either.cluster.bootstrap) as producer:
        producer.send(topic, b"poison", key=b"jobs", headers=[("kwire-mq-deliveries", huge)]).result(10)
        producer.send(service.options.dead_letters, b"x", key=b"jobs", headers=[("kwire-mq-redriven", huge)]).result(10)
    consumer = service.queue("jobs").consumer()
    first, poison = take(consumer, 2)
    assert (first.payload, poison.payload, poison.deliveries) == (b"first", b"poison", 1)
    poison.nack("poison")
    assert {one.payload for one in service.dead_letters("jobs")} == {b"x", b"poison"}


def test_numbers_in_headers_have_eighteen_digits_at_most() -> None:
    assert read_number(b"9" * 18) == 10**18 - 1
    for wrong in (b"9" * 19, b"9" * 5_000, b"", b"-1", b"1_0", "\u0661".encode(), None):
        assert read_number(wrong) is None
