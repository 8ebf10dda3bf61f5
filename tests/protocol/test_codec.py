"""Tables of (message, version, bytes), written by hand from the protocol guide; and what holds for every message."""

import linecache
import tracemalloc
from itertools import product
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.errors import DecodeError, UnsupportedVersionError
from kwire.protocol import Message, codegen, diagnose
from kwire.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kwire.protocol.messages.delete_topics import DeleteTopicsRequest
from kwire.protocol.messages.fetch import FetchResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.protocol.samples import class_versions, declared_messages, random_message

ALL = list(class_versions())
each_class = pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
FETCHED = FetchResponse.Topic.Partition(
    partition_index=1, error_code=0, high_watermark=9, current_leader=FetchResponse.Topic.Partition.Leader(leader_id=3),
    aborted_transactions=None, records=b"",
)  # fmt: skip

TABLE: list[tuple[Message, int, str]] = [
    (MetadataRequest(topics=[]), 0, "00000000"),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[MetadataRequest.Topic(name="é")]), 4, "00000001 0002c3a9 01"),
    (MetadataRequest(topics=None), 9, "00 01 00 00 00"),
    (MetadataRequest(topics=[MetadataRequest.Topic(name=None, topic_id=ID)]), 12,
     "02 00112233445566778899aabbccddeeff 00 00 01 00 00"),
    (ApiVersionsRequest(), 0, ""),
    (ApiVersionsRequest(client_software_name="k", client_software_version="1"), 3, "026b 0231 00"),
    (ApiVersionsResponse(error_code=35, api_keys=[
        ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)]), 0, "0023 00000001 0012 0000 0004"),
    (ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=7), 3,
     "0000 01 00000000 01 01 08 0000000000000007"),
    (SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN", ""]), 1, "0000 00000002 0005504c41494e 0000"),
    (ProduceRequest(acks=-1, timeout_ms=1, topic_data=[ProduceRequest.Topic(name="t", partition_data=[
        ProduceRequest.Topic.Partition(index=2, records=b"ab")])]), 3,
     "ffff ffff 00000001 00000001 0001 74 00000001 00000002 00000002 6162"),
    (ProduceRequest(acks=0, timeout_ms=1, topic_data=[ProduceRequest.Topic(name="t", partition_data=[
        ProduceRequest.Topic.Partition(index=2, records=None)])]), 9,
     "00 0000 00000001 02 0274 02 00000002 00 00 00 00"),
    (FetchResponse(responses=[FetchResponse.Topic(topic="t", partitions=[FETCHED])]), 12,
     "00000000 0000 00000000 02 0274 02 00000001 0000 0000000000000009 ffffffffffffffff ffffffffffffffff 00 ffffffff 01"
     " 01 01 09 00000003ffffffff00 00 00"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "text"), TABLE)
def test_table(message: Message, version: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert message.encode(version) == data
    assert type(message).decode(data, version) == message
    assert diagnose.decode(type(message), data, version) == message
    for cut in range(len(data)):
        with pytest.raises(DecodeError):
            type(message).decode(data[:cut], version)
    with pytest.raises(DecodeError, match="left over"):
        type(message).decode(data + b"\0", version)


@pytest.mark.slow
@each_class
def test_round_trips(cls: type[Message]) -> None:
    random = Random(1)
    for version, index in product(cls.VERSIONS, range(8)):
        message = random_message(cls, version, random, unknown_tags=index % 2 == 1)
        data = message.encode(version)
        assert cls.decode(data, version) == message
        assert diagnose.decode(cls, data, version) == message, "the interpretive reader agrees with the compiled one"
        assert b"".join(message.encode_parts(version)) == data
        assert cls.decode(memoryview(bytearray(data)), version) == message
        assert cls.decode(b"header" + data, version, 6) == message


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(ALL), st.randoms(use_true_random=False), st.booleans())
def test_any_message_round_trips(pair: tuple[type[Message], int], random: Random, unknown_tags: bool) -> None:
    cls, version = pair
    message = random_message(cls, version, random, unknown_tags=unknown_tags)
    again = cls.decode(message.encode(version), version)
    assert again == message
    if not unknown_tags:
        assert cls.from_json(message.to_json(version), version) == message


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(ALL), st.binary(max_size=200))
def test_any_bytes_decode_or_raise(pair: tuple[type[Message], int], data: bytes) -> None:
    cls, version = pair
    assert_decodes_or_raises(cls, data, version)


@pytest.mark.slow
@each_class
def test_every_prefix_and_many_flipped_bits_decode_or_raise(cls: type[Message]) -> None:
    random = Random(2)
    for version in cls.VERSIONS:
        data = random_message(cls, version, random, unknown_tags=True).encode(version)
        # Of long messages, some: test_decoder cuts them everywhere, without the reason of each error.
        for cut in range(0, len(data), max(1, len(data) // 150)):
            with pytest.raises(DecodeError) as caught:
                cls.decode(data[:cut], version)
            assert caught.value.where["offset"] <= cut  # type: ignore[operator]
            assert caught.value.where["path"]
        for _ in range(60 if data else 0):
            flipped = bytearray(data)
            flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
            assert_decodes_or_raises(cls, bytes(flipped), version)


def assert_decodes_or_raises(cls: type[Message], data: bytes, version: int) -> None:
    where: dict[str, object] = {}
    try:
        message = cls.decode(data, version)
    except DecodeError as error:
        where = error.where
    if where:
        offset = where["offset"]
        assert isinstance(offset, int)
        assert 0 <= offset <= len(data)
        assert where["api"] == cls.__name__
        return
    assert diagnose.decode(cls, data, version) == message
    assert cls.decode(message.encode(version), version) == message


BAD: list[tuple[type[Message], int, str, str, int, str]] = [
    # class, version, bytes, path, offset, what the message says
    (MetadataRequest, 1, "fffffffe", "topics", 0, "a count of -2"),
    (MetadataRequest, 0, "ffffffff", "topics", 0, "null"),
    (MetadataRequest, 1, "7fffffff", "topics", 0, "2147483647 elements of at least 2 bytes, with 0 bytes left"),
    (MetadataRequest, 9, "ffffffff 07 00", "topics", 0, "elements of at least"),
    (MetadataRequest, 9, "ffffffff 1f 00", "topics", 0, "varint"),
    (MetadataRequest, 9, "ffffffffff 01", "topics", 0, "varint"),
    (MetadataRequest, 1, "00000001 ffff", "topics[0].name", 4, "null"),
    (MetadataRequest, 1, "00000001 8000", "topics[0].name", 4, "a length of -32768"),
    (MetadataRequest, 1, "00000001 0002 61", "topics[0].name", 6, "2 bytes are needed and 1 are left"),
    (MetadataRequest, 1, "00000002 0002 61c3 0000", "topics[0].name", 7, "not UTF-8"),
    (MetadataRequest, 9, "02 00 00 01 00 00", "topics[0].name", 1, "null"),
    (MetadataRequest, 9, "00 01 00 00 02 00 00 00 00", "tagged_fields", 7, "tag 0 occurs twice"),
    (MetadataRequest, 9, "00 01 00 00 7f", "tagged_fields", 4, "a count of 127 with 0 bytes left"),
    (MetadataRequest, 9, "00 01 00 00 01 05 09 00", "tagged_fields", 7, "9 bytes are needed and 1 are left"),
    (ApiVersionsResponse, 3, "0000 01 00000000 01 01 09 0000000000000007 00", "finalized_features_epoch", 18, "is 9"),
    (ApiVersionsResponse, 3, "0000 01 00000000 01 01 07 00000000000000", "finalized_features_epoch", 10, "are left"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "version", "text", "path", "offset", "reason"), BAD)
def test_bad_bytes_say_where(cls: type[Message], version: int, text: str, path: str, offset: int, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        cls.decode(bytes.fromhex(text), version)
    assert caught.value.where == {"api": cls.__name__, "version": version, "path": path, "offset": offset}
    assert reason in str(caught.value)


HUGE = [
    (FetchResponse, 1, "00000000 7fffffff"),  # structs
    (FetchResponse, 16, "00000000 0000 00000000 ffffffff0f"),
    (DeleteTopicsRequest, 0, "7fffffff"),  # strings
    (MetadataResponse, 0, "00000000 00000001 0000 0000 00000001 0000 00000000 00000000 7fffffff"),  # numbers
    (BrokerHeartbeatRequest, 1, "00000000 0000000000000000 0000000000000000 00 00 01 00 05 ffffffff0f"),  # tagged uuids
    (SaslAuthenticateRequest, 0, "7fffffff"),  # bytes
    (SaslAuthenticateRequest, 2, "01 ffffffff0f"),  # tagged fields
]


@pytest.mark.parametrize(("cls", "version", "text"), HUGE)
def test_a_huge_count_allocates_nothing(cls: type[Message], version: int, text: str) -> None:
    tracemalloc.start()
    with pytest.raises(DecodeError):
        cls.decode(bytes.fromhex(text) + bytes(1000), version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_no_tagged_fields_in_two_bytes() -> None:
    message = MetadataRequest.decode(bytes.fromhex("00 01 00 00 8000"), 9)
    assert message == MetadataRequest(topics=None)
    assert message.unknown_tagged_fields is None
    assert message == diagnose.decode(MetadataRequest, bytes.fromhex("00 01 00 00 8000"), 9)


def test_unknown_tags_of_known_and_unknown_fields_are_kept_apart() -> None:
    data = bytes.fromhex("0000 01 00000000 02 01 08 0000000000000007 63 02 abcd")
    message = ApiVersionsResponse.decode(data, 3)
    assert message.finalized_features_epoch == 7
    assert message.unknown_tagged_fields == {99: b"\xab\xcd"}
    assert message.encode(3) == data


@pytest.mark.parametrize("version", [-1, 14, 1000, "1", None, 1.5])
def test_unknown_versions_raise(version: Any) -> None:
    calls: list[Any] = [
        lambda: MetadataRequest(topics=None).encode(version),
        lambda: MetadataRequest.decode(b"", version),
        lambda: MetadataRequest(topics=None).to_json(version),
        lambda: MetadataRequest.from_json({}, version),
        lambda: diagnose.annotate(MetadataRequest, b"", version),
    ]
    for call in calls:
        with pytest.raises(UnsupportedVersionError, match="versions 0 to 13"):
            call()


def test_a_version_is_an_int(monkeypatch: pytest.MonkeyPatch) -> None:
    version: Any = 3.0
    monkeypatch.setattr(MetadataRequest, "_decoders", {})
    with pytest.raises(UnsupportedVersionError, match=r"a version is an int, not 3\.0"):
        MetadataRequest.decode(b"", version)


@pytest.mark.parametrize("data", [None, 5, "text", [0, 0, 0, 0]])
def test_what_is_no_buffer_is_not_decoded(data: Any) -> None:
    """bytes(5) would be five zeros, and bytes(10**9) a gigabyte of them."""
    with pytest.raises(TypeError, match="a bytes-like object is required"):
        MetadataRequest.decode(data, 1)


def test_any_buffer_is_decoded() -> None:
    partition = ProduceRequest.Topic.Partition(index=0, records=b"records")
    topic = ProduceRequest.Topic(name="t", partition_data=[partition])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    data = request.encode(9)
    spread = b"".join(bytes((byte, 0)) for byte in data)
    buffers: list[Any] = [memoryview(spread)[::2], memoryview(data).cast("c"), memoryview(data).cast("b")]
    for buffer in buffers:
        assert ProduceRequest.decode(buffer, 9) == request
    empty = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    assert ProduceRequest.decode(memoryview(empty.encode(3)).cast("I"), 3) == empty


def test_large_records_are_not_copied() -> None:
    large, small = bytes(10_000), bytes(100)
    each = enumerate([small, large, small, large])
    partitions = [ProduceRequest.Topic.Partition(index=index, records=records) for index, records in each]
    topic = ProduceRequest.Topic(name="t", partition_data=partitions)
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    for version in (3, 9):
        parts = request.encode_parts(version)
        assert [part is large for part in parts] == [False, True, False, True, False]
        assert b"".join(parts) == request.encode(version)


def test_records_are_views_into_the_frame() -> None:
    partition = ProduceRequest.Topic.Partition(index=0, records=bytearray(b"records"))
    topic = ProduceRequest.Topic(name="t", partition_data=[partition])
    frame = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]).encode(3)
    records = ProduceRequest.decode(frame, 3).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"records"


@pytest.mark.parametrize(("kind", "is_copied"), [(memoryview, False), (bytearray, True)])
def test_only_mutable_input_is_copied(kind: type[bytearray] | type[memoryview], is_copied: bool) -> None:
    partition = ProduceRequest.Topic.Partition(index=0, records=b"records")
    topic = ProduceRequest.Topic(name="t", partition_data=[partition])
    frame = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]).encode(3)
    records = ProduceRequest.decode(kind(frame), 3).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert (records.obj is not frame) is is_copied
    assert bytes(records) == b"records"


def test_sources_show_in_tracebacks() -> None:
    decoder: Any = codegen.decoder(MetadataRequest, 12)
    lines = linecache.getlines(decoder.__code__.co_filename)
    assert lines[0] == "def decode_MetadataRequest_v12(buf, pos):\n"
    linecache.checkcache()
    assert linecache.getlines(decoder.__code__.co_filename) == lines
