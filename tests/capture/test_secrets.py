"""No secret is in any output: frames, captures, JSON, tables, the bytes of fields."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kwire.capture.decoded_frame import decode_request_frame, decode_response_frame
from kwire.capture.masked_batches import mask_batches
from kwire.capture.secrets import Redaction
from kwire.protocol import api
from kwire.protocol.messages.alter_configs import AlterConfigsRequest
from kwire.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kwire.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from kwire.protocol.messages.describe_configs import DescribeConfigsResponse
from kwire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kwire.records import Compression, decode_batches, encode_batch
from tests.capture import samples
from tests.cli.running import run

SECRET = "hunter2-hunter2"
RAW = SECRET.encode()


def configs() -> DescribeConfigsResponse:
    config = DescribeConfigsResponse.Result.Config
    synonym = config.Synonym(name="ssl.key.password", value=SECRET, source=4)
    listed = [
        config(
            name="ssl.key.password",
            value=SECRET,
            read_only=True,
            is_sensitive=False,
            config_source=4,
            synonyms=[synonym],
        ),
        config(name="listener.name.x.sasl.jaas.config", value=SECRET, read_only=True, is_sensitive=False),
        config(name="my.setting", value=SECRET, read_only=True, is_sensitive=True),
        config(name="retention.ms", value="604800000", read_only=False, is_sensitive=False),
    ]
    result = DescribeConfigsResponse.Result(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=listed
    )
    return DescribeConfigsResponse(results=[result])


def alteration(cls: Any) -> Any:
    operation = {"config_operation": 0} if cls is IncrementalAlterConfigsRequest else {}
    config = cls.Resource.Config(name="sasl.jaas.config", value=SECRET, **operation)
    return cls(resources=[cls.Resource(resource_type=4, resource_name="1", configs=[config])], validate_only=False)


def upsertion() -> AlterUserScramCredentialsRequest:
    one = AlterUserScramCredentialsRequest.Upsertion(
        name="alice", mechanism=1, iterations=4096, salt=RAW, salted_password=RAW
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])


def token() -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=0, principal_type="User", principal_name="alice", token_requester_principal_type="User",
        token_requester_principal_name="alice", issue_timestamp_ms=1, expiry_timestamp_ms=2, max_timestamp_ms=3,
        token_id="id", hmac=RAW, throttle_time_ms=0,
    )  # fmt: skip


PLANTED: list[tuple[str, Any, int]] = [
    ("plain", SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + RAW), 2),
    ("oauth", SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer " + RAW + b"\x01\x01"), 2),
    ("gssapi", SaslAuthenticateRequest(auth_bytes=b"\x60\x82" + RAW), 1),
    ("scram", SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p=" + RAW), 2),
    ("scram server", SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"v=" + RAW), 2),
    ("scram credentials", upsertion(), 0),
    ("delegation token", token(), 3),
    ("described configs", configs(), 4),
    ("altered configs", alteration(AlterConfigsRequest), 2),
    ("incrementally altered configs", alteration(IncrementalAlterConfigsRequest), 1),
]
SHOWN = [
    SECRET,
    RAW.hex(),
    RAW.hex(" "),
    RAW[:4].hex(" ", -4),
    *(base64.b64encode(b"x" * n + RAW)[4:16].decode() for n in range(3)),
]


def frame_of(message: Any, version: int) -> tuple[bytes, list[str]]:
    if hasattr(message, "API_KEY") and type(message).__name__.endswith("Request"):
        return samples.request(message, version), []
    name = type(message).__name__.removesuffix("Response")
    return samples.response(message, version), ["--api", name, "--version", str(version)]


@pytest.mark.parametrize(("message", "version"), [one[1:] for one in PLANTED], ids=[one[0] for one in PLANTED])
@pytest.mark.parametrize("options", [[], ["-f", "table", "--bytes", "0"], ["--no-annotate"]])
def test_no_output_has_a_secret(message: Any, version: int, options: list[str]) -> None:
    frame, which = frame_of(message, version)
    masked = run("decode", "--bare", *which, *options, stdin=frame)
    assert masked.code == 0, masked.stderr
    assert not [text for text in SHOWN if text in masked.stdout + masked.stderr]
    shown = run("decode", "--bare", *which, *options, "--show-secrets", stdin=frame)
    assert any(text in shown.stdout for text in SHOWN), "the secret was there"


def test_only_secret_configs_are_masked() -> None:
    found = decode_response_frame(samples.response(configs(), 4), 0, api(32), 4)
    masked = Redaction().mask_frame(samples.response(configs(), 4), found, 0)
    body: Any = decode_response_frame(masked, 0, api(32), 4).body
    values = {one.name: one.value for one in body.results[0].configs}
    assert values.pop("retention.ms") == "604800000"
    assert set(values.values()) == {"*" * len(SECRET)}
    assert body.results[0].configs[0].synonyms[0].value == "*" * len(SECRET)


@pytest.mark.parametrize("codec", [Compression.NONE, *samples.CODECS])
@pytest.mark.parametrize("magic", [2, 1])
def test_payloads_are_masked_in_whole_batches(codec: Compression, magic: int) -> None:
    batch = bytes(encode_batch(samples.PLAIN_RECORDS, magic=magic, compression=codec))
    masked = list(decode_batches(mask_batches(batch + batch[:40])))  # the checksums are verified
    plain = list(decode_batches(batch))
    assert [(one.compression, one.count) for one in masked] == [(one.compression, one.count) for one in plain]
    records = [[record for one in batches for record in one.records()] for batches in (masked, plain)]
    assert len(records[0]) == len(samples.PLAIN_RECORDS)
    for one, other in zip(*records, strict=True):
        assert (one.offset, one.timestamp_ms) == (other.offset, other.timestamp_ms)
        for left, right in ((one.key, other.key), (one.value, other.value)):
            assert left == (None if right is None else b"*" * len(right))


def test_payloads_of_a_frame_in_the_command() -> None:
    frame = samples.produce(encode_batch(samples.RECORDS))
    masked = run("decode", "--bare", "--redact", "payloads", stdin=frame)
    assert masked.code == 0
    assert "hello" not in masked.stdout
    assert b"hello".hex() not in masked.stdout
    (line,) = masked.lines()
    assert [record["value"] for record in line["batches"][0]["records"]] == ["*****", "******", None]
    assert decode_request_frame(frame, 0).is_whole
    assert run("decode", "--redact", "payloads", "--show-secrets", stdin=frame).code == 2
