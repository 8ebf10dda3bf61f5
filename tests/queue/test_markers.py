"""The bytes of markers: those of kafka-mq-go in both directions, and our own."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kwire.consumer import ConsumerRecord
from kwire.errors import DecodeError
from kwire.queue.markers import (
    FIRST_AT,
    NO_TOPIC_ID,
    Identity,
    Marker,
    MarkerType,
    decode_marker,
    encode_ends,
    encode_marker,
    encode_starts,
    overhead,
    skim_marker,
)
from kwire.records.encoder import encode_records
from kwire.records.reader import RecordReader, open_reader

PLACE = Identity(NO_TOPIC_ID, 3, 300)

GO_START = "1a050803" + "10ac02" + "20904e" + "2a046a6f6273" + "32026869"
HERE = Path(__file__).parent


def bare(marker: Marker) -> Marker:
    """Return the marker as `skim_marker` does."""
    return marker._replace(key=None, value=None, headers=())


def recorded(name: str) -> list[tuple[Marker, bytes]]:
    """Return markers and bytes that Go's Protocol Buffers library wrote or read: see tools/recording/go_markers."""
    found = []
    for line in (HERE / name).read_text().splitlines():
        one = json.loads(line)
        identity = Identity(NO_TOPIC_ID, one["partition"], one["offset"])
        key, value = one["key"].encode() or None, bytes.fromhex(one["value_hex"]) or None
        marker = Marker(one["type"], identity, one["redeliver_after_ms"], key, value)
        found.append((marker, bytes.fromhex(one["bytes_hex"])))
    return found


@pytest.mark.parametrize(("marker", "data"), recorded("go_markers.jsonl"))
def test_q13_markers_that_go_wrote(marker: Marker, data: bytes) -> None:
    assert encode_marker(marker, "kafka-mq-v1") == data
    assert decode_marker(data) == marker
    assert skim_marker(data) == bare(marker)


@pytest.mark.parametrize(("as_go_read_it", "data"), recorded("own_markers.jsonl"))
def test_q13_go_reads_in_our_markers_what_it_knows(as_go_read_it: Marker, data: bytes) -> None:
    ours = decode_marker(data)
    assert encode_marker(ours) == data
    assert as_go_read_it == Marker(
        ours.type, ours.identity._replace(topic_id=NO_TOPIC_ID), ours.redeliver_after_ms, ours.key, ours.value or None
    )


def test_q13_what_kafka_mq_go_lacks_becomes_what_it_has() -> None:
    release = encode_marker(Marker(MarkerType.RELEASE, PLACE, 5, is_uncounted=True), "kafka-mq-v1")
    assert decode_marker(release) == Marker(MarkerType.KEEP_ALIVE, PLACE, 5)
    nobody = Identity(NO_TOPIC_ID, -1, -1)
    tick = encode_marker(Marker(MarkerType.TICK, nobody), "kafka-mq-v1")
    assert decode_marker(tick) == Marker(MarkerType.KEEP_ALIVE, nobody)


def test_q13_a_go_service_reads_our_markers_as_its_own() -> None:
    """Our additional fields have numbers that it skips; the others stay where they are."""
    own = encode_marker(Marker(MarkerType.START, Identity(UUID(int=7), 3, 300), 10_000, b"jobs", b"hi", (("a", b"1"),)))
    first = bytes.fromhex("0801" + GO_START)
    assert own[: len(first)] == first
    assert decode_marker(first + bytes.fromhex("f80105")) == Marker(
        0, PLACE, 10_000, b"jobs", b"hi"
    )  # field 31, unknown here


def test_random_markers_come_back() -> None:
    random = Random(13)
    for _ in range(500):
        headers = tuple(
            (f"h{index}é", random.choice([None, b"", b"x" * index])) for index in range(random.randrange(4))
        )
        marker = Marker(
            random.choice(list(MarkerType)),
            Identity(UUID(int=random.getrandbits(128) or 1), random.randrange(1 << 31), random.getrandbits(63)),
            random.getrandbits(random.randrange(1, 63)),
            random.choice([None, b"queue"]),
            random.choice([None, b"", random.randbytes(random.randrange(1, 300))]),
            headers,
            random.random() < 0.5,
            random.getrandbits(40),
        )
        data = encode_marker(marker)
        assert decode_marker(data) == marker
        assert skim_marker(data) == bare(marker)
        assert len(data) <= len(marker.key or b"") + len(marker.value or b"") + overhead(headers)


def test_broken_bytes_raise_decode_errors_only() -> None:
    random = Random(14)
    whole = encode_marker(Marker(MarkerType.START, Identity(UUID(int=9), 1, 2), 3, b"k", b"v", (("a", b"1"),)))
    refused = 0
    for _ in range(3_000):
        data = bytearray(whole[: random.randrange(1, len(whole) + 1)])
        data[random.randrange(len(data))] = random.randrange(256)
        try:
            marker = decode_marker(bytes(data))
        except DecodeError:
            refused += 1
            with pytest.raises(DecodeError):
                skim_marker(bytes(data))
        else:
            assert skim_marker(bytes(data)) == bare(marker)
    assert refused
    for broken in ("1a", "1aff01", "08", "0b", "00", "820105" + "0102030405", "1005" + "18ff"):
        with pytest.raises(DecodeError):
            decode_marker(bytes.fromhex(broken))
        with pytest.raises(DecodeError):
            skim_marker(bytes.fromhex(broken))
    large = (
        "10ffffffffffffffffff01" + "20ffffffffffffffffff01" + "1a0b08ffffffffffffffffff01" + "9801ffffffffffffffffff01"
    )
    assert skim_marker(bytes.fromhex(large)) == bare(decode_marker(bytes.fromhex(large)))


def random_record(random: Random) -> ConsumerRecord:
    own: list[tuple[str, bytes | None]] = [("kwire-mq-id", random.choice([b"1" * 32, b"", None]))] * random.choice(
        [1, 1, 1, 1, 0, 2]
    )
    own += random.sample([("kwire-mq-delay", b"5"), ("kwire-mq-", None)], random.choice([0, 0, 0, 1]))
    users: list[tuple[str, bytes | None]] = [
        ("a", b"x" * 200),
        ("", b""),
        ("ü", None),
        ("kwire-m", b"1"),
    ]
    headers = [*own, *random.sample(users, random.randrange(4))]
    random.shuffle(headers)
    value = random.choice([None, b"", b"v", random.randbytes(127), random.randbytes(128), random.randbytes(20_000)])
    offset = random.choice([0, 1, 127, 128, 1 << 40, (1 << 63) - 1])
    time_ms = random.choice([-1, 0, 1, 1_700_000_000_000])
    return ConsumerRecord("t", random.choice([0, 1, 127, 128]), offset, time_ms, 1, b"q", value, tuple(headers))


def reader_of(data: bytes, count: int) -> RecordReader:
    return open_reader(ConsumerRecord, "t", 3, 1, 100, 101 + count, memoryview(data), 0, count, 100, 0, count, None)


def expected_start(record: ConsumerRecord, queue: bytes, topic_id: UUID, after_ms: int, bytes_max: int) -> bytes | None:
    own = [pair for pair in record.headers if pair[0].startswith("kwire-mq-")]
    is_plain = not own or (len(own) == 1 and own[0][0] == "kwire-mq-id" and own[0][1])
    is_plain = is_plain and record.timestamp_ms > 0
    if not is_plain or len(record.value or b"") + overhead(record.headers) + len(queue) > bytes_max:
        return None
    headers = (*record.headers, (FIRST_AT, str(record.timestamp_ms).encode()))
    if not own:
        headers += (("kwire-mq-id", f"t-{record.partition}-{record.offset}".encode()),)
    identity = Identity(topic_id, record.partition, record.offset)
    return encode_marker(Marker(MarkerType.START, identity, after_ms, queue, record.value, headers))


@pytest.mark.parametrize("topic_id", [NO_TOPIC_ID, UUID(int=7 << 100)])
def test_markers_of_a_batch_are_those_of_each_record(topic_id: UUID) -> None:
    random, found, refused = Random(3), 0, 0
    topic = topic_id.bytes if topic_id.int else b""
    for _ in range(1_500):
        records = [random_record(random) for _ in range(random.randrange(5))]
        queue, after_ms = random.choice([b"q", b"q" * 200]), random.choice([0, 1, 128, 60_000, (1 << 63) - 1])
        bytes_max = random.choice([1_000_000, 20_500, 250])
        starts = encode_starts(records, queue, topic, after_ms, bytes_max)
        assert starts == [expected_start(one, queue, topic_id, after_ms, bytes_max) for one in records]
        ends = [encode_marker(Marker(1, Identity(topic_id, one.partition, one.offset))) for one in records]
        assert encode_ends(records, topic) == ends
        found += sum(one is not None for one in starts)
        refused += starts.count(None)
    assert found > 100
    assert refused > 100


def test_markers_of_records_that_were_fetched_are_those_of_equal_records() -> None:
    """Whether a field of a record was read before, set, or the record left its batch."""
    random = Random(5)
    for _ in range(300):
        given = [random_record(random) for _ in range(random.randrange(1, 5))]
        data = encode_records([(one.timestamp_ms, one.key, one.value, one.headers) for one in given], 0)
        reader = reader_of(data, len(given))
        records = reader.take(len(given))
        copies = [ConsumerRecord(*one._fields()) for one in reader_of(data, len(given))]
        way = random.choice(["fresh", "read", "set", "detached"])
        for one in records:
            if way == "read":
                _ = one.value, one.headers
            elif way == "set":
                one.offset = one.offset
        if way == "detached":
            reader.detach()
        terms = b"q", b"x" * 16, 60_000, random.choice([1_000_000, 250])
        assert encode_starts(records, *terms) == encode_starts(copies, *terms)
        assert encode_ends(records, b"x" * 16) == encode_ends(copies, b"x" * 16)


def test_a_header_whose_name_is_not_utf_8_comes_back() -> None:
    headers: Any = (("kwire-mq-id", b"1"), ("b\udcff", b"x"))
    marker = Marker(MarkerType.START, PLACE, 1, b"q", b"v", headers)
    assert decode_marker(encode_marker(marker)) == marker
    assert overhead(headers) > 80


def test_what_is_no_record_is_a_type_error_and_no_crash() -> None:
    broken: Any
    for broken in (SimpleNamespace(partition="0", offset=1), SimpleNamespace(partition=0)):
        with pytest.raises((TypeError, AttributeError)):
            encode_ends([broken], b"")
    with pytest.raises(ValueError, match="16"):
        encode_ends([], b"short")
