"""An exchange as one JSON object: what `kwire decode` prints for it, and what rows of captures hold."""

from __future__ import annotations

from typing import Any

from kwire.capture.decoded_frame import DecodedFrame
from kwire.capture.exchange import Exchange
from kwire.capture.frame_json import frame_to_json
from kwire.capture.pairing import CapturedFrame
from kwire.capture.summary import summary
from kwire.capture.times import utc_text_of_ns


def exchange_to_json(one: Exchange, *, annotate: bool = False) -> dict[str, Any]:
    """Return one object; `request` or `response` is null if it is not in the capture."""
    pair = one.pair
    frame = pair.frame
    return {
        "connection": pair.connection.number,
        "client": pair.connection.client,
        "broker": pair.connection.broker,
        "api": frame.api.name if frame.api else None,
        "api_key": int(frame.api.key) if frame.api else None,
        "version": frame.version if frame.api else None,
        "correlation_id": one.header.get("correlationId"),
        "client_id": one.header.get("clientId"),
        "latency_ms": pair.latency_ms,
        "summary": summary(one),
        "errors": [{"path": error.path, "code": error.code, "name": error.name} for error in one.errors],
        **({"topic_names": one.topic_names} if one.topic_names else {}),
        "request": captured_frame_to_json(pair.request, one.request, annotate),
        "response": captured_frame_to_json(pair.response, one.response, annotate),
    }


def captured_frame_to_json(
    frame: CapturedFrame | None, decoded: DecodedFrame | None, annotate: bool = False
) -> dict[str, Any] | None:
    """Return one message with its time, size and packet; None if it is not in the capture."""
    if frame is None or decoded is None:
        return None
    json_frame: dict[str, Any] = {
        "packet": frame.packet,
        "time": utc_text_of_ns(frame.at_ns),
        "size": len(frame.data) + frame.missing,
    }
    if frame.is_guess:
        json_frame["is_guess"] = True
    if frame.is_token:
        json_frame["is_sasl_token"] = True
    if frame.kind == "response":
        json_frame["version"] = decoded.version if decoded.api else None
    return {**json_frame, **frame_to_json(decoded, annotate=annotate)}
