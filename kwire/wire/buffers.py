"""Memory to write into that becomes bytes without a copy, in C; in Python with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.wire.accel import speedups

Bytes = bytes | bytearray | memoryview


def alloc(size: int) -> tuple[Bytes, memoryview]:
    """Return memory of `size` bytes, and a view to write through.

    Release the view before you use the bytes. `bytes()` of the former is what was written: in C the object itself.
    """
    whole = bytearray(size)
    return whole, memoryview(whole)


def alloc_pooled(size: int) -> tuple[Bytes, memoryview]:
    """Return memory as `alloc` does; in C it is used again, because the system clears each page of fresh memory."""
    return alloc(size)


if not TYPE_CHECKING and speedups is not None:
    alloc, alloc_pooled = speedups.alloc, speedups.alloc_pooled
