"""The commands that need no broker: schema, encode, error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kwire.capture.apis import known_apis, message_classes
from kwire.cli.message_json import message_from_json
from kwire.errors import EncodeError, ErrorCode
from kwire.protocol import Api
from kwire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.capture.samples import METADATA_REQUEST, METADATA_RESPONSE, sized
from tests.cli.running import run


def test_schema_lists_every_api() -> None:
    lines = run("schema").lines()
    assert [line["api_key"] for line in lines] == [int(api.key) for api in known_apis()]
    assert {"api": "Metadata", "api_key": 3, "versions": [0, 13], "flexible": 9} in lines
    table = run("schema", "-f", "table").stdout.splitlines()
    assert table[0].split() == ["key", "api", "versions", "flexible", "since"]
    assert ["3", "Metadata", "0-13", "9"] in [line.split() for line in table]


def test_schema_of_an_api() -> None:
    request, response = run("schema", "Metadata").lines()
    assert (request["kind"], response["kind"]) == ("request", "response")
    fields = {field["path"]: field for field in request["fields"]}
    assert fields["topics"] == {"path": "topics", "type": "[]Topic", "versions": [0, 13], "nullable": [1, 13]}
    assert fields["topics[].name"]["nullable"] == [10, 13]
    assert fields["includeClusterAuthorizedOperations"]["versions"] == [8, 10]
    assert fields["topics[].topicId"]["default"] == "AAAAAAAAAAAAAAAAAAAAAA"


TABLE = """\
MetadataRequest v10  key 3, versions 0-13, flexible since 9
field                               type     nullable  default
topics                              []Topic  yes
  topicId                           uuid               no id
  name                              string   yes
allowAutoTopicCreation              boolean            true
includeClusterAuthorizedOperations  boolean            false
includeTopicAuthorizedOperations    boolean            false
"""


def test_schema_as_a_table() -> None:
    stdout = run("schema", "metadata@10", "--request", "-f", "table").stdout
    assert [line.rstrip() for line in stdout.splitlines()] == TABLE.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("api", list(known_apis()), ids=lambda api: api.name)
def test_schema_shows_every_api_and_version(api: Api) -> None:
    assert run("schema", api.name, "-f", "table").code == 0
    for version in api.versions:
        assert run("schema", f"{api.name}@{version}").code == 0


def test_schema_diff() -> None:
    changes = [
        (one["change"], one["path"], one["was"], one["now"])
        for one in run("schema", "Metadata", "--request", "--diff", "8", "12").lines()
    ]
    assert changes == [
        ("changed", "(encoding)", "fixed lengths", "flexible"),
        ("added", "topics[].topicId", None, "uuid"),
        ("changed", "topics[].name", "string", "string, nullable"),
        ("removed", "includeClusterAuthorizedOperations", "boolean", None),
    ]
    assert "no difference" in run("schema", "Heartbeat", "--diff", "1", "2", "-f", "table").stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["Metdata"], "did you mean Metadata"),
        (["Metadata@14"], "versions 0-13, not 14"),
        (["Metadata@x"], "not x"),
        (["77777"], "there is no API 77777"),
        (["Vote2"], "did you mean Vote"),
        (["--diff", "1", "2"], "--diff needs an API"),
        (["Metadata", "--diff", "1", "99"], "not 99"),
    ],
)
def test_schema_errors(args: list[str], says: str) -> None:
    ran = run("schema", *args)
    assert (ran.code, says in ran.stderr) == (2, True), ran.stderr


def message_of(frame: bytes, *options: str) -> str:
    return json.dumps(run("decode", *options, stdin=frame).lines()[0]["message"])


@pytest.mark.parametrize(
    ("options", "frame"),
    [
        ([], sized(METADATA_REQUEST)),
        (["--bare"], METADATA_REQUEST),
        (["--body"], METADATA_REQUEST[15:]),
    ],
)
def test_encode_is_the_inverse_of_decode(options: list[str], frame: bytes) -> None:
    text = message_of(METADATA_REQUEST)
    ran = run("encode", "Metadata@9", "--correlation-id", "7", "--client-id", "test", *options, stdin=text)
    assert (ran.code, ran.stdout_bytes) == (0, frame)


def test_encode_a_response_as_hex_and_base64() -> None:
    text = message_of(METADATA_RESPONSE, "--api", "Metadata", "--version", "9")
    options = ["--response", "--bare", "--correlation-id", "7"]
    assert run("encode", "Metadata@9", *options, "--hex", stdin=text).stdout == METADATA_RESPONSE.hex() + "\n"
    again = run("encode", "Metadata@9", *options, "--base64", stdin=text).stdout
    assert json.loads(message_of(again.encode(), "--api", "Metadata", "--version", "9")) == json.loads(text)


def test_fields_with_a_default_may_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"topics": [{"name": "orders"}]}')
    frame = run("encode", "Metadata@12", str(file)).stdout_bytes
    assert run("decode", stdin=frame).lines()[0]["message"] == {
        "topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": "orders"}],
        "allowAutoTopicCreation": True,
        "includeTopicAuthorizedOperations": False,
    }


def test_a_boolean_that_is_missing_is_false() -> None:
    message = message_from_json(ConsumerGroupDescribeRequest, {"groupIds": ["g"]}, 1)
    assert message == ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    with pytest.raises(EncodeError, match="'groupIds' is missing, which version 1 requires") as caught:
        message_from_json(ConsumerGroupDescribeRequest, {}, 1)
    assert "kwire schema ConsumerGroupDescribe" in str(caught.value.remedy)


@pytest.mark.parametrize("api", list(known_apis()), ids=lambda api: api.name)
def test_defaults_fill_every_message(api: Api) -> None:
    """Without fields, either a required field is missing, or all defaults encode."""
    for _, cls in message_classes(api):
        for version in cls.VERSIONS:
            try:
                message = message_from_json(cls, {}, version)
            except EncodeError as error:
                reason = error.message
            else:
                reason = ""
                assert cls.decode(message.encode(version), version) == message
            assert not reason or "is missing, which version" in reason


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        (["Metadata"], "{}", "the version is missing: give Metadata@13"),
        (["Metadata@1"], "{", "not JSON"),
        (["Metadata@1"], "[]", "not a JSON object"),
        (["Metadata@1"], '{"topic": []}', "did you mean topics?"),
        (["Metadata@1"], '{"topics": [{"nam": "x"}]}', "MetadataRequest v1 has no field topics[0].nam"),
        (["Metadata@1"], '{"topics": [{}]}', "'name' is missing"),
        (["Metadata@1"], '{"topics": 1}', "field topics"),
        (["Heartbeat@0"], '{"groupId": "g", "generationId": 3000000000, "memberId": "m"}', "generation_id"),
    ],
)
def test_encode_errors(args: list[str], stdin: str, says: str) -> None:
    ran = run("encode", *args, stdin=stdin)
    assert (ran.code, says in ran.stderr) == (2, True), ran.stderr


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("74", [74]),
        ("-1", [-1]),
        ("NOT_LEADER_OR_FOLLOWER", [6]),
        ("not-leader-or-follower", [6]),
        ("NotLeaderOrFollowerException", [6]),
        ("InvalidTopicException", [17]),
        ("invalid_topic_exception", [17]),
        ("fenced_leader", [74]),
        ("topic_authorization", [29]),
    ],
)
def test_error_by_number_or_name(text: str, codes: list[int]) -> None:
    assert [line["code"] for line in run("error", text).lines()] == codes


def test_error_explains_a_code() -> None:
    (line,) = run("error", "74").lines()
    assert (line["name"], line["retriable"], line["invalidates_metadata"], line["class"]) == (
        "FENCED_LEADER_EPOCH", True, True, "BrokerError",
    )  # fmt: skip
    table = run("error", "74", "-f", "table").stdout
    assert "74 FENCED_LEADER_EPOCH" in table
    assert "yes: the same request may succeed later" in table


def test_error_lists_codes() -> None:
    assert len(run("error").lines()) == len(ErrorCode)
    assert len(run("error", "3", "leader").lines()) > 3
    assert "LEADER_NOT_AVAILABLE" in run("error", "leader", "-f", "table").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("137", "137 is not an error code"),
        ("nosuch", "there is no error nosuch"),
        ("CORUPT_MESSAGE", "did you mean CORRUPT_MESSAGE"),
    ],
)
def test_error_errors(text: str, says: str) -> None:
    ran = run("error", text)
    assert (ran.code, says in ran.stderr) == (2, True), ran.stderr
