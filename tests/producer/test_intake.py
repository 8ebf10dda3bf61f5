"""The door between threads and the loop: bounded, and no louder than needed."""

from __future__ import annotations

import threading

import pytest

from kwire.errors import BufferFullError, ClosedError
from kwire.producer.intake import Incoming, Intake
from kwire.producer.response import ProduceResponse


def incoming(size_bytes: int) -> Incoming:
    return Incoming("topic", None, (0, None, b"", ()), ProduceResponse(lambda *_: None), size_bytes)


class Wakes:
    def __init__(self) -> None:
        self.count = 0
        self.event = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.event.set()


def test_the_loop_is_woken_once_until_it_looks() -> None:
    wakes = Wakes()
    intake = Intake(1_000, "block", 1.0, wakes)
    for _ in range(5):
        intake.put(incoming(10))
    assert wakes.count == 1
    assert len(intake.take(0)) == 5
    intake.put(incoming(10))
    assert wakes.count == 2


def test_a_lingering_loop_is_woken_by_a_batch_of_bytes_only() -> None:
    wakes = Wakes()
    intake = Intake(1_000, "block", 1.0, wakes)
    intake.take(100)
    for _ in range(10):
        intake.put(incoming(10))
    assert wakes.count == 0
    intake.put(incoming(10))
    assert wakes.count == 1


def test_full_raises_or_blocks_until_memory_is_released() -> None:
    intake = Intake(100, "raise", 1.0, Wakes())
    intake.put(incoming(100))
    with pytest.raises(BufferFullError, match="100 of 100"):
        intake.put(incoming(1))
    intake.release(100)
    intake.put(incoming(1))

    wakes = Wakes()
    blocking = Intake(100, "block", 30.0, wakes)
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
    intake = Intake(100, "block", 0.001, Wakes())
    intake.put(incoming(100))
    with pytest.raises(BufferFullError):
        intake.put(incoming(1))


def test_a_record_larger_than_the_bound_is_let_in_alone() -> None:
    intake = Intake(100, "raise", 1.0, Wakes())
    intake.put(incoming(150))
    assert intake.used_bytes == 150


def test_close_fails_waiting_and_later_senders() -> None:
    wakes = Wakes()
    intake = Intake(100, "block", 30.0, wakes)
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
