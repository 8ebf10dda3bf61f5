"""What no other process can have: a client, with its threads and connections."""

from __future__ import annotations

from typing import NoReturn


class Unpicklable:
    """A base of the clients. Pickling or copying one says so, instead of naming a lock in its depths."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled or copied: make a client of its own in each process")
