"""Completed offsets in a commit's metadata, against Confluent's Parallel Consumer in both directions."""

from __future__ import annotations

import tracemalloc
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from brokers.jars import fetch_jars

from kwire.consumer import offset_map
from kwire.consumer.offset_map import UnreadableOffsetMap, decode_offset_map, encode_offset_map
from kwire.errors import ConfigurationError, EncodeError
from kwire.records.compression import Compression, compress
from tests.java_program import JavaProgram

VERSION = "0.5.3.3"

# Metadata that Confluent's encoder 0.5.3.3 makes for base 100, of which 101, 102, 105 and 106 are complete.
COMPLETED = (range(101, 103), range(105, 107))
RECORDED = {
    "BitSet": "bAAHZgA=",
    "BitSetV2": "bwAAAAdmAA==",
    "RunLength": "bgABAAIAAgAC",
    "RunLengthV2": "ZQAAAAEAAAACAAAAAgAAAAI=",
}


def metadata_of(data: bytes) -> str:
    return b64encode(data).decode()


def kind_of(metadata: str, base: int = 0) -> str:
    found = decode_offset_map(base, metadata)
    assert isinstance(found, UnreadableOffsetMap), found
    return found.kind


def random_completed(random: Random, base: int) -> list[range]:
    """Ranges above `base` that do not touch: few or many, short or long."""
    completed = []
    longest = random.choice((1, 3, 50, 300))
    position = base
    for _ in range(random.choice((1, 2, 10, 300))):
        start = position + random.randint(1, longest)
        position = start + random.randint(1, longest)
        completed.append(range(start, position))
    return completed


@pytest.mark.parametrize("encoding", RECORDED)
def test_confluents_metadata(encoding: str) -> None:
    assert decode_offset_map(100, RECORDED[encoding]) == COMPLETED


def test_the_smallest_is_written() -> None:
    assert encode_offset_map(100, COMPLETED) == RECORDED["BitSetV2"]
    assert b64decode(encode_offset_map(0, [range(1, 1_000)]))[:1] == b"e"
    # A pattern of many bits is compressed, random bits are not.
    assert b64decode(encode_offset_map(0, [range(n, n + 1) for n in range(1, 5_000, 2)]))[:1] in b"sp"
    random = Random(1)
    assert b64decode(encode_offset_map(0, [range(n, n + 1) for n in range(500) if random.random() < 0.5]))[:1] == b"o"


def test_nothing_is_complete() -> None:
    assert encode_offset_map(5, []) == ""
    assert encode_offset_map(5, [range(1, 5), range(7, 7)]) == ""
    assert decode_offset_map(5, "") == ()
    assert decode_offset_map(5, None) == ()


def test_any_ranges_come_back_merged_and_above_the_base() -> None:
    metadata = encode_offset_map(5, [range(9, 11), range(0, 7), range(8, 10), range(11, 12), range(20, 21)])
    assert decode_offset_map(5, metadata) == (range(5, 7), range(8, 12), range(20, 21))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_encoded_is_decoded(seed: int) -> None:
    random = Random(seed)
    base = random.choice((0, 7, 2**31, 2**62))
    completed = random_completed(random, base)
    assert decode_offset_map(base, encode_offset_map(base, completed)) == tuple(completed)


@pytest.mark.parametrize(
    ("magic", "data"),
    [
        (b"L", bytes([0, 1, 1, 0, 0, 1, 1, 0])),
        (b"l", b"\x00\x07\x66\x00"),
        (b"n", b"\x00\x01\x00\x02\x00\x02\x00\x02"),
        (b"e", b"\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\2"),  # a run of no offsets parts nothing
        (b"o", b"\0\0\0\x07\xe6"),  # a bit beyond the count
    ],
)
def test_all_encodings_are_read_plain_and_compressed(magic: bytes, data: bytes) -> None:
    compressed = {b"L": b"\xee", b"l": b"a", b"n": b"J", b"e": b"p", b"o": b"s"}[magic]
    packed = compress(Compression.ZSTD, data)
    assert decode_offset_map(100, metadata_of(magic + data)) == COMPLETED
    assert decode_offset_map(100, metadata_of(compressed + packed)) == COMPLETED


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ("my own note", "unknown"),
        ("é", "unknown"),
        ("\ud800", "unknown"),
        (metadata_of(b"Z123"), "unknown"),
        (metadata_of(b"\x01" + bytes(8)), "kafka-streams"),
        (metadata_of(b"\x02" + bytes(8)), "kafka-streams"),
        (metadata_of(b"o\0\0"), "broken"),
        (metadata_of(b"o\xff\xff\xff\xff\0"), "broken"),
        (metadata_of(b"l\xff\xff\0"), "broken"),
        (metadata_of(b"e\0\0\0\1\0\0"), "broken"),
        (metadata_of(b"e\xff\xff\xff\xff"), "broken"),
        (metadata_of(b"n\0\1\xff\xff"), "broken"),
        (metadata_of(b"s not zstd"), "broken"),
        (metadata_of(b"p"), "broken"),
    ],
)
def test_what_cannot_be_read_has_a_kind(metadata: str, kind: str) -> None:
    assert kind_of(metadata) == kind


def test_offsets_beyond_all_are_broken() -> None:
    assert kind_of(metadata_of(b"e" + bytes(4) + b"\0\0\0\2"), base=2**63 - 1) == "broken"


@pytest.mark.parametrize("seed", range(200))
def test_any_bytes_end_in_ranges_or_in_a_kind(seed: int) -> None:
    random = Random(seed)
    data = random.choice(b"Llanoseps\xeeJ").to_bytes() + random.randbytes(random.randint(0, 60))
    found = decode_offset_map(1_000, metadata_of(data))
    if not isinstance(found, UnreadableOffsetMap):
        assert all(before.stop < after.start for before, after in pairwise(found))
        assert all(1_000 <= each.start < each.stop for each in found)


def test_a_small_string_cannot_take_much_memory() -> None:
    bomb = metadata_of(b"s" + compress(Compression.ZSTD, b"\x7f\xff\xff\xff" + bytes(50 << 20)))
    huge = metadata_of(b"e\x7f\xff\xff\xff" + b"\x7f\xff\xff\xff")
    tracemalloc.start()
    try:
        assert kind_of(bomb) == "broken"
        assert decode_offset_map(0, huge) == (range(2**31 - 1, 2 * (2**31 - 1)),)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_a_long_map_is_written_as_runs() -> None:
    completed = [range(10_000_000, 10_000_002), range(20_000_000, 1_000_000_000)]
    assert decode_offset_map(0, encode_offset_map(0, completed)) == tuple(completed)
    with pytest.raises(EncodeError, match="too far above"):
        encode_offset_map(0, [range(2**31, 2**31 + 1)])


def test_without_a_zstd_library(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = encode_offset_map(0, [range(n, n + 1) for n in range(1, 5_000, 2)])

    def missing(*_: object) -> bytes:
        raise ConfigurationError("zstd needs a package that is not installed")

    monkeypatch.setattr(offset_map, "compress", missing)
    monkeypatch.setattr(offset_map, "decompress", missing)
    plain = encode_offset_map(0, [range(n, n + 1) for n in range(1, 5_000, 2)])
    assert b64decode(plain)[:1] == b"o"
    assert isinstance(decode_offset_map(0, plain), tuple)
    assert kind_of(packed) == "needs-zstd"


# Confluent's own library.


@pytest.fixture(scope="module")
def confluent() -> Iterator[JavaProgram]:
    jars = fetch_jars("parallel-consumer-core", VERSION)
    program = JavaProgram(jars, Path(__file__).with_name("OffsetMapOracle.java"))
    yield program
    program.close()


def incomplete_of(base: int, completed: Sequence[range]) -> list[int]:
    """The offsets from `base` to the last complete one that are not complete."""
    done = {offset for each in completed for offset in each}
    return [offset for offset in range(base, completed[-1].stop) if offset not in done]


def fields_of(program: JavaProgram, lines: Sequence[str]) -> list[list[str]]:
    found = [line.split("\t") for line in program.ask(lines)]
    assert {line[0] for line in found} == {"ok"}, [line for line in found if line[0] != "ok"][:3]
    return found


@pytest.mark.live
def test_confluent_reads_ours(confluent: JavaProgram) -> None:
    random = Random(1)
    cases = [(base, random_completed(random, base)) for base in (0, 5, 2**33) for _ in range(100)]
    lines = [f"decode\t{base}\t{encode_offset_map(base, completed)}" for base, completed in cases]
    for (base, completed), (_, highest, offsets) in zip(cases, fields_of(confluent, lines), strict=True):
        assert int(highest) == completed[-1].stop - 1
        assert [int(offset) for offset in offsets.split(",") if offset] == incomplete_of(base, completed)


@pytest.mark.live
def test_we_read_all_of_confluents(confluent: JavaProgram) -> None:
    random = Random(2)
    cases = [(base, random_completed(random, base)) for base in (0, 5, 2**33) for _ in range(100)]
    cases.append((100, [*COMPLETED]))
    lines = [
        f"encode\t{base}\t{completed[-1].stop - 1}\t{','.join(map(str, incomplete_of(base, completed)))}"
        for base, completed in cases
    ]
    seen = set()
    size = theirs_size = 0
    for (base, completed), (_, best, every) in zip(cases, fields_of(confluent, lines), strict=True):
        assert decode_offset_map(base, best) == tuple(completed)
        ours = encode_offset_map(base, completed)
        theirs = dict(each.split("=", 1) for each in every.split())
        for name, metadata in theirs.items():
            seen.add(name)
            assert decode_offset_map(base, metadata) == tuple(completed), name
        size += len(ours)
        theirs_size += min(len(theirs[name]) for name in theirs if "V2" in name)
        magic = {b"o": "BitSetV2", b"e": "RunLengthV2"}.get(b64decode(ours)[:1])
        assert magic is None or theirs[magic] == ours
    assert size <= theirs_size
    assert {name: theirs[name] for name in RECORDED} == RECORDED
    assert seen == {f"{kind}{v}{c}" for kind in ("BitSet", "RunLength") for v in ("", "V2") for c in ("", "Compressed")}
