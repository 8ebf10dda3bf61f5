"""gzip (RFC 1952) with one or more members, like Java's GZIPInputStream. zlib checks the CRC and the length."""

from __future__ import annotations

import zlib
from typing import Any

from kwire.records.compression.limits import checked_level, decompress_members

_GZIP = 16 + zlib.MAX_WBITS  # makes zlib use the gzip header and trailer


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    level = checked_level("gzip", level, -1, 9, zlib.Z_DEFAULT_COMPRESSION)
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return compressor.compress(data) + compressor.flush()


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    return decompress_members("gzip", data, limit, _begin, zlib.error)


def _begin() -> Any:
    return zlib.decompressobj(_GZIP)
