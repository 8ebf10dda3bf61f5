"""Test how the selector reads large frames: into their own memory, in few reads, without copies."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from kwire.net.channel import receive_into
from tests.net.harness import PATIENCE_SECONDS, Driver, framed, joined

FRAME_BYTES = 40_000_000


class Reads:
    """Record the buffer size and the number of bytes of each read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, int]] = []
        monkeypatch.setattr("kwire.net.channel.receive_into", self._read)

    def _read(self, sock: socket.socket, target: Any) -> int:
        count = receive_into(sock, target)
        self.made.append((len(target), count))
        return count


def receive(driver: Driver, peer: socket.socket, frame: bytes) -> None:
    """Receive a frame in one poll while another thread sends it."""
    writer = threading.Thread(target=peer.sendall, args=(framed(frame),))
    writer.start()
    (received,) = driver.selector.poll([], PATIENCE_SECONDS)
    writer.join()
    assert received.frame == frame


def test_a_few_bytes_of_a_large_frame_cause_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("large", [300_000, 5_000_000])
def test_a_large_frame_behind_another_is_read_into_its_own_memory_from_the_first_byte(
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
