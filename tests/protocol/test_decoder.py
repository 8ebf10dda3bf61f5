"""The generated decoders: whole messages are read, and whatever else comes is refused by None or an expected error."""

import copy
import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from checks import fuzz_protocol as fuzzing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.protocol import ApiKey, Message, codegen, message_class
from kwire.protocol.headers import decode_request_header
from kwire.protocol.messages.api_versions import ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest
from tests.protocol.samples import class_versions, declared_messages, random_message

ALL = list(class_versions())
FIXTURES = Path(__file__).parents[2] / "fixtures"
each_class = pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
decoder = cache(codegen.decoder)


def decoded(cls: type[Message], version: int, data: bytes, start: int = 0) -> Any:
    """Return the message, or None if the decoder rejects the bytes. Any other error fails the test."""
    try:
        return decoder(cls, version)(data, start)
    except codegen.DECODE_FAILURES:
        return None


@pytest.mark.slow
@each_class
def test_random_messages_their_prefixes_and_flipped_bits(cls: type[Message]) -> None:
    random = Random(3)
    for version in cls.VERSIONS:
        for index in range(4):
            message = random_message(cls, version, random, unknown_tags=index % 2 == 1)
            data = message.encode(version)
            assert decoded(cls, version, data) == message
            assert decoded(cls, version, b"header" + data, 6) is not None
            assert decoded(cls, version, data + b"\0") is None
            for cut in range(0, len(data), max(1, len(data) // 20) if index else 1):
                assert decoded(cls, version, data[:cut]) is None
            for _ in range(50 if data else 0):
                flipped = bytearray(data)
                flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
                decoded(cls, version, bytes(flipped))


def broken(seed: int) -> Iterator[tuple[type[Message], int, bytes]]:
    """Messages broken in the ways of tools/fuzz_protocol."""
    random = Random(seed)
    for cls, version in ALL:
        data = random_message(cls, version, random, unknown_tags=True).encode(version)
        for mutate in fuzzing.MUTATIONS:
            yield cls, version, mutate(data, random)


def test_messages_broken_in_every_way() -> None:
    readable = [decoded(cls, version, data) is not None for cls, version, data in broken(4)]
    assert 0.02 < sum(readable) / len(readable) < 0.9


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(ALL), st.binary(max_size=300), st.integers(0, 5))
def test_any_bytes(pair: tuple[type[Message], int], data: bytes, start: int) -> None:
    message = decoded(*pair, data, start)
    assert message is None or type(message) is pair[0]


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(ALL), st.randoms(use_true_random=False))
def test_any_change(draw: st.DataObject, pair: tuple[type[Message], int], random: Random) -> None:
    cls, version = pair
    data = random_message(cls, version, random, unknown_tags=True).encode(version)
    start = draw.draw(st.integers(0, len(data)))
    piece = draw.draw(st.binary(max_size=12))
    decoded(cls, version, data[:start] + piece + data[start + draw.draw(st.integers(0, len(piece))) :])


def recorded() -> Iterator[tuple[type[Message], int, bytes, int]]:
    """Every recorded request, and response with the four bytes of its correlation id, or five, before it."""
    for path in sorted(FIXTURES.glob("*/*_request.bin")):
        frame = path.read_bytes()
        header, start = decode_request_header(frame)
        request: Any = message_class(f"{ApiKey(header.api_key).api_name}Request")
        yield request, header.api_version, frame, start
        tags = codegen.is_flexible(request, header.api_version) and header.api_key != ApiKey.API_VERSIONS
        response = path.with_name(path.name.replace("_request", "_response")).read_bytes()
        yield request.RESPONSE, header.api_version, response, 5 if tags else 4


def test_recorded_frames_and_prefixes_of_them() -> None:
    seen = 0
    for cls, version, frame, start in recorded():
        assert decoded(cls, version, frame, start) is not None
        seen += 1
        for cut in range(start, len(frame), max(1, len(frame) // 40)):
            assert decoded(cls, version, frame[:cut], start) is None
    assert seen > 600


def test_a_string_of_32768_bytes_is_none() -> None:
    for size, is_read in [(32767, True), (32768, False)]:
        prefix = (size + 1).to_bytes(4, "little")
        length = bytes([prefix[0] & 0x7F | 0x80, (size + 1) >> 7 & 0x7F | 0x80, (size + 1) >> 14])
        data = b"\x02" + bytes(16) + length + b"x" * size + bytes.fromhex("00 01 00 00")
        assert (decoded(MetadataRequest, 12, data) is not None) is is_read


def test_a_long_list() -> None:
    message = ApiVersionsResponse(
        error_code=0,
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=n, min_version=0, max_version=n % 7) for n in range(3000)],
    )
    data = message.encode(3)
    assert decoded(ApiVersionsResponse, 3, data) == message
    for cut in (1, len(data) // 3, len(data) // 2):
        assert decoded(ApiVersionsResponse, 3, data[:-cut]) is None


def test_records_are_views_into_the_frame() -> None:
    partitions = [ProduceRequest.Topic.Partition(index=n, records=bytes([n] * n)) for n in range(4)]
    topic = ProduceRequest.Topic(name="t", partition_data=partitions)
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    for version in (3, 9):
        frame = request.encode(version)
        found = decoder(ProduceRequest, version)(frame, 0).topic_data[0].partition_data
        assert [bytes(partition.records) for partition in found] == [bytes([n] * n) for n in range(4)]
        assert all(partition.records.obj is frame and partition.records.readonly for partition in found)


def test_what_is_read_is_an_object_like_any_other() -> None:
    data = ApiVersionsResponse(error_code=35, api_keys=[], finalized_features_epoch=7).encode(3)
    message = decoder(ApiVersionsResponse, 3)(data, 0)
    assert repr(message) == "ApiVersionsResponse(error_code=35, api_keys=[], finalized_features_epoch=7)"
    assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == copy.copy(message) == message
    message.error_code = 0
    del message.api_keys
    with pytest.raises(AttributeError):
        message.api_keys  # noqa: B018


def test_defaults_are_nobody_elses() -> None:
    data = MetadataRequest(topics=None).encode(12)
    read = decoder(MetadataResponse, 12)
    data = MetadataResponse(brokers=[], topics=[], controller_id=1).encode(12)
    first, second = read(data, 0), read(data, 0)
    first.brokers.append(1)
    assert second.brokers == []
    partition = FetchResponse.Topic.Partition(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None
    )
    data = FetchResponse(responses=[FetchResponse.Topic(topic="t", partitions=[partition] * 2)]).encode(4)
    one, other = decoder(FetchResponse, 4)(data, 0).responses[0].partitions
    assert one.current_leader == other.current_leader
    assert one.current_leader is not other.current_leader
