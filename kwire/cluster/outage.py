"""When a client that reads reports that no broker can be reached."""

from __future__ import annotations

from collections.abc import Callable

from kwire.cluster.requests import ClusterView
from kwire.errors import KwireError

# Seconds until a cluster that was never reached is reported. One that was reached has the request timeout.
_FIRST_CONNECT_TIMEOUT = 2.0


class Outage:
    """Whether a cluster can be reached, and what was reported: once per outage."""

    def __init__(self, request_timeout_ms: int) -> None:
        self._request_timeout = request_timeout_ms / 1000
        self._since: float | None = None
        self._is_reported = False

    def to_report(self, now: float, view: ClusterView, wake_at: Callable[[float], object]) -> KwireError | None:
        """Return the error to report now, or None; ask with `wake_at` to be called when it is due."""
        error = view.connection_error
        if error is None:
            self._since, self._is_reported = None, False
            return None
        if self._since is None:
            self._since = now
        if self._is_reported:
            return None
        timeout = self._request_timeout if view.snapshot.brokers else _FIRST_CONNECT_TIMEOUT
        due = self._since + (0.0 if view.has_fatal_error else timeout)
        if now < due:
            wake_at(due)
            return None
        self._is_reported = True
        return error
