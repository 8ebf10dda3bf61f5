"""Batches of format v2: header fields, rejected input with its position, and incomplete batches."""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from kwire.errors import ConfigurationError, CorruptRecordsError, EncodeError
from kwire.records import (
    BATCH_OVERHEAD_BYTES,
    Batch,
    Compression,
    Record,
    assign_offsets,
    decode_batches,
    encode_batch,
    encode_control_batch,
    record_bytes_max,
)
from kwire.records.control import ControlRecord
from kwire.records.rows import NewRecord
from kwire.wire.checksums import crc32c

from .cases import seen

pytestmark = pytest.mark.usefixtures("loops")

RECORDS: list[NewRecord] = [(1000, b"k", b"value", ()), (1001, None, b"second", (("h", b"x"),))]
CODEC_AT, LAST_DELTA_AT, COUNT_AT = 22, 23, 57


def batch_of(*records: str, count: int | None = None, last_delta: int | None = None, attributes: int = 0) -> bytes:
    """Return a batch with these bytes (hex) as records, and a valid CRC and length."""
    body = bytes.fromhex("".join(records).replace(" ", ""))
    count = len(records) if count is None else count
    last_delta = count - 1 if last_delta is None else last_delta
    checked = struct.pack(">hiqqqhii", attributes, last_delta, 1000, 1000, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 50, 9 + len(checked), -1, 2, crc32c(checked)) + checked


def patched(at: int, form: str, value: int, *, fix_crc: bool = True) -> bytes:
    data = bytearray(encode_batch(RECORDS))
    struct.pack_into(form, data, at, value)
    if fix_crc:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


# Length, attributes, timestamp delta 0, offset delta 0, no key, value `a`, no headers.
GOOD = "0e 00 00 00 01 02 61 00"

WRONG: dict[str, tuple[bytes, str, int]] = {
    # name: (bytes, part of the reason, offset)
    "magic 3": (patched(16, ">b", 3), "there is no message format v3", 0),
    "magic -1": (patched(16, ">b", -1), "there is no message format v255", 0),
    "negative size": (patched(8, ">i", -1), "a batch of format v2 says to have -1 bytes", 0),
    "size less than the header": (patched(8, ">i", 48), "says to have 48 bytes", 0),
    "CRC": (patched(17, ">I", 1, fix_crc=False), "says that its CRC-32C is 00000001", 0),
    "a bit of a value": (patched(70, ">b", 0, fix_crc=False), "CRC-32C", 0),
    "compression 5": (patched(CODEC_AT, ">b", 5), "compression 5, which is not known", 0),
    "compression 7": (patched(CODEC_AT, ">b", 7), "compression 7, which is not known", 0),
    "negative last offset delta": (patched(LAST_DELTA_AT, ">i", -1), "the last of a batch's offsets is -1 after 0", 0),
    "last offset above int64": (b"\x7f" + b"\xff" * 7 + encode_batch(RECORDS)[8:], "the last of a batch's offsets", 0),
    "negative count": (patched(COUNT_AT, ">i", -1), "-1 records in a batch of 2 offsets", 0),
    "more records than offsets": (patched(COUNT_AT, ">i", 3), "3 records in a batch of 2 offsets", 0),
    "fewer records than said": (batch_of(GOOD, count=2), "2 records cannot be in 8 bytes", 61),
    "more records than said": (batch_of(GOOD, GOOD, count=1), "8 bytes are left after the last of 1 records", 69),
    "a count of billions": (batch_of(GOOD, count=2**31 - 1, last_delta=2**31 - 1), "cannot be in 8 bytes", 61),
    "records in an empty batch": (batch_of(GOOD, count=0, last_delta=0), "8 bytes are left", 61),
    "negative length": (batch_of("01 00 00 00 01 02 61 00"), "a record of -1 bytes", 61),
    "length beyond the batch": (batch_of("10 00 00 00 01 02 61 00"), "a record of 8 bytes where 7 are left", 61),
    "length too small": (batch_of("0c 00 00 00 01 02 61 00"), "a record's fields end at 8, its length says 7", 61),
    "overlong varint": (batch_of("ff ff ff ff ff ff ff ff ff ff 01"), "a varint of more than 64 bits", 61),
    "varint above 64 bits": (batch_of("ff ff ff ff ff ff ff ff ff 02 01"), "a varint of more than 64 bits", 61),
    "length of 4 GB": (batch_of("fe ff ff ff 1f 00 00 00 01"), "a record of 4294967295 bytes", 61),
    "key of 4 GB": (batch_of("12 00 00 00 fe ff ff ff 1f 61"), "the data ends inside a record", 61),
    "value of 4 GB": (batch_of("14 00 00 00 01 fe ff ff ff 1f 61"), "the data ends inside a record", 61),
    "key length -2": (batch_of("0e 00 00 00 03 02 61 00"), "a key or value of -2 bytes", 61),
    "value length -2": (batch_of("0e 00 00 00 01 03 61 00"), "a key or value of -2 bytes", 61),
    "key beyond the record": (batch_of("0e 00 00 00 08 61 61 00"), "the data ends inside a record", 61),
    "key into the next record": (batch_of("0e 00 00 00 08 61 61 00", GOOD), "a record's fields end at", 61),
    "offset delta beyond the last": (batch_of("0e 00 00 02 01 02 61 00"), "offset delta 1 where 0 to 0 can be", 61),
    "negative offset delta": (batch_of("0e 00 00 01 01 02 61 00"), "offset delta -1 where 0 to 0", 61),
    "the second record": (batch_of(GOOD, "0e 00 00 02 01 03 61 00"), "a key or value of -2 bytes", 69),
    "negative count of headers": (batch_of("0e 00 00 00 01 02 61 01"), "-1 headers in 0 bytes", 61),
    "headers beyond the record": (batch_of("0e 00 00 00 01 02 61 02", GOOD), "1 headers in 0 bytes", 61),
    "billions of headers": (batch_of("16 00 00 00 01 02 61 fe ff ff ff 1f"), "headers in 0 bytes", 61),
    "header name of -1 bytes": (batch_of("12 00 00 00 01 02 61 02 01 00"), "a header's name of -1 bytes", 61),
    "header name beyond the record": (batch_of("12 00 00 00 01 02 61 02 08 00"), "a header's name of 4 bytes in 1", 61),
    "header value beyond the record": (batch_of("12 00 00 00 01 02 61 02 00 08"), "a record's fields end at", 61),
    "header value of -2 bytes": (batch_of("12 00 00 00 01 02 61 02 00 03"), "a key or value of -2 bytes", 61),
    "record cut inside the headers": (batch_of("10 00 00 00 01 02 61 02 00"), "1 headers in 1 bytes", 61),
}  # fmt: skip


@pytest.mark.parametrize(("data", "reason", "offset"), WRONG.values(), ids=WRONG)
def test_wrong(data: bytes, reason: str, offset: int) -> None:
    for before in (b"", encode_batch(RECORDS)):
        with pytest.raises(CorruptRecordsError) as caught:
            seen(decode_batches(before + data))
        assert reason in caught.value.message
        assert caught.value.where["offset"] == len(before) + offset


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_wrong_inside_compressed(codec: Compression) -> None:
    """The place is the batch's, and the message has that in the records."""
    data = bytearray(encode_batch([(0, None, bytes(100), ())] * 3, compression=codec))
    struct.pack_into(">i", data, COUNT_AT, 2)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    (batch,) = decode_batches(bytes(data))
    reason = "bytes are left after the last of 2 records, at 2.. of the records decompressed"
    with pytest.raises(CorruptRecordsError, match=reason) as caught:
        batch.rows()
    assert caught.value.where == {"offset": 0}


def test_a_wrong_crc_is_accepted_without_the_check() -> None:
    (batch,) = decode_batches(WRONG["CRC"][0], check_crc=False)
    assert [record.value for record in batch.records()] == [b"value", b"second"]


def test_cut_off_at_every_byte() -> None:
    first, second = encode_batch(RECORDS, base_offset=5), encode_batch(RECORDS, base_offset=7)
    for size in range(len(second)):
        batches = list(decode_batches(first + second[:size]))
        assert [batch.base_offset for batch in batches] == [5]
    assert [batch.base_offset for batch in decode_batches(first + second)] == [5, 7]


ANY_BUFFER = [
    bytes,
    bytearray,
    memoryview,
    lambda data: memoryview(bytearray(data)),
    lambda data: memoryview(b"".join(bytes((byte, 0)) for byte in data))[::2],
    lambda data: memoryview(bytes(data) + data).cast("H")[: (len(data) + 1) // 2],
]


@pytest.mark.parametrize("wrap", ANY_BUFFER)
def test_any_buffer(wrap: Callable[[bytes], bytes]) -> None:
    data = encode_batch(RECORDS)
    (batch,) = decode_batches(wrap(data))
    assert batch.raw == data
    assert all(type(part) is bytes for record in batch.records() for part in record[2:4] if part is not None)


def test_header() -> None:
    data = encode_batch(RECORDS, base_offset=70, producer_id=3, producer_epoch=4, base_sequence=2**31 - 1)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (70, 71, 72, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (3, 4, 2**31 - 1, 0)
    assert (batch.magic, batch.size_bytes, batch.partition_leader_epoch) == (2, len(data), -1)
    assert (batch.max_timestamp_ms, batch.timestamp_type, batch.compression) == (1001, 0, Compression.NONE)
    assert repr(batch) == f"<Batch v2 offsets 70 to 71, 2 records, {len(data)} bytes, none>"
    assert next(decode_batches(encode_batch(RECORDS))).last_sequence == -1


def test_compacted_batch() -> None:
    """Records may be missing anywhere, all of them too; the header keeps the range of offsets."""
    (batch,) = decode_batches(batch_of("0e 00 00 06 01 02 61 00", last_delta=9))
    assert (batch.count, batch.base_offset, batch.last_offset) == (1, 50, 59)
    assert [record.offset for record in batch.records()] == [53]
    (batch,) = decode_batches(batch_of(count=0, last_delta=9))
    assert (batch.count, batch.next_offset, batch.records()) == (0, 60, [])


@pytest.mark.parametrize("codec", Compression)
def test_empty_batch(codec: Compression) -> None:
    (batch,) = decode_batches(encode_batch([], compression=codec))
    assert (batch.records(), batch.count, batch.max_timestamp_ms) == ([], 0, -1)


def test_assign_offsets() -> None:
    data = bytearray(encode_batch(RECORDS))
    assign_offsets(data, 1 << 40, 17)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.partition_leader_epoch) == (1 << 40, 17)
    assign_offsets(data, 8, 18, append_time_ms=5555)
    (batch,) = decode_batches(data)
    assert (batch.timestamp_type, batch.max_timestamp_ms) == (1, 5555)
    assert [(record.offset, record.timestamp_ms) for record in batch.records()] == [(8, 5555), (9, 5555)]
    for wrong in (bytearray(60), bytearray(encode_batch(RECORDS[:1], magic=1)) + bytes(61)):
        with pytest.raises(CorruptRecordsError):
            assign_offsets(wrong, 0, 0)


@pytest.mark.parametrize(
    ("key", "value", "control"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\7", ControlRecord("commit", 0, 7)),
        (b"\0\1\0\0", b"\0\1\0\0\0\7more", ControlRecord("abort", 1, 7)),
        (b"\0\0\0\2", b"", ControlRecord("leader_change", 0, None)),
        (b"\0\0\0\6more", None, ControlRecord("kraft_voters", 0, None)),
        (b"\0\0\0\x63", None, ControlRecord("unknown", 0, None)),
        (b"\0\0\xff\xff", None, ControlRecord("unknown", 0, None)),
        (None, None, "has no kind"),
        (b"\0\0\0", None, "has no kind"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\7", "key has version -1"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\7", "version -1"),
        (b"\0\0\0\1", b"\0\0\0\0\0", "lacks its coordinator's epoch"),
        (b"\0\0\0\1", None, "lacks its coordinator's epoch"),
    ],
)
def test_control(key: bytes | None, value: bytes | None, control: ControlRecord | str) -> None:
    data = bytearray(encode_batch([(0, key, value, ())]))
    data[CODEC_AT] |= 0x20
    (batch,) = decode_batches(bytes(data), check_crc=False)
    assert batch.is_control
    if isinstance(control, ControlRecord):
        assert batch.control() == control
    else:
        with pytest.raises(CorruptRecordsError, match=control):
            batch.control()


def test_control_of_none() -> None:
    (batch,) = decode_batches(encode_batch(RECORDS))
    with pytest.raises(CorruptRecordsError, match="not a control batch"):
        batch.control()
    with pytest.raises(ValueError, match="not 'maybe'"):
        encode_control_batch(
            "maybe", base_offset=0, producer_id=0, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"base_offset": 1 << 63}, EncodeError),
        ({"base_offset": (1 << 63) - 1}, EncodeError),  # RECORDS are two
        ({"timestamp_type": 2}, ConfigurationError),
        ({"compression": "gzlp"}, ConfigurationError),
        ({"producer_id": 1 << 63}, EncodeError),
        ({"producer_epoch": 1 << 15}, EncodeError),
        ({"base_sequence": 1 << 31}, EncodeError),
        ({"magic": 3}, ConfigurationError),
        ({"compression": Compression.GZIP, "level": 10}, ConfigurationError),
        ({"magic": 1, "compression": Compression.ZSTD}, ConfigurationError),
        ({"magic": 1}, EncodeError),  # RECORDS have headers
    ],
)
def test_not_encoded(arguments: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_batch(RECORDS, **arguments)  # type: ignore[arg-type]


def test_timestamps_that_do_not_fit() -> None:
    with pytest.raises(EncodeError):
        encode_batch([(1 << 63, None, b"", ())])
    with pytest.raises(EncodeError):
        encode_batch([(-(1 << 62), None, b"", ()), (1 << 62, None, b"", ()), ((1 << 62) + 5, None, b"", ())])


SIXTEEN_BITS = array("H", [0x6162, 0x6364])


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("wrap", [lambda data: data, memoryview], ids=["array", "view"])
def test_the_length_of_a_field_counts_bytes(wrap: Callable[[object], Any], magic: int) -> None:
    """A field may be any buffer; its own length may count larger items, and it need not be contiguous."""
    given = [
        (5, wrap(SIXTEEN_BITS), memoryview(b"a-b-c-")[::2], ()),
        (5, memoryview(b"a-b-c-")[::2], wrap(SIXTEEN_BITS), ()),
    ]
    (batch, *more) = decode_batches(encode_batch(given, magic=magic, compression="gzip"))
    found = [(record.key, record.value) for record in batch.records()]
    assert not more
    assert found == [(SIXTEEN_BITS.tobytes(), b"abc"), (b"abc", SIXTEEN_BITS.tobytes())]


def test_record_bytes_max_counts_bytes() -> None:
    many: Any = array("q", range(100))
    encoded = len(encode_batch([(0, many, many, [("h", many)])])) - BATCH_OVERHEAD_BYTES
    assert 2400 < encoded <= record_bytes_max(many, many, [("h", many)]) < encoded + 60


@pytest.mark.parametrize("wrap", [lambda data: data, memoryview], ids=["array", "view"])
def test_the_length_of_a_header_counts_bytes(wrap: Callable[[object], Any]) -> None:
    (batch,) = decode_batches(encode_batch([(5, None, None, [("h", wrap(SIXTEEN_BITS))])]))
    assert batch.records()[0].headers == (("h", SIXTEEN_BITS.tobytes()),)


WRONG_RECORDS: dict[str, tuple[Any, str]] = {
    "a generator": (iter([(0, None, b"", ())]), "is not a list of records [field records]: give a list"),
    "nothing": (None, "None is not a list of records"),
    "a str": ("abcd", "'a' is not (timestamp_ms, key, value, headers) [field records[0]]"),
    "three fields": ([(0, None, b"", ()), (0, None, b"")], "(0, None, b'') is not (timestamp_ms, key, value, headers)"),
    "a decoded record": ([Record(0, 5, None, b"")], "is not (timestamp_ms, key, value, headers) [field records[0]]"),
    "a text as the key": ([(0, "key", b"", ())], "'key' is neither bytes nor None [field records[0].key]"),
    "a text as the value": ([(0, None, "value", ())], "'value' is neither bytes nor None [field records[0].value]"),
    "a list as the value": ([(0, None, [1, 2], ())], "[1, 2] is neither bytes nor None [field records[0].value]"),
}
WRONG_V2: dict[str, tuple[Any, str]] = {
    **WRONG_RECORDS,
    "no time": ([(0, None, b"", ()), (None, None, b"", ())], "None is not an int of 64 bits [field records[1].time"),
    "a time of half a millisecond": ([(0.5, None, b"", ())], "0.5 is not an int of 64 bits [field records[0].time"),
    "a time of 70 bits": ([(0, None, b"", ()), (1 << 69, None, b"", ())], "is not an int of 64 bits [field records[1]"),
    "headers as a dict": ([(0, None, b"", {"a": b""})], "{'a': b''} is not a list of (name, value) [field records[0]."),
    "a header of three": ([(0, None, b"", [("a", b"", b"")])], "is not (name, value) [field records[0].headers[0]]"),
    "a name in bytes": ([(0, None, b"", [(b"a", b"")])], "a header's name is text, not b'a' [field records[0].headers"),
    "a header's text": ([(0, None, b"", [("a", "b")])], "a header's value is 'b', which is neither bytes nor None"),
}


@pytest.mark.parametrize(("given", "message"), WRONG_V2.values(), ids=WRONG_V2)
def test_a_wrong_record_is_named(given: Any, message: str) -> None:
    with pytest.raises(EncodeError, match=re.escape(message)):
        encode_batch(given)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("given", "message"), WRONG_RECORDS.values(), ids=WRONG_RECORDS)
def test_a_wrong_record_of_a_message_set_is_named(given: Any, message: str, magic: int) -> None:
    with pytest.raises(EncodeError, match=re.escape(message)):
        encode_batch(given, magic=magic)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_decompressed_bytes": None},
        {"max_decompressed_bytes": -1},
        {"max_decompressed_bytes": 1e9},
        {"start": -1},
    ],
)
def test_wrong_arguments_of_the_decoder(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(arguments))} is "):
        next(decode_batches(encode_batch(RECORDS), **arguments))


@pytest.mark.parametrize("name", [5, None, b"bytes", "\ud800"])
def test_header_names_are_text(name: object) -> None:
    with pytest.raises(EncodeError, match="a header's name is text"):
        encode_batch([(0, None, None, ((name, b""),))])  # type: ignore[list-item]


def test_header_name_that_is_no_utf8_keeps_its_bytes() -> None:
    (batch,) = decode_batches(batch_of("14 00 00 00 01 02 61 02 02 ff 01"))
    ((name, value),) = batch.records()[0].headers
    assert (name, value) == ("\udcff", None)
    data = encode_batch([row[1:] for row in batch.rows()])
    assert data[BATCH_OVERHEAD_BYTES:] == bytes(batch.raw[BATCH_OVERHEAD_BYTES:])


@pytest.mark.parametrize("key", [None, b"", b"k" * 100])
@pytest.mark.parametrize("value", [None, b"", b"v" * 10_000])
@pytest.mark.parametrize("headers", [(), (("\N{SNOWMAN}" * 50, None), ("", b"x" * 300))])
def test_record_bytes_max(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    first, last = (0, None, b"", ()), (-(1 << 62), key, value, headers)
    size = len(encode_batch([first, last])) - len(encode_batch([first]))
    assert size <= record_bytes_max(key, value, headers) <= size + 60


def test_records_are_decoded_on_demand() -> None:
    batch = next(decode_batches(batch_of("01")))
    assert isinstance(batch, Batch)
    with pytest.raises(CorruptRecordsError):
        batch.records()
