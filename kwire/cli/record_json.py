"""Records as JSON and back, without loss: what `kwire consume` prints and `kwire produce --json` sends.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp_ms": 1700000000000, "timestamp_type": "create",
     "key": "k", "value": {"base64": "/w=="}, "headers": [["trace", "1"], ["flag", null]]}

UTF-8 bytes are a string, other bytes are {"base64": ...}, and null is null. Headers are a list of pairs, because Kafka
keeps their order and allows duplicate names; a name is written as a value is. A value that is an object or a number is
an error: it could mean text or base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterable
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.capture.json import bytes_to_json, headers_to_json
from kwire.cli.error_report import is_utf8
from kwire.cli.output import json_line
from kwire.errors import EncodeError

if TYPE_CHECKING:
    from kwire.consumer import ConsumerRecord

Headers = tuple[tuple[str, bytes | None], ...]


class RecordToSend(NamedTuple):
    """A record to send. None as partition or timestamp leaves the choice to the producer."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


_TIMESTAMP_TYPES = {0: "create", 1: "append"}


def json_lines(records: Iterable[ConsumerRecord]) -> list[str]:
    """Return each record as a line of JSON, in the form of this module, as `json.dumps` would write it.

    Written out, because a dict and an encoder call for each record would cost five times as much.
    """
    quote = encode_basestring if is_utf8(sys.stdout) else encode_basestring_ascii
    lines: list[str] = []
    before: tuple[str, int] | None = None
    head = ""
    for record in records:
        place = record.topic, record.partition
        if place != before:
            before = place
            head = f'{{"topic": {quote(record.topic)}, "partition": {record.partition}, "offset": '
        key, value, headers, timestamp_ms = record.key, record.value, record.headers, record.timestamp_ms
        kind = _TIMESTAMP_TYPES.get(record.timestamp_type) if timestamp_ms >= 0 else None
        try:
            key_text = "null" if key is None else quote(key.decode())
            value_text = "null" if value is None else quote(value.decode())
        except UnicodeDecodeError:
            key_text, value_text = json_line(bytes_to_json(key)), json_line(bytes_to_json(value))
        lines.append(
            f'{head}{record.offset}, "timestamp_ms": {timestamp_ms}, '
            f'"timestamp_type": {"null" if kind is None else quote(kind)}, "key": {key_text}, "value": {value_text}, '
            f'"headers": {json_line(headers_to_json(headers)) if headers else "[]"}}}\n'
        )
    return lines


def bytes_from_json(value: Any, path: str) -> bytes | None:
    """Return the bytes of `bytes_to_json`. Raises EncodeError."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise EncodeError("half of a surrogate pair is not valid text", path=path) from None
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise EncodeError(f"not base64: {error}", path=path) from None
    raise EncodeError(
        f'{json.dumps(value)[:60]} is neither a string, null nor {{"base64": ...}}',
        path=path,
        remedy="write a JSON value as a string: jq '.value |= tojson'",
    )


def headers_from_json(value: Any) -> Headers:
    """Return headers from a list of pairs, or from an object {name: value}."""
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise EncodeError("headers are neither a list of pairs nor an object", path="headers")
    headers = []
    for index, pair in enumerate(pairs):
        path = f"headers[{index}]"
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise EncodeError("a header must be a pair of a name and a value", path=path)
        name = bytes_from_json(pair[0], f"{path}.name")
        if name is None:
            raise EncodeError("a header has no name", path=path)
        headers.append((name.decode(errors="surrogateescape"), bytes_from_json(pair[1], path)))
    return tuple(headers)


# Fields that the log decides. They are accepted and ignored, so that consume's output can be produced again.
_DECIDED_BY_THE_LOG = {"topic", "offset", "timestamp_type"}
_KNOWN = {"key", "value", "headers", "partition", "timestamp_ms"} | _DECIDED_BY_THE_LOG


def record_from_json(line: bytes) -> RecordToSend:
    """Parse one JSON line as a record. Raises EncodeError."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise EncodeError(f"not JSON: {error}", remedy="one JSON object per line") from None
    if not isinstance(record, dict):
        raise EncodeError("the line is not a JSON object", remedy='write one such as {"key": "k", "value": "v"}')
    if unknown := sorted(record.keys() - _KNOWN):
        raise EncodeError(f"a record has no field {', '.join(unknown)}", remedy=f"it has {', '.join(sorted(_KNOWN))}")
    return RecordToSend(
        bytes_from_json(record.get("key"), "key"),
        bytes_from_json(record.get("value"), "value"),
        headers_from_json(record.get("headers")),
        _maybe_int(record, "partition"),
        _maybe_int(record, "timestamp_ms"),
    )


def _maybe_int(record: dict[str, Any], name: str) -> int | None:
    value = record.get(name)
    if value is None:
        return None
    # Records of 0.8 and 0.9 have no timestamp; consume prints -1.
    if name == "timestamp_ms" and value == -1:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise EncodeError(f"{json.dumps(value)[:60]} is not a valid {name}", path=name)
