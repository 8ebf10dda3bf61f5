"""An exchange as a row of columns, as `format("kwire.capture")` and reports have it. Names are those of `kwire decode`.

time                             nanoseconds since 1970 of the request's last byte
connection, client, broker       the number of the connection in its file, and the addresses of both sides
client_id, software              what the client says of itself, as far as the capture has shown it by then
api, api_key, version            null if unknown
correlation_id, latency_ms       null without a request, or without a response
error, errors                    the first error code's name, and all: (path, code, name)
request_bytes, response_bytes    sizes on the wire, 0 for a message that is not in the capture
request_packet, response_packet  numbers of the packets with the last byte
is_guess                         the request is missing, and the response is decoded as the API that fits
summary                          one line, as in `kwire decode`'s table
request, response                JSON text of the messages, as in `kwire decode -f json`; secrets are masked
problems                         what could not be decoded
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kwire.capture.exchange import Exchange
from kwire.capture.exchange_json import captured_frame_to_json
from kwire.capture.pairing import CapturedFrame
from kwire.capture.summary import summary
from kwire.errors import ConfigurationError

Row = tuple[Any, ...]


def _json_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _packet(frame: CapturedFrame | None) -> int | None:
    return None if frame is None else frame.packet


# A column costs nothing unless it is asked for: JSON of the messages is most of the work.
COLUMNS: Mapping[str, Callable[[Exchange], Any]] = {
    "time": lambda one: one.at_ns,
    "connection": lambda one: one.connection.number,
    "client": lambda one: one.connection.client,
    "broker": lambda one: one.connection.broker,
    "client_id": lambda one: one.client_id,
    "software": lambda one: one.software or None,
    "api": lambda one: one.api.name if one.api else None,
    "api_key": lambda one: int(one.api.key) if one.api else None,
    "version": lambda one: one.version if one.api else None,
    "correlation_id": lambda one: one.correlation_id,
    "latency_ms": lambda one: one.latency_ms,
    "error": lambda one: one.errors[0].name if one.errors else None,
    "errors": lambda one: [{"path": error.path, "code": error.code, "name": error.name} for error in one.errors],
    "request_bytes": lambda one: one.request_bytes,
    "response_bytes": lambda one: one.response_bytes,
    "request_packet": lambda one: _packet(one.pair.request),
    "response_packet": lambda one: _packet(one.pair.response),
    "is_guess": lambda one: one.is_guess,
    "summary": summary,
    "request": lambda one: _json_text(captured_frame_to_json(one.pair.request, one.request)),
    "response": lambda one: _json_text(captured_frame_to_json(one.pair.response, one.response)),
    "problems": lambda one: [str(problem) for problem in one.problems],
}


def row_maker(columns: Iterable[str]) -> Callable[[Exchange], Row]:
    """Return a function that returns these columns of an exchange. Raises ConfigurationError for an unknown one."""
    names = list(columns)
    if unknown := [name for name in names if name not in COLUMNS]:
        raise ConfigurationError(
            f"a capture has no column {', '.join(unknown)}", remedy=f"its columns are {', '.join(COLUMNS)}"
        )
    makers = [COLUMNS[name] for name in names]
    return lambda one: tuple(make(one) for make in makers)
