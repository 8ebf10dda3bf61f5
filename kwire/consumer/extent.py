"""How far the records of a Fetch answer reach, told from the batches' envelopes alone, without decoding any.

The event loop must know where to fetch next before the user has read what came. Every format begins with an offset and
a size; a v2 batch tells its last offset in its header, and in the older formats the offset is that of the last record.
The answer's last batch may be cut off where the size limit fell: it does not count.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_ENVELOPE = struct.Struct(">qi")  # offset, size of what follows
_MAGIC_AT = 16  # in every format: offset, size, and four bytes of checksum or leader epoch stand before it
_LAST_OFFSET_DELTA_AT = 23
_SIZE_MIN = 14  # a v0 message without key and value
_UNLIKE = 16  # the part of its size by which a batch may be larger than the one before


class Extent(NamedTuple):
    """`whole_bytes` of the data are whole batches, after which `next_offset` follows; -1 with none whole.

    `needed_bytes` is the size of the batch behind them that was cut off, or 0 if there is none or not even its size.
    `is_broken`: the envelope after the whole ones is none, so nobody can tell what follows.
    """

    whole_bytes: int
    next_offset: int
    needed_bytes: int = 0
    is_broken: bool = False


def extent_of(data: memoryview) -> Extent:
    unpack, end = _ENVELOPE.unpack_from, len(data)
    start, last, offset, needed = 0, -1, -1, 0
    is_broken = False
    while start + 12 <= end:
        following_offset, size = unpack(data, start)
        if size < _SIZE_MIN:
            is_broken = True
            break
        if start + 12 + size > end:
            needed = 12 + size
            break
        last, offset = start, following_offset
        start += 12 + size
    if last < 0:
        return Extent(0, -1, needed, is_broken)
    if data[last + _MAGIC_AT] >= 2 and start - last >= _LAST_OFFSET_DELTA_AT + 4:
        offset += int.from_bytes(data[last + _LAST_OFFSET_DELTA_AT : last + _LAST_OFFSET_DELTA_AT + 4], "big")
    return Extent(start, offset + 1, needed, is_broken)


def worth_asking(batch_bytes: int, limit: int) -> int:
    """How much to ask for, at most `limit`, where a batch of this size and more like it follow.

    It is what whole batches fill. What is cut off has to come again: of batches that are a little larger than half of
    the limit, every second one would.
    """
    count = limit // batch_bytes
    return min(limit, count * batch_bytes + batch_bytes // _UNLIKE) if count else limit
