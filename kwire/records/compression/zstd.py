"""zstd, through the standard library where it has it (Python 3.14), else through the `zstandard` package.

The window that a frame may ask a reader to keep is bounded as in Kafka's Java: 128 MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from kwire.errors import ConfigurationError
from kwire.records.compression.limits import checked_level, corrupt, cut_off, too_large

_DEFAULT_LEVEL = 3
_WINDOW_LOG_MAX = 27
# A block of zstd makes at most 128 KiB and has at least 4 bytes, so this much input makes at most 16 MiB.
_INPUT_BYTES = 512


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    return _library().compress(data, checked_level("zstd", level, -(1 << 17), 22, _DEFAULT_LEVEL))


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    return _library().decompress(memoryview(data), limit)


class _Standard:
    """compression.zstd of Python 3.14."""

    def __init__(self, zstd: Any) -> None:
        self._zstd = zstd

    def compress(self, data: bytes | bytearray | memoryview, level: int) -> bytes:
        compressed: bytes = self._zstd.compress(data, level)
        return compressed

    def decompress(self, data: memoryview, limit: int) -> bytes:
        options = {self._zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        parts: list[bytes] = []
        left = limit
        rest: bytes | memoryview = data
        while True:
            frame = self._zstd.ZstdDecompressor(options=options)
            try:
                parts.append(frame.decompress(rest, left + 1))
            except self._zstd.ZstdError as error:
                raise corrupt("zstd", error) from None
            left -= len(parts[-1])
            if left < 0:
                raise too_large("zstd", limit)
            if not frame.eof:
                raise cut_off("zstd")
            rest = frame.unused_data
            if not rest:
                return b"".join(parts)


class _Zstandard:
    """The `zstandard` package, of any version that setup.cfg admits."""

    def __init__(self, zstandard: Any) -> None:
        self._zstandard = zstandard
        self._decompressor: Callable[..., Any] = zstandard.ZstdDecompressor

    def compress(self, data: bytes | bytearray | memoryview, level: int) -> bytes:
        compressed: bytes = self._zstandard.ZstdCompressor(level=level).compress(data)
        return compressed

    def decompress(self, data: memoryview, limit: int) -> bytes:
        """A frame's output has no limit of its own here, so what it may make at once is limited by what goes in."""
        decompressor = self._decompressor(max_window_size=1 << _WINDOW_LOG_MAX)
        parts: list[bytes] = []
        left = limit
        pos = 0
        while True:
            frame = decompressor.decompressobj()
            while pos < len(data) and not frame.eof:
                given = data[pos : pos + _INPUT_BYTES]
                try:
                    parts.append(frame.decompress(given))
                except self._zstandard.ZstdError as error:
                    raise corrupt("zstd", error) from None
                left -= len(parts[-1])
                if left < 0:
                    raise too_large("zstd", limit)
                pos += len(given)
            if not frame.eof:
                raise cut_off("zstd")
            pos -= len(frame.unused_data)
            if pos == len(data):
                return b"".join(parts)


@cache
def _library() -> _Standard | _Zstandard:
    try:
        return _Standard(import_module("compression.zstd"))
    except ImportError:
        pass
    try:
        return _Zstandard(import_module("zstandard"))
    except ImportError:
        raise ConfigurationError(
            "zstd needs a package that is not installed", remedy="pip install kwire[zstd]"
        ) from None
