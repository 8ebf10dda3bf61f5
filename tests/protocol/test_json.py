"""Kafka's JSON form. That it is Kafka's is shown in tests/conformance; here are its rules, one by one."""

from typing import Any
from uuid import UUID

import pytest

from kwire.errors import EncodeError, ErrorCode
from kwire.protocol import Message
from kwire.protocol.json import camel_case, uuid_from_text, uuid_text
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchRequest
from kwire.protocol.messages.metadata import MetadataRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


def any_of(value: Any) -> Any:
    """Return a value whose type a type checker would refuse."""
    return value


ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
OPERATIONS = {"includeClusterAuthorizedOperations": False, "includeTopicAuthorizedOperations": False}

TABLE: list[tuple[Message, int, dict[str, Any]]] = [
    (MetadataRequest(topics=None), 1, {"topics": None}),
    (MetadataRequest(topics=[MetadataRequest.Topic(name="t")]), 4,
     {"topics": [{"name": "t"}], "allowAutoTopicCreation": True}),
    (MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=ID)]), 10,
     {"topics": [{"topicId": "ABEiM0RVZneImaq7zN3u_w", "name": None}], "allowAutoTopicCreation": True, **OPERATIONS}),
    (SaslAuthenticateRequest(auth_bytes=b"\xfb\xff"), 0, {"authBytes": "+/8="}),
    (ApiVersionsRequest(), 0, {}),
    # tagged: left out at the default, there otherwise
    (ApiVersionsResponse(error_code=0, api_keys=[]), 3, {"errorCode": 0, "apiKeys": [], "throttleTimeMs": 0}),
    (ApiVersionsResponse(error_code=0, api_keys=[], zk_migration_ready=True), 3,
     {"errorCode": 0, "apiKeys": [], "throttleTimeMs": 0, "zkMigrationReady": True}),
    (ProduceRequest(acks=1, timeout_ms=2, topic_data=[ProduceRequest.Topic(name="t", partition_data=[
        ProduceRequest.Topic.Partition(index=0, records=b"abc")])]), 3,
     {"transactionalId": None, "acks": 1, "timeoutMs": 2, "topicData": [
         {"name": "t", "partitionData": [{"index": 0, "records": "YWJj"}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "obj"), TABLE)
def test_table(message: Message, version: int, obj: dict[str, Any]) -> None:
    assert message.to_json(version) == obj
    assert type(message).from_json(obj, version) == message


def test_from_json_is_as_lenient_as_kafka() -> None:
    # Names that the version lacks are ignored, integers may be text, tagged fields may be missing.
    obj = {"errorCode": "0x23", "apiKeys": [], "throttleTimeMs": "-1", "unknown": {}, "nodeId": 5}
    expected = ApiVersionsResponse(error_code=35, api_keys=[], throttle_time_ms=-1)
    assert ApiVersionsResponse.from_json(obj, 3) == expected


BAD: list[tuple[type[Message], Any, int, str, str]] = [
    (MetadataRequest, {}, 1, "topics", "'topics' is missing"),
    (MetadataRequest, {"topics": 5}, 1, "topics", "not an array"),
    (MetadataRequest, {"topics": None}, 0, "topics", "not an array"),
    (MetadataRequest, {"topics": ["t"]}, 1, "topics[0]", "not an object"),
    (MetadataRequest, {"topics": [{}]}, 1, "topics[0].name", "'name' is missing"),
    (MetadataRequest, {"topics": [{"name": 7}]}, 1, "topics[0].name", "not a valid string"),
    (MetadataRequest, {"topics": [], "allowAutoTopicCreation": 1}, 4, "allow_auto_topic_creation", "a valid boolean"),
    (SaslAuthenticateRequest, {"authBytes": "***"}, 0, "auth_bytes", "not a valid bytes"),
    (ApiVersionsResponse, {"errorCode": 1.5, "apiKeys": []}, 0, "error_code", "not a valid int16"),
    (ApiVersionsResponse, {"errorCode": True, "apiKeys": []}, 0, "error_code", "not a valid int16"),
    (ApiVersionsResponse, {"errorCode": "x", "apiKeys": []}, 0, "error_code", "not a valid int16"),
    (ApiVersionsResponse, {"errorCode": 32768, "apiKeys": []}, 0, "error_code", "32768 is not a valid int16"),
    (MetadataRequest, {"topics": [{"topicId": "short", "name": None}], "allowAutoTopicCreation": True, **OPERATIONS},
     10, "topics[0].topic_id", "not a valid uuid"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "obj", "version", "path", "reason"), BAD)
def test_bad_json_says_where(cls: type[Message], obj: Any, version: int, path: str, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason) as caught:
        cls.from_json(obj, version)
    assert caught.value.where["path"] == path


@pytest.mark.parametrize("obj", [[], None, "text", 5])
def test_json_that_is_no_object(obj: Any) -> None:
    with pytest.raises(EncodeError, match="not an object"):
        MetadataRequest.from_json(obj, 1)


def test_values_of_the_wrong_kind_have_no_json() -> None:
    wrong: Any = 5
    with pytest.raises(EncodeError, match="5 is not a list"):
        MetadataRequest(topics=wrong).to_json(1)
    with pytest.raises(EncodeError, match="'t' is no"):
        MetadataRequest(topics=["t"]).to_json(1)  # type: ignore[list-item]


NO_JSON: list[tuple[Message, int, str, str]] = [
    (MetadataRequest(topics=any_of(iter([]))), 1, "topics", "is not a list"),
    (MetadataRequest(topics=any_of({})), 1, "topics", "is not a list"),
    (MetadataRequest(topics=[], allow_auto_topic_creation=any_of("yes")), 4, "allow_auto_topic_creation", "boolean"),
    (MetadataRequest(topics=[MetadataRequest.Topic(name=any_of(b"a"))]), 1, "topics[0].name", "is not a string"),
    (ApiVersionsResponse(error_code=any_of(1.5), api_keys=[]), 0, "error_code", "1.5 is not a valid int16"),
    (ApiVersionsResponse(error_code=any_of("1"), api_keys=[]), 0, "error_code", "'1' is not a valid int16"),
    (ApiVersionsResponse(error_code=32768, api_keys=[]), 0, "error_code", "32768 is outside of int16"),
    (SaslAuthenticateRequest(auth_bytes=any_of("ab")), 0, "auth_bytes", "is not bytes-like"),
]


@pytest.mark.parametrize(("message", "version", "path", "reason"), NO_JSON)
def test_what_cannot_be_encoded_has_no_json(message: Message, version: int, path: str, reason: str) -> None:
    for convert in (message.to_json, message.encode):
        with pytest.raises(EncodeError, match=reason) as caught:
            convert(version)
        assert caught.value.where["path"] == path


def test_numbers_are_plain_in_json() -> None:
    message = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    assert type(message.to_json(0)["errorCode"]) is int
    assert MetadataRequest(topics=[], allow_auto_topic_creation=any_of(1)).to_json(4)["allowAutoTopicCreation"] is True


def test_a_value_that_the_version_would_lose_raises() -> None:
    with pytest.raises(EncodeError, match="would lose") as caught:
        FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=0, topics=[]).to_json(15)
    assert caught.value.where["path"] == "replica_id"
    with pytest.raises(EncodeError, match="not nullable"):
        MetadataRequest(topics=None).to_json(0)
    assert "rackId" not in FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], rack_id="ignorable").to_json(4)


NAMES = [("topics", "topics"), ("topic_id", "topicId"), ("enable2_pc", "enable2Pc")]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_names(name: str, expected: str) -> None:
    assert camel_case(name) == expected


@pytest.mark.parametrize("value", [UUID(int=0), UUID(int=2**128 - 1), ID])
def test_uuids(value: UUID) -> None:
    assert len(uuid_text(value)) == 22
    assert uuid_from_text(uuid_text(value)) == value


@pytest.mark.parametrize("text", ["", "A", "AAAA", "A" * 40, "é" * 22, "AAAA!AAAAAAAAAAAAAAAAAA", "A" * 20 + "=AA"])
def test_texts_that_are_not_uuids(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the reason is base64's or UUID's
        uuid_from_text(text)
