"""lz4 frames as Kafka's own clients write them: independent blocks of 64 KiB, without content checksum or content size.

Java reads only independent blocks. Blocks above 64 KiB do not always compress better: for 64 KiB the library uses a
hash table with smaller and more entries.

Before message format v1, Kafka computed the frame descriptor's checksum over the wrong bytes, including the magic
number (KAFKA-3160, KIP-57). Brokers and clients of message format v0 accept only that checksum: `broken_checksum`
writes it. `decompress` accepts both.
"""

from __future__ import annotations

import struct
from functools import cache

import lz4.block
import lz4.frame

from kwire.records.compression.limits import PIECE_BYTES_MIN, checked_level, corrupt, cut_off, too_large
from kwire.wire.buffers import alloc_pooled

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_WORD = 0xFFFFFFFF


def _rotated(n: int, by: int) -> int:
    return (n << by | n >> 32 - by) & _WORD


def xxh32(data: bytes) -> int:
    """Return the XXH32 hash with seed 0, for the few bytes of a frame descriptor.

    >>> f"{xxh32(b''):08x} {xxh32(b'a' * 32):08x}"
    '02cc5d05 a3234fbe'
    """
    size = len(data)
    striped = size & ~15
    whole = size & ~3
    if striped:
        lanes = [(_P1 + _P2) & _WORD, _P2, 0, -_P1 & _WORD]
        for stripe in struct.iter_unpack("<4I", data[:striped]):
            pairs = zip(lanes, stripe, strict=True)
            lanes = [_rotated(lane + word * _P2 & _WORD, 13) * _P1 & _WORD for lane, word in pairs]
        h = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        h = _P5
    h = h + size & _WORD
    for (word,) in struct.iter_unpack("<I", data[striped:whole]):
        h = _rotated(h + word * _P3 & _WORD, 17) * _P4 & _WORD
    for byte in data[whole:]:
        h = _rotated(h + byte * _P5 & _WORD, 11) * _P1 & _WORD
    h = (h ^ h >> 15) * _P2 & _WORD
    h = (h ^ h >> 13) * _P3 & _WORD
    return h ^ h >> 16


_MAGIC = (0x184D2204).to_bytes(4, "little")
_HAS_CONTENT_SIZE, _HAS_DICTIONARY = 0x08, 0x01
_DESCRIPTOR_BYTES_MAX = 19  # with magic number and checksum
_OUTPUT_BYTES_MIN = 64 * 1024
_SIZE = struct.Struct("<I")
_PLAIN_FLAGS = 0x60  # version 1, independent blocks, no checksums, content size or dictionary
_BLOCK_BYTES = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}
_STORED = 1 << 31  # bit of a block's size: the block is not compressed
_RATIO_MAX = 255  # the highest ratio that the format allows


def compress(data: bytes | bytearray | memoryview, level: int | None, *, broken_checksum: bool = False) -> bytes:
    """Return an lz4 frame. Levels are 1 to 17, as in Kafka; None is the fast mode, 3 and above high compression."""
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=checked_level("lz4", level, 1, 17, 0),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return _with_checksum(frame, _broken_checksum(frame)) if broken_checksum else frame


def decompress(data: bytes | bytearray | memoryview, limit: int) -> bytes | memoryview:
    view = memoryview(data)
    block_bytes = _plain_frames().get(bytes(view[:7]))
    blocks = None if block_bytes is None else _blocks(view, block_bytes)
    if blocks is not None:
        return _decompress_blocks(view, blocks, limit)
    parts: list[bytes] = []
    left, at, piece = limit, 0, len(view)
    while True:
        plain, end = _decompress_frame(view, at, piece, left, limit)
        parts.append(plain)
        left -= len(plain)
        if end == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        at, piece = end, max(PIECE_BYTES_MIN, end - at)


@cache
def _plain_frames() -> dict[bytes, int]:
    """Map the first bytes of each frame that Kafka's clients write, with either checksum, to its maximum block size."""
    starts = {_MAGIC + bytes((_PLAIN_FLAGS, code, 0)): size for code, size in _BLOCK_BYTES.items()}
    return {
        _with_checksum(start, checksum): size
        for start, size in starts.items()
        for checksum in (_right_checksum(start), _broken_checksum(start))
    }


def _blocks(frame: memoryview, block_bytes: int) -> list[tuple[int, int, int]] | None:
    """Return (start, end, maximum output) of each block; None if more data follows the frame.

    The maximum output of an uncompressed block is 0. Raise CorruptRecordsError for an oversized or incomplete block.
    """
    blocks: list[tuple[int, int, int]] = []
    at = 7
    while at + _SIZE.size <= len(frame):
        (size,) = _SIZE.unpack_from(frame, at)
        at += _SIZE.size
        if size == 0:
            return blocks if at == len(frame) else None
        if size < _STORED:
            blocks.append((at, at + size, min(block_bytes, _RATIO_MAX * size)))
        else:
            size -= _STORED
            blocks.append((at, at + size, 0))
        if size > block_bytes:
            raise corrupt("lz4", f"a block of {size} bytes, above the {block_bytes} of its frame")
        at += size
    raise cut_off("lz4")


def _decompress_blocks(frame: memoryview, blocks: list[tuple[int, int, int]], limit: int) -> memoryview:
    """Decompress the blocks into pooled memory.

    The library's frame functions allocate fresh memory. The system clears its pages first, which takes longer than the
    decompression.
    """
    whole, place = alloc_pooled(min(limit, sum([most or end - start for start, end, most in blocks])))
    at = 0
    for start, end, most in blocks:
        plain = frame[start:end]
        if most:
            try:
                plain = lz4.block.decompress(plain, uncompressed_size=most)
            except lz4.block.LZ4BlockError as error:
                raise corrupt("lz4", error) from None
        following = at + len(plain)
        if following > limit:
            raise too_large("lz4", limit)
        place[at:following] = plain
        at = following
    return memoryview(whole)[:at].toreadonly()


def _decompress_frame(view: memoryview, at: int, piece: int, left: int, limit: int) -> tuple[bytes, int]:
    """Return the content of the frame at `at`, and its end.

    The library is given `piece` bytes first, then more: it copies what follows the frame (see `decompress_members`).
    """
    head = bytes(view[at : at + _DESCRIPTOR_BYTES_MAX])
    if head[:4] != _MAGIC:
        raise corrupt("lz4", "a frame does not begin with lz4's magic number")
    checksum_at = _checksum_position(head)
    if checksum_at >= len(head):
        raise cut_off("lz4")
    if head[checksum_at] == _broken_checksum(head):
        head = _with_checksum(head, _right_checksum(head))
    given = b"".join((head, view[at + len(head) : at + piece]))
    at += len(given)
    # The library allocates `max_length` bytes at once, so request only a likely size.
    step = max(_OUTPUT_BYTES_MIN, 4 * len(given))
    decompressor = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    while not decompressor.eof:
        try:
            part: bytes = decompressor.decompress(given, max_length=min(step, left + 1))
        except RuntimeError as error:
            raise corrupt("lz4", error) from None
        left -= len(part)
        if left < 0:
            raise too_large("lz4", limit)
        parts.append(part)
        given = b""
        if not part and decompressor.needs_input and not decompressor.eof:
            if at == len(view):
                raise cut_off("lz4")
            piece *= 2
            given = bytes(view[at : at + piece])
            at += len(given)
    return parts[0] if len(parts) == 1 else b"".join(parts), at - len(decompressor.unused_data or b"")


def _checksum_position(frame: bytes) -> int:
    """Return the position after the magic number (4 bytes), FLG, BD, optional size (8) and dictionary id (4)."""
    flags = frame[4] if len(frame) > 4 else 0
    return 6 + (8 if flags & _HAS_CONTENT_SIZE else 0) + (4 if flags & _HAS_DICTIONARY else 0)


def _right_checksum(frame: bytes) -> int:
    return xxh32(frame[4 : _checksum_position(frame)]) >> 8 & 0xFF


def _broken_checksum(frame: bytes) -> int:
    return xxh32(frame[: _checksum_position(frame)]) >> 8 & 0xFF


def _with_checksum(frame: bytes, checksum: int) -> bytes:
    at = _checksum_position(frame)
    return b"".join((frame[:at], bytes((checksum,)), frame[at + 1 :]))
