"""The records of a run: which bytes the n-th record of a lane has, and back.

A lane is a thread that sends. Its keys are its own, so a key's records have the order in which one thread sent them.
"""

from __future__ import annotations

from typing import NamedTuple

KEYS_PER_LANE = 50
TRANSACTION_HEADER = "transaction"
_FILL = b"." * 64


class Number(NamedTuple):
    """Which record it is: the `serial`-th of its lane, from 0."""

    lane: int
    serial: int

    @property
    def key(self) -> tuple[int, int]:
        return self.lane, self.serial % KEYS_PER_LANE


class Label(NamedTuple):
    """The transaction that a copy was written in, and how many records that has."""

    name: str
    size: int


class Seen(NamedTuple):
    """A record as a reader met it. `number` is None when its bytes are not those of any record of a run."""

    partition: int
    offset: int
    number: Number | None
    label: Label | None = None


def key_of(number: Number) -> bytes:
    return b"%d-%d" % number.key


def value_of(number: Number) -> bytes:
    """Text that tells its number, of a length that varies with it, so that mixed-up bytes are noticed."""
    return b"%d:%d:" % number + _FILL[: number.serial % len(_FILL)]


def number_of(key: bytes | None, value: bytes | None) -> Number | None:
    """None unless the bytes are exactly those of a record."""
    lane, _, rest = (value or b"").partition(b":")
    serial, _, _ = rest.partition(b":")
    if not (lane.isdigit() and serial.isdigit()):
        return None
    number = Number(int(lane), int(serial))
    return number if key == key_of(number) and value == value_of(number) else None


def label_bytes(label: Label) -> bytes:
    return b"%s/%d" % (label.name.encode(), label.size)


def label_of(header: bytes | None) -> Label | None:
    name, _, size = (header or b"").rpartition(b"/")
    return Label(name.decode(), int(size)) if name and size.isdigit() else None
