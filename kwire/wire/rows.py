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
