"""What a turn of the selector costs where next to nothing happens in it: functions called, system calls made.

While a large frame comes, each of its turns is for the frame alone, and there are few of them.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from kwire.net.clock import SystemClock
from kwire.wire.accel import receive_into
from tests.cluster.calls import Calls
from tests.net.harness import PATIENCE_SECONDS, Driver, framed, joined

FRAME_BYTES = 40_000_000
# Of a turn that brings no more than a part of a frame, and of one that brings nothing.
CALLS_MAX = 6
IDLE_CALLS_MAX = 5
POLL_CALLS_MAX = 15  # the poll's own, and those of a frame's begin and end


class Reads:
    """Where the selector reads to, and how much came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, int]] = []
        monkeypatch.setattr("kwire.net.channel.receive_into", self._read)

    def _read(self, sock: socket.socket, target: Any) -> int:
        count = receive_into(sock, target)
        self.made.append((len(target), count))
        return count


def receive(driver: Driver, peer: socket.socket, frame: bytes) -> None:
    """In one poll, as the peer sends it from another thread."""
    writer = threading.Thread(target=peer.sendall, args=(framed(frame),))
    writer.start()
    (received,) = driver.selector.poll([], PATIENCE_SECONDS)
    writer.join()
    assert received.frame == frame


def test_turns_while_a_large_frame_comes() -> None:
    with joined() as (driver, peer):
        receive(driver, peer, bytes(FRAME_BYTES // 10))
        with Calls("net", "wire") as calls:
            receive(driver, peer, bytes(FRAME_BYTES))
    turns = calls.by_name["Channel.read"]
    assert calls.count <= turns * CALLS_MAX + POLL_CALLS_MAX, calls.by_name.most_common(20)


def test_the_loop_does_not_turn_for_a_few_bytes_of_a_large_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = framed(bytes(FRAME_BYTES))
    with joined() as (driver, peer):
        receive(driver, peer, bytes(FRAME_BYTES // 10))
        peer.sendall(frame[:1000])
        driver.poll()
        reads = Reads(monkeypatch)
        for at in range(1000, 501_000, 50_000):
            peer.sendall(frame[at : at + 50_000])
            driver.poll()
        assert reads.made == []


def test_a_turn_that_brings_nothing() -> None:
    with joined() as (driver, _), Calls("net", "wire") as calls:
        driver.selector.poll([], 0)
    assert calls.count <= IDLE_CALLS_MAX, calls.by_name.most_common(20)


@pytest.mark.parametrize("large", [300_000, 5_000_000])
def test_a_large_frame_behind_another_is_read_to_its_place_from_its_first_byte(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined() as (driver, peer):
        receive(driver, peer, bytes(large))
        reads = Reads(monkeypatch)
        receive(driver, peer, bytes(range(250)) * (large // 250))
    assert reads.made[0] == (4, 4)
    assert all(target > 4 for target, _ in reads.made[1:])
    assert sum(count for _, count in reads.made) == 4 + large
    copied = [count for target, count in reads.made[1:] if target == len(driver.selector._buffer)]
    assert copied == []


def test_small_frames_behind_a_large_one_share_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [b"one", b"two", b"three"]
    with joined() as (driver, peer):
        receive(driver, peer, bytes(300_000))
        reads = Reads(monkeypatch)
        for _ in range(2):
            peer.sendall(framed(*small))
            while len(driver.received) < len(small):
                driver.poll(timeout=PATIENCE_SECONDS)
            driver.received.clear()
    size = len(framed(*small))
    assert [count for _, count in reads.made] == [4, size - 4, size]


def test_the_clock_is_asked_without_a_call() -> None:
    with Calls("net") as calls:
        SystemClock().now()
    assert calls.count == 0
