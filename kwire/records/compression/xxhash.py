"""XXH32, for the few bytes of an lz4 frame's descriptor. Larger data would want a library."""

from __future__ import annotations

import struct

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_WORD = 0xFFFFFFFF


def _rotated(n: int, by: int) -> int:
    return (n << by | n >> 32 - by) & _WORD


def xxh32(data: bytes) -> int:
    """With seed 0.

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
