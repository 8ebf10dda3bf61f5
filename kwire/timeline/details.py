"""Both messages of an exchange as JSON for the page. Long strings and lists are cut: the capture has them whole."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from kwire.capture import Exchange
from kwire.capture.decoded_frame import DecodedFrame
from kwire.capture.json import batch_to_json, records_to_json
from kwire.errors import KwireError

_STRING_MAX = 300
_LIST_MAXIMA = (40, 8, 2)
_MESSAGE_BYTES_MAX = 16 * 1024


def exchange_details(exchange: Exchange) -> dict[str, Any]:
    """Return {"request": ..., "response": ...}; null for a message that is not in the capture."""
    return {"request": _message(exchange.request), "response": _message(exchange.response)}


def _message(decoded: DecodedFrame | None) -> dict[str, Any] | None:
    if decoded is None:
        return None
    found: dict[str, Any] = {"name": decoded.name, "header": decoded.header, "message": decoded.message}
    batches = []
    for path, batch in decoded.record_batches():
        with suppress(KwireError):
            batches.append({"path": path, **batch_to_json(batch), "records": records_to_json(batch)})
    if batches:
        found["batches"] = batches
    if nested := decoded.nested():
        found["nested"] = [{"path": path, "type": name, "message": inner} for path, name, inner in nested]
    if decoded.problems:
        found["problems"] = [problem.message for problem in decoded.problems]
    for list_max in _LIST_MAXIMA:
        cut: dict[str, Any] = cut_long(found, list_max)
        if len(json.dumps(cut)) <= _MESSAGE_BYTES_MAX:
            break
    return cut


def cut_long(value: Any, list_max: int) -> Any:
    """Return a JSON value with long strings and lists cut; the last item of a cut list tells how many are missing."""
    if isinstance(value, dict):
        return {name: cut_long(inner, list_max) for name, inner in value.items()}
    if isinstance(value, list):
        shown = [cut_long(inner, list_max) for inner in value[:list_max]]
        return shown if len(value) <= list_max else [*shown, f"... {len(value) - list_max} more"]
    if isinstance(value, str) and len(value) > _STRING_MAX:
        return f"{value[: _STRING_MAX // 2]}... ({len(value)} characters)"
    return value
