"""Message sets of formats v0 and v1: offsets and timestamps in compressed ones, and rejected input."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest

from kwire.errors import ConfigurationError, CorruptRecordsError
from kwire.records import Compression, Record, convert, decode_batches, encode_batch
from kwire.records.compression import compress, decompress
from kwire.records.rows import NewRecord

pytestmark = pytest.mark.usefixtures("loops")

RECORDS: list[NewRecord] = [(7, b"a", b"1", ()), (9, None, b"", ()), (8, b"", None, ())]


def message(
    fields: str, *, magic: int = 1, offset: int = 0, attributes: int = 0, timestamp: int = 7, crc: int | None = None
) -> bytes:
    """Return a message with these bytes (hex) as key and value, and a valid CRC and size."""
    checked = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic else b"") + bytes.fromhex(fields)
    return struct.pack(">qiI", offset, 4 + len(checked), crc32(checked) if crc is None else crc) + checked


NO_KEY = "ffffffff"
VALUE = "00000001 61"


def value(data: bytes) -> str:
    return f"{len(data):08x}" + data.hex()


def gzipped(*inner: bytes, **outer: int) -> bytes:
    return message(NO_KEY + value(compress(Compression.GZIP, b"".join(inner))), attributes=1, **outer)


def records(data: bytes) -> list[Record]:
    return [record for batch in decode_batches(data) for record in batch.records()]


def test_message_by_hand() -> None:
    assert records(message(NO_KEY + VALUE, offset=3)) == [Record(3, 7, None, b"a")]
    assert records(message(VALUE + NO_KEY, magic=0)) == [Record(0, -1, b"a", None)]


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (5, [0, 1, 2], [3, 4, 5]),  # as brokers and Kafka's clients write
        (2, [0, 1, 2], [0, 1, 2]),
        (0, [0, 1, 2], [0, 1, 2]),  # as some producers do
        (0, [0], [0]),
        (9, [0, 3, 5], [4, 7, 9]),  # compacted
        (9, [2, 5], [6, 9]),
        (9, [0, 0], [9, 9]),  # as some producers do
        (1, [0, 1, 2], "has offset 1, the last one inside 2"),
    ],
)
def test_relative_offsets(outer: int, inner: list[int], expected: list[int] | str) -> None:
    data = gzipped(*(message(NO_KEY + VALUE, offset=offset) for offset in inner), offset=outer)
    if isinstance(expected, str):
        with pytest.raises(CorruptRecordsError, match=expected):
            records(data)
        return
    assert [record.offset for record in records(data)] == expected
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.count) == (expected[0], expected[-1], len(inner))


def test_absolute_offsets() -> None:
    data = gzipped(*(message(NO_KEY + VALUE, magic=0, offset=offset) for offset in (20, 25)), magic=0, offset=25)
    assert [record.offset for record in records(data)] == [20, 25]


@pytest.mark.parametrize(("attributes", "expected"), [(1, [3, 4]), (1 | 8, [99, 99])])
def test_timestamp_of_the_outer_message(attributes: int, expected: list[int]) -> None:
    inner = b"".join(message(NO_KEY + VALUE, timestamp=timestamp) for timestamp in (3, 4))
    data = message(NO_KEY + value(compress(Compression.GZIP, inner)), attributes=attributes, timestamp=99, offset=1)
    (batch,) = decode_batches(data)
    assert [record.timestamp_ms for record in batch.records()] == expected
    assert (batch.max_timestamp_ms, batch.timestamp_type) == (99, attributes >> 3)


GOOD = message(NO_KEY + VALUE)

WRONG: dict[str, tuple[bytes, str]] = {
    "CRC": (message(NO_KEY + VALUE, crc=1), "says that its CRC-32 is 00000001"),
    "size less than the fields": (GOOD[:8] + struct.pack(">i", 21) + GOOD[12:], "v1 says to have 21 bytes"),
    "negative size": (GOOD[:8] + struct.pack(">i", -5) + GOOD[12:], "v1 says to have -5 bytes"),
    "compression 4": (message(NO_KEY + VALUE, attributes=4), "format v1 has compression 4"),
    "compression 7": (message(NO_KEY + VALUE, attributes=7, magic=0), "format v0 has compression 7"),
    "key length -2": (message("fffffffe" + VALUE + "00"), "a key of -2 bytes and a value of"),
    "value length -2": (message(VALUE + "fffffffe"), "a key of 1 bytes and a value of -2"),
    "key beyond the message": (message("7fffffff" + VALUE), "a key of 2147483647 bytes and a value of -2"),
    "value beyond the message": (message(NO_KEY + "00000002 61"), "a message's value ends at 36, its size says 35"),
    "value of 2 GB": (message(NO_KEY + "7fffffff 61"), "a message's value ends at 2147483681, its size says 35"),
    "no value": (message("00000001 61 000000"), "a key of 1 bytes and a value of -2"),
    "more after the value": (message(NO_KEY + VALUE + "00"), "a message's value ends at 35, its size says 36"),
    "compressed null": (message(NO_KEY + NO_KEY, attributes=1), "a compressed message without a value"),
    "nothing inside": (gzipped(b""), "a compressed message with none inside"),
    "not gzip inside": (message(NO_KEY + VALUE, attributes=1), "gzip"),
    "cut off inside": (gzipped(GOOD[:-1]), "a message says to have 23 bytes of 34, at 0 of the messages decompressed"),
    "cut off inside the header": (gzipped(GOOD, GOOD[:20]), "is cut off, at 35 of the messages decompressed"),
    "wrong CRC inside": (gzipped(GOOD, message(NO_KEY + VALUE, crc=1)), "CRC-32 is 00000001, and it is"),
    "v0 inside v1": (gzipped(message(NO_KEY + VALUE + "00" * 8, magic=0)), "format v0 inside of format v1"),
    "v1 inside v0": (gzipped(GOOD, magic=0), "format v1 inside of format v0"),
    "v2 inside v1": (gzipped(encode_batch([(0, None, b"", ())])), "format v2 inside of format v1"),
    "compressed inside compressed": (gzipped(gzipped(GOOD)), "a compressed message inside of a compressed message"),
    "negative size inside": (gzipped(GOOD[:8] + struct.pack(">i", -5) + GOOD[12:]), "a message says to have -5 bytes"),
}


@pytest.mark.parametrize(("data", "reason"), WRONG.values(), ids=WRONG)
def test_wrong(data: bytes, reason: str) -> None:
    for before in (b"", GOOD, encode_batch(RECORDS)):
        with pytest.raises(CorruptRecordsError) as caught:
            records(before + data)
        assert reason in caught.value.message
        assert caught.value.where == {"offset": len(before)}


def test_a_wrong_crc_is_accepted_without_the_check() -> None:
    data = gzipped(GOOD, message(NO_KEY + VALUE, crc=1), offset=1)
    (batch,) = decode_batches(data[:12] + bytes(4) + data[16:], check_crc=False)
    assert [record.value for record in batch.records()] == [b"a", b"a"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_cut_off_at_every_byte(magic: int, codec: Compression) -> None:
    first = encode_batch(RECORDS, magic=magic, compression=codec)
    second = encode_batch(RECORDS[:1], magic=magic, compression=codec, base_offset=3)
    for size in range(len(second)):
        assert [record.offset for record in records(first + second[:size])] == [0, 1, 2]
    assert [record.offset for record in records(first + second)] == [0, 1, 2, 3]


def test_formats_mixed() -> None:
    data = b"".join(encode_batch(RECORDS, magic=magic, base_offset=3 * magic) for magic in (0, 1, 2))
    assert [record.offset for record in records(data)] == list(range(9))
    assert [record.value for record in records(data)] == [b"1", b"", None] * 3


def test_records_are_not_shared() -> None:
    (batch,) = decode_batches(gzipped(GOOD))
    batch.rows().clear()
    assert len(batch.rows()) == 1


def test_lz4_of_v0_has_the_checksum_of_its_time() -> None:
    """Only the descriptor's checksum of the frame differs, and the reader accepts both."""
    old, new = (encode_batch(RECORDS, magic=magic, compression=Compression.LZ4) for magic in (0, 1))
    flags = bytes.fromhex("04224d186040")
    assert old[old.index(flags) + 6] == 0x1A
    assert new[new.index(flags) + 6] == 0x82
    frame = old[old.index(flags) :]
    assert decompress(Compression.LZ4, frame) == decompress(Compression.LZ4, frame[:6] + b"\x82" + frame[7:])
    with pytest.raises(CorruptRecordsError):
        decompress(Compression.LZ4, frame[:6] + b"\x83" + frame[7:])


def test_convert_numbers_and_groups() -> None:
    """A producer's single messages become one batch in the log, compressed or not."""
    singles = b"".join(message(NO_KEY + VALUE, offset=0) for _ in range(5)) + gzipped(GOOD, GOOD)
    plain, zipped = decode_batches(convert(singles, 2, base_offset=100))
    assert ([record.offset for record in plain.records()], plain.compression) == ([100, 101, 102, 103, 104], 0)
    assert ([record.offset for record in zipped.records()], zipped.compression) == ([105, 106], 1)
    (one,) = decode_batches(convert(encode_batch(RECORDS, magic=0), 2, compression=Compression.ZSTD))
    assert (one.compression, one.count, one.max_timestamp_ms) == (Compression.ZSTD, 3, -1)
    with pytest.raises(CorruptRecordsError, match="offsets do not ascend"):
        convert(singles, 2)


def test_convert_refuses_formats_and_codecs_that_do_not_exist() -> None:
    data = encode_batch(RECORDS)
    for magic in (3, -1):
        with pytest.raises(ConfigurationError, match=f"there is no message format v{magic}"):
            convert(data, magic)
    with pytest.raises(ConfigurationError, match="no compression is called 'gzlp'"):
        convert(data, 2, compression="gzlp")
    assert convert(data, 1, compression="gzip") == convert(data, 1, compression=Compression.GZIP)


def test_convert_keeps_batches_of_the_right_format() -> None:
    for magic in (0, 1, 2):
        data = encode_batch(RECORDS, magic=magic, compression=Compression.GZIP, base_offset=9)
        assert convert(data, magic) == data


def test_conversion_to_an_older_format_drops_control_batches() -> None:
    batch = encode_batch([(5, None, b"kept", (("lost", b""),))], base_offset=3)
    control = bytearray(encode_batch([(5, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], base_offset=4))
    control[22] |= 0x30
    down = convert(batch + control, 1, check_crc=False)
    assert records(down) == [Record(3, 5, None, b"kept")]
    assert convert(control, 0, check_crc=False) == b""


def test_convert_keeps_the_offset_range_of_a_compacted_batch() -> None:
    data = bytearray(encode_batch(RECORDS, base_offset=40, producer_id=5, producer_epoch=1, base_sequence=6))
    struct.pack_into(">i", data, 23, 9)  # last offset delta
    (before,) = decode_batches(data, check_crc=False)
    (after,) = decode_batches(convert(data, 2, compression=Compression.LZ4, check_crc=False))
    assert (after.base_offset, after.last_offset, after.last_sequence) == (40, 49, 15)
    assert (after.records(), after.compression) == (before.records(), Compression.LZ4)
