"""What a partition knows of its idempotent and transactional producers: epochs, sequences, the last five batches.

It decides whether a batch is new, a duplicate, out of order or fenced (Kafka's ProducerStateManager and
ProducerAppendInfo).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kwire.broker.options import INT_MAX, FirstSequence
from kwire.errors import ErrorCode, broker_error

CACHED_BATCHES = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN: the reason for at most five requests in flight
NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """What is kept of a batch in the log (Kafka's BatchMetadata)."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int  # the highest of its records; Kafka returns it as the append time of a duplicate


@dataclass(slots=True)
class ProducerState:
    """The state of one producer id in one partition (Kafka's ProducerStateEntry)."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_ms: int = -1  # wall time of its last write
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the cached batch with these sequences, if there is one."""
        if epoch != self.epoch:
            return None
        wanted = (first_sequence, last_sequence)
        return next((b for b in self.batches if (b.first_sequence, b.last_sequence) == wanted), None)


class ProducerStateManager:
    """All producers that one partition knows, the least recently active first."""

    def __init__(self, *, first_sequence: FirstSequence, max_producers: int) -> None:
        self._first_sequence = first_sequence
        self._max_producers = max_producers
        self._by_id: dict[int, ProducerState] = {}
        self._open_transactions: dict[int, int] = {}  # producer id -> first offset of its open transaction

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._by_id.get(producer_id)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, *, log_is_new: bool
    ) -> BatchMetadata | None:
        """Check a batch before its append. Return None, or the batch that it duplicates. Raises BrokerError."""
        entry = self._by_id.get(producer_id)
        if entry is None:
            if first_sequence != 0 and log_is_new and self._first_sequence is FirstSequence.ZERO_IN_NEW_LOG:
                raise _out_of_order(producer_id, epoch, first_sequence, "the log never had a record")
            return None
        duplicate = entry.duplicate_of(epoch, first_sequence, last_sequence)
        if duplicate is not None:
            return duplicate
        if epoch < entry.epoch:
            raise broker_error(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}",
            )
        if epoch > entry.epoch:
            if first_sequence != 0:
                raise _out_of_order(producer_id, epoch, first_sequence, "a new epoch starts at 0")
            return None
        if entry.batches and first_sequence != next_sequence(entry.last_sequence):
            raise _out_of_order(producer_id, epoch, first_sequence, f"the last sequence is {entry.last_sequence}")
        if not entry.batches and first_sequence != 0:
            # Only a marker is left of this epoch. Kafka compares with NO_SEQUENCE here.
            raise _out_of_order(producer_id, epoch, first_sequence, "this epoch has no batch yet")
        return None

    def update(self, producer_id: int, epoch: int, batch: BatchMetadata, *, transactional: bool, now_ms: int) -> None:
        """Record an appended data batch."""
        entry = self._update_entry(producer_id, epoch, now_ms)
        entry.batches.append(batch)
        if transactional:
            self._open_transactions.setdefault(producer_id, batch.base_offset)

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, *, now_ms: int) -> int | None:
        """Record a commit or abort marker. Return the first offset of the transaction that it ends, if there is one."""
        entry = self._update_entry(producer_id, epoch, now_ms)
        entry.coordinator_epoch = coordinator_epoch
        return self._open_transactions.pop(producer_id, None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this epoch has written here and has not ended."""
        return producer_id in self._open_transactions and self._by_id[producer_id].epoch == epoch

    def open_transaction_offset(self, producer_id: int) -> int | None:
        """Return the first offset of the producer's open transaction."""
        return self._open_transactions.get(producer_id)

    def first_open_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction: the last stable offset cannot pass it."""
        return min(self._open_transactions.values(), default=None)

    def expire(self, older_than_ms: int) -> None:
        """Remove producers whose last write is older, except those with an open transaction."""
        for producer in list(self):
            if producer.last_ms < older_than_ms and producer.producer_id not in self._open_transactions:
                del self._by_id[producer.producer_id]

    def clear(self) -> None:
        self._by_id.clear()
        self._open_transactions.clear()

    def _update_entry(self, producer_id: int, epoch: int, now_ms: int) -> ProducerState:
        entry = self._by_id.pop(producer_id, None)
        if entry is None:
            entry = ProducerState(producer_id, epoch)
            self._evict_idle()
        elif epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.last_ms = now_ms
        self._by_id[producer_id] = entry
        return entry

    def _evict_idle(self) -> None:
        if len(self._by_id) < self._max_producers:
            return
        idle = next((id for id in self._by_id if id not in self._open_transactions), None)
        if idle is not None:
            del self._by_id[idle]


def next_sequence(sequence: int) -> int:
    """Return the next sequence. Sequences wrap from 2^31-1 to 0."""
    return 0 if sequence == INT_MAX else sequence + 1


def _out_of_order(producer_id: int, epoch: int, first_sequence: int, why: str) -> Exception:
    return broker_error(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {producer_id}, epoch {epoch}: {first_sequence} (incoming), {why}",
    )
