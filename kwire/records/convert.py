"""Conversion between record formats, for a broker whose clients are older or newer than its log.

Conversion to a newer format loses nothing. Conversion to an older one drops headers, producer ids, sequences and, in
v0, timestamps. It also drops control batches, which old clients would read as records; their offsets remain as gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from kwire.errors import CorruptRecordsError
from kwire.records.batch import Batch
from kwire.records.compression import MAX_DECOMPRESSED_BYTES, Bytes, Compression
from kwire.records.formats import check_magic, decode_batches
from kwire.records.legacy import encode_message_set
from kwire.records.rows import Row
from kwire.records.v2 import encode_v2


def convert(
    data: Bytes,
    magic: int,
    *,
    base_offset: int | None = None,
    compression: Compression | str | None = None,
    check_crc: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Return all complete batches in `data` in format `magic`.

    `base_offset` renumbers the records, since producers of message sets may use any offsets; None keeps the offsets.
    `compression` applies to all batches; None keeps each batch's own. Raise ConfigurationError for zstd in a message
    set (a broker's UNSUPPORTED_COMPRESSION_TYPE), and CorruptRecordsError as decode_batches does.
    """
    check_magic(magic)
    chosen = None if compression is None else Compression.of(compression)
    batches = decode_batches(data, check_crc=check_crc, max_decompressed_bytes=max_decompressed_bytes)
    parts: list[Bytes] = []
    for codec, timestamp_type, group in _groups(batches):
        if base_offset is None and chosen in (None, codec) and all(batch.magic == magic for batch in group):
            parts += [batch.raw for batch in group]
            continue
        rows = [row for batch in group if magic == 2 or not batch.is_control for row in batch.rows()]
        codec = codec if chosen is None else chosen
        if magic == 2 and group[0].magic == 2 and base_offset is None:
            parts.append(with_records(group[0], rows, codec))
            continue
        if base_offset is not None:
            rows = [(base_offset + index, *row[1:]) for index, row in enumerate(rows)]
            base_offset += len(rows)
        if rows:
            parts.append(_encoded(rows, magic, group[0], codec, timestamp_type))
    return b"".join(parts)


def _groups(batches: Iterator[Batch]) -> Iterator[tuple[Compression, int, list[Batch]]]:
    """Group consecutive messages of one format, codec and timestamp type; each v2 batch is a group by itself."""

    def kind(numbered: tuple[int, Batch]) -> tuple[int, Compression, int]:
        index, batch = numbered
        return (index if batch.magic == 2 else -1 - batch.magic, batch.compression, batch.timestamp_type)

    for (_, codec, timestamp_type), group in groupby(enumerate(batches), kind):
        yield codec, timestamp_type, [batch for _, batch in group]


def with_records(
    batch: Batch, rows: Sequence[Row], codec: Compression, *, delete_horizon_ms: int | None = None
) -> bytes:
    """Return a v2 batch with these records only, and the offset range, producer and sequences of `batch`."""
    return encode_v2(
        [row[1:] for row in rows],
        compression=codec,
        base_offset=batch.base_offset,
        offset_deltas=[row[0] - batch.base_offset for row in rows],
        last_delta=batch.last_offset - batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        timestamp_type=batch.timestamp_type,
        delete_horizon_ms=delete_horizon_ms,
    )


def _encoded(rows: list[Row], magic: int, first: Batch, codec: Compression, timestamp_type: int) -> bytes:
    base_offset = rows[0][0]
    if any(row[0] >= after[0] for row, after in pairwise(rows)):
        raise CorruptRecordsError("offsets do not ascend", offset=0, remedy="give a base offset to number them from")
    if magic == 2:
        return encode_v2(
            [row[1:] for row in rows],
            compression=codec,
            base_offset=base_offset,
            offset_deltas=[row[0] - base_offset for row in rows],
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=first.base_sequence,
            is_transactional=first.is_transactional,
            is_control=first.is_control,
            timestamp_type=timestamp_type,
        )
    return encode_message_set(
        [(timestamp, key, value, ()) for _, timestamp, key, value, _ in rows],
        magic=magic,
        compression=codec,
        offsets=[row[0] for row in rows],
        timestamp_type=timestamp_type,
    )
