"""Socket reads and writes in Python and in C, and whether each releases the GIL."""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kwire.net.channel import PIECES_MAX
from tests.wire.speedups import CAN_COMPILE, accelerated, needs_c, python

LOCK_KEPT_BELOW = 64 * 1024
FORMS = ["python", pytest.param("c", marks=needs_c)]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Any:
    return python if request.param == "python" or not CAN_COMPILE else accelerated()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    with ours, peer:
        yield ours, peer


Pair = tuple[socket.socket, socket.socket]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"whole"],
        [b"", b"in ", bytearray(b"three "), memoryview(b"__kinds__")[2:7]],
        (b"a", b"tuple"),
        [b"%d " % number for number in range(1_000)],
        [b"x" * 100_000],
    ],
    ids=["one", "kinds", "tuple", "many", "large"],
)
def test_pieces_arrive_in_order(form: Any, pair: Pair, pieces: list[bytes]) -> None:
    ours, peer = pair
    whole = b"".join(pieces)
    assert form.send_pieces(ours, pieces) == len(whole)
    assert peer.recv(200_000, socket.MSG_WAITALL if len(whole) == 200_000 else 0) == whole


def test_more_pieces_than_the_system_takes_at_once_are_left_for_the_next_call(form: Any, pair: Pair) -> None:
    ours, peer = pair
    pieces = deque(b"%d" % (number % 10) for number in range(PIECES_MAX + 1))
    assert form.send_pieces(ours, pieces) == PIECES_MAX
    assert peer.recv(2 * PIECES_MAX) == b"".join(pieces)[:PIECES_MAX]


def test_bytes_that_the_socket_does_not_accept_remain(form: Any, pair: Pair) -> None:
    ours, peer = pair
    sent = form.send_pieces(ours, [b"head", bytes(10_000_000)])
    assert 4 < sent < 10_000_004
    with pytest.raises(BlockingIOError):
        form.send_pieces(ours, [bytes(10_000_000)])
    assert len(peer.recv(sent, socket.MSG_WAITALL)) == sent


@pytest.mark.parametrize("room", [10, 100, LOCK_KEPT_BELOW - 1, LOCK_KEPT_BELOW, LOCK_KEPT_BELOW + 1, 300_000])
@pytest.mark.parametrize("there", [1, 10, LOCK_KEPT_BELOW, 2 * LOCK_KEPT_BELOW + 1])
def test_one_call_reads_all_available_bytes(form: Any, pair: Pair, room: int, there: int) -> None:
    ours, peer = pair
    data = bytes(number % 251 for number in range(there))
    assert peer.send(data) == there
    target = bytearray(room)
    count = form.receive_into(ours, memoryview(target))
    assert count == min(room, there)
    assert target == data[:count] + bytes(room - count)


def test_ends(form: Any, pair: Pair) -> None:
    ours, peer = pair
    with pytest.raises(BlockingIOError):
        form.receive_into(ours, bytearray(10))
    peer.send(b"last")
    peer.close()
    assert form.receive_into(ours, bytearray(10)) == 4
    assert form.receive_into(ours, bytearray(10)) == 0
    with pytest.raises(BrokenPipeError):
        form.send_pieces(ours, [b"anybody?"])
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        form.send_pieces(ours, [b"nobody"])
    with pytest.raises(OSError, match="Bad file descriptor"):
        form.receive_into(ours, bytearray(10))


@pytest.mark.parametrize(
    "arguments", [("sock",), ("sock", b"read-only"), ("sock", None), (None, bytearray(1))], ids=str
)
def test_wrong_arguments(form: Any, pair: Pair, arguments: tuple[Any, ...]) -> None:
    given = [pair[0] if argument == "sock" else argument for argument in arguments]
    with pytest.raises((TypeError, AttributeError, BufferError)):
        form.receive_into(*given)
    with pytest.raises((TypeError, AttributeError, ValueError)):
        form.send_pieces(given[0] if given else None, [None])


@contextmanager
def another_thread() -> Iterator[Callable[[], bool]]:
    """Start a thread that waits for the GIL; yield a function that returns whether it has run.

    The switch interval is so long that only an explicit release passes the GIL on.
    """
    interval = sys.getswitchinterval()
    gate, has_run = threading.Lock(), threading.Event()
    gate.acquire()

    def run() -> None:
        gate.acquire()
        has_run.set()

    thread = threading.Thread(target=run)
    thread.start()
    sys.setswitchinterval(1_000)
    try:
        gate.release()
        yield has_run.is_set
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@needs_c
@pytest.mark.parametrize("size", [1, LOCK_KEPT_BELOW - 1])
def test_a_short_call_keeps_the_gil(pair: Pair, size: int) -> None:
    ours, peer = pair
    form, data, target = accelerated(), bytes(size), memoryview(bytearray(size))
    peer.setblocking(False)
    with another_thread() as has_run:
        for _ in range(200):
            form.send_pieces(ours, [data])
            form.receive_into(peer, target)
        assert not has_run()


@needs_c
def test_a_long_call_releases_the_gil(pair: Pair) -> None:
    ours, peer = pair
    form, data, target = accelerated(), bytes(2 * LOCK_KEPT_BELOW), memoryview(bytearray(2 * LOCK_KEPT_BELOW))
    peer.setblocking(False)
    with another_thread() as has_run:
        for _ in range(100_000):
            form.send_pieces(ours, [data])
            form.receive_into(peer, target)
            if has_run():
                break
        assert has_run()
