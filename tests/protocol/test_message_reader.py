"""The accelerator's reader of messages against the compiled Python that it stands in for: the same messages, of the
same types, and None for just those bytes that the Python refuses."""

import copy
import gc
import pickle
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, SafeUUID

import pytest
from checks import fuzz_protocol as fuzzing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.errors import DecodeError
from kwire.protocol import ApiKey, Message, codegen, message_class
from kwire.protocol.fields import int32
from kwire.protocol.headers import decode_request_header
from kwire.protocol.messages.api_versions import ApiVersionsResponse
from kwire.protocol.messages.fetch import FetchResponse
from kwire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.messages.produce import ProduceRequest
from kwire.wire import accel
from tests.protocol.samples import class_versions, declared_messages, random_message
from tests.protocol.test_codec import HUGE
from tests.wire.speedups import accelerated, needs_c, python, speedups

pytestmark = needs_c

ALL = list(class_versions())
FIXTURES = Path(__file__).parents[2] / "fixtures"
each_class = pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)


def plan_of(cls: Any, version: int) -> accel.Plan:
    return codegen.plan(cls, version, codegen.is_flexible(cls, version))


def reader(cls: Any, version: int) -> accel.ReadMessage:
    read: accel.ReadMessage | None = accelerated().message_reader(plan_of(cls, version))
    assert read is not None
    return read


# Of whose values == overlooks nothing but the type.
PLAIN = {int, str, bytes, bool, type(None)}


def exact(value: Any) -> Any:
    """What == overlooks too: True is not 1, a view not its bytes, and what is not a number equals itself."""
    if type(value) in PLAIN:
        return type(value), value
    if isinstance(value, list):
        return [exact(item) for item in value]
    if hasattr(value, "FIELDS"):
        fields = [exact(getattr(value, name)) for name in (*type(value).__slots__, "unknown_tagged_fields")]
        return type(value), fields
    if isinstance(value, memoryview):
        return memoryview, value.obj, bytes(value), value.format
    return type(value), repr(value)


def outcome(read: Callable[[bytes, int], Any], data: bytes, start: int = 0) -> Any:
    try:
        message = read(data, start)
    except codegen.UNDECODABLE:
        message = None
    return exact(message)


class Pair:
    """C and Python for one message and version."""

    def __init__(self, cls: Any, version: int) -> None:
        self.name = f"{cls.__name__} v{version}"
        self.in_c, self.in_python = reader(cls, version), codegen.python_decoder(cls, version)

    def agree(self, data: bytes, start: int = 0) -> Any:
        # C raises nothing for bytes, whatever they are.
        found = exact(self.in_c(data, start))
        assert found == outcome(self.in_python, data, start), f"{self.name}: {data.hex()} from {start}"
        return found


pair_of = cache(Pair)
NOTHING = exact(None)


@each_class
def test_random_messages_their_prefixes_and_flipped_bits(cls: type[Message]) -> None:
    random = Random(3)
    for version in cls.VERSIONS:
        pair = pair_of(cls, version)
        for index in range(4):
            message = random_message(cls, version, random, unknown_tags=index % 2 == 1)
            data = message.encode(version)
            assert pair.agree(data) != NOTHING
            assert pair.in_c(data, 0) == message
            assert pair.agree(b"header" + data, 6) != NOTHING
            assert pair.agree(data + b"\0") == NOTHING
            for cut in range(0, len(data), max(1, len(data) // 20) if index else 1):
                assert pair.agree(data[:cut]) == NOTHING
            for _ in range(50 if data else 0):
                flipped = bytearray(data)
                flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
                pair.agree(bytes(flipped))


def broken(seed: int) -> Iterator[tuple[type[Message], int, bytes]]:
    """Messages broken in the ways of tools/fuzz_protocol."""
    random = Random(seed)
    for cls, version in ALL:
        data = random_message(cls, version, random, unknown_tags=True).encode(version)
        for mutate in fuzzing.MUTATIONS:
            yield cls, version, mutate(data, random)


def test_messages_broken_in_every_way() -> None:
    readable = [pair_of(cls, version).agree(data) != NOTHING for cls, version, data in broken(4)]
    assert 0.02 < sum(readable) / len(readable) < 0.9


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(ALL), st.binary(max_size=300), st.integers(0, 5))
def test_any_bytes(pair: tuple[type[Message], int], data: bytes, start: int) -> None:
    pair_of(*pair).agree(data, start)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(ALL), st.randoms(use_true_random=False))
def test_any_change(draw: st.DataObject, pair: tuple[type[Message], int], random: Random) -> None:
    cls, version = pair
    data = random_message(cls, version, random, unknown_tags=True).encode(version)
    start = draw.draw(st.integers(0, len(data)))
    piece = draw.draw(st.binary(max_size=12))
    pair_of(cls, version).agree(data[:start] + piece + data[start + draw.draw(st.integers(0, len(piece))) :])


def recorded() -> Iterator[tuple[type[Message], int, bytes, int]]:
    """Every recorded request, and response with the four bytes of its correlation id, or five, before it."""
    for path in sorted(FIXTURES.glob("*/*_request.bin")):
        frame = path.read_bytes()
        header, start = decode_request_header(frame)
        request: Any = message_class(f"{ApiKey(header.api_key).api_name}Request")
        yield request, header.api_version, frame, start
        tags = codegen.is_flexible(request, header.api_version) and header.api_key != ApiKey.API_VERSIONS
        answer = path.with_name(path.name.replace("_request", "_response")).read_bytes()
        yield request.RESPONSE, header.api_version, answer, 5 if tags else 4


def test_recorded_frames_and_prefixes_of_them() -> None:
    seen = 0
    for cls, version, frame, start in recorded():
        pair = pair_of(cls, version)
        assert pair.agree(frame, start) != NOTHING
        seen += 1
        for cut in range(start, len(frame), max(1, len(frame) // 40)):
            assert pair.agree(frame[:cut], start) == NOTHING
    assert seen > 600


def test_a_string_of_32768_bytes_is_none() -> None:
    for size, is_read in [(32767, True), (32768, False)]:
        pair = pair_of(MetadataRequest, 12)
        prefix = (size + 1).to_bytes(4, "little")
        length = bytes([prefix[0] & 0x7F | 0x80, (size + 1) >> 7 & 0x7F | 0x80, (size + 1) >> 14])
        data = b"\x02" + bytes(16) + length + b"x" * size + bytes.fromhex("00 01 00 00")
        assert (pair.agree(data) != NOTHING) is is_read


def test_a_list_longer_than_what_is_reserved() -> None:
    message = ApiVersionsResponse(
        error_code=0,
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=n, min_version=0, max_version=n % 7) for n in range(3000)],
    )
    pair = pair_of(ApiVersionsResponse, 3)
    data = message.encode(3)
    assert pair.in_c(data, 0) == message
    for cut in (1, len(data) // 3, len(data) // 2):
        assert pair.agree(data[:-cut]) == NOTHING


def test_records_are_views_into_the_frame() -> None:
    partitions = [ProduceRequest.Topic.Partition(index=n, records=bytes([n] * n)) for n in range(4)]
    topic = ProduceRequest.Topic(name="t", partition_data=partitions)
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    for version in (3, 9):
        frame = request.encode(version)
        found = reader(ProduceRequest, version)(frame, 0).topic_data[0].partition_data
        assert [bytes(partition.records) for partition in found] == [bytes([n] * n) for n in range(4)]
        assert all(partition.records.obj is frame and partition.records.readonly for partition in found)


def test_what_is_read_is_an_object_like_any_other() -> None:
    data = ApiVersionsResponse(error_code=35, api_keys=[], finalized_features_epoch=7).encode(3)
    message = reader(ApiVersionsResponse, 3)(data, 0)
    assert repr(message) == "ApiVersionsResponse(error_code=35, api_keys=[], finalized_features_epoch=7)"
    assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == copy.copy(message) == message
    message.error_code = 0
    del message.api_keys
    with pytest.raises(AttributeError):
        message.api_keys  # noqa: B018


def test_defaults_are_nobody_elses() -> None:
    data = MetadataRequest(topics=None).encode(12)
    read = reader(MetadataResponse, 12)
    data = MetadataResponse(brokers=[], topics=[], controller_id=1).encode(12)
    first, second = read(data, 0), read(data, 0)
    first.brokers.append(1)
    assert second.brokers == []
    partition = FetchResponse.Topic.Partition(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None
    )
    data = FetchResponse(responses=[FetchResponse.Topic(topic="t", partitions=[partition] * 2)]).encode(4)
    one, other = reader(FetchResponse, 4)(data, 0).responses[0].partitions
    assert one.current_leader == other.current_leader
    assert one.current_leader is not other.current_leader


# ---- plans that are none ---------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("a", "b", "rest")


class WithDict:
    pass


INT = ("i", False, None, 0)
BAD_PLANS: dict[str, tuple[object, type[Exception]]] = {
    "no tuple": (None, TypeError),
    "an empty one": ((), TypeError),
    "a shape that is none": ((True, 5), TypeError),
    "a class that is none": ((True, (5, (), None, "rest")), TypeError),
    "fields in a list": ((True, (Slotted, [], None, "rest")), TypeError),
    "tagged fields in a list": ((True, (Slotted, (), [], "rest")), ValueError),
    "too many tagged fields": ((True, (Slotted, (), tuple((n, "a", INT) for n in range(65)), "rest")), ValueError),
    "a field that is none": ((True, (Slotted, (5,), None, "rest")), TypeError),
    "a tagged field without a tag": ((True, (Slotted, (), (("a", INT),), "rest")), TypeError),
    "a step that is none": ((True, (Slotted, (("a", 5),), None, "rest")), TypeError),
    "half a step": ((True, (Slotted, (("a", ("i",)),), None, "rest")), TypeError),
    "an unknown kind": ((True, (Slotted, (("a", ("x", False, None, 0)),), None, "rest")), ValueError),
    "a kind beyond ASCII": ((True, (Slotted, (("a", ("\u1234", False, None, 0)),), None, "rest")), ValueError),
    "an end of text as kind": ((True, (Slotted, (("a", ("\0", False, None, 0)),), None, "rest")), ValueError),
    "a list of nothing": ((True, (Slotted, (("a", ("[", False, INT, 0)),), None, "rest")), ValueError),
    "a list of no step": ((True, (Slotted, (("a", ("[", False, 5, 1)),), None, "rest")), TypeError),
    "a struct of no shape": ((True, (Slotted, (("a", ("{", False, 5, 1)),), None, "rest")), TypeError),
    "UUIDs of nothing": ((True, (Slotted, (("a", ("u", False, UUID, 1)),), None, "rest")), TypeError),
    "UUIDs of no dict": ((True, (Slotted, (("a", ("u", False, (UUID, UUID, None), 1)),), None, "rest")), TypeError),
    "UUIDs of no class": ((True, (Slotted, (("a", ("u", False, ({}, 5, None), 1)),), None, "rest")), TypeError),
    "a slot that is not there": ((True, (Slotted, (("c", INT),), None, "rest")), AttributeError),
    "a class without slots": ((True, (WithDict, (("a", INT),), None, "rest")), ValueError),
}


@pytest.mark.parametrize(("plan", "error"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_bad_plans(plan: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        speedups().MessageReader(plan)


def test_where_slots_are_not_seen_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerated().message_reader((True, (WithDict, (), None, "rest"))) is None
    monkeypatch.setattr(accel, "message_reader", accelerated().message_reader)
    monkeypatch.setattr(codegen, "plan", lambda *_: (True, (WithDict, (), None, "rest")))
    monkeypatch.setattr(codegen, "plan", codegen.plan)
    decoder: Any = codegen.decoder(MetadataRequest, 12)
    assert decoder.__name__ == "decode_MetadataRequest_v12"


def test_the_chooser() -> None:
    plan = plan_of(MetadataRequest, 12)
    specification: Any = python.message_reader
    assert specification(plan) is None
    assert (accel.message_reader(plan) is None) is (accel.IMPLEMENTATION == "python")


@pytest.mark.parametrize("arguments", [(), (b"",), (bytearray(4), 0), (b"", "0"), (b"", None), (b"", 0, 0)])
def test_odd_arguments(arguments: tuple[object, ...]) -> None:
    read: Any = reader(MetadataRequest, 0)
    with pytest.raises(TypeError):
        read(*arguments)


def test_what_nobody_writes_to_is_read_where_it_is() -> None:
    """A large frame is no bytes, but a view of memory that goes round."""
    response = MetadataResponse(controller_id=7, brokers=[], topics=[])
    data = response.encode(2)
    assert reader(MetadataResponse, 2)(memoryview(data), 0) == response
    with pytest.raises(TypeError):
        reader(MetadataResponse, 2)(memoryview(bytearray(data)), 0)


def test_starts_out_of_range() -> None:
    read = reader(MetadataRequest, 0)
    for start in (-1, 5, sys.maxsize):
        assert read(bytes(4), start) is None
    with pytest.raises(OverflowError):
        read(bytes(4), 1 << 64)


@pytest.mark.parametrize("number", [0, 1, 1 << 63, (1 << 64) - 1, 1 << 64, (1 << 128) - 1])
def test_uuids_are_as_python_makes_them_and_only_so_many_are_kept(number: int) -> None:
    kept: dict[bytes, UUID] = {}
    step = "u", False, (kept, UUID, SafeUUID.unknown), 2
    read = speedups().MessageReader((True, (Slotted, (("a", step), ("b", step)), None, "rest"))).read
    made = UUID(int=number)
    message = read(made.bytes * 2, 0)
    assert (message.a, message.a.is_safe, pickle.loads(pickle.dumps(message.a))) == (made, made.is_safe, made)
    assert message.a is message.b is kept[made.bytes]
    assert str(message.a) == str(made)
    others = read(bytes(15) + b"2" + bytes(15) + b"3", 0)
    assert kept == {others.b.bytes: others.b}


def test_an_error_of_what_a_uuid_is_made_of_is_that_error() -> None:
    plan: object = True, (Slotted, (("a", ("u", False, ({}, Slotted, None), 1)),), None, "rest")
    with pytest.raises(AttributeError):
        speedups().MessageReader(plan).read(bytes(16), 0)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_stays_as_it_was(is_on: bool) -> None:
    read = reader(MetadataRequest, 0)
    was_on = gc.isenabled()
    try:
        (gc.enable if is_on else gc.disable)()
        assert read(bytes(4), 0) is not None
        assert read(bytes(3), 0) is None
        state = gc.isenabled()
    finally:
        (gc.enable if was_on else gc.disable)()
    assert state is is_on


def test_a_class_and_its_readers_can_go() -> None:
    class Passing(Message, versions=(0, 0), flexible=None):
        number: int32

    Passing._decoders[0] = reader(Passing, 0)
    assert Passing.decode(bytes(4), 0) == Passing(number=0)
    gone = weakref.ref(Passing)
    del Passing
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("cls", "version", "text"), HUGE)
def test_a_huge_count_costs_nothing(cls: type[Message], version: int, text: str) -> None:
    read, data = reader(cls, version), bytes.fromhex(text) + bytes(100_000)
    tracemalloc.start()
    try:
        assert read(data, 0) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_nothing_leaks() -> None:
    """Good messages and bad ones, over and over, and plans: memory and references stay."""
    random = Random(5)
    samples: list[tuple[accel.ReadMessage, bytes]] = []
    for (cls, version), unknown in product(ALL[::7], (False, True)):
        data = random_message(cls, version, random, unknown_tags=unknown).encode(version)
        samples += [(reader(cls, version), data[:cut]) for cut in {len(data), len(data) // 2, max(0, len(data) - 1)}]
        if data:
            flipped = bytearray(data)
            flipped[random.randrange(len(data))] ^= 0x80
            samples.append((reader(cls, version), bytes(flipped)))

    def work() -> None:
        for read, data in samples:
            read(data, 0)
        reader(MetadataResponse, 12)
        for plan, _ in BAD_PLANS.values():
            with suppress(TypeError, ValueError, AttributeError):
                speedups().MessageReader(plan)

    def counted() -> list[int]:
        gc.collect()
        shared = None, True, Slotted, MetadataResponse, MetadataResponse.Topic
        return [sys.getallocatedblocks(), *map(sys.getrefcount, shared)]

    for _ in range(3):
        work()
    before = counted()
    for _ in range(20):
        work()
    grown = [new - old for new, old in zip(counted(), before, strict=True)]
    assert max(map(abs, grown)) < 100, grown


def test_errors_stay_those_of_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MetadataRequest._decoders, 1, reader(MetadataRequest, 1))
    with pytest.raises(DecodeError) as caught:
        MetadataRequest.decode(bytes.fromhex("00000002 0002 61c3 0000"), 1)
    assert caught.value.where == {"api": "MetadataRequest", "version": 1, "path": "topics[0].name", "offset": 7}
