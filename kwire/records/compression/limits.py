"""Errors, level checks and the loop over members that codecs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire.errors import ConfigurationError, CorruptRecordsError


def too_large(codec: str, limit: int) -> CorruptRecordsError:
    return CorruptRecordsError(
        f"{codec} data decompresses to more than {limit} bytes",
        remedy="raise max_decompressed_bytes if such batches are meant",
    )


def corrupt(codec: str, reason: object) -> CorruptRecordsError:
    return CorruptRecordsError(f"not {codec} data: {reason}")


def cut_off(codec: str) -> CorruptRecordsError:
    return CorruptRecordsError(f"the {codec} data is cut off")


# The least that a member after the first is given at once.
PIECE_BYTES_MIN = 1024


def decompress_members(
    codec: str, data: bytes | bytearray | memoryview, limit: int, begin: Callable[[], Any], failure: type[Exception]
) -> bytes:
    """Return the contents of the members in `data`, joined; `begin` makes the library's object for one member.

    The first gets all the data. The object copies what follows its member, so each other one gets pieces, at first as
    large as the member before it: else the time would grow with the square of the number of members.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    left, at, piece = limit, 0, len(view)
    while True:
        start, member = at, begin()
        while not member.eof:
            if at == len(view):
                raise cut_off(codec)
            given = view[at : at + piece]
            try:
                parts.append(member.decompress(given, left + 1))  # one byte more than the limit detects excess
            except failure as error:
                raise corrupt(codec, error) from None
            at += len(given)
            piece *= 2
            left -= len(parts[-1])
            if left < 0:
                raise too_large(codec, limit)
        at -= len(member.unused_data)
        if at == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        piece = max(PIECE_BYTES_MIN, at - start)


def checked_level(codec: str, level: int | None, lowest: int, highest: int, default: int) -> int:
    if level is None:
        return default
    if not lowest <= level <= highest:
        raise ConfigurationError(f"{codec} has no level {level}", remedy=f"choose one from {lowest} to {highest}")
    return level
