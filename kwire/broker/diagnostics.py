"""What the brokers log about clients: why a connection ended, and which mistakes of clients they tolerate.

A connection that a broker closes because of the client is a WARNING, which Python shows by default; the bytes follow at
DEBUG. Secrets are never logged: the bytes of SASL requests are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from kwire.errors import KwireError
from kwire.protocol import ApiKey, api
from kwire.protocol.diagnose import annotate
from kwire.protocol.headers import RequestHeader, decode_request_header
from kwire.session import Session
from kwire.wire.frame import BytesLike

logger = logging.getLogger("kwire.broker")

_ODDITIES_MAX = 1_000
_BYTES_SHOWN = 16
_ROWS_SHOWN = 500
_SECRET_APIS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@dataclass(frozen=True, slots=True)
class Oddity:
    """A mistake of a client that Kafka's brokers and this one tolerate."""

    software: str  # "librdkafka 2.16.0", from ApiVersions; empty if the client did not send it
    client_id: str
    api: ApiKey
    version: int
    what: str

    def __str__(self) -> str:
        client = f"{self.client_id!r} ({self.software})" if self.software else repr(self.client_id)
        return f"client {client}: {self.api.api_name} v{self.version}: {self.what}"


class Oddities:
    """The tolerated mistakes, each kind once, in the order of first appearance; at most a thousand."""

    def __init__(self) -> None:
        self._seen: dict[Oddity, None] = {}

    def __iter__(self) -> Iterator[Oddity]:
        return iter(self._seen)

    def add(self, oddity: Oddity) -> None:
        """Add and log a mistake that is not known yet."""
        if oddity not in self._seen and len(self._seen) < _ODDITIES_MAX:
            self._seen[oddity] = None
            logger.info("%s", oddity)


@dataclass(slots=True)
class ClientInfo:
    """The client of one connection, as the log names it. Its id and software are known once it has sent them."""

    number: int
    broker: int
    host: str
    session: Session
    client_id: str | None = None

    @property
    def library(self) -> str:
        return " ".join(self.session.software).strip()

    def __str__(self) -> str:
        client = f"{self.client_id or ''!r} ({self.library})" if self.library else repr(self.client_id or "")
        return f"connection {self.number} to broker {self.broker}, client {client} at {self.host}"


def log_broken(client: ClientInfo, error: KwireError, frame: BytesLike) -> None:
    """Log why the broker closes a connection whose session failed at `frame`."""
    error.where.pop("broker", None)  # the session calls its peer a broker, but here it is the client
    logger.warning("%s: %s; the broker closes the connection", client, error)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: the request's bytes:\n%s", client, "\n".join(describe_frame(bytes(frame))))


def log_closing(client: ClientInfo, reason: str) -> None:
    """Log why the broker closes a connection."""
    logger.warning("%s: %s; the broker closes the connection", client, reason)


def maybe_header(frame: BytesLike) -> tuple[RequestHeader, int] | None:
    """Return a request's header and the offset of its body; None if the header cannot be decoded."""
    try:
        return decode_request_header(frame)
    except KwireError:
        return None


def describe_frame(frame: bytes) -> list[str]:
    """Return one line per field of a request with its bytes, up to the first field that cannot be decoded."""
    read = maybe_header(frame)
    if read is None:
        return [f"{0:6}  {_hex(frame)}  no request header"]
    header, start = read
    request_class = api(header.api_key).request
    lines = [f"{0:6}  {_hex(frame[:start])}  header of {api(header.api_key).name} v{header.api_version}"]
    if header.api_key in _SECRET_APIS:
        return [*lines, f"{start:6}  {len(frame) - start} bytes that may be secret"]
    if header.api_version not in request_class.VERSIONS:
        return [*lines, f"{start:6}  {_hex(frame[start:])}  kwire does not support this version"]
    fields = annotate(request_class, frame, header.api_version, start)
    for field in fields[:_ROWS_SHOWN]:
        value = field.value.message if isinstance(field.value, KwireError) else _value(field.value)
        lines.append(f"{field.start:6}  {_hex(frame[field.start : field.end])}  {field.path or '(end)'} = {value}")
    if len(fields) > _ROWS_SHOWN:
        lines.append(f"        and {len(fields) - _ROWS_SHOWN} more fields")
    return lines


def _hex(data: bytes) -> str:
    text = data[:_BYTES_SHOWN].hex(" ")
    return f"{text} ... ({len(data)} bytes)" if len(data) > _BYTES_SHOWN else text


def _value(value: object) -> str:
    if isinstance(value, bytes | memoryview) and len(value) > _BYTES_SHOWN:
        return f"<{len(value)} bytes>"
    return repr(value)
