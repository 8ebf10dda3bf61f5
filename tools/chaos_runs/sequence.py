"""Convert the n-th record of a sender to bytes and back.

A sender is a sending thread with its own keys, so the records of a key have the order in which one thread sent them.
"""

from __future__ import annotations

from typing import NamedTuple

KEYS_PER_SENDER = 50
TRANSACTION_HEADER = "transaction"
_FILL = b"." * 64


class Number(NamedTuple):
    """Identify a record: the `serial`-th of its sender, from 0."""

    sender: int
    serial: int

    @property
    def key(self) -> tuple[int, int]:
        return self.sender, self.serial % KEYS_PER_SENDER


class Label(NamedTuple):
    """Identify the transaction of a copied record, with its number of records."""

    name: str
    size: int


class Seen(NamedTuple):
    """Hold a record as read. `number` is None if its bytes are not those of any record of a run."""

    partition: int
    offset: int
    number: Number | None
    label: Label | None = None


def key_of(number: Number) -> bytes:
    return b"%d-%d" % number.key


def value_of(number: Number) -> bytes:
    """Return a text with the number, of a length that depends on it, so that wrong bytes are noticed."""
    return b"%d:%d:" % number + _FILL[: number.serial % len(_FILL)]


def number_of(key: bytes | None, value: bytes | None) -> Number | None:
    """Return the number of a record, or None unless the bytes are exactly those of a record."""
    sender, _, rest = (value or b"").partition(b":")
    serial, _, _ = rest.partition(b":")
    if not (sender.isdigit() and serial.isdigit()):
        return None
    number = Number(int(sender), int(serial))
    return number if key == key_of(number) and value == value_of(number) else None


def label_bytes(label: Label) -> bytes:
    return b"%s/%d" % (label.name.encode(), label.size)


def label_of(header: bytes | None) -> Label | None:
    name, _, size = (header or b"").rpartition(b"/")
    return Label(name.decode(), int(size)) if name and size.isdigit() else None
