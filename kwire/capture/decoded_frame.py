"""Find the frames in bytes, and decode one frame as far as its bytes make sense.

The input is one frame, with or without its 4-byte size, or a stream of frames with sizes; nothing in the bytes says
which. Bad bytes raise nothing here: a `DecodedFrame` holds what was read up to the failing byte, and the problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kwire.capture.apis import known_apis, message_classes, range_text
from kwire.capture.field_reader import FieldReader, FieldRow
from kwire.capture.nested import Nested, nested_messages
from kwire.capture.record_fields import records_in
from kwire.capture.times import utc_text
from kwire.errors import DecodeError, KwireError, error_name
from kwire.protocol import Api, ApiKey, Message, api
from kwire.protocol.diagnose import FieldBytes, annotate, decode_prefix
from kwire.protocol.headers import decode_request, decode_response, request_header_version, response_header_version

if TYPE_CHECKING:
    from kwire.records import Batch

_SIZE_BYTES = 4
# If less than a twentieth of a frame is in the input, its size is hardly a size.
_MISSING_FACTOR_MAX = 20


class RawFrame(NamedTuple):
    """A frame at `start` of the input; `data` excludes the size. `missing` bytes of the size are not in the input."""

    start: int
    data: bytes
    has_size: bool
    missing: int = 0


def split_frames(data: bytes, has_sizes: bool | None, makes_sense: Callable[[bytes], bool]) -> list[RawFrame]:
    """Return the frames in `data`.

    `has_sizes` None detects sizes: they add up, or the bytes make sense without them.
    """
    whole = [RawFrame(0, data, has_size=False)]
    sized = _sized(data)
    if has_sizes is not None:
        return sized if has_sizes else whole
    if not sized:
        return whole
    adds_up = sized[-1].has_size and not sized[-1].missing
    if adds_up and makes_sense(sized[0].data):
        return sized
    if makes_sense(data):
        return whole
    if adds_up or makes_sense(sized[0].data):
        return sized
    # Bytes are missing or wrong. Accept a size somewhat larger than the input, unless the bytes are a request's header.
    # Two leading zeros are more likely a size than API key 0, Produce.
    is_plausible = 0 < sized[0].missing <= _MISSING_FACTOR_MAX * len(data)
    has_header = maybe_request_header(data) is not None and data[:2] != b"\0\0"
    return sized if is_plausible and not has_header else whole


def _sized(data: bytes) -> list[RawFrame]:
    """Return the frames that the sizes describe; none if the first size is impossible."""
    frames: list[RawFrame] = []
    pos = 0
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + _SIZE_BYTES], "big", signed=True)
        if len(data) - pos < _SIZE_BYTES or size < 0:
            # Not a size: decoding the rest will report it.
            return [*frames, RawFrame(pos, data[pos:], has_size=False)] if frames else []
        start = pos + _SIZE_BYTES
        body = data[start : start + size]
        frames.append(RawFrame(start, body, has_size=True, missing=size - len(body)))
        pos = start + size
    return frames


Kind = Literal["request", "response"]


@dataclass
class DecodedFrame:
    """`body` is the message, or None if the bytes stop making sense; `rows` hold the fields up to there."""

    kind: Kind
    api: Api | None = None
    version: int = -1
    header: dict[str, Any] = field(default_factory=dict)
    body: Message | None = None
    rows: list[FieldRow] = field(default_factory=list)
    problems: list[KwireError] = field(default_factory=list)
    batches: list[tuple[str, memoryview]] = field(default_factory=list)
    body_start: int | None = None  # where the body begins in the frame; None if the header cannot be read

    @cached_property
    def message(self) -> dict[str, Any] | None:
        """Return the body as Kafka's JSON."""
        return None if self.body is None else self.body.to_json(self.version)

    @property
    def is_whole(self) -> bool:
        return self.body is not None and not self.problems

    def record_batches(self) -> Iterator[tuple[str, Batch]]:
        """Yield the intact record batches with their paths; the problems describe the others."""
        if not self.batches:
            return
        from kwire.records import decode_batches  # most frames hold no records: they need not pay for it

        for path, data in self.batches:
            with suppress(KwireError):
                for batch in decode_batches(data, check_crc=False):
                    yield path, batch

    def nested(self) -> list[Nested]:
        """Return the messages within byte fields: path, name, message as JSON."""
        if self.body is None or self.api is None:
            return []
        return list(nested_messages(self.api.key, self.kind, self.body))

    @property
    def name(self) -> str:
        return f"{self.api.name} v{self.version}" if self.api else "unknown"


def maybe_request_header(frame: bytes) -> tuple[Api, int] | None:
    """Return the API and version if the frame begins like a known request, else None."""
    if len(frame) < 8:
        return None
    key, version = (int.from_bytes(frame[i : i + 2], "big", signed=True) for i in (0, 2))
    try:
        found = api(key)
    except KwireError:
        return None
    return (found, version) if version in found.versions else None


def decode_request_frame(frame: bytes, base: int) -> DecodedFrame:
    """Decode a request, whose header says what it is. `base` is the frame's offset in the input."""
    decoded = DecodedFrame("request")
    reader = FieldReader(frame, base, decoded.rows, decoded.problems)
    try:
        key = reader.fixed("header.request_api_key", "int16", "h")
        decoded.version = reader.fixed("header.request_api_version", "int16", "h")
        decoded.header = {"requestApiKey": key, "requestApiVersion": decoded.version}
        if key not in set(ApiKey):
            raise reader.error(f"Kafka has no API with key {key}", "header.request_api_key", back=4)
        reader.annotate(-2, ApiKey(key).api_name)
        decoded.api = api(key)
        if decoded.version not in decoded.api.versions:
            message = (
                f"kwire knows {decoded.api.name} in versions {range_text(decoded.api.versions)}, not {decoded.version}"
            )
            raise reader.error(message, "header.request_api_version", back=2)
        _decode_request_header_end(reader, decoded)
    except KwireError as error:
        decoded.problems.append(error)
        _add_unread(decoded, reader)
        return decoded
    _decode_message(decoded, decoded.api.request, frame, reader.pos, base)
    return decoded


def _decode_request_header_end(reader: FieldReader, decoded: DecodedFrame) -> None:
    assert decoded.api is not None
    form = request_header_version(decoded.api.key, decoded.api.request.FLEXIBLE, decoded.version)
    decoded.header["correlationId"] = reader.fixed("header.correlation_id", "int32", "i")
    if form >= 1:
        decoded.header["clientId"] = reader.maybe_string("header.client_id")
    if form >= 2:
        reader.tagged_fields("header.tagged_fields")


def decode_response_frame(frame: bytes, base: int, found: Api, version: int) -> DecodedFrame:
    """Decode a response to a request of this API and version; the bytes do not say which."""
    decoded = DecodedFrame("response", found, version)
    reader = FieldReader(frame, base, decoded.rows, decoded.problems)
    try:
        decoded.header["correlationId"] = reader.fixed("header.correlation_id", "int32", "i")
        if response_header_version(found.key, found.response.FLEXIBLE, version) == 1:
            reader.tagged_fields("header.tagged_fields")
    except KwireError as error:
        decoded.problems.append(error)
        _add_unread(decoded, reader)
        return decoded
    _decode_message(decoded, found.response, frame, reader.pos, base)
    return decoded


def decode_body(body: bytes, base: int, kind: Kind, found: Api, version: int) -> DecodedFrame:
    """Decode a message without a header."""
    decoded = DecodedFrame(kind, found, version)
    _decode_message(decoded, dict(message_classes(found))[kind], body, 0, base)
    return decoded


def _decode_message(decoded: DecodedFrame, cls: Any, frame: bytes, start: int, base: int) -> None:
    decoded.body_start = start
    found, error = _annotated(cls, frame, start, decoded.version)
    for one in found:
        if one.type_name == "records" and one.value is not None:
            _decode_records(decoded, one, frame, base)
            continue
        data = frame[one.start : one.end]
        decoded.rows.append(FieldRow(base + one.start, data, one.path, one.type_name, one.value, _remark(one)))
    if error is None:
        decoded.body = cls.decode(frame[start:], decoded.version)
        return
    offset = error.where.get("offset")
    if isinstance(offset, int):
        error.where["offset"] = offset + base
    decoded.problems.append(error)
    with suppress(KwireError):  # every field was read, and bytes are left over
        decoded.body = decode_prefix(cls, frame, decoded.version, start)[0]
    end = found[-1].end if found else start
    if end < len(frame):
        path = str(error.where.get("path", "rest"))
        decoded.rows.append(FieldRow(base + end, frame[end:], path, "?", None, "not read"))


# More than most truncated frames lack.
_PADDING = bytes(1 << 18)


def _annotated(cls: Any, frame: bytes, start: int, version: int) -> tuple[list[FieldBytes], DecodeError | None]:
    """Return the fields up to the failing byte, and why it fails. The last field may be the first bytes of records."""
    found = annotate(cls, frame, version, start)
    if not found or not isinstance(found[-1].value, DecodeError):
        return found, None
    error: DecodeError = found.pop().value
    # `annotate` rejects a count whose elements cannot all be there. To show those of a truncated frame, append zeros
    # and keep the fields before them.
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


def _decode_records(decoded: DecodedFrame, found: FieldBytes, frame: bytes, base: int) -> None:
    records: memoryview = found.value
    begin = found.end - len(records)
    length = frame[found.start : begin]
    decoded.rows.append(FieldRow(base + found.start, length, found.path, "records", len(records), "bytes"))
    if found.path.rpartition(".")[2].startswith("unaligned"):
        # A slice of a snapshot begins and ends inside batches.
        decoded.rows.append(FieldRow(base + begin, bytes(records), found.path, "records", None, "a slice of a log"))
        return
    decoded.batches.append((found.path, records))
    from kwire.capture.batch_fields import read_batches  # only frames with records pay for it

    read_batches(bytes(records), base + begin, found.path, decoded.rows, decoded.problems)


def _add_unread(decoded: DecodedFrame, reader: FieldReader) -> None:
    rest = reader.data[reader.pos :]
    if rest:
        decoded.rows.append(FieldRow(reader.base + reader.pos, rest, "rest", "?", None, "not read"))


def _remark(found: FieldBytes) -> str:
    """Return the meaning of a number: the name of an error or API, or a time."""
    name = found.path.rpartition(".")[2]
    if not isinstance(found.value, int):
        return ""
    if name == "error_code":
        return error_name(found.value)
    if name == "api_key" and found.value in set(ApiKey):
        return ApiKey(found.value).api_name
    if name in ("timestamp", "timestamp_ms", "log_append_time_ms", "max_timestamp"):
        return utc_text(found.value)
    return ""


def decode_compiled(frame: bytes, kind: Kind, found: Api, version: int) -> DecodedFrame:
    """Decode without the bytes of each field, which is much faster; bad frames are decoded field by field.

    `found` and `version` are those of the request.
    """
    try:
        header, message = _decoded(frame, kind, found, version)
        decoded = DecodedFrame(kind, found, version, header, message)
        decoded.batches = [(path, memoryview(getattr(one, name))) for path, one, name in records_in(message)]
        if decoded.batches:
            _check_batches(decoded.batches)
    except KwireError:
        return decode_request_frame(frame, 0) if kind == "request" else decode_response_frame(frame, 0, found, version)
    return decoded


def _check_batches(batches: Iterable[tuple[str, memoryview]]) -> None:
    """Raise the error of the first batch that cannot be read."""
    from kwire.records import decode_batches

    for _, data in batches:
        for batch in decode_batches(data):
            batch.rows()


def _decoded(frame: bytes, kind: Kind, found: Api, version: int) -> tuple[dict[str, Any], Message]:
    if kind == "response":
        correlation_id, response = decode_response(frame, found.request, version)
        return {"correlationId": correlation_id}, response
    header, request = decode_request(frame)
    json_header: dict[str, Any] = {
        "requestApiKey": int(found.key), "requestApiVersion": version, "correlationId": header.correlation_id
    }  # fmt: skip
    if request_header_version(found.key, found.request.FLEXIBLE, version) >= 1:
        json_header["clientId"] = header.client_id
    return json_header, request


class Guess(NamedTuple):
    """A message that the bytes could be, all of them."""

    decoded: DecodedFrame
    round_trips: bool  # encoding the message again gives the same bytes


def possible_messages(
    frame: bytes, base: int, kinds: list[Kind], only: Api | None, is_body: bool = False
) -> Iterator[Guess]:
    """Yield every (kind, API, version) that decodes the frame to its last byte."""
    for found in [only] if only else known_apis():
        for kind, cls in message_classes(found):
            if kind not in kinds:
                continue
            for version in found.versions:
                decoded = _decode_as(frame, base, kind, found, version, is_body)
                if decoded is not None and decoded.is_whole:
                    assert decoded.message is not None
                    body = cls.from_json(decoded.message, version).encode(version)
                    yield Guess(decoded, frame.endswith(body))


def _decode_as(frame: bytes, base: int, kind: Kind, found: Api, version: int, is_body: bool) -> DecodedFrame | None:
    if is_body:
        return decode_body(frame, base, kind, found, version)
    if kind == "response":
        return decode_response_frame(frame, base, found, version)
    # A request's header says what it is.
    return decode_request_frame(frame, base) if maybe_request_header(frame) == (found, version) else None
