"""Test how the benchmarks of groups judge ownership and count requests."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from bench.contestants.storm import Ownership
from bench.counting import FETCH, CountingRelay


def finished(ownership: Ownership) -> bool:
    waiting = threading.Thread(target=ownership.wait, daemon=True)
    waiting.start()
    waiting.join(0.05)
    return not waiting.is_alive()


def test_a_storm_ends_when_every_owner_has_read_its_fair_share() -> None:
    ownership = Ownership(4)
    ownership.expect(2)
    ownership.assigned(0, range(4))
    ownership.read(0, range(4))
    assert not finished(ownership)  # one member has all
    ownership.revoked(0, [2, 3])
    ownership.assigned(1, [2, 3])
    ownership.read(1, [2])
    assert not finished(ownership)  # 3 was not read by its new owner
    ownership.read(0, [3])
    assert not finished(ownership)  # nor does a record count that the owner before gets
    ownership.read(1, [3])
    assert finished(ownership)


def test_an_error_of_a_member_ends_the_storm() -> None:
    ownership = Ownership(1)
    ownership.failed(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        ownership.wait()


@pytest.fixture
def echo() -> Iterator[int]:
    """Serve one connection that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    thread.join(10)
    server.close()


def test_the_relay_counts_requests_by_api_and_forwards_them(echo: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    frame = struct.pack(">ih", 10, FETCH) + b"12345678"
    other = struct.pack(">ih", 3, 3) + b"x"
    with CountingRelay(port, echo) as relay:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(frame)
            assert client.recv(100) == frame
            assert relay.counted(FETCH) == (1, len(frame))
            relay.begin()
            both = frame + other
            client.sendall(both[:20])
            client.sendall(both[20:])
            received = b""
            while len(received) < len(both):
                received += client.recv(100)
            assert received == both
        assert relay.counted(FETCH) == (1, len(frame))
        assert relay.counted(FETCH, 3) == (2, len(both))
