"""A message that cannot be encoded raises EncodeError with the path of the field."""

from random import Random
from typing import Any

import pytest

from kwire.errors import EncodeError
from kwire.protocol import Message
from kwire.protocol.fields import Array, Field, Fixed, Sized
from kwire.protocol.messages.api_versions import ApiVersionsRequest
from kwire.protocol.messages.create_topics import CreateTopicsRequest
from kwire.protocol.messages.fetch import FetchRequest, FetchResponse
from kwire.protocol.messages.list_offsets import ListOffsetsRequest
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.offset_fetch import OffsetFetchRequest
from kwire.protocol.messages.produce import ProduceRequest
from kwire.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.protocol.samples import declared_messages, random_message

Topic = MetadataRequest.Topic
Partition = FetchResponse.Topic.Partition


def create(**changes: Any) -> CreateTopicsRequest:
    fields = {"name": "t", "num_partitions": 1, "replication_factor": 1, **changes}
    return CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(**fields)])


def produce(records: Any) -> ProduceRequest:
    topic = ProduceRequest.Topic(name="t", partition_data=[ProduceRequest.Topic.Partition(index=0, records=records)])
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])


def any_of(value: Any) -> Any:
    """A value whose type a type checker would refuse."""
    return value


def with_tags(message: Message, tags: Any) -> Message:
    message.unknown_tagged_fields = tags
    return message


TAGGED_TOPIC = Topic(name="a")
TAGGED_TOPIC.unknown_tagged_fields = {7: b"x"}

WRONG: list[tuple[Message, int, str, str]] = [
    # message, version, path, what the message says
    (MetadataRequest(topics=None), 0, "topics", "not nullable in version 0"),
    (MetadataRequest(topics=[Topic(name=None)]), 9, "topics[0].name", "not nullable in version 9"),
    (MetadataRequest(topics=[Topic(name="a"), Topic(name=any_of(b"b"))]), 5, "topics[1].name", "b'b' is not a string"),
    (MetadataRequest(topics=[Topic(name="\ud800")]), 5, "topics[0].name", "UTF-8"),
    (MetadataRequest(topics=[Topic(name="x" * 32768)]), 5, "topics[0].name", "32768 bytes"),
    (MetadataRequest(topics=[Topic(name="é" * 16384)]), 9, "topics[0].name", "32768 bytes"),
    (MetadataRequest(topics=any_of("abc")), 5, "topics", "'abc' is not a list"),
    (MetadataRequest(topics=any_of({"a": 1})), 9, "topics", "is not a list"),
    (MetadataRequest(topics=any_of(7)), 9, "topics", "7 is not a list"),
    (MetadataRequest(topics=any_of([None])), 9, "topics[0]", "None"),
    (MetadataRequest(topics=any_of(["a"])), 9, "topics[0]", "'a' is not a MetadataRequest.Topic"),
    (MetadataRequest(topics=[Topic(name="a", topic_id=any_of("x"))]), 12, "topics[0].topic_id", "not a valid uuid"),
    (MetadataRequest(topics=[], allow_auto_topic_creation=any_of(None)), 4, "allow_auto_topic_creation", "None"),
    (MetadataRequest(topics=[], allow_auto_topic_creation=any_of(2)), 4, "allow_auto_topic_creation", "valid boolean"),
    (MetadataRequest(topics=[], allow_auto_topic_creation=any_of([])), 4, "allow_auto_topic_creation", "valid boolean"),
    (create(num_partitions=2**31), 0, "topics[0].num_partitions", "outside of int32"),
    (create(num_partitions=-(2**31) - 1), 7, "topics[0].num_partitions", "outside of int32"),
    (create(replication_factor=32768), 5, "topics[0].replication_factor", "outside of int16"),
    (create(num_partitions=1.0), 5, "topics[0].num_partitions", "1.0 is not a valid int32"),
    (create(num_partitions="1"), 5, "topics[0].num_partitions", "'1' is not a valid int32"),
    (create(num_partitions=None), 5, "topics[0].num_partitions", "None"),
    (create(assignments=[CreateTopicsRequest.Topic.Assignment(partition_index=0, broker_ids=[1, 2**31])]), 5,
     "topics[0].assignments[0].broker_ids[1]", "outside of int32"),
    (create(assignments=[CreateTopicsRequest.Topic.Assignment(partition_index=0, broker_ids=any_of([None]))]), 5,
     "topics[0].assignments[0].broker_ids[0]", "None"),
    (produce("text"), 3, "topic_data[0].partition_data[0].records", "'text' is not bytes-like"),
    (produce(7), 9, "topic_data[0].partition_data[0].records", "7 is not bytes-like"),
    (produce([1, 2]), 9, "topic_data[0].partition_data[0].records", "not bytes-like"),
    (produce(released := memoryview(b"gone")), 3, "topic_data[0].partition_data[0].records", "not bytes-like"),
    (produce(memoryview(b"abcd")[::2]), 3, "topic_data[0].partition_data[0].records", "not bytes-like"),
    (SaslAuthenticateRequest(auth_bytes=any_of(None)), 2, "auth_bytes", "None"),
    (SaslAuthenticateRequest(auth_bytes=any_of("x" * 100)), 0, "auth_bytes", "..."),
    (with_tags(ApiVersionsRequest(), {-1: b""}), 3, "unknown_tagged_fields", "not a tag"),
    (with_tags(ApiVersionsRequest(), {1: "x"}), 3, "unknown_tagged_fields", "not a tag"),
    (with_tags(ApiVersionsRequest(), [b"x"]), 3, "unknown_tagged_fields", "is not a dict of tags"),
    (create(num_partitions=10**5000), 5, "topics[0].num_partitions", "<int> is outside of int32"),
    # values that a version would lose
    (MetadataRequest(topics=[], allow_auto_topic_creation=False), 3, "allow_auto_topic_creation", "would lose"),
    (ListOffsetsRequest(replica_id=-1, topics=[], isolation_level=1), 1, "isolation_level", "would lose the value 1"),
    (FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=0, topics=[]), 15, "replica_id", "would lose the value 1"),
    (OffsetFetchRequest(group_id="g"), 8, "group_id", "would lose the value 'g'"),
    (OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="g", topics=None)]), 7, "groups", "would lose"),
    (OffsetFetchRequest(topics=None), 8, "topics", "would lose the value None"),
    (with_tags(ApiVersionsRequest(), {7: b"x"}), 2, "unknown_tagged_fields", "would lose those of tag 7"),
    (MetadataRequest(topics=[TAGGED_TOPIC]), 8, "topics[0].unknown_tagged_fields", "would lose those of tag 7"),
    (FetchResponse(responses=[FetchResponse.Topic(topic="t", partitions=[
        Partition(partition_index=0, error_code=0, high_watermark=0, records=None,
                  diverging_epoch=Partition.EpochEndOffset(epoch=1))])]),
     11, "responses[0].partitions[0].diverging_epoch", "would lose"),
]  # fmt: skip

released.release()


@pytest.mark.parametrize(("message", "version", "path", "reason"), WRONG)
def test_wrong_values_say_where(message: Message, version: int, path: str, reason: str) -> None:
    for encode in (message.encode, message.encode_parts):
        with pytest.raises(EncodeError) as caught:
            encode(version)
        assert caught.value.where == {"api": type(message).__name__, "version": version, "path": path}
        assert reason in str(caught.value)


LOSSY: list[tuple[Message, int]] = [
    (ApiVersionsRequest(client_software_name="kwire"), 0),
    (MetadataRequest(topics=[Topic(name="t", topic_id=any_of(None))]), 9),
    (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], max_bytes=1, rack_id="r"), 2),
    (MetadataResponse(brokers=[], topics=[], cluster_id="c", controller_id=3, throttle_time_ms=5), 0),
]


@pytest.mark.parametrize(("message", "version"), LOSSY)
def test_ignorable_fields_are_dropped(message: Message, version: int) -> None:
    again = type(message).decode(message.encode(version), version)
    assert again != message
    assert again.encode(version) == message.encode(version)


def test_a_deleted_field_raises() -> None:
    request = MetadataRequest(topics=[])
    del request.topics
    with pytest.raises(EncodeError, match="not set"):
        request.encode(1)


def test_tuples_and_bytes_like_objects_are_encoded() -> None:
    request = MetadataRequest(topics=any_of((Topic(name="a"),)))
    assert request.encode(1) == MetadataRequest(topics=[Topic(name="a")]).encode(1)
    words = memoryview(b"abcdefgh").cast("I")
    assert produce(words).encode(3) == produce(b"abcdefgh").encode(3)
    assert produce(bytearray(b"abc")).encode(9) == produce(b"abc").encode(9)


def test_the_size_of_a_tagged_field_counts_bytes() -> None:
    words = memoryview(b"abcdefgh").cast("I")
    request = with_tags(MetadataRequest(topics=[]), {7: words})
    assert request.encode(9) == with_tags(MetadataRequest(topics=[]), {7: b"abcdefgh"}).encode(9)


class Odd:
    """A value that is nothing that a field could hold."""

    def __repr__(self) -> str:
        return "Odd()"


@pytest.mark.slow
@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_a_wrong_value_in_any_field_raises(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        message = random_message(cls, version, Random(version))
        for path, holder, name, wire_type in list(places(message, version)):
            old = holder[name] if isinstance(holder, list) else getattr(holder, name)
            is_string = isinstance(wire_type, Sized) and wire_type.name == "string"
            for odd in (Odd(), b"" if is_string else ""):
                put(holder, name, odd)
                with pytest.raises(EncodeError) as caught:
                    message.encode(version)
                assert caught.value.where["path"] == path
            put(holder, name, old)
        message.encode(version)


def places(struct: Any, version: int, path: str = "") -> Any:
    """(path, holder, attribute or index, wire type) of every value that is written in a version."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        here = f"{path}.{field.name}".lstrip(".")
        if not field.exists(version):
            continue
        yield here, struct, field.name, field.type
        yield from _places_inside(field, value, version, here)


def _places_inside(field: Field, value: Any, version: int, path: str) -> Any:
    if hasattr(value, "FIELDS"):
        yield from places(value, version, path)
    if isinstance(field.type, Array) and value:
        for index, item in enumerate(value[:3]):
            yield f"{path}[{index}]", value, index, field.type.element
            if not isinstance(field.type.element, Fixed | Sized):
                yield from places(item, version, f"{path}[{index}]")


def put(holder: Any, name: Any, value: Any) -> None:
    if isinstance(holder, list):
        holder[name] = value
    else:
        setattr(holder, name, value)
