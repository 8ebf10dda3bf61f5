"""CRC-32C, by crcmod and over lanes, and murmur2."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import crcmod
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.wire import _lanes, checksums
from kwire.wire._lanes import LANE_BYTES, LANES_MIN
from tests.wire.speedups import python

CRCMOD: Callable[..., int] = crcmod.mkCrcFun(0x11EDC6F41, initCrc=0, rev=True, xorOut=0xFFFFFFFF)
CRCS: dict[str, Callable[..., int]] = {
    "accel": checksums.crc32c, "crcmod": CRCMOD, "lanes": _lanes.crc32c, "pure": python.crc32c,
}  # fmt: skip
each = pytest.mark.parametrize("crc32c", CRCS.values(), ids=CRCS)

KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    # RFC 3720, B.4
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@each
@pytest.mark.parametrize(("data", "crc"), KNOWN, ids=lambda part: None)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_known(crc32c: Callable[..., int], data: bytes, crc: int, wrap: type[bytes]) -> None:
    assert crc32c(wrap(data)) == crc
    for cut in range(len(data)):
        assert crc32c(wrap(data[cut:]), crc32c(wrap(data[:cut]))) == crc


@each
@pytest.mark.parametrize("lanes", [0, 1, LANES_MIN - 1, LANES_MIN, LANES_MIN + 1, 500])
@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_around_the_lanes(crc32c: Callable[..., int], lanes: int, more: int) -> None:
    rng = random.Random(lanes)
    data, value = rng.randbytes(max(0, lanes * LANE_BYTES + more)), rng.getrandbits(32)
    assert crc32c(data, value) == CRCMOD(data, value)


@pytest.mark.parametrize(
    ("installed", "module"),
    [({"crc32c", "crcmod._crcfunext"}, "crc32c"), ({"crcmod._crcfunext"}, "crcmod"), (set(), "kwire.wire._lanes")],
)
def test_the_fastest_that_is_installed(monkeypatch: pytest.MonkeyPatch, installed: set[str], module: str) -> None:
    taken: Callable[..., int] = zlib.crc32
    monkeypatch.setattr(checksums, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr("importlib.import_module", lambda name: SimpleNamespace(crc32c=taken))
    found = checksums._fastest_crc32c.__wrapped__()
    assert (found is taken) == (module == "crc32c")
    assert found is taken or found.__module__.partition(".crcmod")[0] == module


def murmur2_by_the_book(data: bytes) -> int:
    """Austin Appleby's description, a byte at a time, with the seed that Kafka's Java client has."""
    m, word = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    while len(data) >= 4:
        k = sum(byte << 8 * at for at, byte in enumerate(data[:4])) * m & word
        k = (k ^ k >> 24) * m & word
        h = (h * m & word) ^ k
        data = data[4:]
    if data:
        for at, byte in enumerate(data):
            h ^= byte << 8 * at
        h = h * m & word
    h = (h ^ h >> 13) * m & word
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
@given(data=st.binary(max_size=70))
def test_murmur2(wrap: type[bytes], data: bytes) -> None:
    """Java's own values are in tests/records."""
    assert checksums.murmur2(wrap(data)) == murmur2_by_the_book(data)
