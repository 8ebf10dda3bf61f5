"""The door between threads and the loop: bounded, and no louder than needed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kwire.errors import BufferFullError, ClosedError, KwireError
from kwire.producer.intake import Incoming, Intake, Queued, make_door
from kwire.producer.response import ProduceResponse
from kwire.producer.settings import ProducerSettings, WhenFull
from kwire.records import BATCH_OVERHEAD_BYTES


def incoming(size_bytes: int, topic: str = "topic") -> Incoming:
    return Incoming(topic, None, (0, None, b"", ()), size_bytes)


def intake_of(bytes_max: int, when_full: WhenFull, block_s_max: float, wakes: Callable[[], object]) -> Intake:
    settings = ProducerSettings(max_buffered_bytes=bytes_max, batch_bytes=BATCH_OVERHEAD_BYTES + 100)
    return Intake(make_door(settings, lambda *_: None, wakes), when_full, block_s_max, wakes)


class Wakes:
    def __init__(self) -> None:
        self.count = 0
        self.event = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()


def test_the_loop_is_woken_once_until_it_looks() -> None:
    wakes = Wakes()
    intake = intake_of(1_000, "block", 1.0, wakes)
    for number in range(5):
        intake.put(incoming(10, f"topic {number}"))
    assert wakes.count == 1
    assert len(intake.door.take()) == 5
    intake.put(incoming(10, "another"))
    assert wakes.count == 2


def test_a_record_that_joins_others_wakes_nobody() -> None:
    wakes = Wakes()
    intake = intake_of(1_000, "block", 1.0, wakes)
    intake.put(incoming(10))
    (run,) = intake.door.take()
    for _ in range(8):
        intake.put(incoming(10))
    assert (wakes.count, len(run), run.is_closed) == (1, 9, False)
    assert intake.door.take() == []


def test_a_lingering_loop_is_woken_by_a_full_batch_only() -> None:
    wakes = Wakes()
    intake = intake_of(1_000, "block", 1.0, wakes)
    intake.door.gather()
    for _ in range(9):
        intake.put(incoming(10))
    assert wakes.count == 0
    intake.put(incoming(100 - 9 * 7))  # what those have, and what this counts as
    assert wakes.count == 1
    (run,) = intake.door.take()
    assert run.is_closed


def test_full_raises_or_blocks_until_memory_is_released() -> None:
    intake = intake_of(100, "raise", 1.0, Wakes())
    intake.put(incoming(100))
    with pytest.raises(BufferFullError, match="100 of 100"):
        intake.put(incoming(1))
    intake.release(100)
    intake.put(incoming(1))

    wakes = Wakes()
    blocking = intake_of(100, "block", 30.0, wakes)
    blocking.put(incoming(100))
    wakes.event.clear()
    thread = threading.Thread(target=blocking.put, args=(incoming(50),))
    thread.start()
    assert wakes.event.wait(10), "a blocked sender wakes the loop, which must not linger now"
    assert blocking.is_full
    blocking.release(100)
    thread.join(10)
    assert not thread.is_alive()
    assert blocking.used_bytes == 50


def test_blocking_ends_in_time_with_an_error() -> None:
    intake = intake_of(100, "block", 0.001, Wakes())
    intake.put(incoming(100))
    with pytest.raises(BufferFullError):
        intake.put(incoming(1))


def test_a_record_larger_than_the_bound_is_let_in_alone() -> None:
    intake = intake_of(100, "raise", 1.0, Wakes())
    intake.put(incoming(150))
    assert intake.used_bytes == 150


def test_close_fails_waiting_and_later_senders() -> None:
    wakes = Wakes()
    intake = intake_of(100, "block", 30.0, wakes)
    intake.put(incoming(100))
    wakes.event.clear()
    errors: list[BaseException] = []

    def put() -> None:
        try:
            intake.put(incoming(1))
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    assert wakes.event.wait(10)
    intake.close(ClosedError("closed"))
    thread.join(10)
    assert len(errors) == 1
    with pytest.raises(ClosedError):
        intake.put(incoming(1))


# -- before the door, for senders that cannot block


class Told:
    def __init__(self) -> None:
        self.order: list[tuple[int, object]] = []

    def __call__(self, number: int) -> Callable[[KwireError | None], object]:
        return lambda error: self.order.append((number, error))


def test_an_offer_goes_in_at_once_where_there_is_room_else_in_order() -> None:
    wakes, told = Wakes(), Told()
    intake = intake_of(100, "block", 0.0, wakes)
    assert isinstance(intake.offer(incoming(90), told(0)), ProduceResponse)
    assert isinstance(intake.offer(incoming(60), told(1)), Queued)
    assert isinstance(intake.offer(incoming(10), told(2)), Queued), "there is room for it, but not before the other"
    assert (intake.waiting, intake.is_full, wakes.count) == (2, True, 3)
    (run,) = intake.door.take()
    intake.release(90)
    assert told.order == [(1, None), (2, None)]
    assert run.buffered_bytes == 90 + 60 + 10
    assert (intake.used_bytes, intake.is_full) == (70, False)
    assert wakes.count == 3, "they join the run that is open"


def test_an_offer_taken_back_lets_those_behind_it_in() -> None:
    told = Told()
    intake = intake_of(100, "block", 0.0, Wakes())
    intake.put(incoming(50))
    large = intake.offer(incoming(80), told(1))
    small = intake.offer(incoming(20), told(2))
    assert isinstance(large, Queued)
    assert isinstance(small, Queued)
    assert intake.withdraw(large)
    assert told.order == [(2, None)]
    assert not intake.withdraw(large)
    assert not intake.withdraw(small), "it went in"
    assert [run.buffered_bytes for run in intake.door.take()] == [50 + 20]


def test_an_offer_raises_or_is_told_when_there_will_be_no_room() -> None:
    told = Told()
    refusing = intake_of(100, "raise", 0.0, Wakes())
    refusing.put(incoming(100))
    with pytest.raises(BufferFullError):
        refusing.offer(incoming(1), told(0))
    closing = intake_of(100, "block", 0.0, Wakes())
    closing.put(incoming(100))
    closing.offer(incoming(1), told(1))
    closed = ClosedError("closed")
    closing.close(closed)
    assert told.order == [(1, closed)]
    with pytest.raises(ClosedError):
        closing.offer(incoming(1), told(2))


def test_after_the_linger_the_next_record_wakes_the_loop_again() -> None:
    """`gather` counts until the next `take` only: with nothing to send there is no linger that would wake the loop."""
    wakes = Wakes()
    intake = intake_of(1_000, "block", 1.0, wakes)
    intake.door.take()
    intake.door.gather()
    intake.put(incoming(10))
    assert wakes.count == 0
    for run in intake.door.take():
        run.close()
    intake.put(incoming(10))
    assert wakes.count == 1


def test_gathering_takes_no_wake_up_back() -> None:
    wakes = Wakes()
    intake = intake_of(1_000, "block", 1.0, wakes)
    intake.put(incoming(10))
    intake.door.gather()
    intake.put(incoming(100))
    assert wakes.count == 1
