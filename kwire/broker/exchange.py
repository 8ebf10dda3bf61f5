"""One request on its way through a broker, and what may become of it.

Owns the promise that a request ends at most once, whichever of its handler, its timers and its faults comes first. It
knows no socket: whoever made it is told the `Outcome` and carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kwire.errors import ErrorCode
from kwire.protocol.schema import Request, Response


@dataclass(frozen=True, slots=True)
class Reply:
    response: Response


@dataclass(frozen=True, slots=True)
class NoReply:
    """The client expects none (Produce with acks=0); its next request may be handled."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection. `reason` is for the broker's log; None for a fault, which a test has asked for."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """Write so many bytes of the frame, size included, and close the connection."""

    response: Response
    keep_bytes: int


Outcome = Reply | NoReply | CloseConnection | CutAnswer


class RequestContext:
    """`finish` is called once at most; never, for a request that is not to be answered at all."""

    __slots__ = ("_finish", "client_host", "client_id", "is_over", "refusal", "request", "version")

    def __init__(
        self,
        request: Request[Any],
        version: int,
        *,
        client_id: str | None,
        client_host: str,
        finish: Callable[[Outcome], None],
    ) -> None:
        self.request = request
        self.version = version
        self.client_id = client_id or ""
        self.client_host = client_host
        self.is_over = False
        # Set by a fault that concerns one topic or partition of the request: asked per partition.
        self.refusal: Callable[[str, int], ErrorCode | None] | None = None
        self._finish = finish

    def finish(self, outcome: Outcome) -> None:
        """Later outcomes of the same request count for nothing."""
        if not self.is_over:
            self.is_over = True
            self._finish(outcome)

    def answer(self, response: Response) -> None:
        self.finish(Reply(response))

    def shadow(self, finish: Callable[[Outcome], None]) -> RequestContext:
        """The same request with another end: for faults that apply a request and do not answer it as it deserves."""
        return RequestContext(
            self.request, self.version, client_id=self.client_id, client_host=self.client_host, finish=finish
        )

    def abandon(self) -> None:
        """The connection is gone: whatever is answered from now on goes nowhere."""
        self.is_over = True

    def refused(self, topic: str, partition: int) -> ErrorCode | None:
        """The error that a fault wants this partition to be answered with."""
        return None if self.refusal is None else self.refusal(topic, partition)
