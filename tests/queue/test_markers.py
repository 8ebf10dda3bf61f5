"""The bytes of markers: those of kafka-mq-go in both directions, and our own."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from kwire.errors import DecodeError
from kwire.queue.markers import (
    NO_TOPIC_ID,
    Identity,
    Marker,
    MarkerType,
    decode_marker,
    encode_marker,
    overhead,
)

PLACE = Identity(NO_TOPIC_ID, 3, 300)

GO_START = "1a050803" + "10ac02" + "20904e" + "2a046a6f6273" + "32026869"
HERE = Path(__file__).parent


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
        assert len(data) <= len(marker.key or b"") + len(marker.value or b"") + overhead(headers)


def test_broken_bytes_raise_decode_errors_only() -> None:
    random = Random(14)
    whole = encode_marker(Marker(MarkerType.START, Identity(UUID(int=9), 1, 2), 3, b"k", b"v", (("a", b"1"),)))
    refused = 0
    for _ in range(3_000):
        data = bytearray(whole[: random.randrange(1, len(whole) + 1)])
        data[random.randrange(len(data))] = random.randrange(256)
        try:
            decode_marker(bytes(data))
        except DecodeError:
            refused += 1
    assert refused
    for broken in ("1a", "1aff01", "08", "0b", "00", "820105" + "0102030405", "8a01030a01ff", "1005" + "18ff"):
        with pytest.raises(DecodeError):
            decode_marker(bytes.fromhex(broken))
