"""Encoding and decoding of record batches in any format (v0, v1, v2).

Every format begins with an offset and a length, and has the magic byte with its version at the same position.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kwire.errors import ConfigurationError, CorruptRecordsError
from kwire.records.batch import CREATE_TIME, LOG_APPEND_TIME, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Batch
from kwire.records.compression import MAX_DECOMPRESSED_BYTES, Bytes, Compression
from kwire.records.legacy import LOG_OVERHEAD_BYTES, SIZE_MIN, decode_message, encode_message_set
from kwire.records.rows import BATCH_OVERHEAD_BYTES, NewRecord, wrong_record
from kwire.records.v2 import decode_v2, encode_v2
from kwire.wire.buffers import as_bytes

_SIZE = struct.Struct(">i")
_MAGIC_AT = 16
_SIZE_MIN = (*SIZE_MIN, BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES)


def encode_batch(
    records: Sequence[NewRecord],
    *,
    magic: int = 2,
    compression: Compression | str = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """Return records `(timestamp_ms, key, value, headers)` as a v2 batch or as a message set of format v0 or v1.

    `compression` is a codec or its name, `level` its compression level. A message set omits producer id, epoch and
    sequence. Raise EncodeError for what the format cannot hold, such as headers in a message set, with the field of the
    record; raise ConfigurationError for a wrong option.
    """
    check_magic(magic)
    if timestamp_type not in (CREATE_TIME, LOG_APPEND_TIME):
        raise ConfigurationError(
            f"there is no timestamp type {timestamp_type!r}", remedy="choose CREATE_TIME or LOG_APPEND_TIME"
        )
    codec = Compression.of(compression)
    try:
        if magic == 2:
            return encode_v2(
                records,
                compression=codec,
                level=level,
                base_offset=base_offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=is_transactional,
                timestamp_type=timestamp_type,
            )
        return encode_message_set(
            records,
            magic=magic,
            compression=codec,
            level=level,
            offsets=range(base_offset, base_offset + len(records)),
            timestamp_type=timestamp_type,
        )
    except ConfigurationError:
        raise
    except (AttributeError, BufferError, LookupError, TypeError, ValueError) as error:
        wrong = wrong_record(records)
        if wrong is None:
            raise
        raise wrong from error


def check_magic(magic: object) -> None:
    """Raise ConfigurationError unless there is such a message format."""
    if magic not in (0, 1, 2):
        raise ConfigurationError(f"there is no message format v{magic}", remedy="choose 0, 1 or 2")


def decode_batches(
    data: Bytes, *, start: int = 0, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Batch]:
    """Yield the batches of a Fetch response, a Produce request or a log segment from `start` on; formats may mix.

    An incomplete batch at the end, which brokers send at a size limit, ends the iteration. Other errors raise
    CorruptRecordsError with the position in `data`: here for headers and checksums, in `Batch.records()` for the
    records of a v2 batch. Such batches refer to `data` and copy nothing until their records are read; a message of an
    older format is decoded here.
    """
    if not isinstance(max_decompressed_bytes, int) or max_decompressed_bytes < 0:
        raise ConfigurationError(
            f"max_decompressed_bytes is {max_decompressed_bytes!r}", remedy="give a whole number of bytes, 0 or more"
        )
    if start < 0:
        raise ConfigurationError(f"start is {start}", remedy="give a position in the data, 0 or more")
    view = memoryview(data)
    if view.itemsize != 1 or not view.c_contiguous:
        view = memoryview(as_bytes(view))
    pos, end = start, len(view)
    while end - pos > _MAGIC_AT:
        magic = view[pos + _MAGIC_AT]
        size = _SIZE.unpack_from(view, pos + 8)[0]
        if magic > 2:
            raise CorruptRecordsError(f"there is no message format v{magic}", offset=pos)
        if size < _SIZE_MIN[magic]:
            raise CorruptRecordsError(f"a batch of format v{magic} says to have {size} bytes", offset=pos)
        following = pos + LOG_OVERHEAD_BYTES + size
        if following > end:
            return
        decode = decode_v2 if magic == 2 else decode_message
        yield decode(view[pos:following], pos, check_crc=check_crc, max_decompressed_bytes=max_decompressed_bytes)
        pos = following
