"""Errors and level checks that all codecs share."""

from __future__ import annotations

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


def checked_level(codec: str, level: int | None, lowest: int, highest: int, default: int) -> int:
    if level is None:
        return default
    if not lowest <= level <= highest:
        raise ConfigurationError(f"{codec} has no level {level}", remedy=f"choose one from {lowest} to {highest}")
    return level
