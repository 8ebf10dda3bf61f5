"""A record as the plain tuple of its fields, which is what the loops take and make.

To be encoded, `(timestamp_ms, key, value, headers)`; decoded, the same with the offset in front. Headers are
`(name, value)`, name a str, value bytes or None.
"""

from __future__ import annotations

from collections.abc import Sequence

Bytes = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]
Headers = Sequence[Header]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
Row = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]

# What a record or a batch takes beyond its key, value and headers, at most: length, attributes, timestamp and offset
# deltas, lengths of key and value, count of headers; a header's two lengths; the header of a v2 batch.
RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
HEADER_OVERHEAD_BYTES_MAX = 5 + 5
BATCH_OVERHEAD_BYTES = 61


def record_bytes_max(key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
    """No record of these takes more bytes than this in an uncompressed v2 batch."""
    size = RECORD_OVERHEAD_BYTES_MAX
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES_MAX + len(name.encode()) + (0 if content is None else len(content))
    return size
