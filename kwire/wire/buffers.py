"""Memory that is filled through a view and then becomes bytes: in C without a copy, in Python with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.wire.accel import speedups

Bytes = bytes | bytearray | memoryview


def as_bytes(buffer: Bytes) -> bytes:
    """Return the bytes of any buffer, also of one whose items are larger than a byte, or not contiguous."""
    return buffer if type(buffer) is bytes else bytes(memoryview(buffer))


def alloc(size: int) -> tuple[Bytes, memoryview]:
    """Return memory of `size` bytes, and a view to write through.

    Release the view before you use the bytes. `bytes()` of the memory is what was written: in C the same object.
    """
    whole = bytearray(size)
    return whole, memoryview(whole)


def alloc_pooled(size: int) -> tuple[Bytes, memoryview]:
    """Return memory as `alloc` does. C reuses it, because the system must clear each page of new memory."""
    return alloc(size)


if not TYPE_CHECKING and speedups is not None:
    alloc, alloc_pooled = speedups.alloc, speedups.alloc_pooled
