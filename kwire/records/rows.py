"""Records as plain tuples of their fields, as the encoding and decoding loops use them.

A record to encode is `(timestamp_ms, key, value, headers)`; a decoded one has its offset in front. Headers are
`(name, value)` pairs: the name is a str, the value bytes or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kwire.errors import EncodeError

Bytes = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]
Headers = Sequence[Header]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]

# Record: length, attributes, timestamp and offset deltas, lengths of key and value, header count. Header: two lengths.
# Batch: the v2 header.
RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
HEADER_OVERHEAD_BYTES_MAX = 5 + 5
BATCH_OVERHEAD_BYTES = 61


def shown_name(name: str) -> str:
    """Return a header's name as text that every program takes: bytes that are no UTF-8 are replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def record_bytes_max(key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of the record's bytes in an uncompressed v2 batch, at any position."""
    size = RECORD_OVERHEAD_BYTES_MAX + _byte_size(key) + _byte_size(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES_MAX + len(name.encode(errors="surrogateescape")) + _byte_size(content)
    return size


def _byte_size(content: Bytes | None) -> int:
    if content is None:
        return 0
    return len(content) if type(content) is bytes else memoryview(content).nbytes


def wrong_record(records: object) -> EncodeError | None:
    """Return what is wrong with the first record that no format can hold, and where; None if there is none."""
    if not isinstance(records, Sequence):
        remedy = "give a list of (timestamp_ms, key, value, headers)"
        return EncodeError(f"{records!r:.60} is not a list of records", path="records", remedy=remedy)
    for index, record in enumerate(records):
        for path, reason in _wrong_fields(record):
            return EncodeError(reason, path=f"records[{index}]{path}")
    return None


def _wrong_fields(record: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(record, tuple | list) or len(record) != 4:
        yield "", f"{record!r:.60} is not (timestamp_ms, key, value, headers)"
        return
    timestamp, key, value, headers = record
    if not isinstance(timestamp, int) or not -(1 << 63) <= timestamp < 1 << 63:
        yield ".timestamp_ms", f"{timestamp!r:.60} is not an int of 64 bits"
    if not _is_nullable_bytes(key):
        yield ".key", f"{key!r:.60} is neither bytes nor None"
    if not _is_nullable_bytes(value):
        yield ".value", f"{value!r:.60} is neither bytes nor None"
    if headers is not None and not isinstance(headers, tuple | list):
        yield ".headers", f"{headers!r:.60} is not a list of (name, value)"
        return
    for index, header in enumerate(headers or ()):
        path = f".headers[{index}]"
        if not isinstance(header, tuple | list) or len(header) != 2:
            yield path, f"{header!r:.60} is not (name, value)"
        elif not isinstance(header[0], str):
            yield path, f"a header's name is text, not {header[0]!r:.60}"
        elif not _is_nullable_bytes(header[1]):
            yield path, f"a header's value is {header[1]!r:.60}, which is neither bytes nor None"


def _is_nullable_bytes(content: object) -> bool:
    try:
        return content is None or memoryview(content) is not None  # type: ignore[arg-type]
    except TypeError:
        return False
