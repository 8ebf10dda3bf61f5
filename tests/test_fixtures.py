"""Every frame in fixtures/, recorded from real brokers, is decoded, converted to JSON, and encoded to the same bytes.

And all are there: every API that a room of kwire sends by itself (`kwire send` can send any) or that its broker
answers, of every real broker that has it, in every version that both speak.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from recording.main import VERSIONS
from recording.scene import spoken
from recording.script import APIS

from kwire.broker.handlers.table import HANDLERS
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
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
REQUESTS = sorted(FIXTURES.glob("*/*_request.bin"))
# Of each API and version one: brokers that speak the same say much the same.
DIFFERENT_REQUESTS = sorted({path.name: path for path in REQUESTS}.values())


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('_request.bin')}"


def response_of(path: Path) -> Path:
    return path.with_name(path.name.replace("_request", "_response"))


def json_of(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text())


def read_request(path: Path) -> tuple[RequestHeader, Request[Any]]:
    return decode_request(path.read_bytes())


@cache
def apis_sent() -> set[str]:
    """Of whose requests some room of clients imports the class: what it does not import it cannot send."""
    sources = (ROOT / "kwire").rglob("*.py")
    clients = [path for path in sources if not {"protocol", "broker"} & {*path.relative_to(ROOT).parts}]
    imports = [
        node
        for path in clients
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kwire.protocol.messages.")
    ]
    names = {alias.name for node in imports for alias in node.names}
    return {name.removesuffix("Request") for name in names if name.endswith("Request")}


def apis_served() -> set[str]:
    return {handler.request.__name__.removesuffix("Request") for handler in HANDLERS.values()}


def offered_by(broker: str) -> Mapping[int, range]:
    """What that broker said itself, if it has ApiVersions."""
    path = FIXTURES / broker / "api_versions_v0_response.json"
    if not path.exists():
        return BROKERS_BEFORE_API_VERSIONS["0.8.2"]
    keys = json_of(path)["body"]["apiKeys"]
    return {one["apiKey"]: range(one["minVersion"], one["maxVersion"] + 1) for one in keys}


def test_fixtures_are_found() -> None:
    """The set that the next test rests on, by some that stand for many."""
    sent = apis_sent()
    assert {"Produce", "InitProducerId", "EndTxn", "TxnOffsetCommit", "Fetch", "SaslAuthenticate"} <= sent
    assert "WriteTxnMarkers" not in sent
    assert sent | apis_served() == set(APIS), "tools/recording/script.py has other APIs"


def test_every_broker_has_fixtures() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == set(VERSIONS)


@pytest.mark.parametrize("broker", VERSIONS)
def test_no_fixture_is_missing(broker: str) -> None:
    wanted = {
        f"{re.sub(r'(?<!^)(?=[A-Z])', '_', name).lower()}_v{version}"
        for name in apis_sent() | apis_served()
        for version in spoken(broker, offered_by(broker), api(name).request)
    }
    kinds = [f"_{kind}.{form}" for kind in ("request", "response") for form in ("bin", "json")]
    assert {path.name for path in (FIXTURES / broker).iterdir()} == {stem + kind for stem in wanted for kind in kinds}


def test_every_version_of_the_main_apis_has_a_fixture() -> None:
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


@pytest.mark.parametrize("path", DIFFERENT_REQUESTS, ids=name_of)
def test_a_response_that_is_too_short_or_too_long_raises(path: Path) -> None:
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
