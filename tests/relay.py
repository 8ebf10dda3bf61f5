"""A relay before a broker, which counts the connections."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Accepts connections on loopback, counts them, and joins each to `target`."""

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self.accepted = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        self.bootstrap = f"localhost:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def turn_to(self, target: tuple[str, int]) -> None:
        """Join new connections to another target, and end those of now."""
        self._target = target
        self._end()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._end()
        for thread in self._threads[1:]:
            thread.join()
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                broker = socket.create_connection(self._target)
                self._sockets += [client, broker]
                for source, sink in ((client, broker), (broker, client)):
                    self._threads.append(threading.Thread(target=self._pipe, args=(source, sink)))
                    self._threads[-1].start()

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets or self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pipe(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        self._end(source, sink)
