"""The buffer pool between threads and the loop: its memory bound, its order and its wake-ups."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kwire.errors import BufferFullError, ClosedError, KwireError
from kwire.producer.accumulator import BlockedAppend, BufferPool, PendingRecord
from kwire.producer.client import make_accumulator
from kwire.producer.futures import ProduceResponse
from kwire.producer.options import ProducerSettings, WhenFull
from kwire.records import BATCH_OVERHEAD_BYTES


def incoming(size_bytes: int, topic: str = "topic") -> PendingRecord:
    return PendingRecord(topic, None, (0, None, b"", ()), size_bytes)


def pool_of(bytes_max: int, when_full: WhenFull, block_s_max: float, wakes: Callable[[], object]) -> BufferPool:
    settings = ProducerSettings(max_buffered_bytes=bytes_max, batch_bytes=BATCH_OVERHEAD_BYTES + 100)
    return BufferPool(make_accumulator(settings, lambda *_: None, wakes), when_full, block_s_max, wakes)


class Wakes:
    def __init__(self) -> None:
        self.count = 0
        self.event = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()


def test_the_loop_is_woken_once_until_its_next_turn() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 1.0, wakes)
    for number in range(5):
        buffer_pool.append_or_wait(incoming(10, f"topic {number}"))
    assert wakes.count == 1
    assert len(buffer_pool.accumulator.take()) == 5
    buffer_pool.append_or_wait(incoming(10, "another"))
    assert wakes.count == 2


def test_a_record_that_joins_a_batch_does_not_wake_the_loop() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 1.0, wakes)
    buffer_pool.append_or_wait(incoming(10))
    (run,) = buffer_pool.accumulator.take()
    for _ in range(8):
        buffer_pool.append_or_wait(incoming(10))
    assert (wakes.count, len(run), run.is_closed) == (1, 9, False)
    assert buffer_pool.accumulator.take() == []


def test_a_lingering_loop_is_woken_by_a_full_batch_only() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 1.0, wakes)
    buffer_pool.accumulator.gather()
    for _ in range(9):
        buffer_pool.append_or_wait(incoming(10))
    assert wakes.count == 0
    buffer_pool.append_or_wait(incoming(100 - 9 * 7))  # what those have, and what this counts as
    assert wakes.count == 1
    (run,) = buffer_pool.accumulator.take()
    assert run.is_closed


def test_full_raises_or_blocks_until_memory_is_released() -> None:
    buffer_pool = pool_of(100, "raise", 1.0, Wakes())
    buffer_pool.append_or_wait(incoming(100))
    with pytest.raises(BufferFullError, match="100 of 100"):
        buffer_pool.append_or_wait(incoming(1))
    buffer_pool.release({"topic": 100})
    buffer_pool.append_or_wait(incoming(1))

    wakes = Wakes()
    blocking = pool_of(100, "block", 30.0, wakes)
    blocking.append_or_wait(incoming(100))
    wakes.event.clear()
    thread = threading.Thread(target=blocking.append_or_wait, args=(incoming(50),))
    thread.start()
    assert wakes.event.wait(10), "a blocked sender wakes the loop, which must not linger now"
    assert blocking.is_full
    blocking.release({"topic": 100})
    thread.join(10)
    assert not thread.is_alive()
    assert blocking.used_bytes == 50


def test_blocking_ends_in_time_with_an_error() -> None:
    buffer_pool = pool_of(100, "block", 0.001, Wakes())
    buffer_pool.append_or_wait(incoming(100))
    with pytest.raises(BufferFullError):
        buffer_pool.append_or_wait(incoming(1))


def test_a_record_larger_than_the_bound_is_let_in_alone() -> None:
    buffer_pool = pool_of(100, "raise", 1.0, Wakes())
    buffer_pool.append_or_wait(incoming(150))
    assert buffer_pool.used_bytes == 150


def test_close_fails_waiting_and_later_senders() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(100, "block", 30.0, wakes)
    buffer_pool.append_or_wait(incoming(100))
    wakes.event.clear()
    errors: list[BaseException] = []

    def put() -> None:
        try:
            buffer_pool.append_or_wait(incoming(1))
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    assert wakes.event.wait(10)
    buffer_pool.close(ClosedError("closed"))
    thread.join(10)
    assert len(errors) == 1
    with pytest.raises(ClosedError):
        buffer_pool.append_or_wait(incoming(1))


# -- before the accumulator, for senders that cannot block


class Notified:
    def __init__(self) -> None:
        self.order: list[tuple[int, object]] = []

    def __call__(self, number: int) -> Callable[[Exception | None], object]:
        return lambda error: self.order.append((number, error))


def test_an_append_succeeds_at_once_if_there_is_memory_else_in_order() -> None:
    wakes, notified = Wakes(), Notified()
    buffer_pool = pool_of(100, "block", 0.0, wakes)
    assert isinstance(buffer_pool.append_nowait(incoming(90), notified(0)), ProduceResponse)
    assert isinstance(buffer_pool.append_nowait(incoming(60), notified(1)), BlockedAppend)
    assert isinstance(buffer_pool.append_nowait(incoming(10), notified(2)), BlockedAppend), (
        "there is room for it, but not before the other"
    )
    assert (buffer_pool.waiting, buffer_pool.is_full, wakes.count) == (2, True, 3)
    (run,) = buffer_pool.accumulator.take()
    buffer_pool.release({"topic": 90})
    assert notified.order == [(1, None), (2, None)]
    assert run.buffered_bytes == 90 + 60 + 10
    assert (buffer_pool.used_bytes, buffer_pool.is_full) == (70, False)
    assert wakes.count == 3, "they join the builder that is open"


def test_a_cancelled_append_admits_those_behind_it() -> None:
    notified = Notified()
    buffer_pool = pool_of(100, "block", 0.0, Wakes())
    buffer_pool.append_or_wait(incoming(50))
    large = buffer_pool.append_nowait(incoming(80), notified(1))
    small = buffer_pool.append_nowait(incoming(20), notified(2))
    assert isinstance(large, BlockedAppend)
    assert isinstance(small, BlockedAppend)
    assert buffer_pool.cancel(large)
    assert notified.order == [(2, None)]
    assert not buffer_pool.cancel(large)
    assert not buffer_pool.cancel(small), "it went in"
    assert [run.buffered_bytes for run in buffer_pool.accumulator.take()] == [50 + 20]


def test_an_append_fails_when_there_will_be_no_memory() -> None:
    notified = Notified()
    refusing = pool_of(100, "raise", 0.0, Wakes())
    refusing.append_or_wait(incoming(100))
    with pytest.raises(BufferFullError):
        refusing.append_nowait(incoming(1), notified(0))
    closing = pool_of(100, "block", 0.0, Wakes())
    closing.append_or_wait(incoming(100))
    closing.append_nowait(incoming(1), notified(1))
    closed = ClosedError("closed")
    closing.close(closed)
    [(number, error)] = notified.order
    assert (number, str(error)) == (1, str(closed))
    raised: list[KwireError] = []
    for _ in range(2):
        with pytest.raises(ClosedError) as caught:
            closing.append_nowait(incoming(1), notified(2))
        raised.append(caught.value)
    assert len({id(one) for one in (closed, error, *raised)}) == 4


def test_after_the_linger_the_next_record_wakes_the_loop_again() -> None:
    """`gather` counts until the next `take` only: with nothing to send there is no linger that would wake the loop."""
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 1.0, wakes)
    buffer_pool.accumulator.take()
    buffer_pool.accumulator.gather()
    buffer_pool.append_or_wait(incoming(10))
    assert wakes.count == 0
    for run in buffer_pool.accumulator.take():
        run.close()
    buffer_pool.append_or_wait(incoming(10))
    assert wakes.count == 1


def test_gathering_takes_no_wake_up_back() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 1.0, wakes)
    buffer_pool.append_or_wait(incoming(10))
    buffer_pool.accumulator.gather()
    buffer_pool.append_or_wait(incoming(100))
    assert wakes.count == 1


# -- each topic's share, and the order of waiting appends


def full_of_one_topic(bytes_max: int = 1_700, when_full: WhenFull = "block") -> BufferPool:
    """Return a pool in which the topic "dead" holds its whole share: 1,600 bytes, with 100 free."""
    buffer_pool = pool_of(bytes_max, when_full, 0.0, Wakes())
    buffer_pool.append_or_wait(incoming(100, "dead"))
    buffer_pool.append_or_wait(incoming(bytes_max * 16 // 17 - 100, "dead"))
    return buffer_pool


def test_a_topic_that_has_its_share_holds_up_no_other() -> None:
    buffer_pool, notified = full_of_one_topic(), Notified()
    blocked = [buffer_pool.append_nowait(incoming(40, "dead"), notified(number)) for number in range(3)]
    assert all(isinstance(one, BlockedAppend) for one in blocked)
    for _ in range(100):
        assert isinstance(buffer_pool.append_nowait(incoming(90, "healthy"), notified(9)), ProduceResponse)
        buffer_pool.release({"healthy": 90})
    assert notified.order == []
    buffer_pool.release({"dead": 200})
    assert notified.order == [(0, None), (1, None), (2, None)]


def test_the_error_names_the_topic_that_holds_the_memory() -> None:
    buffer_pool = full_of_one_topic(when_full="raise")
    with pytest.raises(BufferFullError, match=r"1600 of 1700 .* 1600 of them for topic dead, which has its") as own:
        buffer_pool.append_or_wait(incoming(40, "dead"))
    assert (own.value.where["topic"], "explain('dead')" in str(own.value)) == ("dead", True)
    with pytest.raises(BufferFullError, match=r"1600 of 1700 .* 1600 of them for topic dead") as others:
        buffer_pool.append_or_wait(incoming(110, "healthy"))
    assert (others.value.where["topic"], "explain('dead')" in str(others.value)) == ("healthy", True)


def test_one_topic_alone_uses_nearly_all_memory() -> None:
    buffer_pool = pool_of(1_000_000, "raise", 0.0, Wakes())
    for _ in range(9_411):
        buffer_pool.append_or_wait(incoming(100))
    with pytest.raises(BufferFullError):
        buffer_pool.append_or_wait(incoming(100))
    assert 0.94 < buffer_pool.used_bytes / buffer_pool.bytes_max < 1


def test_a_large_record_is_not_passed_by_small_ones_for_ever() -> None:
    """A topic that sends without pause would otherwise take all released memory before the large record fits."""
    buffer_pool, notified = pool_of(1_700, "block", 0.0, Wakes()), Notified()
    out = 0
    while isinstance(buffer_pool.append_nowait(incoming(50, "flood"), notified(0)), ProduceResponse):
        out += 50
    large = buffer_pool.append_nowait(incoming(800, "large"), notified(1))
    assert isinstance(large, BlockedAppend)
    for _ in range(100):
        buffer_pool.release({"flood": 50})
        buffer_pool.append_nowait(incoming(50, "flood"), notified(0))
        if large.response is not None:
            break
    assert (1, None) in notified.order


def test_a_large_record_that_never_gets_memory_blocks_no_other_topic() -> None:
    buffer_pool, notified = full_of_one_topic(17_000), Notified()
    assert isinstance(buffer_pool.append_nowait(incoming(5_000, "large"), notified(1)), BlockedAppend)
    for _ in range(100):
        assert isinstance(buffer_pool.append_nowait(incoming(50, "healthy"), notified(2)), ProduceResponse)
        buffer_pool.release({"healthy": 50})
    assert notified.order == []


def blocked_senders(
    buffer_pool: BufferPool, wakes: Wakes, sizes: list[int]
) -> tuple[list[threading.Thread], list[int]]:
    """Start threads that wait for memory, in the order of their sizes; collect the numbers of those that succeed."""
    went_in: list[int] = []

    def put(number: int, size_bytes: int) -> None:
        buffer_pool.append_or_wait(incoming(size_bytes))
        went_in.append(number)

    threads = [threading.Thread(target=put, args=(number, size)) for number, size in enumerate(sizes)]
    for thread in threads:
        wakes.event.clear()
        thread.start()
        assert wakes.event.wait(10), "it waits"
    return threads, went_in


def test_blocked_senders_are_served_in_order() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 30.0, wakes)
    buffer_pool.append_or_wait(incoming(1_000))
    threads, went_in = blocked_senders(buffer_pool, wakes, [300, 40])
    buffer_pool.release({"topic": 200})
    assert (buffer_pool.used_bytes, buffer_pool.waiting) == (800, 2), "the small one does not pass the large one"
    buffer_pool.release({"topic": 175})
    threads[0].join(10)
    assert (went_in, buffer_pool.used_bytes, buffer_pool.waiting) == ([0], 925, 1)
    buffer_pool.release({"topic": 400})
    threads[1].join(10)
    assert (went_in, buffer_pool.waiting) == ([0, 1], 0)


def test_a_later_send_waits_behind_earlier_ones() -> None:
    wakes, notified = Wakes(), Notified()
    buffer_pool = pool_of(1_000, "block", 30.0, wakes)
    buffer_pool.append_or_wait(incoming(900))
    threads, went_in = blocked_senders(buffer_pool, wakes, [200])
    later = buffer_pool.append_nowait(incoming(10), notified(1))
    assert isinstance(later, BlockedAppend), "though there is room for it"
    buffer_pool.release({"topic": 50})
    assert (went_in, notified.order) == ([], [])
    buffer_pool.release({"topic": 850})
    threads[0].join(10)
    assert (went_in, notified.order, buffer_pool.used_bytes) == ([0], [(1, None)], 210)


def test_released_memory_admits_all_appends_that_fit() -> None:
    wakes = Wakes()
    buffer_pool = pool_of(1_000, "block", 30.0, wakes)
    buffer_pool.append_or_wait(incoming(1_000))
    threads, went_in = blocked_senders(buffer_pool, wakes, [100, 100, 100])
    buffer_pool.release({"topic": 1_000})
    for thread in threads:
        thread.join(10)
    assert (sorted(went_in), buffer_pool.used_bytes, buffer_pool.waiting) == ([0, 1, 2], 300, 0)


def test_the_error_of_a_waiting_append_is_raised_to_its_sender() -> None:
    class Broken:
        topic, left = "topic", 1

        def __init__(self) -> None:
            self.tries = 0

        def append_to(self, accumulator: object) -> ProduceResponse | None:
            self.tries += 1
            if self.tries < 3:
                return None
            raise ValueError("an item ends outside of its bytes")

    notified = Notified()
    buffer_pool = pool_of(1_000, "block", 0.0, Wakes())
    buffer_pool.append_or_wait(incoming(500))
    assert isinstance(buffer_pool.append_nowait(Broken(), notified(1)), BlockedAppend)
    buffer_pool.release({"topic": 500})
    assert [(number, type(error)) for number, error in notified.order] == [(1, ValueError)]
    assert (buffer_pool.waiting, isinstance(buffer_pool.append_or_wait(incoming(10)), ProduceResponse)) == (0, True)


def test_waiting_appends_pass_other_topics_and_keep_the_order_of_their_own() -> None:
    buffer_pool, notified = full_of_one_topic(), Notified()
    buffer_pool.append_or_wait(incoming(95, "healthy"))
    for number, (size_bytes, topic) in enumerate([(200, "dead"), (10, "dead"), (90, "healthy")]):
        assert isinstance(buffer_pool.append_nowait(incoming(size_bytes, topic), notified(number)), BlockedAppend)
    buffer_pool.release({"dead": 60})
    assert notified.order == [], "there is room for the 10 bytes, but not before the 200"
    buffer_pool.release({"healthy": 95})
    assert notified.order == [(2, None)]
    buffer_pool.release({"dead": 1_000})
    assert notified.order == [(2, None), (0, None), (1, None)]


def test_the_fast_path_of_send_takes_no_memory_from_waiting_senders() -> None:
    settings, notified = ProducerSettings(max_buffered_bytes=1_000), Notified()
    accumulator = make_accumulator(settings, lambda *_: None, Wakes(), lambda: 0, lambda *_, **__: "referred")
    buffer_pool = BufferPool(accumulator, "block", 0.0, Wakes())
    accumulator.is_open = True
    buffer_pool.append_or_wait(incoming(800))
    assert isinstance(buffer_pool.append_nowait(incoming(500), notified(0)), BlockedAppend)
    assert accumulator.send("topic", b"") == "referred"
    buffer_pool.release({"topic": 800})
    assert notified.order == [(0, None)]
    assert isinstance(accumulator.send("topic", b""), ProduceResponse)
