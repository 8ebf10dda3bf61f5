"""Test that the relay changes no byte, passes on the end of a connection, and cuts connections on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random

import pytest
from brokers.probe import free_ports
from chaos_runs.relay import Relay

LONG = (3_600.0, 3_600.0)
AT_ONCE = (0.0, 0.0)
TIMEOUT = 20.0

Connect = Callable[[], socket.socket]


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        yield listener


def relay(server: socket.socket, life_s: tuple[float, float]) -> tuple[Relay, Connect]:
    (port,) = free_ports(1)

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)

    return Relay({port: server.getsockname()[1]}, random=Random(1), life_s=life_s), connect


def read(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := connection.recv(65_536)):
        parts += part
    return parts


def read_all(connection: socket.socket) -> bytes:
    """Read until the end or the reset of a connection."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_bytes_pass_both_ways_unchanged(server: socket.socket) -> None:
    there, back = Random(2).randbytes(3_000_000), Random(3).randbytes(2_000_000)
    made, connect = relay(server, LONG)
    with made, connect() as client, closing(server.accept()[0]) as broker:
        broker.settimeout(TIMEOUT)

        # The peer reads only after everything is sent or blocked: the relay must stop reading, and continue later.
        threads = [
            threading.Thread(target=one.sendall, args=(data,)) for one, data in ((client, there), (broker, back))
        ]
        for thread in threads:
            thread.start()
        assert read(broker, len(there)) == there
        assert read(client, len(back)) == back
        for thread in threads:
            thread.join(TIMEOUT)
    assert made.cuts == 0


def test_the_end_of_either_side_is_the_end_of_the_other(server: socket.socket) -> None:
    made, connect = relay(server, LONG)
    with made:
        with connect() as client, closing(server.accept()[0]) as broker:
            client.close()
            assert read_all(broker) == b""
        with connect() as client, closing(server.accept()[0]) as broker:
            broker.sendall(b"last words")
            broker.close()
            assert read_all(client) == b"last words"


def test_a_broker_that_is_down(server: socket.socket) -> None:
    made, connect = relay(server, LONG)
    server.close()
    with made, connect() as client:
        assert read_all(client) == b""


@pytest.mark.parametrize("is_new", [True, False], ids=["connected while cutting", "connected before"])
def test_connections_are_cut(server: socket.socket, is_new: bool) -> None:
    made, connect = relay(server, AT_ONCE)
    with made:
        made.is_cutting = is_new
        with connect() as client, closing(server.accept()[0]) as broker:
            made.is_cutting = True
            assert read_all(client) == b""
            assert read_all(broker) == b""
    assert made.cuts == 1


def test_no_connection_is_cut_after_cutting_ends(server: socket.socket) -> None:
    made, connect = relay(server, LONG)
    with made:
        made.is_cutting = True
        with connect() as client, closing(server.accept()[0]) as broker:
            made.is_cutting = False
            client.sendall(b"?")
            assert broker.recv(1) == b"?"
    assert made.cuts == 0


def test_the_end_of_the_relay_ends_its_connections(server: socket.socket) -> None:
    made, connect = relay(server, LONG)
    with connect() as client:
        with made:
            server.accept()[0].close()
        assert read_all(client) == b""
