"""A server on a thread of its own, until it is closed: what a tap and a playback share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class BackgroundServer(ABC):
    """Works in turns on a daemon thread. A derived class calls `_start` when it listens."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _listener(self) -> tuple[str, int]:
        """Return host and port for the clients' bootstrap."""

    @abstractmethod
    def _turn(self) -> None:
        """Wait for sockets, a deadline or `_wakeup`, and do what is due."""

    @abstractmethod
    def _wakeup(self) -> None:
        """End the wait of a turn, from another thread."""

    @abstractmethod
    def _release(self) -> None:
        """Close all that the server has open; the last call on its thread."""

    @property
    def address(self) -> str:
        """Return HOST:PORT for the clients' bootstrap."""
        host, port = self._listener()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """End all connections. Raises what stopped the server before, such as a full disk."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._wakeup()
            self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped by itself, because of an error that `close` raises. Return whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException as error:
            self._failure = error
        try:
            self._release()
        except BaseException as error:
            self._failure = self._failure or error  # the disk is still full
