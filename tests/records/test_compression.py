"""The codecs: framing, levels, rejected input, and the limit of the output."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard

from kwire.errors import ConfigurationError, CorruptRecordsError
from kwire.records import Compression, compression, decode_batches, encode_batch
from kwire.records.compression import compress, decompress, zstd
from kwire.records.compression.lz4 import xxh32
from kwire.records.compression.snappy import _HEADER as XERIAL
from tests.net.test_channel import another_thread

pytestmark = pytest.mark.usefixtures("loops")

GZIP, SNAPPY, LZ4, ZSTD = (codec for codec in Compression if codec)
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]

each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())

CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "text": b"kwire writes and reads " * 9,
    "random": random.Random(1).randbytes(70_001),
    "zeros": bytes(3_000_000),
    "two of snappy's blocks": b"ab" * 32 * 1024,
}


@each_codec
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_round_trip(codec: Compression, wrap: Callable[[bytes], bytes], content: bytes) -> None:
    compressed = compress(codec, wrap(content))
    assert type(compressed) is bytes
    plain = decompress(codec, wrap(compressed), limit=len(content))
    assert memoryview(plain).readonly
    assert plain == content


def test_none() -> None:
    assert (
        compress(Compression.NONE, memoryview(b"as it is")) == decompress(Compression.NONE, b"as it is") == b"as it is"
    )


@pytest.mark.parametrize(
    ("name", "codec"),
    [("lz4", LZ4), ("LZ4", LZ4), ("none", Compression.NONE), (None, Compression.NONE), (4, ZSTD), (GZIP, GZIP)],
)
def test_of(name: str | int | None, codec: Compression) -> None:
    assert Compression.of(name) is codec


@pytest.mark.parametrize("name", ["brotli", "", 5, -1])
def test_of_unknown(name: str | int) -> None:
    with pytest.raises(ConfigurationError, match="choose one of none, gzip, snappy, lz4, zstd"):
        Compression.of(name)


@pytest.mark.parametrize(
    ("codec", "levels", "wrong"),
    [
        (GZIP, [-1, 1, 9], [-2, 10]),
        (LZ4, [1, 9, 17], [0, 18]),
        (ZSTD, [-5, 1, 22], [23]),
        (SNAPPY, [], [1]),
    ],
)
def test_levels(codec: Compression, levels: list[int], wrong: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, CONTENTS["text"], level)) == CONTENTS["text"]
    for level in wrong:
        with pytest.raises(ConfigurationError):
            compress(codec, b"", level)


# CONTENTS["text"] as other programs write it, unlike Kafka's clients.
TEXT = CONTENTS["text"]
TO_SKIP = (0x184D2A5F).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"zzz"
VARIANTS: dict[str, tuple[Compression, bytes]] = {
    "gzip with a name and a time": (GZIP, gzip.compress(TEXT, mtime=1)),
    "gzip of two members": (GZIP, gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:])),
    "raw snappy": (SNAPPY, snappy.compress(TEXT)),
    "xerial, two blocks": (
        SNAPPY,
        XERIAL
        + b"".join(len(block).to_bytes(4, "big") + block for block in map(snappy.compress, (TEXT[:9], TEXT[9:]))),
    ),
    "xerial, two streams": (SNAPPY, compress(SNAPPY, TEXT[:9]) + compress(SNAPPY, TEXT[9:])),
    "lz4 with size and checksum": (LZ4, lz4.frame.compress(TEXT, store_size=True, content_checksum=True)),
    "lz4 with a stored block": (
        LZ4,
        compress(LZ4, TEXT[:9])[:-4] + (len(TEXT) - 9 | 1 << 31).to_bytes(4, "little") + TEXT[9:] + bytes(4),
    ),
    "lz4 in blocks of 4 MiB": (
        LZ4,
        lz4.frame.compress(TEXT * 9000, block_size=7, block_linked=False, store_size=False),
    ),
    "lz4 with linked blocks": (LZ4, lz4.frame.compress(TEXT * 9000, block_linked=True)[:]),
    "lz4 with checksums of blocks": (LZ4, lz4.frame.compress(TEXT, block_checksum=True)),
    "lz4 of two frames": (LZ4, lz4.frame.compress(TEXT[:9]) + lz4.frame.compress(TEXT[9:])),
    "zstd without size": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)),
    "zstd with checksum": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd with a size of two bytes": (ZSTD, zstandard.compress(TEXT * 9)),
    "zstd of two blocks, without size": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT * 900)),
    "zstd with frames to skip": (ZSTD, TO_SKIP + zstandard.compress(TEXT) + TO_SKIP),
    "zstd of two frames": (ZSTD, zstandard.compress(TEXT[:9]) + zstandard.compress(TEXT[9:])),
}


def of_many(library: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
    """Return members of many sizes, one after the other, and their content."""
    chance = random.Random(1)
    contents = [chance.randbytes(size) for size in (0, 5, 3000, 0, 100_000, 7, 1, 40_000, 0, 300_000)]
    return b"".join(map(library, contents)), b"".join(contents)


OF_MANY = {"gzip": (GZIP, gzip.compress), "lz4": (LZ4, lz4.frame.compress), "zstd": (ZSTD, zstandard.compress)}


@pytest.mark.parametrize(("codec", "library"), OF_MANY.values(), ids=OF_MANY)
def test_members_of_many_sizes(codec: Compression, library: Callable[[bytes], bytes]) -> None:
    data, plain = of_many(library)
    assert decompress(codec, data, limit=len(plain)) == plain
    with pytest.raises(CorruptRecordsError, match="more than"):
        decompress(codec, data, limit=len(plain) - 1)
    for cut in (1, 2, 3, 4, 5, 8, 9, 1000, 2048, 200_000):
        with pytest.raises(CorruptRecordsError):
            decompress(codec, data[:-cut])


class Counting:
    """Count the bytes that a decompressing object of a library is given."""

    given = 0

    def __init__(self, made: Any) -> None:
        self._made = made

    def decompress(self, data: bytes, *limit: int, **options: int) -> bytes:
        Counting.given += len(data)
        plain: bytes = self._made.decompress(data, *limit, **options)
        return plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


@pytest.mark.parametrize(
    ("codec", "owner", "name"),
    [(GZIP, zlib, "decompressobj"), (LZ4, lz4.frame, "LZ4FrameDecompressor")],
    ids=["gzip", "lz4"],
)
def test_time_grows_with_the_data_and_not_with_its_square(
    codec: Compression, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each object copies what it is given and does not use, so it must be given little more than its own member."""
    before = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *options: Counting(before(*options)))
    monkeypatch.setattr(Counting, "given", 0)
    data = compress(codec, b"") * 2000
    assert bytes(decompress(codec, data)) == b""
    assert len(data) < Counting.given < 2000 * 2048


@pytest.mark.parametrize(("codec", "data"), VARIANTS.values(), ids=VARIANTS)
def test_variants(codec: Compression, data: bytes) -> None:
    plain = decompress(codec, data)
    assert plain == TEXT * (len(plain) // len(TEXT))
    assert plain


LZ4_START = compress(LZ4, b"")[:7]
OVER_64_KIB = lz4.block.compress(bytes(65537), store_size=False)

WRONG: dict[str, tuple[Compression, bytes, str]] = {
    "gzip: nothing": (GZIP, b"", "cut off"),
    "gzip: no magic": (GZIP, b"hello, world", "not gzip data"),
    "gzip: CRC": (GZIP, gzip.compress(TEXT)[:-8] + bytes(8), "incorrect data check"),
    "gzip: more behind it": (GZIP, gzip.compress(TEXT) + b"more", "incorrect header check"),
    "snappy: nothing": (SNAPPY, b"", "does not begin with a length"),
    "snappy: length of six bytes": (SNAPPY, b"\xff" * 5 + b"\0", "does not begin with a length"),
    "snappy: garbage": (SNAPPY, b"\x20" + b"\xff" * 9, "not snappy data"),
    "snappy: declares more than it can be": (SNAPPY, b"\xa0\x8d\x06" + b"\0" * 9, "12 bytes cannot make the 100000"),
    "xerial: header cut off": (SNAPPY, XERIAL[:-1], "cut off"),
    "xerial: version 2": (SNAPPY, XERIAL[:-1] + b"\2", "a reader of version 2"),
    "xerial: length cut off": (SNAPPY, XERIAL + b"\0\0\0", "cut off"),
    "xerial: length beyond the data": (SNAPPY, XERIAL + b"\x7f\xff\xff\xff" + b"\0", "cut off"),
    "xerial: empty block": (SNAPPY, XERIAL + b"\0\0\0\0", "does not begin with a length"),
    "lz4: nothing": (LZ4, b"", "magic number"),
    "lz4: magic alone": (LZ4, b"\x04\x22\x4d\x18", "cut off"),
    "lz4: header checksum": (LZ4, lz4.frame.compress(TEXT, store_size=False)[:6] + b"\0" + bytes(9), "not lz4 data"),
    "lz4: more behind it": (LZ4, compress(LZ4, TEXT) + b"more", "magic number"),
    "lz4: content's checksum": (LZ4, lz4.frame.compress(TEXT, content_checksum=True)[:-4] + bytes(4), "not lz4 data"),
    "lz4: a block beyond the data": (LZ4, LZ4_START + b"\5\0\0\0" + b"\x10a", "cut off"),
    "lz4: no end": (LZ4, compress(LZ4, TEXT)[:-4], "cut off"),
    "lz4: a block above 64 KiB": (LZ4, LZ4_START + b"\1\0\1\0" + bytes(65537 + 4), "a block of 65537 bytes"),
    "lz4: a stored block above 64 KiB": (LZ4, LZ4_START + b"\1\0\1\x80" + bytes(65537 + 4), "a block of 65537"),
    "lz4: a block that makes too much": (
        LZ4,
        LZ4_START + len(OVER_64_KIB).to_bytes(4, "little") + OVER_64_KIB + bytes(4),
        "not lz4 data",
    ),
    "lz4: garbage": (LZ4, LZ4_START + b"\2\0\0\0" + b"\xff\xff" + bytes(4), "not lz4 data"),
    "zstd: nothing": (ZSTD, b"", "cut off"),
    "zstd: no magic": (ZSTD, b"hello, world", "not zstd data"),
    "zstd: more behind it": (ZSTD, zstandard.compress(TEXT) + b"more", "not zstd data"),
    "zstd: a frame to skip, cut off": (ZSTD, TO_SKIP[:-1], "cut off"),
    "zstd: checksum": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)[:-4] + bytes(4), "not zstd"),
}


@pytest.mark.parametrize(("codec", "data", "reason"), WRONG.values(), ids=WRONG)
def test_wrong(codec: Compression, data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordsError, match=reason):
        decompress(codec, data)


@each_codec
def test_cut_off_at_every_byte(codec: Compression) -> None:
    """A decoder never returns partial content, except that a snappy stream may end between two blocks."""
    data = compress(codec, CONTENTS["text"])
    may_end = {len(XERIAL)} if codec is SNAPPY else set()
    for size in set(range(len(data))) - may_end:
        with pytest.raises(CorruptRecordsError):
            decompress(codec, data[:size])


@each_codec
def test_flipped_bits(codec: Compression) -> None:
    """A decoder returns content or raises only CorruptRecordsError; a batch's CRC covers the content."""
    good = compress(codec, CONTENTS["text"])
    for at in range(len(good) * 8):
        data = bytearray(good)
        data[at // 8] ^= 1 << at % 8
        try:
            decompress(codec, bytes(data), limit=100_000)
        except CorruptRecordsError:
            continue


@each_codec
def test_garbage(codec: Compression) -> None:
    rng = random.Random(int(codec))
    start = compress(codec, CONTENTS["text"])[:8]
    for size in range(300):
        for data in (rng.randbytes(size), start + rng.randbytes(size)):
            with pytest.raises(CorruptRecordsError):
                decompress(codec, data, limit=1000)


MB = 1 << 20


def lz4_that_declares(size: int) -> bytes:
    """Return a frame whose header has a wrong content size."""
    descriptor = b"\x68\x40" + struct.pack("<Q", size)
    return b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,)) + bytes(4)


def zstd_that_declares(size: int) -> bytes:
    """A single-segment frame that says to make `size` bytes, and one block of 128 KiB of zeros."""
    return (
        b"\x28\xb5\x2f\xfd\xe0"
        + struct.pack("<Q", size)
        + (1 | 1 << 1 | (128 << 10) << 3).to_bytes(3, "little")
        + b"\0"
    )


BOMBS: dict[str, tuple[Compression, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: compress(GZIP, bytes(64 * MB))),
    "gzip of many members": (GZIP, lambda: compress(GZIP, bytes(MB // 2)) * 100),
    "xerial": (SNAPPY, lambda: compress(SNAPPY, bytes(64 * MB))),
    "snappy that declares 4 GB": (SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "snappy that declares the limit": (SNAPPY, lambda: b"\x80\x80\x40" + bytes(100)),
    "lz4": (LZ4, lambda: compress(LZ4, bytes(64 * MB))),
    "lz4 of many frames": (LZ4, lambda: compress(LZ4, bytes(MB // 2)) * 100),
    "lz4 that declares an exabyte": (LZ4, lambda: lz4_that_declares(1 << 60)),
    "zstd": (ZSTD, lambda: compress(ZSTD, bytes(256 * MB))),
    "zstd of many frames": (ZSTD, lambda: compress(ZSTD, bytes(MB // 2)) * 100),
    "zstd that declares 100 MB": (ZSTD, lambda: zstd_that_declares(100 * MB)),
    "zstd that declares an exabyte": (ZSTD, lambda: zstd_that_declares(1 << 60)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_bombs(codec: Compression, bomb: Callable[[], bytes]) -> None:
    """Reject it with little memory: twice the limit, since parts are joined."""
    data = bomb()
    decompress(codec, compress(codec, b"imports what is imported when first used"))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordsError):
            decompress(codec, data, limit=MB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MB + 2 * len(data)


@each_codec
@pytest.mark.parametrize("way", ["compress", "decompress"])
def test_others_run_meanwhile(codec: Compression, way: str) -> None:
    """Other threads get the GIL only when the codec's library releases it."""
    plain = random.Random(1).randbytes(MB // 2).hex().encode()
    packed = compress(codec, plain)
    function, data = (compress, plain) if way == "compress" else (decompress, packed)
    function(codec, data)  # imports what is imported when first used
    with another_thread() as has_run:
        for _ in range(200):
            function(codec, data)
            if has_run():
                break
        assert has_run()


@pytest.mark.slow
@each_codec
def test_calls_are_for_blocks(codec: Compression) -> None:
    """Reading takes at most a dozen calls for each 32 KiB, the smallest block that any codec has: none by the bytes."""

    def calls(size: int) -> int:
        data, events = compress(codec, random.Random(1).randbytes(size // 2).hex().encode()), Counter[str]()
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: events.update((event,)))
        try:
            decompress(codec, data)
        finally:
            sys.setprofile(before)
        return events["call"] + events["c_call"]

    assert calls(MB) > 0
    assert calls(5 * MB) - calls(MB) <= 12 * 4 * MB // (32 * 1024)


@pytest.mark.parametrize("magic", [0, 1, 2])
@each_codec
def test_the_limit_reaches_the_codec(codec: Compression, magic: int) -> None:
    if magic < 2 and codec is ZSTD:
        return
    data = encode_batch([(0, None, bytes(MB), ())], magic=magic, compression=codec)
    read = [record for batch in decode_batches(data, max_decompressed_bytes=MB + 100) for record in batch.records()]
    assert len(read[0].value or b"") == MB
    with pytest.raises(CorruptRecordsError, match="decompresses to more than 1048576 bytes"):
        [batch.records() for batch in decode_batches(data, max_decompressed_bytes=MB)]


class FakeStandardZstd:
    """The interface of Python 3.14's compression.zstd, on a codec that is here: zlib."""

    ZstdError = zlib.error

    class DecompressionParameter:
        window_log_max = "window_log_max"

    class ZstdDecompressor:
        def __init__(self, *, options: dict[str, int]) -> None:
            assert options == {"window_log_max": 27}
            self._zlib = zlib.decompressobj()

        def decompress(self, data: bytes, max_length: int) -> bytes:
            return self._zlib.decompress(data, max_length)

        @property
        def eof(self) -> bool:
            return self._zlib.eof

        @property
        def unused_data(self) -> bytes:
            return self._zlib.unused_data

    @staticmethod
    def compress(data: bytes, level: int) -> bytes:
        return zlib.compress(data, level)


def test_zstd_of_the_standard_library() -> None:
    """Test its paths with a fake. On Python 3.14 all other tests use the real module."""
    library = zstd._Standard(FakeStandardZstd)
    data = library.compress(TEXT, 3)
    assert library.decompress(memoryview(data), len(TEXT)) == TEXT
    assert library.decompress(memoryview(data + data), 2 * len(TEXT)) == TEXT * 2
    for wrong, reason in ((data[:-1], "cut off"), (b"garbage", "not zstd data"), (data * 2, "more than")):
        with pytest.raises(CorruptRecordsError, match=reason):
            library.decompress(memoryview(wrong), len(TEXT))


def test_zstd_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    batch = next(decode_batches(encode_batch([(0, None, b"", ())], compression=ZSTD)))
    for cached in (compression._compressor, compression._decompressor):
        cached.cache_clear()  # another test may have had the module imported anew
    monkeypatch.setattr(zstd, "import_module", missing)
    monkeypatch.setattr(zstd, "_library", zstd._library.__wrapped__)  # its cache may be filled by another thread
    with pytest.raises(ConfigurationError, match=r"pip install kwire\[zstd\]"):
        compress(ZSTD, b"")
    with pytest.raises(ConfigurationError, match=r"pip install kwire\[zstd\]"):
        batch.records()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 16, 17, 31, 32, 100])
def test_xxh32(size: int) -> None:
    """lz4 appends it after the content."""
    content = random.Random(size).randbytes(size)
    assert lz4.frame.compress(content, content_checksum=True)[-4:] == xxh32(content).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("codec", "library", "package"), [("lz4", "lz4.block", "lz4"), ("snappy", "snappy", "python-snappy")]
)
def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, codec: str, library: str, package: str
) -> None:
    """As on a cluster to which kwire came as a zip."""
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"kwire.records.compression.{codec}", raising=False)
    with pytest.raises(
        ConfigurationError, match=f"{codec} needs a package that is not installed: pip install {package}"
    ):
        compression._module(Compression.of(codec), "compress")
