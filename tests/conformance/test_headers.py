"""Headers of requests and responses are, byte for byte, those of Kafka's classes; and the right ones for each API."""

import json
from typing import Any

import pytest

from kwire.protocol import ApiKey, Request
from kwire.protocol.headers import (
    RequestHeader,
    encode_response,
    request_header_version,
    response_header_version,
)
from kwire.protocol.messages.heartbeat import HeartbeatResponse
from tests.conformance import oracle
from tests.protocol.samples import declared_messages

HEADERS = [
    RequestHeader(0, 0, 0, None),
    RequestHeader(3, 12, 2**31 - 1, "client"),
    RequestHeader(-1, 32767, -1, ""),
    RequestHeader(18, 3, 7, "é\U0001f600"),
    RequestHeader(18, 3, 7, "x" * 32767),
]


def as_json(header: RequestHeader, version: int) -> dict[str, Any]:
    obj: dict[str, Any] = {
        "requestApiKey": header.api_key,
        "requestApiVersion": header.api_version,
        "correlationId": header.correlation_id,
    }
    return obj if version == 0 else {**obj, "clientId": header.client_id}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_request_headers(version: int) -> None:
    release = oracle.release_of("RequestHeader", version)
    assert release
    texts = [json.dumps(as_json(header, version)) for header in HEADERS]
    responses = oracle.ask(release, [oracle.Question("json", "RequestHeader", version, text) for text in texts])
    assert [response.error for response in responses] == [None] * len(HEADERS)
    assert [response.data for response in responses] == [header.encode(version) for header in HEADERS]


@pytest.mark.parametrize(("version", "response_version"), [(0, 3), (1, 4)])
def test_response_headers(version: int, response_version: int) -> None:
    question = oracle.Question("json", "ResponseHeader", version, json.dumps({"correlationId": -7}))
    (response,) = oracle.ask(oracle.RELEASES[0], [question])
    frame = b"".join(encode_response(HeartbeatResponse(error_code=0), response_version, -7))
    assert frame.startswith(response.data)
    assert frame[len(response.data) :] == HeartbeatResponse(error_code=0).encode(response_version)


def test_every_request_and_response_has_the_header_that_kafka_gives_it() -> None:
    for release in oracle.RELEASES:
        versions_of = [
            (cls, version)
            for cls in declared_messages()
            if issubclass(cls, Request) and cls.__name__ in oracle.schemas(release)
            for version in oracle.versions(oracle.schemas(release)[cls.__name__]["validVersions"])
        ]
        theirs = oracle.header_versions(release, [(cls.API_KEY, version) for cls, version in versions_of])
        ours = [
            (
                request_header_version(cls.API_KEY, cls.FLEXIBLE, version),
                response_header_version(cls.API_KEY, cls.RESPONSE.FLEXIBLE, version),
            )
            for cls, version in versions_of
        ]
        assert ours == theirs
        assert {ApiKey.API_VERSIONS, ApiKey.PRODUCE} <= {cls.API_KEY for cls, _ in versions_of}
