"""Kafka's own classes, run now: they read what we write, and still write what samples/ has of them.

Random batches too: what we make of any records, in any format and codec, Kafka reads as meant.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from kwire.records import Compression, Record, encode_batch
from kwire.records.rows import NewRecord
from kwire.wire.checksums import murmur2

from .cases import CASES, NOON
from .oracle import VERSIONS, Oracle, records_read, written
from .record_samples import requests, samples
from .test_kafka_samples import encoded

pytestmark = pytest.mark.usefixtures("loops")

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True, scope="module")
def loops() -> None:
    """As chosen: that all loops write the same is shown elsewhere, and a JVM takes seconds."""


@pytest.fixture(params=VERSIONS, scope="module")
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with closing(Oracle(request.param, tmp_path_factory.mktemp("oracle"))) as one:
        yield one


def test_samples_are_what_kafka_writes(oracle: Oracle) -> None:
    responses = dict(oracle.ask(requests()))
    recorded = samples()
    assert responses.keys() == recorded.keys()
    # Compressed bytes may change with the codec; uncompressed bytes must not.
    for name in recorded:
        if "-none-" in name or name.startswith(("marker", "murmur2")):
            assert responses[name] == recorded[name], name


def test_kafka_reads_our_batches(oracle: Oracle) -> None:
    responses = records_read(oracle.ask(f"read\t{case.name}\t{written(encoded(case))}" for case in CASES))
    for case in CASES:
        assert responses[case.name] == case.expected(), case.name


def test_kafka_reads_random_batches(oracle: Oracle) -> None:
    made = dict(random_batches())
    responses = records_read(oracle.ask(f"read\t{name}\t{written(batch)}" for name, (batch, _) in made.items()))
    for name, (_, expected) in made.items():
        assert responses[name] == expected, name


def test_murmur2(oracle: Oracle) -> None:
    rng = random.Random(20)
    keys = [rng.randbytes(size) for size in range(70)]
    responses = dict(oracle.ask(f"murmur2\t{key.hex()}\t{written(key)}" for key in keys))
    assert responses == {key.hex(): str(murmur2(key)) for key in keys}


def test_an_unknown_request_ends_the_oracle(oracle: Oracle) -> None:
    """The error names the request; the next request restarts the oracle."""
    with pytest.raises(AssertionError, match="nonsense"):
        oracle.ask(["murmur2\tempty\t.", "nonsense"])
    assert oracle.ask(["murmur2\tempty\t."]) == [["empty", str(murmur2(b""))]]


def random_batches() -> list[tuple[str, tuple[bytes, list[Record]]]]:
    made = []
    for seed in range(200):
        rng = random.Random(seed)
        magic = rng.choice((0, 1, 2, 2, 2))
        codec = rng.choice([codec for codec in Compression if magic == 2 or codec is not Compression.ZSTD])
        records = [random_record(rng, magic) for _ in range(rng.choice((1, 2, 64, 65, 200)))]
        batch = encode_batch(records, magic=magic, compression=codec, base_offset=seed)
        expected = [Record(seed + index, *record[:3], tuple(record[3])) for index, record in enumerate(records)]
        made.append((f"seed-{seed}-v{magic}-{codec.name}", (batch, expected)))
    return made


def random_record(rng: random.Random, magic: int) -> NewRecord:
    def content() -> bytes | None:
        return rng.choice((None, b"", rng.randbytes(rng.choice((1, 63, 64, 200, 9000))), b"like" * rng.randrange(30)))

    headers = tuple((rng.choice(("", "a", "\N{SNOWMAN}")), content()) for _ in range(rng.randrange(3)))
    timestamp = NOON + rng.choice((0, 0, 1, -1, 64, 8192, -(1 << 40), 1 << 41))
    return -1 if magic == 0 else timestamp, content(), content(), headers if magic == 2 else ()
