"""A producer batch: records that are sent, acknowledged and failed together.

It is the loop thread's view of a `BatchBuilder`, or of a part of one after a split.

    open -- close --> closed -- set_producer_state --> sequenced -- decided --> completed
                        ^  '------- (not idempotent) -----------------^
                        '------ clear_producer_state, after an epoch bump

- open: records still join its builder; `count` is -1.
- closed: the builder is full or was drained. `count` and the sizes are final.
- sequenced: an idempotent producer has put it into a request. From then on it is immutable: same bytes, producer id,
  epoch and sequence, until it is acknowledged or the epoch is bumped (rule 2).
- decided (`is_decided`, `error`): its outcome is known; it waits until earlier batches of the partition are decided.
- completed (`is_completed`): its futures have their outcome. A batch that is past its deadline while it is in flight or
  waits to be retried is completed before it is decided, and keeps its place and its memory until then.

Open, closed and sequenced follow from `count` and `sequence`. The other flags are facts that exclude none of these:
`possibly_persisted` (a request that carried it got no clear response), `assigned_at_drain`, `is_piece`, `was_named`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from kwire.errors import KwireError
from kwire.producer.batch_builder import BatchBuilder, encode_builder
from kwire.producer.futures import resolve
from kwire.records import Compression, encode_batch
from kwire.records.rows import NewRecord

if TYPE_CHECKING:
    from kwire.producer.producer_request import DeliveryOptions

NO_SEQUENCE = -1

# Sequences are int32 and wrap to 0 (Kafka's DefaultRecordBatch.incrementSequence).
SEQUENCES = 2**31


class ProducerBatch:
    """`partition` is negative until the batch is given one. Times are seconds of the loop's clock."""

    __slots__ = (
        "_start",
        "append_time_ms",
        "assigned_at_drain",
        "attempts",
        "base_offset",
        "buffered_bytes",
        "builder",
        "count",
        "created_at",
        "deadline",
        "encoded",
        "error",
        "is_completed",
        "is_decided",
        "is_piece",
        "is_transactional",
        "last_error",
        "magic",
        "number",
        "possibly_persisted",
        "producer_epoch",
        "producer_id",
        "retries",
        "sequence",
        "size_bytes",
        "terms",
        "topic",
        "tried_at",
        "unresolved",
        "was_named",
    )  # fmt: skip

    def __init__(self, builder: BatchBuilder, now: float, deadline: float) -> None:
        self.builder = builder
        self.topic = builder.topic
        self.created_at = now
        self.deadline = deadline
        self.terms: DeliveryOptions | None = builder.terms  # those of its first record
        self._start = 0
        # -1 until it is closed. `size_bytes`: as an uncompressed v2 batch; `buffered_bytes`: the bound on its bytes in
        # any format, by which its records were charged to the memory limit.
        self.count = self.size_bytes = self.buffered_bytes = -1
        self.is_piece = False  # a part of its builder
        self.assigned_at_drain = False  # its partition was chosen when it was drained
        self.number = 0  # in the order in which the topic's batches got partitions
        self.attempts = 0
        self.retries = 0  # attempts that failed for a reason of its own
        self.tried_at: tuple[str, int] | None = None  # the last broker it was sent to, and the version of Produce
        self.was_named = False  # a request had its topic by name, not by id
        self.last_error: KwireError | None = None
        self.possibly_persisted = False
        self.is_decided = False
        self.error: KwireError | None = None  # once it is decided; None: it was acknowledged
        self.unresolved: deque[ProducerBatch] | None = None  # None if no order is kept
        self.is_completed = False
        self.sequence = NO_SEQUENCE
        self.is_transactional = False
        self.producer_id = -1
        self.producer_epoch = -1
        self.encoded: bytes | bytearray | memoryview | None = None
        self.magic = -1
        # From the response; -1 if it has none.
        self.base_offset = self.append_time_ms = -1

    def piece(self, start: int, end: int, size_bytes: int, buffered_bytes: int) -> ProducerBatch:
        """Return a batch of its records start .. end - 1 of these sizes, with its attempts and producer state."""
        assert self.is_closed
        piece = ProducerBatch(self.builder, self.created_at, self.deadline)
        piece._start, piece.count, piece.is_piece = self._start + start, end - start, True
        piece.size_bytes, piece.buffered_bytes = size_bytes, buffered_bytes
        piece.assigned_at_drain, piece.was_named = self.assigned_at_drain, self.was_named
        for name in (
            "attempts",
            "is_transactional",
            "possibly_persisted",
            "last_error",
            "unresolved",
            "retries",
            "tried_at",
        ):
            setattr(piece, name, getattr(self, name))
        if self.is_sequenced:
            piece.set_producer_state(self.producer_id, self.producer_epoch, self.sequence_of(start))
        return piece

    @property
    def partition(self) -> int:
        return self.builder.partition

    @partition.setter
    def partition(self, index: int) -> None:
        self.builder.partition = index

    @property
    def is_closed(self) -> bool:
        return self.builder.is_closed

    def close(self) -> None:
        """Close the builder: from now on no thread can append to it."""
        if self.count < 0:
            builder = self.builder
            builder.close()
            self.count, self.size_bytes, self.buffered_bytes = len(builder), builder.size_bytes, builder.buffered_bytes

    @property
    def records(self) -> list[NewRecord]:
        return self.builder.rows(self._start, self._start + self.count)

    def __len__(self) -> int:
        return len(self.builder) if self.count < 0 else self.count

    def __repr__(self) -> str:
        return f"<Batch {self.topic}-{self.partition} of {len(self)}, sequence {self.sequence}>"

    @property
    def is_sequenced(self) -> bool:
        return self.sequence != NO_SEQUENCE

    def set_producer_state(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Give the batch its producer id, epoch and sequence, at its first write."""
        assert self.builder.is_closed
        assert self.sequence == NO_SEQUENCE
        self.producer_id, self.producer_epoch, self.sequence = producer_id, producer_epoch, sequence
        self.encoded = None

    def sequence_of(self, index: int) -> int:
        """Return the sequence of its record at `index`; `count` gives that of the next batch."""
        return (self.sequence + index) % SEQUENCES

    def clear_producer_state(self) -> None:
        """Remove the sequence after an epoch bump. Only when certainly no broker stored the batch."""
        assert not self.possibly_persisted
        self.sequence = NO_SEQUENCE
        self.encoded = None

    def encode(self, magic: int, compression: Compression, level: int | None) -> bytes | bytearray | memoryview:
        """Return the bytes to send: made once, then the same on every attempt."""
        if self.encoded is None or self.magic != magic:
            assert self.encoded is None or not self.is_sequenced, "a sequenced batch is immutable"
            self.magic = magic
            is_whole_run = magic == 2 and not self.is_piece
            make = (
                partial(encode_builder, self.builder)
                if is_whole_run
                else partial(encode_batch, self.records, magic=magic)
            )
            self.encoded = make(
                compression=compression,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.sequence,
                is_transactional=self.is_transactional,
            )
        return self.encoded

    def complete(self, error: KwireError | None) -> None:
        """Complete its futures, once: with the error, or with the offsets that the broker returned."""
        assert not self.is_completed
        self.is_completed = True
        resolve(self.builder, self._start, self._start + self.count, self.base_offset, self.append_time_ms, error)

    def drop(self) -> None:
        """Free its bytes; the records' timestamps are still needed."""
        self.encoded = None
        self.builder.drop(self.count)
