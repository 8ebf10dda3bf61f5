"""Broken messages for the decoders of kwire.protocol, and the rules that hold for any bytes.

A case is a random message of any class and version, or a whole frame, or a record of an internal topic, which is then
damaged: bits flipped, lengths made huge or negative, pieces cut, doubled, moved or taken from another message. The
bytes must decode, or raise a DecodeError that says where. Both readers must agree. What
decodes must encode to bytes that decode to the same. Time and memory must be in proportion to the bytes. A seed makes a
case, so `--seed` repeats a failure.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from kwire.errors import DecodeError, UnsupportedVersionError
from kwire.protocol import Message, Request, Response, diagnose, message_class
from kwire.protocol.headers import decode_request, decode_response, encode_request, encode_response
from kwire.protocol.internal_topics import (
    COORDINATOR_TOPICS,
    FRAMED_TOPICS,
    InternalRecord,
    decode_control_record,
    decode_internal_record,
    encode_internal_record,
)
from kwire.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from tests.protocol.samples import class_versions, random_message

# A decoder may take SECONDS_MAX + n * SECONDS_PER_BYTE for n bytes, and memory likewise. An empty element of a list is
# one byte on the wire and becomes an object with all of its fields.
SECONDS_MAX, SECONDS_PER_BYTE = 0.5, 50e-6
BYTES_MAX, BYTES_PER_BYTE = 64 * 1024, 800
MEMORY_EVERY = 40  # measuring it is slow

_EDGES = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\xff\xff\xff\xff",
          b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80" * 10,
          b"\x00\x00\x00\x01", b"\xc3\x28", b"\xed\xa0\x80")  # fmt: skip

_ALL = list(class_versions())


@dataclass(frozen=True)
class Case:
    """Damaged bytes, their decoder, and its name. `is_half`: one half of a record, and an error may be in the other."""

    name: str
    data: bytes
    read: Callable[[bytes], Any]
    is_half: bool


class BrokenRuleError(AssertionError):
    """A rule does not hold."""


def case_of(seed: int) -> Case:
    random = Random(seed)
    make = random.choice([_message, _message, _message, _message, _request, _response, _record, _control, _consumer])
    name, data, read = make(random)
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        data = random.choice(MUTATIONS)(data, random)
    return Case(name, data, read, is_half=make is _record)


def check(seed: int) -> bool:
    """Return whether the bytes of this seed are still readable. Raises BrokenRuleError."""
    case = case_of(seed)
    try:
        return _check(case, measure_memory=seed % MEMORY_EVERY == 0)
    except Exception as error:
        where = f"seed {seed}: {case.name}, {len(case.data)} bytes {case.data.hex()}"
        raise BrokenRuleError(f"{where}: {error!r}") from error


def _check(case: Case, *, measure_memory: bool) -> bool:
    # The first call compiles, so it is not measured.
    with suppress(DecodeError, UnsupportedVersionError):
        case.read(case.data)
    if measure_memory:
        tracemalloc.start()
    try:
        value = case.read(case.data)
    except DecodeError as error:
        value = None
        offset = error.where.get("offset", 0)
        assert isinstance(offset, int), "the offset is not a number"
        assert 0 <= offset <= len(case.data) or case.is_half, f"an offset of {offset}"
    except UnsupportedVersionError:
        value = None
    finally:
        peak = tracemalloc.get_traced_memory()[1] if measure_memory else 0
        tracemalloc.stop()
    if not measure_memory:
        seconds = _seconds(case)
        assert seconds < SECONDS_MAX + len(case.data) * SECONDS_PER_BYTE, f"{seconds:.1f} seconds"
    assert peak < BYTES_MAX + len(case.data) * BYTES_PER_BYTE, f"{peak} bytes of memory"
    return value is not None


def _seconds(case: Case) -> float:
    """Return the least CPU time of three reads, so that a garbage collection between them does not count."""

    def once() -> float:
        started = time.thread_time()
        with suppress(DecodeError, UnsupportedVersionError):
            case.read(case.data)
        return time.thread_time() - started

    seconds = once()
    return seconds if seconds < SECONDS_MAX else min(seconds, once(), once())


def _message(random: Random) -> tuple[str, bytes, Callable[[bytes], Any]]:
    cls, version = random.choice(_ALL)
    message = random_message(cls, version, random, unknown_tags=random.random() < 0.3)
    return f"{cls.__name__} v{version}", message.encode(version), lambda data: read_message(cls, version, data)


def read_message(cls: type[Message], version: int, data: bytes) -> Message:
    """Read a message with both readers, and check the round trips."""
    try:
        message = cls.decode(data, version)
    except DecodeError:
        found = diagnose.annotate(cls, data, version)
        assert isinstance(found[-1].value, DecodeError), "the interpretive reader finds nothing wrong"
        raise
    try:
        _agree(message, version, data)
    except DecodeError as error:
        raise AssertionError(f"the compiled reader reads what the interpretive one refuses: {error}") from error
    return message


def _agree(message: Message, version: int, data: bytes) -> None:
    """Check the rules for a message that was read."""
    cls = type(message)
    # Bytes are compared, because NaN does not equal itself.
    encoded = message.encode(version)
    assert diagnose.decode(cls, data, version).encode(version) == encoded, "the interpretive reader disagrees"
    assert cls.decode(encoded, version).encode(version) == encoded, "a round trip changes the message"
    found = diagnose.annotate(cls, data, version)
    assert (found[-1].end if found else 0) == len(data), "bytes that belong to no field"
    again = cls.from_json(message.to_json(version), version)
    if not _has_unknown_tags(message):  # JSON does not have them
        assert again.encode(version) == encoded, "a round trip through JSON changes the message"


def _has_unknown_tags(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_unknown_tags, value))
    if not hasattr(value, "FIELDS"):
        return False
    return bool(value.unknown_tagged_fields) or any(_has_unknown_tags(getattr(value, f.name)) for f in value.FIELDS)


def _request(random: Random) -> tuple[str, bytes, Callable[[bytes], Any]]:
    cls, version = random.choice([pair for pair in _ALL if issubclass(pair[0], Request)])
    request = random_message(cls, version, random)
    frame = b"".join(encode_request(request, version, random.randrange(1 << 31), random.choice([None, "", "client"])))
    return f"a frame of {cls.__name__} v{version}", frame, decode_request


def _response(random: Random) -> tuple[str, bytes, Callable[[bytes], Any]]:
    cls, version = random.choice([pair for pair in _ALL if issubclass(pair[0], Response)])
    response = random_message(cls, version, random)
    frame = b"".join(encode_response(response, version, random.randrange(1 << 31)))
    request: Any = message_class(cls.__name__.removesuffix("Response") + "Request")
    return f"a frame of {cls.__name__} v{version}", frame, lambda data: decode_response(data, request, version)


def _record(random: Random) -> tuple[str, bytes, Callable[[bytes], Any]]:
    """Return the key or the value of a record of an internal topic."""
    if random.random() < 0.5:
        topic = random.choice([*FRAMED_TOPICS])
        value_class = message_class(random.choice([*FRAMED_TOPICS[topic].values()]))
        key = None
    else:
        topic = random.choice([*COORDINATOR_TOPICS])
        name = random.choice([*COORDINATOR_TOPICS[topic].values()])
        value_class = message_class(f"{name}Value")
        key = random_message(message_class(f"{name}Key"), 0, random)
    version = random.choice([*value_class.VERSIONS])
    record = InternalRecord(key, random_message(value_class, version, random), version)
    key_bytes, value_bytes = encode_internal_record(record)
    assert value_bytes is not None
    if key_bytes is not None and random.random() < 0.3:
        return f"a key of {topic}", key_bytes, lambda data: decode_internal_record(topic, data, value_bytes)
    return f"a value of {topic}", value_bytes, lambda data: decode_internal_record(topic, key_bytes, data)


def _control(random: Random) -> tuple[str, bytes, Callable[[bytes], Any]]:
    type_ = random.randrange(8)
    name = random.choice(["EndTxnMarker", "LeaderChangeMessage", "VotersRecord", "KRaftVersionRecord"])
    value = b"\0\0" + random_message(message_class(name), 0, random).encode(0)
    key = bytes([0, 0, 0, type_])
    return f"the value of control record {type_}", value, lambda data: decode_control_record(key, data)


def _consumer(random: Random) -> tuple[str, bytes, Callable[[bytes], Any]]:
    cls: Any = random.choice([ConsumerProtocolSubscription, ConsumerProtocolAssignment])
    version = random.randrange(4)
    data = bytes([0, version]) + random_message(cls, version, random).encode(version)
    return cls.__name__, data, lambda data: decode_versioned(cls, data)


def _flip(data: bytes, random: Random) -> bytes:
    broken = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 5])):
        if broken:
            broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    return bytes(broken)


def _edge(data: bytes, random: Random) -> bytes:
    """Overwrite bytes with an extreme number."""
    edge, at = random.choice(_EDGES), random.randint(0, len(data))
    return data[:at] + edge + data[at + len(edge) :]


def _insert(data: bytes, random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice([*_EDGES, random.randbytes(random.choice([1, 4, 40]))]) + data[at:]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _delete(data: bytes, random: Random) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + data[at + random.choice([1, 2, 4, 16]) :]


def _double(data: bytes, random: Random) -> bytes:
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    return data[:end] + data[start:end] * random.choice([1, 2, 20]) + data[end:]


def _splice(data: bytes, random: Random) -> bytes:
    """Replace the rest by the end of another message."""
    cls, version = random.choice(_ALL)
    other: bytes = random_message(cls, version, random).encode(version)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _fill(data: bytes, random: Random) -> bytes:
    """Insert many equal bytes: empty elements, if a length before them counts them."""
    at = random.randint(0, len(data))
    return data[:at] + random.choice([b"\0", b"\1", b"\xff"]) * random.choice([100, 3000]) + data[at:]


MUTATIONS = (_flip, _flip, _flip, _edge, _edge, _insert, _cut, _delete, _double, _splice, _fill)


def options_of(arguments: list[str], prog: str, description: str, minutes: float) -> argparse.Namespace:
    """Parse the arguments: `minutes`, and `seed` for a single case."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("minutes", nargs="?", type=float, default=minutes, help=f"how long ({minutes:g})")
    parser.add_argument("--seed", type=int, help="only the case of this seed")
    return parser.parse_args(arguments)


def run(case: Callable[[int], object], minutes: float) -> tuple[int, int, int]:
    """Run cases for some minutes. Return the first seed, the number of cases, and how many returned true."""
    first = seed = Random().randrange(1 << 40)
    agreed = 0
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        agreed += bool(case(seed))
        seed += 1
    return first, seed - first, agreed


def main(arguments: list[str]) -> int:
    options = options_of(arguments, "tools/fuzz_protocol", "Feed broken messages to the decoders.", 1.0)
    if options.seed is not None:
        print("readable" if check(options.seed) else "refused")
        return 0
    first, count, readable = run(check, options.minutes)
    print(f"{count} cases from seed {first}: {readable} still readable, the others refused as they should be")
    return 0
