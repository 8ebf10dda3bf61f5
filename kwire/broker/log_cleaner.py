"""Log compaction: which batches of a log stay, and in which form (Kafka's Cleaner and MemoryRecords.filterTo).

Of each key only the last record stays. A tombstone, a record without a value, stays until the delete horizon, which the
first cleaning that sees it writes into its batch (KIP-534). Records of aborted transactions go at once, the markers of
transactions without records after a delete horizon. The last batch of a producer stays without its records, because its
sequences are needed after a restart; so does the batch that ends at the end of what was cleaned.

There is no clock and no log here: a `PartitionLog` says what to clean, and keeps the result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kwire.broker.producer_state import ProducerState
from kwire.records import LOG_APPEND_TIME, Batch
from kwire.records.convert import with_records
from kwire.records.encoder import batch_header
from kwire.records.rows import Row
from kwire.wire.checksums import crc32c

if TYPE_CHECKING:
    from kwire.broker.log import AbortedTransaction, StoredBatch

_ATTRIBUTES_AT, _BASE_TIMESTAMP_AT = 21, 27
_DELETE_HORIZON = 0x40
_KEPT_ATTRIBUTES = 0x38  # timestamp type, transactional, control
_LONG, _SHORT = struct.Struct(">q"), struct.Struct(">h")
_NO_TIMESTAMP = -1


@dataclass(slots=True)
class Cleaned:
    """What a cleaning leaves: batches, and the aborted transactions that still matter to readers."""

    batches: list[StoredBatch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)


def delete_horizon_ms(batch: memoryview) -> int | None:
    """Return when tombstones and the marker of a v2 batch may go; None if no cleaning has set it yet."""
    (attributes,) = _SHORT.unpack_from(batch, _ATTRIBUTES_AT)
    return int(_LONG.unpack_from(batch, _BASE_TIMESTAMP_AT)[0]) if attributes & _DELETE_HORIZON else None


def clean(
    batches: Sequence[StoredBatch],
    aborted: Sequence[AbortedTransaction],
    *,
    first_dirty: int,
    producers: Mapping[int, ProducerState],
    now_ms: int,
    delete_retention_ms: int,
) -> Cleaned:
    """Return what stays of `batches`, which are cleanable and whole: from the log's start to the end of a segment.

    Keys at and above `first_dirty` are counted; those below were in an earlier cleaning. `aborted` are the aborted
    transactions of the log, `producers` those that it knows.
    """
    latest = _latest_offsets(batches, aborted, first_dirty)
    transactions = _Transactions(aborted)
    cleaned = Cleaned()
    end = batches[-1].last_offset if batches else -1
    for stored in batches:
        batch = stored.batch()
        horizon = delete_horizon_ms(stored.data)
        may_discard = transactions.may_discard(stored)
        if stored.is_control:
            keeps_none = may_discard and horizon is not None and horizon <= now_ms
        else:
            keeps_none = may_discard
        rows = batch.rows()
        if keeps_none:
            kept = []
        elif stored.is_control:
            kept = rows
        else:
            kept = [row for row in rows if _stays(row, latest, horizon, now_ms)]
        if kept:
            has_tombstone = not stored.is_control and any(row[3] is None for row in kept)
            if horizon is None and (has_tombstone or (stored.is_control and may_discard)):
                horizon = now_ms + delete_retention_ms
                cleaned.batches.append(_rewritten(stored, batch, kept, horizon))
            elif len(kept) == len(rows):
                cleaned.batches.append(stored)
            else:
                cleaned.batches.append(_rewritten(stored, batch, kept, horizon))
        elif _is_last_of_producer(stored, producers) or stored.last_offset == end:
            cleaned.batches.append(_emptied(stored, batch))
    cleaned.aborted = transactions.kept
    return cleaned


def _latest_offsets(
    batches: Iterable[StoredBatch], aborted: Sequence[AbortedTransaction], first_dirty: int
) -> dict[bytes, int]:
    """Return the last offset of each key at and above `first_dirty`, aborted records left out."""
    transactions = _Transactions(aborted)
    latest: dict[bytes, int] = {}
    for stored in batches:
        is_aborted = transactions.may_discard(stored)
        if stored.last_offset < first_dirty or stored.is_control or is_aborted:
            continue
        for offset, _, key, _, _ in stored.batch().rows():
            if key is not None and offset >= first_dirty:
                latest[bytes(key)] = offset
    return latest


def _stays(row: Row, latest: Mapping[bytes, int], horizon: int | None, now_ms: int) -> bool:
    offset, _, key, value, _ = row
    if key is None or offset < latest.get(bytes(key), -1):
        return False
    return value is not None or horizon is None or now_ms < horizon


def _is_last_of_producer(stored: StoredBatch, producers: Mapping[int, ProducerState]) -> bool:
    producer = producers.get(stored.producer_id)
    if producer is None:
        return False
    if producer.batches:
        return stored.last_offset == producer.batches[-1].last_offset
    return stored.is_control and stored.producer_epoch == producer.epoch


def _rewritten(stored: StoredBatch, batch: Batch, kept: Sequence[Row], horizon: int | None) -> StoredBatch:
    """Return the batch with these records only, at its old offsets and sequences."""
    data = with_records(batch, kept, batch.compression, delete_horizon_ms=horizon)
    is_append_time = batch.timestamp_type == LOG_APPEND_TIME
    max_timestamp_ms = batch.max_timestamp_ms if is_append_time else max(row[1] for row in kept)
    return replace(stored, data=memoryview(data), max_timestamp_ms=max_timestamp_ms)


def _emptied(stored: StoredBatch, batch: Batch) -> StoredBatch:
    """Return the batch without its records; its offsets, producer and sequences stay."""
    (attributes,) = _SHORT.unpack_from(stored.data, _ATTRIBUTES_AT)
    header = batch_header(
        crc32c, b"", 0, batch.last_offset - batch.base_offset, _NO_TIMESTAMP, batch.max_timestamp_ms,
        attributes=attributes & _KEPT_ATTRIBUTES, base_offset=batch.base_offset, producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch, base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
    )  # fmt: skip
    return replace(stored, data=memoryview(header), compression=0)


class _Transactions:
    """Follows the transactions of a log, batch by batch (Kafka's CleanedTransactionMetadata)."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self.kept: list[AbortedTransaction] = []  # aborted transactions with batches left, by last offset
        self._aborted = self._in_order(aborted)
        self._next = next(self._aborted, None)
        self._open_aborted: dict[int, AbortedTransaction] = {}  # by producer id
        self._observed: set[int] = set()  # of these, the ones with a batch
        self._committed: set[int] = set()  # producers with a batch in their transaction, which was committed

    @staticmethod
    def _in_order(aborted: Sequence[AbortedTransaction]) -> Iterator[AbortedTransaction]:
        return iter(sorted(aborted, key=lambda transaction: transaction.first_offset))

    def may_discard(self, stored: StoredBatch) -> bool:
        """Return whether nobody needs this batch: its transaction was aborted, or it is a marker without records."""
        while self._next is not None and self._next.first_offset <= stored.last_offset:
            self._open_aborted[self._next.producer_id] = self._next
            self._next = next(self._aborted, None)
        producer_id = stored.producer_id
        if stored.is_control:
            return self._ends(producer_id)
        if not stored.is_transactional:
            return False
        if producer_id in self._open_aborted:
            self._observed.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def _ends(self, producer_id: int) -> bool:
        transaction = self._open_aborted.pop(producer_id, None)
        if transaction is None:
            had_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_records
        if producer_id not in self._observed:
            return True
        self._observed.discard(producer_id)
        self.kept.append(transaction)
        return False
