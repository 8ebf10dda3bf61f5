"""zstd, from the standard library (Python 3.14 and later) or the `zstandard` package.

A frame's window is limited to 128 MiB, as in Kafka's Java client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from kwire.errors import ConfigurationError
from kwire.records.compression.limits import checked_level, corrupt, cut_off, decompress_members, too_large
from kwire.wire.buffers import alloc_pooled

_DEFAULT_LEVEL = 3
_WINDOW_LOG_MAX = 27
_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50  # the first of the 16 magic numbers of skippable frames
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RLE, _COMPRESSED = 1, 2
_BLOCK_BYTES = 128 * 1024


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    return _library().compress(data, checked_level("zstd", level, -(1 << 17), 22, _DEFAULT_LEVEL))


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes | memoryview:
    return _library().decompress(memoryview(data), limit)


class _Standard:
    """Use `compression.zstd` of Python 3.14."""

    def __init__(self, zstd: Any) -> None:
        self._zstd = zstd

    def compress(self, data: bytes | bytearray | memoryview, level: int) -> bytes:
        compressed: bytes = self._zstd.compress(data, level)
        return compressed

    def decompress(self, data: memoryview, limit: int) -> bytes:
        options = {self._zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        begin = partial(self._zstd.ZstdDecompressor, options=options)
        return decompress_members("zstd", data, limit, begin, self._zstd.ZstdError)


class _Zstandard:
    """Use the `zstandard` package, in any version that setup.cfg allows."""

    def __init__(self, zstandard: Any) -> None:
        self._zstandard = zstandard
        self._decompressor: Callable[..., Any] = zstandard.ZstdDecompressor

    def compress(self, data: bytes | bytearray | memoryview, level: int) -> bytes:
        compressed: bytes = self._zstandard.ZstdCompressor(level=level).compress(data)
        return compressed

    def decompress(self, data: memoryview, limit: int) -> memoryview:
        """Decompress in one call into pooled memory of the maximum output, plus a byte that detects excess."""
        whole, place = alloc_pooled(min(limit, _most(data)) + 1)
        decompressor = self._decompressor(max_window_size=1 << _WINDOW_LOG_MAX)
        try:
            size = decompressor.stream_reader(data, read_across_frames=True).readinto(place)
        except self._zstandard.ZstdError as error:
            raise corrupt("zstd", error) from None
        if size > limit:
            raise too_large("zstd", limit)
        return memoryview(whole)[:size].toreadonly()


def _most(data: memoryview) -> int:
    """Return the frames' maximum output; raise CorruptRecordsError if `data` is not a sequence of whole frames."""
    most = at = 0
    while at < len(data) or not at:
        magic = _number(data, at, 4)
        if magic == _MAGIC:
            at, makes = _frame(data, at + 4)
            most += makes
        elif magic & ~15 == _SKIPPABLE:
            at += 8 + _number(data, at + 4, 4)
        else:
            raise corrupt("zstd", "a frame does not begin with zstd's magic number")
    if at > len(data):
        raise cut_off("zstd")
    return most


def _frame(data: memoryview, at: int) -> tuple[int, int]:
    """Return a frame's end and its maximum output, from its block headers; `at` is the position after its magic."""
    descriptor = _number(data, at, 1)
    has_window, has_checksum = not descriptor & 0x20, bool(descriptor & 4)
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or not has_window
    at += 1 + has_window + _DICTIONARY_ID_BYTES[descriptor & 3] + size_bytes
    most = is_last = 0
    while not is_last:
        head = _number(data, at, 3)
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _RLE else size)
        most += _BLOCK_BYTES if kind == _COMPRESSED else min(size, _BLOCK_BYTES)
    return at + 4 * has_checksum, most


def _number(data: memoryview, at: int, size: int) -> int:
    if at + size > len(data):
        raise cut_off("zstd")
    return int.from_bytes(data[at : at + size], "little")


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
