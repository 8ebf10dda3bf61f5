"""One frame read as far as it makes sense: header, message, the bytes of every field, the batches inside.

Owns what a frame means; prints nothing. Refuses to raise for bad bytes: a `Reading` holds what was found up to the
failing byte, and the problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

from kwire.cli.apis import known_apis, message_classes, span
from kwire.cli.batches import walk_batches
from kwire.cli.output import moment
from kwire.cli.walk import FieldRow, Walk
from kwire.errors import DecodeError, KwireError, error_name
from kwire.protocol import Api, ApiKey, Message, api
from kwire.protocol.diagnose import FieldBytes, annotate
from kwire.protocol.fields import Array, type_name
from kwire.protocol.headers import (
    decode_request,
    decode_response,
    request_header_version,
    response_header_version,
)
from kwire.records import decode_batches

Kind = Literal["request", "response"]


@dataclass(slots=True)
class Reading:
    """`message` is Kafka's JSON, or None where the bytes stopped making sense; `rows` say how far they did."""

    kind: Kind
    api: Api | None = None
    version: int = -1
    header: dict[str, Any] = field(default_factory=dict)
    message: dict[str, Any] | None = None
    rows: list[FieldRow] = field(default_factory=list)
    problems: list[KwireError] = field(default_factory=list)
    batches: list[tuple[str, memoryview]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return self.message is not None and not self.problems

    @property
    def name(self) -> str:
        return f"{self.api.name} v{self.version}" if self.api else "unknown"


def maybe_request_header(frame: bytes) -> tuple[Api, int] | None:
    """The API and version that a frame names if it is a request that we know, else None."""
    if len(frame) < 8:
        return None
    key, version = (int.from_bytes(frame[i : i + 2], "big", signed=True) for i in (0, 2))
    try:
        found = api(key)
    except KwireError:
        return None
    return (found, version) if version in found.versions else None


def read_request(frame: bytes, base: int) -> Reading:
    """A request says itself what it is. `base` is where the frame begins in the user's input."""
    reading = Reading("request")
    walk = Walk(frame, base, reading.rows, reading.problems)
    try:
        key = walk.fixed("header.request_api_key", "int16", "h")
        reading.version = walk.fixed("header.request_api_version", "int16", "h")
        reading.header = {"requestApiKey": key, "requestApiVersion": reading.version}
        if key not in set(ApiKey):
            raise walk.error(f"there is no API with key {key}", "header.request_api_key", back=4)
        walk.annotate(-2, ApiKey(key).api_name)
        reading.api = api(key)
        if reading.version not in reading.api.versions:
            message = f"kwire knows {reading.api.name} in versions {span(reading.api.versions)}, not {reading.version}"
            raise walk.error(message, "header.request_api_version", back=2)
        _rest_of_request_header(walk, reading)
    except KwireError as error:
        reading.problems.append(error)
        _unread(reading, walk)
        return reading
    _read_message(reading, reading.api.request, frame, walk.pos, base)
    return reading


def _rest_of_request_header(walk: Walk, reading: Reading) -> None:
    assert reading.api is not None
    form = request_header_version(reading.api.key, reading.api.request.FLEXIBLE, reading.version)
    reading.header["correlationId"] = walk.fixed("header.correlation_id", "int32", "i")
    if form >= 1:
        reading.header["clientId"] = walk.maybe_string("header.client_id")
    if form >= 2:
        walk.tagged_fields("header.tagged_fields")


def read_response(frame: bytes, base: int, found: Api, version: int) -> Reading:
    """A response does not say what it answers, so the caller must."""
    reading = Reading("response", found, version)
    walk = Walk(frame, base, reading.rows, reading.problems)
    try:
        reading.header["correlationId"] = walk.fixed("header.correlation_id", "int32", "i")
        if response_header_version(found.key, found.response.FLEXIBLE, version) == 1:
            walk.tagged_fields("header.tagged_fields")
    except KwireError as error:
        reading.problems.append(error)
        _unread(reading, walk)
        return reading
    _read_message(reading, found.response, frame, walk.pos, base)
    return reading


def read_body(body: bytes, base: int, kind: Kind, found: Api, version: int) -> Reading:
    """A message with no header before it."""
    reading = Reading(kind, found, version)
    _read_message(reading, dict(message_classes(found))[kind], body, 0, base)
    return reading


def _read_message(reading: Reading, cls: Any, frame: bytes, start: int, base: int) -> None:
    found, error = _annotated(cls, frame, start, reading.version)
    for one in found:
        if one.type_name == "records" and one.value is not None:
            _read_records(reading, one, frame, base)
            continue
        data = frame[one.start : one.end]
        reading.rows.append(FieldRow(base + one.start, data, one.path, one.type_name, one.value, _remark(one)))
    if error is None:
        reading.message = cls.decode(frame[start:], reading.version).to_json(reading.version)
        return
    offset = error.where.get("offset")
    if isinstance(offset, int):
        error.where["offset"] = offset + base
    reading.problems.append(error)
    end = found[-1].end if found else start
    if end < len(frame):
        path = str(error.where.get("path", "rest"))
        reading.rows.append(FieldRow(base + end, frame[end:], path, "?", None, "not read"))


# More than what is missing of most frames that were cut off.
_PADDING = bytes(1 << 18)


def _annotated(cls: Any, frame: bytes, start: int, version: int) -> tuple[list[FieldBytes], DecodeError | None]:
    """The fields up to the failing byte, and why it fails. The last may be records of which only the first bytes are
    there."""
    found = annotate(cls, frame, version, start)
    if not found or not isinstance(found[-1].value, DecodeError):
        return found, None
    error: DecodeError = found.pop().value
    # A count is refused as soon as its elements cannot all be there, rightly; but of a frame that was cut off we want
    # to see those that are. So read on into zeros, and keep what lies before them.
    padded = annotate(cls, frame + _PADDING, version, start)
    whole = [one for one in padded if one.end <= len(frame) and not isinstance(one.value, DecodeError)]
    if len(whole) < len(padded) and (cut := padded[len(whole)]).type_name == "records" and cut.value is not None:
        begin = cut.end - len(cut.value)
        if begin < len(frame):
            whole.append(cut._replace(end=len(frame), value=cut.value[: len(frame) - begin]))
    if len(whole) <= len(found):
        return found, error
    path = padded[len(whole)].path if len(whole) < len(padded) else None
    if whole[-1].end == len(frame) and whole[-1].type_name == "records":
        path = whole[-1].path
    return whole, DecodeError("the frame ends inside this field", path=path, offset=len(frame)).at(**error.where)


def _read_records(reading: Reading, found: FieldBytes, frame: bytes, base: int) -> None:
    records: memoryview = found.value
    begin = found.end - len(records)
    length = frame[found.start : begin]
    reading.rows.append(FieldRow(base + found.start, length, found.path, "records", len(records), "bytes"))
    if found.path.rpartition(".")[2].startswith("unaligned"):
        # A slice of a snapshot, which begins and ends anywhere.
        reading.rows.append(FieldRow(base + begin, bytes(records), found.path, "records", None, "a slice of a log"))
        return
    reading.batches.append((found.path, records))
    walk_batches(bytes(records), base + begin, found.path, reading.rows, reading.problems)


def _unread(reading: Reading, walk: Walk) -> None:
    rest = walk.data[walk.pos :]
    if rest:
        reading.rows.append(FieldRow(walk.base + walk.pos, rest, "rest", "?", None, "not read"))


def _remark(found: FieldBytes) -> str:
    """What a number means, where a person would look it up."""
    name = found.path.rpartition(".")[2]
    if not isinstance(found.value, int):
        return ""
    if name == "error_code":
        return error_name(found.value)
    if name == "api_key" and found.value in set(ApiKey):
        return ApiKey(found.value).api_name
    if name in ("timestamp", "timestamp_ms", "log_append_time_ms", "max_timestamp"):
        return moment(found.value)
    return ""


def read_fast(frame: bytes, kind: Kind, found: Api, version: int) -> Reading:
    """The same without the bytes of each field, much faster; a frame that makes no sense is read field by field.

    For a response `found` and `version` are those of the request that it answers.
    """
    try:
        header, message = _decoded(frame, kind, found, version)
        reading = Reading(kind, found, version, header, message.to_json(version))
        reading.batches = list(_records_in(message, ""))
        for _, data in reading.batches:
            for batch in decode_batches(data):
                batch.rows()
    except KwireError:
        return read_request(frame, 0) if kind == "request" else read_response(frame, 0, found, version)
    return reading


def _decoded(frame: bytes, kind: Kind, found: Api, version: int) -> tuple[dict[str, Any], Message]:
    if kind == "response":
        correlation_id, response = decode_response(frame, found.request, version)
        return {"correlationId": correlation_id}, response
    header, request = decode_request(frame)
    shown: dict[str, Any] = {
        "requestApiKey": int(found.key), "requestApiVersion": version, "correlationId": header.correlation_id
    }  # fmt: skip
    if request_header_version(found.key, found.request.FLEXIBLE, version) >= 1:
        shown["clientId"] = header.client_id
    return shown, request


def _records_in(struct: Any, path: str) -> Iterator[tuple[str, memoryview]]:
    """The record batches that a message carries, with their paths."""
    for one in struct.FIELDS:
        if not _holds_records(one.type):
            continue
        value, here = getattr(struct, one.name), f"{path}.{one.name}" if path else one.name
        if isinstance(one.type, Array):
            for index, item in enumerate(value or []):
                yield from _records_in(item, f"{here}[{index}]")
        elif hasattr(one.type, "FIELDS"):
            yield from _records_in(value, here)
        elif value is not None and not one.name.startswith("unaligned"):
            yield here, memoryview(value)


@cache
def _holds_records(wire_type: Any) -> bool:
    if isinstance(wire_type, Array):
        return hasattr(wire_type.element, "FIELDS") and _holds_records(wire_type.element)
    if hasattr(wire_type, "FIELDS"):
        return any(_holds_records(one.type) for one in wire_type.FIELDS)
    return type_name(wire_type) == "records"


class Guess(NamedTuple):
    """A message that the bytes could be, all of them."""

    reading: Reading
    is_same_again: bool  # encoding the message again gives the same bytes


def guesses(frame: bytes, base: int, kinds: list[Kind], only: Api | None, is_body: bool = False) -> Iterator[Guess]:
    """Every (kind, API, version) as which the frame decodes from its first byte to its last."""
    for found in [only] if only else known_apis():
        for kind, cls in message_classes(found):
            if kind not in kinds:
                continue
            for version in found.versions:
                reading = _as(frame, base, kind, found, version, is_body)
                if reading is not None and reading.is_whole:
                    assert reading.message is not None
                    body = cls.from_json(reading.message, version).encode(version)
                    yield Guess(reading, frame.endswith(body))


def _as(frame: bytes, base: int, kind: Kind, found: Api, version: int, is_body: bool) -> Reading | None:
    if is_body:
        return read_body(frame, base, kind, found, version)
    if kind == "response":
        return read_response(frame, base, found, version)
    # A request's header leaves no doubt.
    return read_request(frame, base) if maybe_request_header(frame) == (found, version) else None
