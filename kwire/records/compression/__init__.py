"""The five codecs of record batches, by their numbers on the wire.

Each codec is one file with `compress(data, level)` and `decompress(data, limit)`, imported when first used, since each
costs an import of its library. A `decompress` stops at `limit` bytes of output with CorruptRecordsError, and sizes no
buffer by what compressed data says of itself beyond what its length can hold: a few kilobytes from a broker, or from
a client of our broker, can otherwise ask for gigabytes. All bad input is CorruptRecordsError.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

from kwire.errors import ConfigurationError

Bytes = bytes | bytearray | memoryview

# What a batch may decompress to where the caller says nothing: above the 100 MB that a broker takes as one request.
MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str | int | None) -> Compression:
        """By name as in Kafka's `compression.type`, in any case; None is NONE. ConfigurationError for any other.

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
    """`level` is the codec's own, None its default. ConfigurationError where the codec has no such level."""
    if codec is Compression.NONE:
        return bytes(data)
    return _compressor(codec)(data, level)


def decompress(codec: Compression, data: Bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> Bytes:
    """Bytes, or a view of some that nobody can write to.

    CorruptRecordsError where `data` is not what the codec makes, or makes more than `limit` bytes.
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
    module = importlib.import_module(f"{__name__}.{codec.name.lower()}")
    found: Callable[..., Any] = getattr(module, function)
    return found
