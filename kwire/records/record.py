"""One record, as it was read.

In bulk a record is the plain tuple of its fields (`kwire.wire.accel.Row`), which costs half as much; a Record is that
tuple with names.
"""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[str, bytes | None]

CREATE_TIME = 0
LOG_APPEND_TIME = 1
NO_TIMESTAMP_TYPE = -1
NO_TIMESTAMP = -1


class Record(NamedTuple):
    """`timestamp_ms` is milliseconds since 1970, -1 if there is none (message format v0).

    A header's name that is no UTF-8 keeps its bytes as Python's `surrogateescape` does, and so can be written again.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
