"""The five codecs of record batches, by their numbers on the wire.

Each codec is a module with `compress(data, level)` and `decompress(data, limit)`, imported on first use, because it
imports a library. `decompress` raises CorruptRecordsError for invalid input and for more than `limit` bytes of output.
It does not trust a declared size beyond what the compressed length can hold: otherwise a few kilobytes from a peer
could make it allocate gigabytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

from kwire.errors import ConfigurationError

Bytes = bytes | bytearray | memoryview

# The default limit of a decompressed batch, above the 100 MB of a broker's default socket.request.max.bytes.
MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024


class Compression(IntEnum):
    """A compression codec, numbered as in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str | int | None) -> Compression:
        """Return the codec for a `compression.type` name (in any case), a number, or None for NONE.

        Raise ConfigurationError for any other value.

        >>> Compression.of("lz4")
        <Compression.LZ4: 3>
        """
        if name is None:
            return cls.NONE
        try:
            return cls[name.upper()] if isinstance(name, str) else cls(name)
        except (KeyError, ValueError):
            known = ", ".join(codec.name.lower() for codec in cls)
            raise ConfigurationError(f"no compression is called {name!r}", remedy=f"choose one of {known}") from None


def compress(codec: Compression, data: Bytes, level: int | None = None) -> bytes:
    """Return the compressed data. `level` depends on the codec; None is its default.

    Raise ConfigurationError if the codec has no such level.
    """
    if codec is Compression.NONE:
        return bytes(data)
    return _compressor(codec)(data, level)


def decompress(codec: Compression, data: Bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> Bytes:
    """Return the decompressed data as bytes or a read-only memoryview.

    Raise CorruptRecordsError if `data` is invalid for the codec or decompresses to more than `limit` bytes.
    """
    if codec is Compression.NONE:
        return bytes(data)
    return _decompressor(codec)(data, limit)


@cache
def _compressor(codec: Compression) -> Callable[[Bytes, int | None], bytes]:
    function: Callable[[Bytes, int | None], bytes] = _module(codec, "compress")
    return function


@cache
def _decompressor(codec: Compression) -> Callable[[Bytes, int], Bytes]:
    function: Callable[[Bytes, int], Bytes] = _module(codec, "decompress")
    return function


def _module(codec: Compression, function: str) -> Callable[..., Any]:
    try:
        module = importlib.import_module(f"{__name__}.{codec.name.lower()}")
    except ModuleNotFoundError as error:  # kwire from a zip, without what pip would have installed with it
        package = {Compression.LZ4: "lz4", Compression.SNAPPY: "python-snappy"}.get(codec, str(error.name))
        raise ConfigurationError(
            f"{codec.name.lower()} needs a package that is not installed", remedy=f"pip install {package}"
        ) from error
    found: Callable[..., Any] = getattr(module, function)
    return found
