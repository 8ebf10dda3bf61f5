"""An exchange as one JSON object: what `kwire decode` prints for it, and what rows of captures hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kwire.capture.decoded_frame import DecodedFrame
from kwire.capture.exchange import Exchange
from kwire.capture.field_reader import FieldRow
from kwire.capture.json import batch_to_json, records_to_json, value_to_json
from kwire.capture.pairing import CapturedFrame
from kwire.capture.summary import summary
from kwire.capture.times import utc_text_of_ns
from kwire.errors import KwireError


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


def frame_to_json(decoded: DecodedFrame, *, annotate: bool) -> dict[str, Any]:
    """Return header, message, batches, problems and, with `annotate`, the bytes of every field."""
    json_frame: dict[str, Any] = {"header": decoded.header, "message": decoded.message}
    if decoded.batches:
        json_frame["batches"] = list(_batches_to_json(decoded))
    if nested := decoded.nested():
        json_frame["nested"] = [{"path": path, "type": name, "message": inner} for path, name, inner in nested]
    if decoded.problems:
        json_frame["problems"] = [
            {"message": problem.message, **problem.where, "remedy": problem.remedy} for problem in decoded.problems
        ]
    if annotate:
        json_frame["fields"] = [row_to_json(row) for row in decoded.rows]
    return json_frame


def _batches_to_json(decoded: DecodedFrame) -> Iterator[dict[str, Any]]:
    """Yield the intact batches; the problems describe the others."""
    for path, batch in decoded.record_batches():
        with suppress(KwireError):
            yield {"path": path, **batch_to_json(batch), "records": records_to_json(batch)}


def row_to_json(row: FieldRow) -> dict[str, Any]:
    json_row: dict[str, Any] = {
        "offset": row.start,
        "length": len(row.data),
        "hex": row.data.hex(),
        "path": row.path,
        "type": row.type,
        "value": value_to_json(row.value),
    }
    if row.note:
        json_row["note"] = row.note
    if row.within:
        json_row["within"] = row.within
    return json_row
