"""snappy, raw or in the framing of xerial's snappy-java, which Kafka's own clients write.

The framing is 0x82 `SNAPPY` 0x00, a version, the oldest compatible version (both 1), then blocks: each a big-endian
length of four bytes and the compressed data. `compress` writes this framing in blocks of 32 KiB, as Java does.
`decompress` accepts both, as all Kafka clients do, because some clients write raw snappy. Concatenated streams are
valid, so the magic may appear where a length is expected.
"""

from __future__ import annotations

import snappy

from kwire.errors import ConfigurationError
from kwire.records.compression.limits import corrupt, cut_off, too_large

_MAGIC = b"\x82SNAPPY\0"
_HEADER = _MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_VERSION = 1
_BLOCK_BYTES = 32 * 1024


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    if level is not None:
        raise ConfigurationError("snappy has no levels", remedy="leave the compression level out")
    parts = [_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        block: bytes = snappy.compress(bytes(view[start : start + _BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    view = memoryview(data)
    if view[: len(_MAGIC)] != _MAGIC:
        return _decompress_block(view, limit, limit)
    parts: list[bytes] = []
    left = limit
    pos = _header_end(view, 0)
    while pos < len(view):
        if view[pos : pos + len(_MAGIC)] == _MAGIC:
            pos = _header_end(view, pos)
            continue
        size = int.from_bytes(view[pos : pos + 4], "big")
        end = pos + 4 + size
        if len(view) - pos < 4 or end > len(view):
            raise cut_off("snappy")
        parts.append(_decompress_block(view[pos + 4 : end], left, limit))
        left -= len(parts[-1])
        pos = end
    return b"".join(parts)


def _header_end(view: memoryview, pos: int) -> int:
    end = pos + len(_HEADER)
    if end > len(view):
        raise cut_off("snappy")
    readable_since = int.from_bytes(view[end - 4 : end], "big")
    if readable_since > _VERSION:
        raise corrupt("snappy", f"its framing needs a reader of version {readable_since}")
    return end


def _decompress_block(block: memoryview, left: int, limit: int) -> bytes:
    """Return a decompressed block; check its declared length first, because the library allocates that much."""
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise corrupt("snappy", "it does not begin with a length")
    if declared > left:
        raise too_large("snappy", limit)
    # Snappy's best element produces 64 bytes from three.
    if declared > len(block) * 22:
        raise corrupt("snappy", f"{len(block)} bytes cannot make the {declared} declared")
    try:
        plain: bytes = snappy.uncompress(bytes(block))  # pyright: ignore[reportAssignmentType]
    except snappy.UncompressError as error:
        raise corrupt("snappy", error.__cause__ or error) from None
    return plain
