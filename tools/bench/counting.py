"""Relay connections to a broker, and count the bytes of the requests that pass by their API."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import Counter
from concurrent.futures import Future
from types import TracebackType
from typing import Self

_READ_BYTES = 1 << 16
_SIZE = struct.Struct(">i")
_API = struct.Struct(">h")
FETCH = 1
HEARTBEATS = (12, 68)  # of classic groups and of those of KIP-848


class CountingRelay:
    """Listen on `port` and forward to `target`; use it as a context manager. `count` begins anew each time."""

    def __init__(self, port: int, target: int, host: str = "127.0.0.1") -> None:
        self._port, self._target, self._host = port, target, host
        self._bytes: Counter[int] = Counter()
        self._requests: Counter[int] = Counter()
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="relay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop, end = self._started.result()
        loop.call_soon_threadsafe(end.set)
        self._thread.join()

    async def _serve(self) -> None:
        end = asyncio.Event()
        try:
            server = await asyncio.start_server(self._accept, self._host, self._port)
        except OSError as error:
            self._started.set_exception(error)
            return
        self._started.set_result((asyncio.get_running_loop(), end))
        await end.wait()
        server.close()

    def begin(self) -> None:
        """Forget what was counted."""
        self._bytes, self._requests = Counter(), Counter()

    def counted(self, *apis: int) -> tuple[int, int]:
        """Return (requests, bytes with the four of the size) of these APIs since `begin`."""
        return sum(self._requests[api] for api in apis), sum(self._bytes[api] for api in apis)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(self._host, self._target)
        except OSError:
            writer.close()
            return
        back = asyncio.ensure_future(self._forward(from_broker, writer))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._forward_requests(reader, to_broker)
                await back
        finally:
            back.cancel()
            for one in (writer, to_broker):
                one.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(_READ_BYTES):
                writer.write(data)
                await writer.drain()
            writer.close()

    async def _forward_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(_SIZE.unpack(size)[0])
                (api,) = _API.unpack_from(frame)
                self._requests[api] += 1
                self._bytes[api] += 4 + len(frame)
                writer.write(size + frame)
                await writer.drain()
        finally:
            writer.close()
