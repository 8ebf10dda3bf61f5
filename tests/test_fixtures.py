"""Every frame in fixtures/, recorded from real brokers, is read, shown and written again byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kwire.errors import DecodeError
from kwire.protocol import ApiKey, Request, api
from kwire.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.records import decode_batches

FIXTURES = Path(__file__).parents[1] / "fixtures"
REQUESTS = sorted(FIXTURES.glob("*/*_request.bin"))
# What must be there, so that a fixture that got lost is missed: the APIs that carry the main job, by broker.
BROKERS = {"0.8.2.2": 9, "0.11.0.3": 45, "2.8.2": 117, "4.3.1": 135}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('_request.bin')}"


def response_of(path: Path) -> Path:
    return path.with_name(path.name.replace("_request", "_response"))


def json_of(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text())


def read_request(path: Path) -> tuple[RequestHeader, Request[Any]]:
    return decode_request(path.read_bytes())


def test_every_recording_is_there() -> None:
    counts = {broker: len(list((FIXTURES / broker).glob("*_request.bin"))) for broker in BROKERS}
    assert counts == BROKERS
    assert all(len(list((FIXTURES / broker).iterdir())) == 4 * count for broker, count in counts.items())


def test_every_version_of_the_main_apis_is_there() -> None:
    """Up to what 4.3 speaks; Produce, Fetch and ListOffsets are of one broker or the other in every version."""
    have = {path.name.removesuffix("_request.bin") for path in REQUESTS}
    for name, newest in [("produce", 13), ("fetch", 18), ("list_offsets", 11), ("metadata", 13), ("offset_fetch", 10)]:
        assert {f"{name}_v{version}" for version in range(newest + 1)} <= have


@pytest.mark.parametrize("path", REQUESTS, ids=name_of)
def test_request(path: Path) -> None:
    frame, shown = path.read_bytes(), json_of(path)
    header, request = read_request(path)
    version = header.api_version
    assert shown["header"] == {
        "requestApiKey": header.api_key,
        "requestApiVersion": version,
        "correlationId": header.correlation_id,
        "clientId": header.client_id,
    }
    assert request.to_json(version) == shown["body"]
    for again in (request, type(request).from_json(shown["body"], version)):
        parts = encode_request(again, version, header.correlation_id, header.client_id)
        assert b"".join(parts) == frame


@pytest.mark.parametrize("path", REQUESTS, ids=name_of)
def test_response(path: Path) -> None:
    frame, shown = response_of(path).read_bytes(), json_of(response_of(path))
    header, request = read_request(path)
    version = header.api_version
    correlation_id, response = decode_response(frame, type(request), version)
    assert shown["header"] == {"correlationId": correlation_id} == {"correlationId": header.correlation_id}
    assert response.to_json(version) == shown["body"]
    for again in (response, type(response).from_json(shown["body"], version)):
        assert b"".join(encode_response(again, version, correlation_id)) == frame


@pytest.mark.parametrize("path", REQUESTS, ids=name_of)
def test_response_that_is_cut_or_too_long(path: Path) -> None:
    """At every byte of its body: a DecodeError, nothing else and nothing read by mistake."""
    frame = response_of(path).read_bytes()
    header, request = read_request(path)
    for end in range(4, min(len(frame), 400)):
        with pytest.raises(DecodeError):
            decode_response(frame[:end], type(request), header.api_version)
    with pytest.raises(DecodeError):
        decode_response(frame + b"\0", type(request), header.api_version)


@pytest.mark.parametrize("path", [path for path in REQUESTS if path.name.startswith("produce_")], ids=name_of)
def test_records_of_produce(path: Path) -> None:
    header, request = read_request(path)
    assert isinstance(request, ProduceRequest)
    values = [
        [record.value for batch in decode_batches(partition.records or b"") for record in batch.records()]
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    assert values == [[b"value", None], [b"value"]]
    assert header.api_key == ApiKey.PRODUCE == api("Produce").key


@pytest.mark.parametrize("path", [path for path in REQUESTS if path.name.startswith("fetch_")], ids=name_of)
def test_records_of_fetch(path: Path) -> None:
    """As brokers send them: cut off in the last batch, and rewritten for a version that is older than the log's."""
    header, _ = read_request(path)
    _, response = decode_response(response_of(path).read_bytes(), FetchRequest, header.api_version)
    assert isinstance(response, FetchResponse)
    records = [
        record
        for batch in decode_batches(response.responses[0].partitions[0].records or b"")
        for record in batch.records()
    ]
    assert [record.offset for record in records] == list(range(len(records)))
    assert [record.value for record in records] == [b"value", None] * (len(records) // 2)
    assert len(records) >= 2
