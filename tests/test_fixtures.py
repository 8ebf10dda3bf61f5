"""Every frame in fixtures/, recorded from real brokers, is decoded, converted to JSON, and encoded to the same bytes.

No frame is missing: fixtures/ has every API that a room of kwire sends by itself (`kwire send` can send any) or that
the embedded broker handles, from every real broker that has the API, in every version that both have.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
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
# One request of each API and version: brokers with the same version send similar responses.
DIFFERENT_REQUESTS = sorted({path.name: path for path in REQUESTS}.values())


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('_request.bin')}"


def response_of(path: Path) -> Path:
    return path.with_name(path.name.replace("_request", "_response"))


def json_of(path: Path) -> Any:
    return json.loads(path.with_suffix(".json").read_text())


def read_request(path: Path) -> tuple[RequestHeader, Request[Any]]:
    return decode_request(path.read_bytes())


# The requests by API, in every version of every broker. A test for each frame would cost more than the frame's check.
BY_API: dict[str, list[Path]] = {}
for _path in REQUESTS:
    BY_API.setdefault(re.sub(r"_v\d+_request\.bin$", "", _path.name), []).append(_path)
each_api = pytest.mark.parametrize("name", BY_API)


def check_each(check: Callable[[Path], None], paths: list[Path]) -> None:
    """Check each fixture; an error gets a note with the fixture's name."""
    for path in paths:
        try:
            check(path)
        except BaseException as error:
            error.add_note(f"fixture {name_of(path)}")
            raise


# Brokers offer these only with a receiver of telemetry, which is a plug-in.
NOT_RECORDED = {"GetTelemetrySubscriptions", "PushTelemetry"}


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
    """Return the versions that the broker offered, if it has ApiVersions."""
    path = FIXTURES / broker / "api_versions_v0_response.json"
    if not path.exists():
        return BROKERS_BEFORE_API_VERSIONS["0.8.2"]
    keys = json_of(path)["body"]["apiKeys"]
    return {one["apiKey"]: range(one["minVersion"], one["maxVersion"] + 1) for one in keys}


@pytest.mark.slow
def test_fixtures_are_found() -> None:
    """The set that the next test rests on, by some that stand for many."""
    sent = apis_sent()
    assert {"Produce", "InitProducerId", "EndTxn", "TxnOffsetCommit", "Fetch", "SaslAuthenticate"} <= sent
    assert "ControlledShutdown" not in sent
    assert sent | apis_served() == set(APIS) | NOT_RECORDED, "tools/recording/script.py has other APIs"


def test_every_broker_has_fixtures() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == set(VERSIONS)


@pytest.mark.parametrize("broker", VERSIONS)
def test_no_fixture_is_missing(broker: str) -> None:
    wanted = {
        f"{re.sub(r'(?<!^)(?=[A-Z])', '_', name).lower()}_v{version}"
        for name in (apis_sent() | apis_served()) - NOT_RECORDED
        for version in spoken(broker, offered_by(broker), api(name).request)
    }
    kinds = [f"_{kind}.{form}" for kind in ("request", "response") for form in ("bin", "json")]
    assert {path.name for path in (FIXTURES / broker).iterdir()} == {stem + kind for stem in wanted for kind in kinds}


def test_every_version_of_the_main_apis_has_a_fixture() -> None:
    """They go up to the versions of 4.3. No single broker has all versions of Produce, Fetch and ListOffsets."""
    have = {path.name.removesuffix("_request.bin") for path in REQUESTS}
    for name, newest in [("produce", 13), ("fetch", 18), ("list_offsets", 11), ("metadata", 13), ("offset_fetch", 10)]:
        assert {f"{name}_v{version}" for version in range(newest + 1)} <= have


@each_api
def test_requests(name: str) -> None:
    check_each(check_request, BY_API[name])


@pytest.mark.slow
@each_api
def test_responses(name: str) -> None:
    check_each(check_response, BY_API[name])


def check_request(path: Path) -> None:
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


def check_response(path: Path) -> None:
    frame, shown = response_of(path).read_bytes(), json_of(response_of(path))
    header, request = read_request(path)
    version = header.api_version
    correlation_id, response = decode_response(frame, type(request), version)
    assert shown["header"] == {"correlationId": correlation_id} == {"correlationId": header.correlation_id}
    assert response.to_json(version) == shown["body"]
    for again in (response, type(response).from_json(shown["body"], version)):
        assert b"".join(encode_response(again, version, correlation_id)) == frame


@pytest.mark.slow
@pytest.mark.parametrize("path", DIFFERENT_REQUESTS, ids=name_of)
def test_a_response_that_is_too_short_or_too_long_raises(path: Path) -> None:
    """Cut the response at every byte of its body: each time decoding raises DecodeError."""
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
    """Brokers cut the last batch off, and convert records for an older version than that of the log."""
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
