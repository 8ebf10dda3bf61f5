"""Exchange frames with a broker on one blocking connection, as simply as possible."""

from __future__ import annotations

import itertools
import socket
import struct
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from kwire.protocol import Request, Response
from kwire.protocol.headers import decode_response, encode_request

CLIENT_ID = "kwire-recorder"
_TIMEOUT_S = 30

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Hold a request and its response, as messages and as frames without their size."""

    version: int
    correlation_id: int
    request: Request[Any]
    response: Response
    request_frame: bytes
    response_frame: bytes


class Wire:
    """Hold a connection; use it as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_TIMEOUT_S)
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def exchange(self, request: Request[R], version: int) -> Exchange:
        """Send a request and wait for its response."""
        correlation_id = next(self._ids)
        frame = b"".join(encode_request(request, version, correlation_id, CLIENT_ID))
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        answered_id, response = decode_response(answer, type(request), version)
        assert answered_id == correlation_id
        return Exchange(version, correlation_id, request, response, frame, answer)

    def ask(self, request: Request[R], version: int) -> R:
        response: Any = self.exchange(request, version).response
        answer: R = response
        return answer

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionError("the broker closed the connection: its log may say why")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
