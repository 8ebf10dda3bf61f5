"""What a client logs about its brokers, on the loggers `kwire.cluster` and `kwire.cluster.requests`.

    WARNING  no broker can be reached: at once, then at growing intervals; one broker of several failed
    INFO     a broker can be reached again; a connection was opened or closed, and why
    DEBUG    an attempt to connect that failed; the versions that a broker offers; each request and each response

A line that names a broker has its address once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from math import inf

from kwire.errors import KwireError
from kwire.protocol import ApiKey
from kwire.session import RequestInfo
from kwire.session.versions import VersionRanges

log = logging.getLogger("kwire.cluster")
requests_log = logging.getLogger("kwire.cluster.requests")

_WARN_AGAIN_SECONDS = 10.0
_WARN_AGAIN_SECONDS_MAX = 640.0
_ADDRESSES_SHOWN_MAX = 6


class OutageLog:
    """Warns that no broker can be reached, and says when one can be again. Times are the loop's, in seconds."""

    __slots__ = ("_interval", "_since", "_warn_at")

    def __init__(self) -> None:
        self._since: float | None = None
        self._warn_at = -inf
        self._interval = _WARN_AGAIN_SECONDS

    def unreachable(self, addresses: Collection[str], cause: KwireError, now: float) -> None:
        """Note that every broker known has failed since one last responded. `cause` is the newest failure."""
        if self._since is None:
            self._since, self._warn_at, self._interval = now, -inf, _WARN_AGAIN_SECONDS
        if now < self._warn_at:
            return
        lasts = f" for {now - self._since:.0f} s" if now > self._since else ""
        shown = ", ".join(sorted(addresses)[:_ADDRESSES_SHOWN_MAX])
        more = len(addresses) - _ADDRESSES_SHOWN_MAX
        shown += f" and {more} more" if more > 0 else ""
        failure = cause.text(without=("broker",)) if len(addresses) == 1 else str(cause)
        log.warning("no broker can be reached%s; tried %s; the last failure: %s", lasts, shown, failure)
        self._warn_at = now + self._interval
        self._interval = min(self._interval * 2, _WARN_AGAIN_SECONDS_MAX)

    @property
    def is_open(self) -> bool:
        return self._since is not None

    def reachable(self, broker: str, now: float) -> None:
        """Note a response. A connection proves nothing: a broker may end each at its first request, as without SASL."""
        if self._since is not None:
            log.info("broker %s can be reached again, after %.1f s without any", broker, now - self._since)
            self._since = None


def log_opened(broker: str) -> None:
    log.info("connected to broker %s", broker)


def log_ended(broker: str, cause: KwireError, *, was_connected: bool, is_failure: bool) -> None:
    if was_connected:
        log.info("the connection to broker %s is closed: %s", broker, cause.text(without=("broker",)))
    elif is_failure:
        log.debug("an attempt to connect to broker %s failed: %s", broker, cause.text(without=("broker",)))


def log_failed(broker: str, cause: KwireError) -> None:
    log.warning("broker %s failed: %s", broker, cause.text(without=("broker",)))


def log_rebootstrap(addresses: Collection[str], reason: str) -> None:
    log.warning("forgetting the known brokers, to begin again at %s: %s", ", ".join(addresses), reason)


def log_versions(broker: str, versions: VersionRanges) -> None:
    """The versions that a broker offers; which of them is used stands in the line of each request."""
    if log.isEnabledFor(logging.DEBUG):
        known = {int(key): key.api_name for key in ApiKey}
        shown = ", ".join(
            f"{known.get(key, f'API {key}')} {offered.start}-{offered.stop - 1}"
            for key, offered in sorted(versions.items())
        )
        log.debug("broker %s offers %s", broker, shown or "nothing")


def log_sent(broker: str, requests: Sequence[RequestInfo], sizes: Sequence[int]) -> None:
    for request, size in zip(requests, sizes, strict=True):
        requests_log.debug("to broker %s: %s, %d bytes", broker, request, size)


def log_received(broker: str, request: RequestInfo | None, size: int, now: float) -> None:
    if request is None:
        requests_log.debug("from broker %s: %d bytes without a request", broker, size)
    else:
        latency_ms = (now - request.sent_at) * 1000
        requests_log.debug("from broker %s: response to %s, %d bytes, %.1f ms", broker, request, size, latency_ms)


def log_short_session(broker: str, lifetime_ms: int) -> None:
    """Log that a broker wants to be authenticated to very often."""
    log.warning(
        "broker %s ends authentications after %.1f s: each connection authenticates again before that; "
        "raise connections.max.reauth.ms, or the lifetime of the tokens",
        broker, lifetime_ms / 1000,
    )  # fmt: skip
