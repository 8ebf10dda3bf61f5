"""Frames that pass a tap, as exchanges for a program and as a capture file; secrets are masked before either."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from kwire.capture import CapturedConnection, CapturedFrame, Exchange, ExchangeDecoder, RequestPair
from kwire.capture.exchange import mask_captured
from kwire.capture.filters import Filter
from kwire.capture.pcapng import CaptureWriter, WrittenConnection
from kwire.capture.secrets import Redaction
from kwire.errors import ConfigurationError

_fcntl: Any = import_module("fcntl") if os.name == "posix" else None


class CaptureFiles:
    """A capture in a file, or in a row of files: at `rotate_bytes` the file gets a number, and a new one begins.

    Of numbered files the newest `keep` stay. The newest traffic is always in `path`. The files of an earlier run count:
    its last one gets the next number. A file is locked while it is written, so that no other tap empties it.
    """

    def __init__(self, path: str | Path, redaction: Redaction, *, rotate_bytes: int | None, keep: int | None) -> None:
        self._path = Path(path)
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._number = 0
        try:
            self._file = self._locked_file()
            if rotate_bytes is not None:
                self._number = self._last_number()
                if os.fstat(self._file.fileno()).st_size:
                    self._begin_next()
            if _is_regular(self._file):
                self._file.truncate(0)
        except OSError as error:
            raise ConfigurationError(f"the capture {self._path} cannot be written: {error.strerror}") from None
        masked = [
            name for name, is_masked in (("secrets", redaction.secrets), ("payloads", redaction.payloads)) if is_masked
        ]
        self.writer = CaptureWriter(self._file, f"masked: {', '.join(masked) or 'nothing'}")

    def flush(self, connections: list[WrittenConnection]) -> None:
        """Write what was collected, and begin the next file if this one is full."""
        self.writer.flush()
        if self._rotate_bytes is not None and self.writer.size >= self._rotate_bytes:
            self._begin_next()
            self.writer.next_file(self._file, connections)

    def close(self) -> None:
        try:
            self.writer.flush()
        finally:
            self._file.close()

    def _begin_next(self) -> None:
        """Give the file the next number, remove the one that is too many, and open a new one."""
        self._number += 1
        full = self._file
        if _fcntl is None:
            full.close()  # Windows renames no open file
        self._path.rename(self._numbered(self._number))
        self._file = self._locked_file()
        full.close()  # only now: its lock keeps another tap from emptying it before it has its number
        if self._keep is not None and self._number > self._keep:
            self._numbered(self._number - self._keep).unlink(missing_ok=True)

    def _last_number(self) -> int:
        name = re.compile(rf"{re.escape(self._path.stem)}\.(\d+){re.escape(self._path.suffix)}")
        found = (name.fullmatch(one.name) for one in self._path.parent.iterdir())
        return max((int(one[1]) for one in found if one), default=0)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}.{number}{self._path.suffix}")

    def _locked_file(self) -> BinaryIO:
        """Open the file at its end, and lock it until it is closed."""
        file = self._path.open("ab", buffering=0)
        if _is_regular(file) and not (_lock(file) and self._is_at_path(file)):
            file.close()
            raise ConfigurationError(
                f"the capture {self._path} is being written by another tap",
                remedy="give each tap a file of its own, or end the other one first",
            )
        return file

    def _is_at_path(self, file: BinaryIO) -> bool:
        """Return False if another tap has given the file its number since it was opened."""
        return self._path.exists() and os.path.samestat(os.fstat(file.fileno()), self._path.stat())


def _is_regular(file: BinaryIO) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed, where there are locks. Return False if somebody else has it locked."""
    if _fcntl is None:
        return True
    try:
        _fcntl.flock(file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError as error:  # another one: a file system without locks
        return not isinstance(error, BlockingIOError)
    return True


class Recorder:
    """Takes frames in the order in which they pass, and hands them on: to a file, and as exchanges to `on_exchange`."""

    def __init__(
        self, on_exchange: Callable[[Exchange], object] | None, where: Filter | None, redaction: Redaction
    ) -> None:
        self._files: CaptureFiles | None = None
        self._on_exchange = on_exchange
        self._where = where
        self._redaction = redaction
        self._decoder = ExchangeDecoder(redaction=redaction)
        self._written: dict[int, WrittenConnection] = {}
        self._waiting: deque[tuple[CapturedFrame | None, CapturedFrame]] = deque()  # request, frame
        self.exchanges = 0

    def record_in(self, files: CaptureFiles) -> None:
        """Write all frames from now on, before the first connection."""
        self._files = files

    @property
    def is_needed(self) -> bool:
        return self._files is not None or self._on_exchange is not None

    def opened(self, connection: CapturedConnection, client: tuple[str, int], broker: tuple[str, int]) -> None:
        if self._files is not None:
            self._written[connection.number] = self._files.writer.connection(client, broker)

    def add(self, frame: CapturedFrame, request: CapturedFrame | None = None) -> None:
        """Take a frame; `request` is that of a response."""
        self._waiting.append((request, frame))

    def closed(self, connection: CapturedConnection, at_ns: int, *, by_client: bool) -> None:
        self.work()
        written = self._written.pop(connection.number, None)
        if self._files is not None and written is not None:
            self._files.writer.close(written, at_ns, by_client=by_client)

    def unanswered(self, request: CapturedFrame) -> None:
        """Hand on a request whose response never comes."""
        self.work()
        self._tell(request, None)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def work(self) -> None:
        """Mask, write and decode what was taken."""
        while self._waiting:
            request, frame = self._waiting.popleft()
            if self._files is not None:
                self._write(frame)
            if frame.kind == "response" or not frame.expects_response:
                self._tell(request or frame, frame if frame.kind == "response" else None)
        if self._files is not None:
            self._files.flush(list(self._written.values()))

    def close(self) -> None:
        try:
            self.work()
        finally:
            if self._files is not None:
                self._files.close()

    def _write(self, frame: CapturedFrame) -> None:
        assert self._files is not None
        self._files.writer.write_frame(
            self._written[frame.connection.number], from_client=frame.kind == "request",
            frame=mask_captured(frame, self._redaction).data, at_ns=frame.at_ns,
        )  # fmt: skip

    def _tell(self, request: CapturedFrame, response: CapturedFrame | None) -> None:
        self.exchanges += 1
        if self._on_exchange is None:
            return
        exchange = self._decoder.decode(RequestPair(request.connection, request, response))
        if self._where is None or self._where.accepts(exchange):
            self._on_exchange(exchange)
