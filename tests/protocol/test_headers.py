"""Headers and frames: tables of bytes, and the protocol's special cases."""

from typing import Any

import pytest

from kwire.errors import DecodeError, EncodeError, UnsupportedVersionError
from kwire.protocol import Request, Response
from kwire.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    peek_correlation_id,
    request_header_version,
    response_header_version,
)
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest

BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="")

REQUESTS: list[tuple[Request[Any], int, int, str | None, str]] = [
    (MetadataRequest(topics=None), 1, 7, "me", "0003 0001 00000007 0002 6d65 ffffffff"),
    (MetadataRequest(topics=None), 1, -1, None, "0003 0001 ffffffff ffff ffffffff"),
    (MetadataRequest(topics=None), 9, 2**31 - 1, "", "0003 0009 7fffffff 0000 00 00 01 00 00 00"),
    (ApiVersionsRequest(), 0, 1, "é", "0012 0000 00000001 0002 c3a9"),
    (ApiVersionsRequest(), 3, 1, None, "0012 0003 00000001 ffff 00 01 01 00"),
    (BEAT, 4, 1, "c", "000c 0004 00000001 0001 63 00 0267 00000001 01 00 00"),
]

RESPONSES: list[tuple[Response, type[Request[Any]], int, str]] = [
    (HeartbeatResponse(error_code=27), HeartbeatRequest, 0, "00000009 001b"),
    (HeartbeatResponse(error_code=27), HeartbeatRequest, 4, "00000009 00 00000000 001b 00"),
    (ApiVersionsResponse(error_code=0, api_keys=[]), ApiVersionsRequest, 0, "00000009 0000 00000000"),
    (ApiVersionsResponse(error_code=0, api_keys=[]), ApiVersionsRequest, 3, "00000009 0000 01 00000000 00"),
]


@pytest.mark.parametrize(("request_", "version", "correlation_id", "client_id", "text"), REQUESTS)
def test_requests(request_: Request[Any], version: int, correlation_id: int, client_id: str | None, text: str) -> None:
    frame = b"".join(encode_request(request_, version, correlation_id, client_id))
    assert frame == bytes.fromhex(text)
    header, again = decode_request(frame)
    assert header == RequestHeader(request_.API_KEY, version, correlation_id, client_id)
    assert again == request_
    for cut in range(len(frame)):
        with pytest.raises(DecodeError) as caught:
            decode_request(frame[:cut])
        assert caught.value.where["offset"] <= cut  # type: ignore[operator]
    with pytest.raises(DecodeError, match="left over"):
        decode_request(frame + b"\0")


@pytest.mark.parametrize(("response", "request_class", "version", "text"), RESPONSES)
def test_responses(response: Response, request_class: type[Request[Any]], version: int, text: str) -> None:
    frame = b"".join(encode_response(response, version, 9))
    assert frame == bytes.fromhex(text)
    assert decode_response(frame, request_class, version) == (9, response)
    assert peek_correlation_id(frame) == 9
    for cut in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_response(frame[:cut], request_class, version)


def test_tagged_fields_of_headers() -> None:
    frame = bytes.fromhex("000c 0004 00000001 ffff 01 05 02 abcd 0267 00000001 01 00 00")
    header, beat = decode_request(frame)
    assert header.unknown_tagged_fields == {5: b"\xab\xcd"}
    with pytest.raises(EncodeError, match="a header of version 1 has no tagged fields"):
        header.encode(1)
    assert beat == BEAT
    assert header.encode(2) == frame[:15]
    many = RequestHeader(12, 4, 1, None, dict.fromkeys(range(200), b""))
    assert decode_request_header(many.encode(2) + b"rest") == (many, len(many.encode(2)))
    frame = bytes.fromhex("00000009 01 05 02 abcd 00000000 001b 00")
    assert decode_response(frame, HeartbeatRequest, 4) == (9, HeartbeatResponse(error_code=27))


def test_header_versions() -> None:
    # ControlledShutdown (key 7) is flexible from v3; its v0 is the only request without a client id.
    assert [request_header_version(7, 3, version) for version in range(4)] == [0, 1, 1, 2]
    assert [response_header_version(7, 3, version) for version in range(4)] == [0, 0, 0, 1]
    assert [request_header_version(18, 3, version) for version in range(5)] == [1, 1, 1, 2, 2]
    assert [response_header_version(18, 3, version) for version in range(5)] == [0, 0, 0, 0, 0]
    assert request_header_version(17, None, 1) == 1
    frame = bytes.fromhex("0007 0000 00000003 00000005")
    shutdown = ControlledShutdownRequest(broker_id=5)
    assert b"".join(encode_request(shutdown, 0, 3, "no place for it")) == frame
    assert decode_request(frame) == (RequestHeader(7, 0, 3, None), shutdown)


BAD_REQUESTS = [
    ("", "0 bytes are not a request"),
    ("0003 0001 000000", "7 bytes are not a request"),
    ("0003 0001 00000007 fffe", "a client id of -2 bytes"),
    ("0003 0001 00000007 0003 6162", "a client id of 3 bytes"),
    ("0003 0001 00000007 0002 6180", "bad request header"),
    ("0003 0009 00000007 0000 05 01", "bad request header"),
    ("0003 0009 00000007 0000 ffffffffff01", "bad request header"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_REQUESTS)
def test_bad_request_headers(text: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        decode_request(bytes.fromhex(text))
    assert caught.value.where["path"] == "header"


def test_requests_of_an_unknown_api_or_version() -> None:
    with pytest.raises(UnsupportedVersionError, match="no API 12345"):
        decode_request(bytes.fromhex("3039 0000 00000001 ffff"))
    with pytest.raises(UnsupportedVersionError, match="versions 0 to 4"):
        decode_request(bytes.fromhex("000c 0063 00000001 ffff 00"))
    # An ApiVersions request of the future must still get a response, so its header can be read.
    header, start = decode_request_header(bytes.fromhex("0012 0063 00000001 0001 63 00 ffff"))
    assert (header.api_version, header.correlation_id, header.client_id, start) == (99, 1, "c", 12)


@pytest.mark.parametrize(
    ("correlation_id", "client_id"), [(2**31, "c"), (None, "c"), (1, "x" * 40_000), (1, b"c"), (1, "\ud800")]
)
def test_headers_that_cannot_be_encoded(correlation_id: Any, client_id: Any) -> None:
    with pytest.raises(EncodeError, match="request header"):
        encode_request(BEAT, 0, correlation_id, client_id)


def test_large_records_are_a_buffer_of_their_own_after_the_header() -> None:
    records = bytes(5000)
    topic = ProduceRequest.Topic(name="t", partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)])
    parts = encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9, 1, "c")
    assert parts[1] is records
    assert decode_request(b"".join(parts))[1].encode(9) == b"".join(parts)[12:]
