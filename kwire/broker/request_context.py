"""One request inside a broker, and the ways in which it can complete.

A request completes at most once, whichever of its handler, its timers and its faults comes first. This file knows no
socket: the connection that made the `RequestContext` carries the `Completion` out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kwire.broker.authorizer import FULL_ACCESS, Access
from kwire.errors import ErrorCode
from kwire.protocol.schema import Request, Response


@dataclass(frozen=True, slots=True)
class Reply:
    """Send this response. Handle no other request of the connection before `mute_until`."""

    response: Response
    mute_until: float = 0.0


@dataclass(frozen=True, slots=True)
class NoReply:
    """Send nothing and handle the next request: the client expects no response (Produce with acks=0)."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection. `reason` goes to the broker's log; it is None for a fault that a test has injected."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ResetConnection:
    """End the connection with a TCP reset; what was not written is lost."""


@dataclass(frozen=True, slots=True)
class ForgetConnection:
    """Treat the client as gone, and leave its socket open and unread."""


@dataclass(frozen=True, slots=True)
class TruncatedReply:
    """Send the first `keep_bytes` bytes of the response's frame, its size field included, and close the connection."""

    response: Response
    keep_bytes: int


@dataclass(frozen=True, slots=True)
class DamagedReply:
    """Send what `damage` makes of the response's frame, its size field included."""

    response: Response
    damage: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class SlowReply:
    """Send the response's frame at this rate."""

    response: Response
    bytes_per_second: int


Completion = (
    Reply | NoReply | CloseConnection | ResetConnection | ForgetConnection | TruncatedReply | DamagedReply | SlowReply
)


class RequestContext:
    """A request, its version and its client. `on_complete` is called at most once; never for a muted request."""

    __slots__ = (
        "_on_complete",
        "access",
        "client_host",
        "client_id",
        "connection",
        "is_complete",
        "listener",
        "partition_fault",
        "request",
        "software",
        "version",
    )

    def __init__(
        self,
        request: Request[Any],
        version: int,
        *,
        client_id: str | None,
        client_host: str,
        connection: int = 0,
        listener: str = "",
        access: Access = FULL_ACCESS,
        software: tuple[str, str] = ("", ""),
        on_complete: Callable[[Completion], None],
    ) -> None:
        self.request = request
        self.version = version
        self.client_id = client_id or ""
        self.client_host = client_host
        self.connection = connection  # a number that no other connection of the cluster has
        self.listener = listener  # the name of the one by which the client came
        self.software = software  # the name and the version of the client's library
        self.access = access  # what its client may do
        self.is_complete = False
        # Set by a fault that concerns one topic or partition of the request.
        self.partition_fault: Callable[[str, int], ErrorCode | None] | None = None
        self._on_complete = on_complete

    def complete(self, completion: Completion) -> None:
        """Complete the request. Later completions of the same request are ignored."""
        if not self.is_complete:
            self.is_complete = True
            self._on_complete(completion)

    def respond(self, response: Response) -> None:
        """Complete the request with a response."""
        self.complete(Reply(response))

    def with_callback(self, on_complete: Callable[[Completion], None]) -> RequestContext:
        """Return a context of the same request with another callback, for faults that apply it and change the reply."""
        return RequestContext(
            self.request, self.version, client_id=self.client_id, client_host=self.client_host,
            connection=self.connection, listener=self.listener, access=self.access, software=self.software,
            on_complete=on_complete,
        )  # fmt: skip

    def change_completion(self, change: Callable[[Completion], Completion]) -> None:
        """Have `change` make the completion that is sent of the one that the request gets."""
        send = self._on_complete
        self._on_complete = lambda completion: send(change(completion))

    def cancel(self) -> None:
        """Drop every later completion: the connection is gone."""
        self.is_complete = True

    def telemetry_labels(self, instance_id: UUID) -> dict[str, str]:
        """Return what subscriptions to client metrics can match (KIP-714)."""
        name, version = self.software
        return {
            "client_instance_id": str(instance_id), "client_id": self.client_id, "client_software_name": name,
            "client_software_version": version, "client_source_address": self.client_host,
        }  # fmt: skip

    def injected_error(self, topic: str, partition: int) -> ErrorCode | None:
        """Return the error that a fault demands for this partition, if any."""
        return None if self.partition_fault is None else self.partition_fault(topic, partition)
