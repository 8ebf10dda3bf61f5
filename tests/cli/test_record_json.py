"""Records as JSON lines: what consume writes, produce reads back without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.capture.json import bytes_to_json, headers_to_json
from kwire.cli.output import json_line
from kwire.cli.record_json import RecordToSend, bytes_from_json, headers_from_json, json_lines, record_from_json
from kwire.consumer import ConsumerRecord
from kwire.errors import EncodeError

maybe_bytes = st.none() | st.binary() | st.text().map(str.encode)


names = st.text() | st.binary().map(lambda name: name.decode(errors="surrogateescape"))


@given(maybe_bytes, st.lists(st.tuples(names, maybe_bytes)))
def test_round_trip(data: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    assert bytes_from_json(json.loads(json.dumps(bytes_to_json(data))), "value") == data
    text = json.dumps(headers_to_json(headers), ensure_ascii=False)
    assert headers_from_json(json.loads(text.encode())) == tuple(headers)


records = st.builds(
    lambda topic, partition, offset, timestamp_ms, kind, key, value, headers: ConsumerRecord(
        topic, partition, offset, timestamp_ms, kind, key, value, tuple(headers)
    ),
    st.sampled_from(["orders", "é"]), st.integers(0, 3), st.integers(0, 2**63 - 1), st.integers(-1, 2**62),
    st.sampled_from([-1, 0, 1]), maybe_bytes, maybe_bytes, st.lists(st.tuples(names, maybe_bytes), max_size=2),
)  # fmt: skip


@given(st.lists(records))
def test_lines_are_what_json_writes(given_records: list[ConsumerRecord]) -> None:
    def as_json(record: ConsumerRecord) -> dict[str, Any]:
        kind = {0: "create", 1: "append"}.get(record.timestamp_type) if record.timestamp_ms >= 0 else None
        return {
            "topic": record.topic, "partition": record.partition, "offset": record.offset,
            "timestamp_ms": record.timestamp_ms, "timestamp_type": kind, "key": bytes_to_json(record.key),
            "value": bytes_to_json(record.value), "headers": headers_to_json(record.headers),
        }  # fmt: skip

    assert json_lines(given_records) == [json_line(as_json(record)) + "\n" for record in given_records]


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("{}", RecordToSend()),
        ('{"key": "k", "value": null}', RecordToSend(b"k", None)),
        ('{"value": ""}', RecordToSend(None, b"")),
        ('{"value": {"base64": "/w=="}}', RecordToSend(None, b"\xff")),
        ('{"value": "\\u00e9", "headers": {"a": "1"}}', RecordToSend(None, "é".encode(), (("a", b"1"),))),
        ('{"headers": [["a", null], ["a", {"base64": ""}]]}', RecordToSend(headers=(("a", None), ("a", b"")))),
        (
            '{"topic": "t", "partition": 2, "offset": 9, "timestamp_ms": 5, "timestamp_type": "create"}',
            RecordToSend(None, None, (), 2, 5),
        ),
        ('{"timestamp_ms": -1}', RecordToSend()),
        ('{"headers": [[{"base64": "bv8="}, "1"]]}', RecordToSend(headers=(("n\udcff", b"1"),))),
    ],
)  # fmt: skip
def test_record_from_json(line: str, record: RecordToSend) -> None:
    assert record_from_json(line.encode()) == record


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"vaule": "v"}', "a record has no field vaule"),
        ('{"value": 1}', "1 is neither a string.*field value"),
        ('{"value": {"a": 1}}', "neither a string"),
        ('{"value": {"base64": "!"}}', "not base64"),
        ('{"value": "\\ud800"}', "surrogate"),
        ('{"headers": 1}', "neither a list"),
        ('{"headers": [["a"]]}', r"a header must be a pair.*headers\[0\]"),
        ('{"headers": [["a", "b"], ["c", 1]]}', r"headers\[1\]"),
        ('{"headers": [[null, "b"]]}', r"a header has no name.*headers\[0\]"),
        ('{"headers": [[5, "b"]]}', r"headers\[0\].name"),
        ('{"headers": [["\\ud800", "b"]]}', "surrogate"),
        ('{"partition": "0"}', "not a valid partition"),
        ('{"partition": -1}', "not a valid partition"),
        ('{"partition": true}', "not a valid partition"),
    ],
)
def test_wrong_records_are_errors(line: str | bytes, says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        record_from_json(line.encode() if isinstance(line, str) else line)
