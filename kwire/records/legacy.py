"""Message sets of format v0 (up to Kafka 0.9) and v1 (0.10, KIP-32): consecutive messages, each with a CRC-32.

The value of a compressed message is a message set. In v0 the inner messages have absolute offsets. In v1 they count
from 0, and the outer message has the offset of the last one (KIP-31). A v1 message has a timestamp; if the outer
timestamp is the log append time, it applies to all inner messages. The formats have no headers and no zstd.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from kwire.errors import ConfigurationError, CorruptRecordsError, EncodeError
from kwire.records.batch import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP, NO_TIMESTAMP_TYPE, Batch
from kwire.records.compression import MAX_DECOMPRESSED_BYTES, Bytes, Compression, compress, decompress
from kwire.records.reader import RecordReader
from kwire.records.rows import NewRecord, Row
from kwire.wire.buffers import as_bytes

# Offset, size, CRC, magic, attributes, in v1 the timestamp, and the length of the key.
_HEADS = struct.Struct(">qiIbbi"), struct.Struct(">qiIbbqi")
# The same fields in two parts: the CRC covers the second.
_START = struct.Struct(">qiI")
_CHECKED_V0, _CHECKED_V1 = struct.Struct(">bbi"), struct.Struct(">bbqi")
_LENGTH = struct.Struct(">i")

LOG_OVERHEAD_BYTES = 12  # offset and size
_CHECKED_AT = 16  # the CRC covers everything from the magic byte on
# The smallest valid size field of v0 and v1: a message with a null key and a null value.
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
    """Return an encoded message set. `offsets` are absolute, one per record.

    Raise EncodeError for headers and ConfigurationError for zstd: the formats have neither.
    """
    if compression is Compression.ZSTD:
        raise ConfigurationError(
            f"message format v{magic} knows no zstd", remedy="choose gzip, snappy or lz4 for brokers before 2.1"
        )
    if any(record[3] for record in records):
        raise EncodeError(f"message format v{magic} has no headers", remedy="leave them out for brokers before 0.11")
    if not compression or not records:
        return _messages(records, magic, offsets, timestamp_type)
    inner_offsets = [offset - offsets[0] for offset in offsets] if magic else offsets
    inner = _messages(records, magic, inner_offsets, timestamp_type)
    if compression is Compression.LZ4 and magic == 0:
        from kwire.records.compression import lz4

        value = lz4.compress(inner, level, broken_checksum=True)
    else:
        value = compress(compression, inner, level)
    timestamp = max([record[0] for record in records])
    return _message(magic, offsets[-1], timestamp, None, value, compression, timestamp_type)


def _messages(records: Sequence[NewRecord], magic: int, offsets: Sequence[int], timestamp_type: int) -> bytes:
    return b"".join(
        [
            _message(magic, offset, timestamp, key, value, Compression.NONE, timestamp_type)
            for offset, (timestamp, key, value, _) in zip(offsets, records, strict=True)
        ]
    )


def _message(
    magic: int,
    offset: int,
    timestamp: int,
    key: Bytes | None,
    value: Bytes | None,
    compression: Compression,
    timestamp_type: int,
) -> bytes:
    attributes = compression | _LOG_APPEND if magic and timestamp_type == LOG_APPEND_TIME else compression
    if key is not None and type(key) is not bytes:
        key = as_bytes(key)
    if value is not None and type(value) is not bytes:
        value = as_bytes(value)
    key_size = -1 if key is None else len(key)
    try:
        checked = b"".join(
            (
                _CHECKED_V1.pack(1, attributes, timestamp, key_size)
                if magic
                else _CHECKED_V0.pack(0, attributes, key_size),
                key or b"",
                _LENGTH.pack(-1 if value is None else len(value)),
                value or b"",
            )
        )
        return _START.pack(offset, 4 + len(checked), crc32(checked)) + checked
    except struct.error as error:
        raise EncodeError(f"a message cannot hold its values: {error}") from None


def decode_message(
    raw: memoryview, at: int, *, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Batch:
    """Return the message that fills `raw` as a Batch, with its inner messages if it is compressed.

    `at` is its position in the caller's data, for error messages.
    """
    data = bytes(raw)
    magic = data[_CHECKED_AT]
    try:
        row, attributes = _decode(data, 0, len(data), magic, check_crc)
    except CorruptRecordsError as error:
        raise CorruptRecordsError(error.message, offset=at) from None
    timestamp_type = LOG_APPEND_TIME if attributes & _LOG_APPEND else CREATE_TIME
    if magic == 0:
        timestamp_type = NO_TIMESTAMP_TYPE
    codec = _CODECS.get(attributes & _CODEC)
    if codec is None:
        raise CorruptRecordsError(f"a message of format v{magic} has compression {attributes & _CODEC}", offset=at)
    rows = [row]
    if codec:
        try:
            rows = _inner_rows(row, magic, codec, timestamp_type, check_crc, max_decompressed_bytes)
        except CorruptRecordsError as error:
            inside = error.where.get("offset")
            where = "" if inside is None else f", at {inside} of the messages decompressed"
            raise CorruptRecordsError(f"{error.message}{where}", offset=at, remedy=error.remedy) from None
    size_bytes = sum(len(key or b"") + len(value or b"") for _, _, key, value, _ in rows)

    def open_reader(
        kind: type[Any], topic: str, partition: int, timestamp_type: int, position: int, next_offset: int
    ) -> RecordReader:
        return RecordReader(kind, topic, partition, timestamp_type, position, next_offset, rows, size_bytes)

    return Batch(
        raw,
        rows.copy,
        open_reader,
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
    rows = _decode_set(bytes(decompress(codec, value, max_decompressed_bytes)), magic, check_crc)
    if not rows:
        raise CorruptRecordsError("a compressed message with none inside")
    if magic == 0:
        return rows
    base = _base_offset(last_offset, rows[-1][0])
    if timestamp_type == LOG_APPEND_TIME:
        return [(base + offset, timestamp, key, value, ()) for offset, _, key, value, _ in rows]
    if base == 0:
        return rows
    return [(base + offset, when, key, value, ()) for offset, when, key, value, _ in rows]


def _base_offset(outer: int, last_inner: int) -> int:
    """Return the base offset of a compressed v1 message; producers may leave the outer offset at 0."""
    if outer == 0:
        return 0
    if outer < last_inner:
        raise CorruptRecordsError(f"a compressed message has offset {outer}, the last one inside {last_inner}")
    return outer - last_inner


def _decode_set(data: bytes, magic: int, check_crc: bool) -> list[Row]:
    """Return the inner messages of a compressed message: whole, of the same format, not compressed again."""
    rows: list[Row] = []
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
        row, attributes = _decode(data, pos, following, magic, check_crc)
        if attributes & _CODEC:
            raise CorruptRecordsError("a compressed message inside of a compressed message", offset=pos)
        rows.append(row)
        pos = following
    return rows


def _decode(data: bytes, start: int, end: int, magic: int, check_crc: bool) -> tuple[Row, int]:
    """Return one message, without its inner messages, and its attributes. The caller has checked SIZE_MIN."""
    head = _HEADS[magic]
    fields = head.unpack_from(data, start)
    if check_crc and (computed := crc32(data[start + _CHECKED_AT : end])) != fields[2]:
        raise CorruptRecordsError(
            f"the message says that its CRC-32 is {fields[2]:08x}, and it is {computed:08x}", offset=start
        )
    pos = start + head.size
    key: bytes | None = None
    if (size := fields[-1]) >= 0:
        key = data[pos : (pos := pos + size)]
    # A corrupt key length may point beyond the message: then there is no value length to read.
    value_size = _LENGTH.unpack_from(data, pos)[0] if pos + 4 <= end else -2
    if size < -1 or value_size < -1:
        raise CorruptRecordsError(f"a key of {size} bytes and a value of {value_size}", offset=start)
    pos += 4
    value: bytes | None = None
    if value_size >= 0:
        value = data[pos : (pos := pos + value_size)]
    if pos != end:
        raise CorruptRecordsError(f"a message's value ends at {pos - start}, its size says {end - start}", offset=start)
    return (fields[0], fields[5] if magic else NO_TIMESTAMP, key, value, ()), fields[4]
