"""Relay TCP connections and cut them. Clients connect to the relay because the brokers advertise its ports.

It does not parse the bytes. While it cuts, each connection ends after a random time at any point: a request may have
arrived and its response be lost, or only half of either may arrive.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Mapping
from random import Random

# Bytes buffered for a slow reader; above this, the relay does not read from the other side.
_BUFFER_BYTES = 1 << 18
_READ_BYTES = 1 << 16
_TICK_S = 0.05
_LIFE_S = (0.5, 1.5)


class _Side:
    """Hold one socket of a pair and the bytes still to be written to it."""

    def __init__(self, connection: socket.socket, pair: _Pair) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.pair = pair
        self.pending = bytearray()
        self.has_ended = False  # the peer sends no more

    @property
    def other(self) -> _Side:
        return self.pair.upstream if self is self.pair.client else self.pair.client


class _Pair:
    """Join a client's connection with the relay's to the broker. `ends_at` is the time of the cut, or None."""

    def __init__(self, client: socket.socket, upstream: socket.socket, ends_at: float | None) -> None:
        self.client = _Side(client, self)
        self.upstream = _Side(upstream, self)
        self.ends_at = ends_at


class Relay:
    """Relay in one thread; use it as a context manager. `routes` maps ports to listen on to ports of brokers.

    `is_cutting` may be set from any thread; it limits the lifetime of existing connections too.
    """

    def __init__(
        self,
        routes: Mapping[int, int],
        *,
        random: Random,
        host: str = "127.0.0.1",
        life_s: tuple[float, float] = _LIFE_S,
    ) -> None:
        self._host = host
        self._random = random
        self._life_s = life_s
        self._selector = selectors.DefaultSelector()
        self._pairs: set[_Pair] = set()
        self._is_closed = False
        self.is_cutting = False
        self.cuts = 0
        for port, target in routes.items():
            listener = socket.create_server((host, port), backlog=64)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, (listener, target))
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_closed = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closed:
                for key, events in self._selector.select(_TICK_S):
                    if isinstance(key.data, _Side):
                        self._move(key.data, events)
                    else:
                        self._accept(*key.data)
                self._cut(time.monotonic())
        finally:
            for pair in list(self._pairs):
                self._end(pair)
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]  # only sockets were registered
            self._selector.close()

    def _accept(self, listener: socket.socket, target: int) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # the client has disconnected again
        try:
            upstream = socket.create_connection((self._host, target), timeout=1.0)
        except OSError:
            client.close()  # as if the broker were down
            return
        pair = _Pair(client, upstream, self._end_of_life() if self.is_cutting else None)
        self._pairs.add(pair)
        for side in (pair.client, pair.upstream):
            side.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(side.socket, selectors.EVENT_READ, side)

    def _move(self, side: _Side, events: int) -> None:
        if side.pair not in self._pairs:
            return  # ended earlier in this poll
        try:
            if events & selectors.EVENT_READ:
                data = side.socket.recv(_READ_BYTES)
                side.has_ended = not data
                side.other.pending += data
                self._flush(side.other)
            if events & selectors.EVENT_WRITE:
                self._flush(side)
        except BlockingIOError:
            pass
        except OSError:
            self._end(side.pair)
            return
        if side.has_ended and not side.other.pending:
            self._end(side.pair)
            return
        for one in (side, side.other):
            self._watch(one)

    def _flush(self, side: _Side) -> None:
        if side.pending:
            with contextlib.suppress(BlockingIOError):
                sent = side.socket.send(side.pending)
                del side.pending[:sent]

    def _watch(self, side: _Side) -> None:
        wanted = selectors.EVENT_WRITE if side.pending else 0
        if not side.has_ended and len(side.other.pending) < _BUFFER_BYTES:
            wanted |= selectors.EVENT_READ
        registered = side.socket in self._selector.get_map()
        if not wanted:
            if registered:
                self._selector.unregister(side.socket)
        elif registered:
            self._selector.modify(side.socket, wanted, side)
        else:
            self._selector.register(side.socket, wanted, side)

    def _cut(self, now: float) -> None:
        for pair in list(self._pairs):
            if not self.is_cutting:
                pair.ends_at = None
            elif pair.ends_at is None:
                pair.ends_at = self._end_of_life()
            elif pair.ends_at <= now:
                self.cuts += 1
                self._end(pair, is_rude=self._random.random() < 0.5)

    def _end_of_life(self) -> float:
        return time.monotonic() + self._random.uniform(*self._life_s)

    def _end(self, pair: _Pair, *, is_rude: bool = False) -> None:
        """Close both sockets. With `is_rude` send a reset, which drops the bytes in the kernel's buffers."""
        self._pairs.discard(pair)
        for side in (pair.client, pair.upstream):
            if side.socket in self._selector.get_map():
                self._selector.unregister(side.socket)
            if is_rude:
                side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.socket.close()
