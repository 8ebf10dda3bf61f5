"""Times as text, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(timestamp_ms: int) -> str:
    """Return a timestamp as UTC text; empty for no timestamp, or one beyond the calendar."""
    if timestamp_ms < 0:
        return ""
    try:
        whole = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{whole:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def utc_text_of_ns(at_ns: int) -> str:
    """Return a packet's time in UTC, to the microsecond, as captures have it."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    try:
        whole = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ns)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"
