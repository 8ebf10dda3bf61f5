"""Where the frames are in some bytes: one frame, with or without its size before it, or a stream of sized frames.

Owns the guess, because nothing in the bytes says it. What makes sense is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kwire.cli.reading import maybe_request_header

_SIZE_BYTES = 4
# A frame of which less than a twentieth was pasted is hardly what the person wants explained.
_BELIEVED = 20


class Frame(NamedTuple):
    """`data` without its size, beginning at `start` of the input; the size promises `missing` bytes more."""

    start: int
    data: bytes
    has_size: bool
    missing: int = 0


def split(data: bytes, has_sizes: bool | None, makes_sense: Callable[[bytes], bool]) -> list[Frame]:
    """The frames in `data`. `has_sizes` None guesses: by sizes that add up, then by what makes sense without them."""
    whole = [Frame(0, data, has_size=False)]
    sized = _sized(data)
    if has_sizes is not None:
        return sized if has_sizes else whole
    if not sized:
        return whole
    adds_up = not sized[-1].missing
    if adds_up and makes_sense(sized[0].data):
        return sized
    if makes_sense(data):
        return whole
    # Nothing makes sense whole: bytes are missing or wrong. A request's header, with or without a size before it, is a
    # good witness; else a size is believed if it promises not much more than what is here.
    if adds_up or maybe_request_header(sized[0].data):
        return sized
    if maybe_request_header(data):
        return whole
    return sized if sized[0].missing <= _BELIEVED * len(data) else whole


def _sized(data: bytes) -> list[Frame]:
    """The frames as their sizes say; empty where the first size cannot be one."""
    frames: list[Frame] = []
    pos = 0
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + _SIZE_BYTES], "big", signed=True)
        if len(data) - pos < _SIZE_BYTES or size < 0:
            # Not a size: what is left belongs to nothing, and the reader will say so.
            return [*frames, Frame(pos, data[pos:], has_size=False)] if frames else []
        start = pos + _SIZE_BYTES
        body = data[start : start + size]
        frames.append(Frame(start, body, has_size=True, missing=size - len(body)))
        pos = start + size
    return frames
