"""Certificates, and ports on which something other than Kafka answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.net.test_tls import files  # noqa: F401

Answer = Callable[[bytes], bytes]
Serve = Callable[[Answer], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return what opens a port: `answer(first bytes)` returns the bytes to send before the connection closes."""
    with contextlib.ExitStack() as stack:

        def listen(answer: Answer) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        sock, _ = listener.accept()
                        with sock, contextlib.suppress(OSError):
                            sock.settimeout(20)
                            sock.sendall(answer(sock.recv(65536)))

            threading.Thread(target=run, daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield listen


@pytest.fixture
def blackhole() -> Iterator[tuple[str, int]]:
    """Yield an address that answers no SYN: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
        yield address
