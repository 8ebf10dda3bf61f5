"""A batch: records that travel, are acknowledged and fail together.

It is open while records join it, closed when it is full or has been drained once, and sequenced when it was first put
into a request by an idempotent producer. From then on it is immutable: same bytes, same producer id, epoch and
sequence, until it is acknowledged or the epoch is bumped (rule of order 2).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kwire.errors import KwireError
from kwire.producer.response import ProduceResponse, RecordMetadata
from kwire.records import BATCH_OVERHEAD_BYTES, Compression, encode_batch

if TYPE_CHECKING:
    from kwire.producer.producer_request import Terms

RecordTuple = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

NO_SEQUENCE = -1

# Sequences are int32 and wrap to 0 (Kafka's DefaultRecordBatch.incrementSequence).
SEQUENCES = 2**31


class Batch:
    """`partition` is -1 until an unkeyed batch is given one. Times are seconds of the loop's clock."""

    __slots__ = (
        "_append_time_ms", "_base_offset", "attempts", "bytes_max", "created_at", "deadline", "encoded", "error",
        "is_closed", "is_decided", "is_overdue", "is_transactional", "is_unsure", "last_error", "line", "magic",
        "partition", "producer_epoch", "producer_id", "records", "responses", "retries", "sequence", "size_bytes",
        "terms", "topic", "tried_at", "was_designated", "was_named",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, bytes_max: int, now: float, deadline: float, terms: Terms | None = None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.bytes_max = bytes_max
        self.created_at = now
        self.deadline = deadline
        self.terms = terms  # those of its first record
        self.records: list[RecordTuple] = []
        self.responses: list[ProduceResponse] = []
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.is_closed = False
        self.was_designated = False  # given its partition when drained
        self.attempts = 0
        self.retries = 0  # attempts that failed for a reason of its own
        self.tried_at: tuple[str, int] | None = None  # the broker that it was sent to last, and the version of Produce
        self.was_named = False  # some request asked for its topic by name, not by id
        self.last_error: KwireError | None = None
        # True when a request that carried it may have been applied: no answer came, or one that leaves it open.
        self.is_unsure = False
        # Its outcome is known, and told when the batches before it in the partition's line are decided too (rule 10).
        self.is_decided = False
        self.error: KwireError | None = None  # of a batch that is decided; None: it was acknowledged
        self.line: deque[Batch] | None = None  # None where no order is kept
        self.is_overdue = False  # its responses were told that their time is up while a request carried it
        self.sequence = NO_SEQUENCE
        self.is_transactional = False
        self.producer_id = -1
        self.producer_epoch = -1
        self.encoded: bytes | None = None
        self.magic = -1
        self._base_offset = -1
        self._append_time_ms = -1

    @property
    def buffered_bytes(self) -> int:
        """What its records were counted as when they came in."""
        return self.size_bytes - BATCH_OVERHEAD_BYTES

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<Batch {self.topic}-{self.partition} of {len(self)}, sequence {self.sequence}>"

    def has_room(self, size_bytes: int) -> bool:
        """An empty batch takes one record of any size: the producer's own limit was checked before."""
        return not self.is_closed and (not self.records or self.size_bytes + size_bytes <= self.bytes_max)

    def append(self, record: RecordTuple, response: ProduceResponse, size_bytes: int) -> None:
        assert not self.is_closed
        self.records.append(record)
        self.responses.append(response)
        self.size_bytes += size_bytes
        if self.size_bytes >= self.bytes_max:
            self.is_closed = True

    @property
    def is_sequenced(self) -> bool:
        return self.sequence != NO_SEQUENCE

    def stamp(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Give the batch its identity, at its first write."""
        assert not self.is_sequenced
        self.producer_id, self.producer_epoch, self.sequence = producer_id, producer_epoch, sequence
        self.encoded = None

    def sequence_of(self, index: int) -> int:
        """The sequence of its record at `index`, or of what comes behind its last one."""
        return (self.sequence + index) % SEQUENCES

    def unstamp(self) -> None:
        """Take the identity back after an epoch bump. Only when it is sure that no broker stored the batch."""
        assert not self.is_unsure
        self.sequence = NO_SEQUENCE
        self.encoded = None

    def encode(self, magic: int, compression: Compression, level: int | None) -> bytes:
        """The bytes to send: made once, then the same on every attempt."""
        if self.encoded is None or self.magic != magic:
            assert self.encoded is None or not self.is_sequenced, "a sequenced batch is immutable"
            self.encoded = encode_batch(
                self.records,
                magic=magic,
                compression=compression,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.sequence,
                is_transactional=self.is_transactional,
            )
            self.magic = magic
        return self.encoded

    def acknowledged(self, base_offset: int, append_time_ms: int) -> None:
        """Note where the broker put it; -1 where it did not say."""
        self._base_offset, self._append_time_ms = base_offset, append_time_ms
        self.encoded = None  # the bytes are not needed any more, the records' timestamps are

    def metadata(self, index: int) -> RecordMetadata:
        offset = -1 if self._base_offset < 0 else self._base_offset + index
        timestamp_ms = self.records[index][0] if self._append_time_ms < 0 else self._append_time_ms
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)
