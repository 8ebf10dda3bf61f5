"""One decoded frame as JSON: what `kwire decode` prints for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from kwire.capture.decoded_frame import DecodedFrame
from kwire.capture.field_reader import FieldRow
from kwire.capture.json import batch_to_json, records_to_json, value_to_json
from kwire.errors import KwireError


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
