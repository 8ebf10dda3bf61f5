"""Message sets of format v0 (to Kafka 0.9) and v1 (0.10, KIP-32): messages one after the other, each with its CRC-32.

A compressed message holds a message set in its value. In v0 the messages inside have their own offsets; in v1 they
count from 0 and the outer message has the offset of the last (KIP-31). A v1 message has a timestamp; where the outer
one's is the log's append time, it is that of all inside. Messages have no headers and know nothing of zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

from kwire.errors import ConfigurationError, CorruptRecordsError, EncodeError
from kwire.records.batch import Batch
from kwire.records.compression import MAX_DECOMPRESSED_BYTES, Bytes, Compression, compress, decompress
from kwire.records.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP
from kwire.wire.accel import NewRecord, Row

_START = struct.Struct(">qiIbb")  # offset, size, CRC, magic, attributes
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")

LOG_OVERHEAD_BYTES = 12  # offset and size
_CHECKED_AT = 16  # the CRC covers all from the magic on
_FIELDS_AT = _START.size
# The least that a size can be: CRC, magic, attributes, timestamp, lengths of key and value.
SIZE_MIN = (14, 22)

_CODEC, _LOG_APPEND = 0x07, 0x08
_CODECS = {int(codec): codec for codec in Compression if codec is not Compression.ZSTD}


def encode_message_set(
    records: Sequence[NewRecord],
    *,
    magic: int,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    offsets: Sequence[int],
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """`offsets` are absolute, one a record. EncodeError for headers, which the formats do not have."""
    if compression is Compression.ZSTD:
        raise ConfigurationError(
            f"message format v{magic} knows no zstd", remedy="choose gzip, snappy or lz4 for brokers before 2.1"
        )
    if any(record[3] for record in records):
        raise EncodeError(f"message format v{magic} has no headers", remedy="leave them out for brokers before 0.11")
    if not compression or not records:
        return _messages(records, magic, offsets, timestamp_type)
    inner = _messages(records, magic, range(len(records)) if magic else offsets, timestamp_type)
    if magic and offsets[-1] - offsets[0] != len(records) - 1:
        inner = _messages(records, magic, [offset - offsets[0] for offset in offsets], timestamp_type)
    if compression is Compression.LZ4 and magic == 0:
        from kwire.records.compression import lz4

        value = lz4.compress(inner, level, broken_checksum=True)
    else:
        value = compress(compression, inner, level)
    timestamp = max([record[0] for record in records])
    return b"".join(_message(magic, offsets[-1], timestamp, None, value, compression, timestamp_type))


def _messages(records: Sequence[NewRecord], magic: int, offsets: Sequence[int], timestamp_type: int) -> bytes:
    parts: list[Bytes] = []
    for offset, (timestamp, key, value, _) in zip(offsets, records, strict=True):
        parts += _message(magic, offset, timestamp, key, value, Compression.NONE, timestamp_type)
    return b"".join(parts)


def _message(
    magic: int,
    offset: int,
    timestamp: int,
    key: Bytes | None,
    value: Bytes | None,
    compression: Compression,
    timestamp_type: int,
) -> tuple[Bytes, ...]:
    attributes = compression | (_LOG_APPEND if magic and timestamp_type == LOG_APPEND_TIME else 0)
    try:
        checked = (
            bytes((magic, attributes)),
            _TIMESTAMP.pack(timestamp) if magic else b"",
            _LENGTH.pack(-1 if key is None else len(key)),
            key or b"",
            _LENGTH.pack(-1 if value is None else len(value)),
            value or b"",
        )
        crc = 0
        for part in checked:
            crc = crc32(part, crc)
        size = 4 + sum(map(len, checked))
        return (struct.pack(">qiI", offset, size, crc), *checked)
    except struct.error as error:
        raise EncodeError(f"a message cannot hold its values: {error}") from None


def decode_message(
    raw: memoryview, at: int, *, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Batch:
    """The message that is all of `raw`, with the set inside it if it is compressed. `at` is for errors, as in v2."""
    magic = raw[_CHECKED_AT]
    row, codec, timestamp_type = _fields(raw, at, check_crc)
    rows = [row]
    if codec:
        try:
            rows = _inner_rows(row, magic, codec, timestamp_type, check_crc, max_decompressed_bytes)
        except CorruptRecordsError as error:
            inside = error.where.get("offset")
            where = "" if inside is None else f", at {inside} of the messages decompressed"
            raise CorruptRecordsError(f"{error.message}{where}", offset=at, remedy=error.remedy) from None
    return Batch(
        raw,
        rows.copy,
        magic=magic,
        base_offset=rows[0][0],
        last_offset=rows[-1][0],
        count=len(rows),
        max_timestamp_ms=row[1],
        compression=codec,
        timestamp_type=timestamp_type,
    )


def _inner_rows(
    outer: Row, magic: int, codec: Compression, timestamp_type: int, check_crc: bool, max_decompressed_bytes: int
) -> list[Row]:
    last_offset, timestamp, _, value, _ = outer
    if value is None:
        raise CorruptRecordsError("a compressed message without a value")
    plain = decompress(codec, value, max_decompressed_bytes)
    rows = list(_inner_messages(memoryview(plain), magic, check_crc))
    if not rows:
        raise CorruptRecordsError("a compressed message with none inside")
    if magic == 0:
        return rows
    base = _base_offset(last_offset, rows[-1][0])
    if timestamp_type == LOG_APPEND_TIME:
        return [(base + offset, timestamp, key, value, ()) for offset, _, key, value, _ in rows]
    return [(base + offset, when, key, value, ()) for offset, when, key, value, _ in rows]


def _base_offset(outer: int, last_inner: int) -> int:
    """Of a v1 set. Producers leave the outer offset at 0, or had better count it as brokers do."""
    if outer == 0:
        return 0
    if outer < last_inner:
        raise CorruptRecordsError(f"a compressed message has offset {outer}, the last one inside {last_inner}")
    return outer - last_inner


def _inner_messages(data: memoryview, magic: int, check_crc: bool) -> Iterator[Row]:
    pos, end = 0, len(data)
    while pos < end:
        if end - pos < LOG_OVERHEAD_BYTES + SIZE_MIN[magic]:
            raise CorruptRecordsError("a message set inside a message is cut off", offset=pos)
        size = _LENGTH.unpack_from(data, pos + 8)[0]
        if not SIZE_MIN[magic] <= size <= end - pos - LOG_OVERHEAD_BYTES:
            raise CorruptRecordsError(f"a message says to have {size} bytes of {end - pos}", offset=pos)
        if data[pos + _CHECKED_AT] != magic:
            raise CorruptRecordsError(f"format v{data[pos + _CHECKED_AT]} inside of format v{magic}", offset=pos)
        following = pos + LOG_OVERHEAD_BYTES + size
        row, codec, _ = _fields(data[pos:following], pos, check_crc)
        if codec:
            raise CorruptRecordsError("a compressed message inside of a compressed message", offset=pos)
        yield row
        pos = following


def _fields(raw: memoryview, at: int, check_crc: bool) -> tuple[Row, Compression, int]:
    """One message as it stands, with its codec and the type of its timestamp."""
    offset, _, crc, magic, attributes = _START.unpack_from(raw)
    if check_crc and (computed := crc32(raw[_CHECKED_AT:])) != crc:
        raise CorruptRecordsError(f"the message says that its CRC-32 is {crc:08x}, and it is {computed:08x}", offset=at)
    codec = _CODECS.get(attributes & _CODEC)
    if codec is None:
        raise CorruptRecordsError(f"a message of format v{magic} has compression {attributes & _CODEC}", offset=at)
    pos = _FIELDS_AT
    timestamp, timestamp_type = NO_TIMESTAMP, CREATE_TIME
    if magic:
        timestamp = _TIMESTAMP.unpack_from(raw, pos)[0]
        pos += 8
        if attributes & _LOG_APPEND:
            timestamp_type = LOG_APPEND_TIME
    key, pos = _nullable_bytes(raw, pos, at)
    value, pos = _nullable_bytes(raw, pos, at)
    if pos != len(raw):
        raise CorruptRecordsError(f"{len(raw) - pos} bytes are left after a message's value", offset=at)
    return (offset, timestamp, key, value, ()), codec, timestamp_type


def _nullable_bytes(raw: memoryview, pos: int, at: int) -> tuple[bytes | None, int]:
    left = len(raw) - pos - 4
    size = _LENGTH.unpack_from(raw, pos)[0] if left >= 0 else 0
    if left < 0 or not -1 <= size <= left:
        raise CorruptRecordsError(f"a key or value of {size} bytes where {left} are left", offset=at)
    pos += 4
    if size < 0:
        return None, pos
    return bytes(raw[pos : pos + size]), pos + size
