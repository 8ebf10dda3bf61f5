"""gzip (RFC 1952) with one or more members, like Java's GZIPInputStream. zlib checks the CRC and the length."""

from __future__ import annotations

import zlib

from kwire.records.compression.limits import checked_level, corrupt, cut_off, too_large

_GZIP = 16 + zlib.MAX_WBITS  # makes zlib use the gzip header and trailer


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    level = checked_level("gzip", level, -1, 9, zlib.Z_DEFAULT_COMPRESSION)
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return compressor.compress(data) + compressor.flush()


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    members: list[bytes] = []
    left = limit
    rest: bytes | bytearray | memoryview = data
    while True:
        member = zlib.decompressobj(_GZIP)
        try:
            members.append(member.decompress(rest, left + 1))  # 0 means no limit; one byte more detects excess
        except zlib.error as error:
            raise corrupt("gzip", error) from None
        left -= len(members[-1])
        if left < 0:
            raise too_large("gzip", limit)
        if not member.eof:
            raise cut_off("gzip")
        rest = member.unused_data
        if not rest:
            return members[0] if len(members) == 1 else b"".join(members)
