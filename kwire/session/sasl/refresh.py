"""When a login is renewed: before its token or ticket expires, as Java's ExpiringCredentialRefreshingLogin does."""

from __future__ import annotations

WINDOW = 0.80  # of the lifetime
JITTER = 0.05
MIN_PERIOD_SECONDS = 60.0
BUFFER_SECONDS = 300.0
# How often a failed refresh of a login is tried again, also after its end.
RETRY_SECONDS = 10.0
_SOONEST_SECONDS = 1.0


def refresh_at(issued_at: float, expires_at: float, now: float, chance: float) -> float:
    """Return when to refresh: after 80 to 85 % of the lifetime, by `chance` from 0 to 1.

    Not sooner than a minute from now and not later than five minutes before the end, unless the time left is too short
    for both. The next refresh is never at once: a source may give the same old token again.
    """
    at = issued_at + (expires_at - issued_at) * (WINDOW + JITTER * chance)
    if expires_at - now > MIN_PERIOD_SECONDS + BUFFER_SECONDS:
        at = max(min(at, expires_at - BUFFER_SECONDS), now + MIN_PERIOD_SECONDS)
    soonest = min(RETRY_SECONDS, (expires_at - now) * WINDOW)
    return max(at, now + max(soonest, _SOONEST_SECONDS))
