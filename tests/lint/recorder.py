"""Record what real clients send to embedded brokers: a relay before each broker, and a capture of what it saw."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import Any, Self

from kwire.broker import Cluster
from tests.capture.captures import BROKER, CLIENT
from tests.lint.traffic import Connection, Traffic

_CHUNK_BYTES = 256 * 1024


class Recorder:
    """A cluster behind relays. `bootstrap` and the brokers' metadata name the relays."""

    def __init__(self, cluster: Cluster) -> None:
        self.traffic = Traffic()
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._ended = False
        addresses = []
        for node, (_, port) in cluster.brokers.items():
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self._sockets.append(listener)
            self._selector.register(listener, selectors.EVENT_READ, ("listener", port))
            addresses.append((node, listener.getsockname()[1]))

        def advertise(state: Any, now: float) -> None:
            for node, port in addresses:
                state.nodes[node].port = port

        cluster.call(advertise)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for _, port in addresses)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended = True
        self._thread.join()
        for sock in self._sockets:
            sock.close()

    def _run(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.05):
                if key.data[0] == "listener":
                    self._accept(key.fileobj, key.data[1])  # type: ignore[arg-type]
                else:
                    self._relay(key.fileobj, *key.data)  # type: ignore[arg-type]

    def _accept(self, listener: socket.socket, port: int) -> None:
        client, address = listener.accept()
        broker = socket.create_connection(("127.0.0.1", port))
        self._sockets += [client, broker]
        found = Connection(self.traffic, address, listener.getsockname(), "")
        found.opened(self._now())
        self._selector.register(client, selectors.EVENT_READ, (broker, found, CLIENT))
        self._selector.register(broker, selectors.EVENT_READ, (client, found, BROKER))

    def _relay(self, source: socket.socket, target: socket.socket, connection: Connection, side: int) -> None:
        try:
            data = source.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            connection.closed(self._now(), side)
            for sock in (source, target):
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(sock)
                sock.close()
            return
        connection.data(self._now(), side, data)
        with contextlib.suppress(OSError):
            target.sendall(data)

    def _now(self) -> float:
        return time.monotonic() - self._began
