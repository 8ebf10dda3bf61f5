"""CRC-32C, by each of its implementations, and murmur2."""

from __future__ import annotations

import random
import zlib
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import crcmod
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.wire import checksums
from tests.wire.speedups import needs_c, python, speedups

CRCMOD: Callable[..., int] = crcmod.mkCrcFun(0x11EDC6F41, initCrc=0, rev=True, xorOut=0xFFFFFFFF)
CRCS: dict[str, Callable[..., int]] = {
    "chosen": checksums.crc32c, "crcmod": CRCMOD, "python": python.crc32c,
    "table": checksums._crc32c_of_table,
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
@given(data=st.binary(max_size=5_000), value=st.integers(0, (1 << 32) - 1))
def test_any_data_after_any_crc(crc32c: Callable[..., int], data: bytes, value: int) -> None:
    assert crc32c(data, value) == CRCMOD(data, value)


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        (("crc32c", "crcmod"), zlib.crc32),
        (("crcmod",), zlib.adler32),
        ((), checksums._crc32c_of_table),  # kwire from a zip, on a cluster
    ],
)
def test_the_fastest_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], expected: Callable[..., int]
) -> None:
    modules = {
        "crc32c": SimpleNamespace(crc32c=zlib.crc32),
        "crcmod": SimpleNamespace(mkCrcFun=lambda polynomial, **_: zlib.adler32),
    }
    monkeypatch.setattr(checksums, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr("importlib.import_module", modules.__getitem__)
    assert checksums._fastest_crc32c.__wrapped__() is expected


def murmur2_by_the_book(data: bytes) -> int:
    """Compute Austin Appleby's murmur2 byte by byte, with the seed of Kafka's Java client."""
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
    """tests/records has the values of the Java client."""
    assert checksums.murmur2(wrap(data)) == murmur2_by_the_book(data)


@pytest.mark.parametrize(
    "buffer",
    [array("i", [1, 2, -3]), memoryview(array("H", [1, 2, 3])), memoryview(b"abcdef").cast("B", (2, 3))],
    ids=["array", "view", "two dimensions"],
)
def test_murmur2_of_larger_items_is_that_of_their_bytes(buffer: Any) -> None:
    assert checksums.murmur2(buffer) == python.murmur2(buffer) == murmur2_by_the_book(buffer.tobytes())


@needs_c
@pytest.mark.parametrize("name", ["crc32c", "crc32c_by_table"])
def test_crc32c_in_c(name: str) -> None:
    crc32c = getattr(speedups(), name)
    for data, crc in KNOWN:
        assert crc32c(data) == crc
    rng = random.Random(3)
    lengths = [count * 3 * size + more for size in (256, 4096) for count in (1, 2) for more in (-1, 0, 1, 2, 9)]
    for size in [*range(70), *lengths, 3 * (4096 + 256) + 13, 65535, 65536, 100_001]:
        data, value = rng.randbytes(size), rng.getrandbits(32)
        for start in range(3):
            view = memoryview(data)[start:]
            assert crc32c(view, value) == python.crc32c(view, value)
    for wrong in ((), (b"", 0, 0), ("text",), (b"", "text"), (b"", None)):
        with pytest.raises(TypeError):
            crc32c(*wrong)


@needs_c
@given(st.binary(max_size=70))
def test_murmur2_in_c(data: bytes) -> None:
    assert speedups().murmur2(data) == speedups().murmur2(memoryview(data)) == python.murmur2(data)


@needs_c
def test_murmur2_in_c_refuses_text() -> None:
    with pytest.raises(TypeError):
        speedups().murmur2("text")
