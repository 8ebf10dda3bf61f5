"""Records as plain tuples of their fields, as the encoding and decoding loops use them.

A record to encode is `(timestamp_ms, key, value, headers)`; a decoded one has its offset in front. Headers are
`(name, value)` pairs: the name is a str, the value bytes or None.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def record_bytes_max(key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of the record's bytes in an uncompressed v2 batch, at any position."""
    size = RECORD_OVERHEAD_BYTES_MAX
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES_MAX + len(name.encode()) + (0 if content is None else len(content))
    return size
