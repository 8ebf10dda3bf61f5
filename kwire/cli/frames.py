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
    adds_up = sized[-1].has_size and not sized[-1].missing
    if adds_up and makes_sense(sized[0].data):
        return sized
    if makes_sense(data):
        return whole
    if adds_up or makes_sense(sized[0].data):
        return sized
    # Nothing makes sense whole: bytes are missing or wrong. A size is believed if it promises a bit more than is here,
    # unless a request's header stands in its place. Two zeros at the front are rather a size than Produce.
    is_believable = 0 < sized[0].missing <= _BELIEVED * len(data)
    has_header = maybe_request_header(data) is not None and data[:2] != b"\0\0"
    return sized if is_believable and not has_header else whole


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
