"""Record batches of format v2 (KIP-98): a header of 61 bytes, then the records.

The CRC-32C covers everything from the attributes on. A broker can therefore set the base offset and the leader epoch
without a new checksum (`assign_offsets`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kwire.errors import CorruptRecordsError, EncodeError
from kwire.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Batch,
)
from kwire.records.compression import MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from kwire.records.control import encode_end_transaction
from kwire.records.decoder import decode_records
from kwire.records.encoder import HEADER, TRANSACTIONAL, batch_header, encode_records
from kwire.records.reader import open_reader
from kwire.records.rows import BATCH_OVERHEAD_BYTES, NewRecord
from kwire.wire.checksums import crc32c

T = TypeVar("T")

_CRC = struct.Struct(">I")
_CRC_AT = 17
_CHECKED_AT = 21
_EPOCH_AT = 12

_CODEC, _LOG_APPEND, _CONTROL, _DELETE_HORIZON = 0x07, 0x08, 0x20, 0x40
_CODECS = {int(codec): codec for codec in Compression}
_INT64_MAX = (1 << 63) - 1


def encode_v2(
    records: Sequence[NewRecord],
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    offset_deltas: Sequence[int] | None = None,
    last_delta: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: int = CREATE_TIME,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return one encoded batch. `offset_deltas` ascend; None means 0, 1, 2, ...

    `last_delta` is the header's last offset delta, needed if log compaction removed the last record. After
    `delete_horizon_ms` log compaction removes tombstones and markers (KIP-534); it replaces the base timestamp.
    """
    base_timestamp = records[0][0] if records else NO_TIMESTAMP
    max_timestamp = max([record[0] for record in records]) if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    body = encode_records(records, base_timestamp, offset_deltas)
    if not records:
        compression = Compression.NONE
    if compression:
        body = compress(compression, body, level)
    attributes = (
        compression
        | (_LOG_APPEND if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (_CONTROL if is_control else 0)
        | (_DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    count = len(records)
    if last_delta is None:
        last_delta = offset_deltas[-1] if offset_deltas else max(count - 1, 0)
    header = batch_header(
        crc32c,
        body,
        count,
        last_delta,
        base_timestamp,
        max_timestamp,
        attributes=attributes,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
    )
    if base_offset + last_delta > _INT64_MAX:
        raise EncodeError(f"{count} records from offset {base_offset} on have offsets of more than 64 bits")
    return b"".join((header, body))


def encode_control_batch(
    kind: str,
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the control batch that ends a transaction: `kind` is "commit" or "abort"."""
    key, value = encode_end_transaction(kind, coordinator_epoch)
    return encode_v2(
        [(timestamp_ms, key, value, ())],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def assign_offsets(batch: bytearray, base_offset: int, leader_epoch: int, *, append_time_ms: int | None = None) -> None:
    """Set the base offset and leader epoch of a v2 batch in place; `append_time_ms` sets every record's timestamp.

    Only `append_time_ms` needs a new CRC. Raise CorruptRecordsError unless it is v2; the caller has decoded it before.
    """
    if len(batch) < BATCH_OVERHEAD_BYTES or batch[16] != 2:
        raise CorruptRecordsError("only a v2 batch is given its offsets in place")
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, _EPOCH_AT, leader_epoch)
    if append_time_ms is not None:
        batch[_CHECKED_AT + 1] |= _LOG_APPEND
        struct.pack_into(">q", batch, _CHECKED_AT + 14, append_time_ms)
        _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_AT:]))


def decode_v2(
    raw: memoryview, at: int, *, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Batch:
    """Return the batch that fills `raw`. `at` is its position in the caller's data, for error messages."""
    (
        base_offset, _, leader_epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(raw)  # fmt: skip
    if check_crc and (computed := crc32c(raw[_CHECKED_AT:])) != crc:
        raise CorruptRecordsError(
            f"the batch says that its CRC-32C is {crc:08x}, and it is {computed:08x}",
            offset=at,
            remedy="it was damaged on its way or on a disk; read it again, from another replica if need be",
        )
    if last_delta < 0 or base_offset + last_delta > _INT64_MAX:
        raise CorruptRecordsError(f"the last of a batch's offsets is {last_delta} after {base_offset}", offset=at)
    if not 0 <= count <= last_delta + 1:
        raise CorruptRecordsError(f"{count} records in a batch of {last_delta + 1} offsets", offset=at)
    codec = _CODECS.get(attributes & _CODEC)
    if codec is None:
        raise CorruptRecordsError(f"a batch has compression {attributes & _CODEC}, which is not known", offset=at)
    timestamp_type = LOG_APPEND_TIME if attributes & _LOG_APPEND else CREATE_TIME

    def read(loop: Callable[..., T], *arguments: Any) -> T:
        data = raw[BATCH_OVERHEAD_BYTES:]
        timestamp = max_timestamp if timestamp_type == LOG_APPEND_TIME else None
        try:
            plain = decompress(codec, data, max_decompressed_bytes) if codec and len(data) else data
            return loop(*arguments, plain, 0, count, base_offset, base_timestamp, last_delta, timestamp)
        except CorruptRecordsError as error:
            raise _located(error, at, BATCH_OVERHEAD_BYTES, codec) from None

    return Batch(
        raw,
        partial(read, decode_records),
        partial(read, open_reader),
        magic=magic,
        base_offset=base_offset,
        last_offset=base_offset + last_delta,
        count=count,
        max_timestamp_ms=max_timestamp,
        compression=codec,
        timestamp_type=timestamp_type,
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=bool(attributes & TRANSACTIONAL),
        is_control=bool(attributes & _CONTROL),
    )


def _located(error: CorruptRecordsError, at: int, body_at: int, codec: Compression) -> CorruptRecordsError:
    """Return the error with a position in the caller's data, not in the records or the decompressed data."""
    inside = error.where.get("offset")
    if not isinstance(inside, int):
        return CorruptRecordsError(error.message, offset=at, remedy=error.remedy)
    if codec:
        return CorruptRecordsError(f"{error.message}, at {inside} of the records decompressed", offset=at)
    return CorruptRecordsError(error.message, offset=at + body_at + inside)
