"""The size of batches: split where a broker refuses one as too large, larger where records compress well.

A batch that was refused for its size is in no log, so the pieces reuse its sequences: the first piece begins with the
batch's base sequence, each further one where the last ended, and later batches keep theirs. That is safe even when an
earlier attempt got no response: if the broker stored it, under a limit that was lowered since, the broker refuses the
pieces as out of order instead of storing them twice.

Sizes are estimated per topic, since max.message.bytes is a topic's setting and a topic's records are alike. Brokers
check the compressed size of a batch; the producer closes a batch by the size of its records before compression.
"""

from __future__ import annotations

import math
from itertools import pairwise

from kwire.errors import BrokerError, ErrorCode, RecordTooLargeError
from kwire.producer.batch import ProducerBatch
from kwire.records import BATCH_OVERHEAD_BYTES, record_bytes_max
from kwire.records.encoder import lead_bytes, record_bytes

_GROWTH = 1.5  # below 2: half of a refused size, grown once, is still smaller than the refused size
_TRUST = 0.2  # the weight of a batch that compresses better than those before it


class BatchSizeEstimator:
    """The size at which a topic's batches are closed: `bytes_max`, in bytes before compression.

    The target is `batch_bytes` after compression, so batches that compress well may be larger before it, up to
    `plain_bytes_max`. A batch that compresses badly makes the next ones smaller at once; batches that compress better
    let them grow slowly (as Java's CompressionRatioEstimator).

    Each refusal halves `bytes_max`. A full batch that is acknowledged lets it grow again, while a batch of the new size
    at the same compression ratio would stay below every refused size. So records that compress badly for some time do
    not keep the batches small.
    """

    __slots__ = ("_accepted_max", "_batch_bytes", "_plain_bytes_max", "_ratio", "_refused_bytes", "bytes_max", "learns")

    def __init__(self, batch_bytes: int, plain_bytes_max: int | None = None) -> None:
        """`plain_bytes_max` bounds batches before compression; None: batches are not compressed."""
        self.bytes_max = self._batch_bytes = batch_bytes
        self._plain_bytes_max = None if plain_bytes_max is None else max(batch_bytes, plain_bytes_max)
        self._ratio = 1.0  # compressed size / size before compression
        self._refused_bytes: float = math.inf  # the smallest refused batch, after compression
        self._accepted_max: int | None = None  # the bound that refusals set, before compression
        self.learns = plain_bytes_max is not None  # whether acknowledged batches change `bytes_max`

    def refused(self, batch: ProducerBatch) -> None:
        """Halve the size after a broker refused the batch as too large."""
        self._refused_bytes = min(self._refused_bytes, len(batch.encoded or b""))
        self.bytes_max = self._accepted_max = max(1, min(self.bytes_max, batch.size_bytes // 2))
        self.learns = True

    def taken(self, batch: ProducerBatch) -> bool:
        """Learn from an acknowledged batch, if it is at least half full. Return whether `bytes_max` changed."""
        if batch.encoded is None or batch.size_bytes < self.bytes_max // 2:
            return False
        before = self.bytes_max
        ratio = len(batch.encoded) / batch.size_bytes
        if self._plain_bytes_max is not None:
            self._ratio = max(ratio, self._ratio + (ratio - self._ratio) * _TRUST)
        if self._accepted_max is not None:
            grown = min(self._wanted, int(self._accepted_max * _GROWTH))
            if ratio * grown < self._refused_bytes:
                self._accepted_max = grown if grown < self._wanted else None
        self.bytes_max = self._wanted if self._accepted_max is None else min(self._wanted, self._accepted_max)
        return self.bytes_max != before

    @property
    def _wanted(self) -> int:
        """Return the size before compression of a batch that has `batch_bytes` after it."""
        if self._plain_bytes_max is None:
            return self._batch_bytes
        return min(self._plain_bytes_max, max(self._batch_bytes, int(self._batch_bytes / max(self._ratio, 1e-6))))

    def sent_bytes(self, plain_bytes: int) -> int:
        """Return the estimated compressed size of a batch that has `plain_bytes` before compression."""
        return plain_bytes if self._plain_bytes_max is None else int(plain_bytes * min(self._ratio, 1.0))

    def is_exceeded(self, batch: ProducerBatch) -> bool:
        """Return whether a batch that was filled before a refusal must be split before it is sent."""
        accepted = self._accepted_max
        return accepted is not None and batch.size_bytes > accepted and len(batch) > 1 and batch.attempts == 0


def split_batch(batch: ProducerBatch, bytes_max: int) -> list[ProducerBatch]:
    """Split a batch into closed batches of the same records in the same order.

    Each has at most `bytes_max` bytes or one record; at least two, unless the batch has one record.
    """
    batch.close()
    bytes_max = min(bytes_max, batch.size_bytes - 1)
    cuts: list[int] = []
    sizes: list[int] = []
    counted: list[int] = []
    base_timestamp = 0
    for index, (timestamp, key, value, headers) in enumerate(batch.records):
        lead = lead_bytes(timestamp - base_timestamp, index - cuts[-1]) if cuts else 0
        if not cuts or sizes[-1] + record_bytes(lead, key, value, headers) > bytes_max:
            cuts.append(index)
            sizes.append(BATCH_OVERHEAD_BYTES)
            base_timestamp, lead = timestamp, lead_bytes(0, 0)
        sizes[-1] += record_bytes(lead, key, value, headers)
        counted.append(record_bytes_max(key, value, headers))
    made = [
        batch.piece(start, end, size_bytes, sum(counted[start:end]))
        for (start, end), size_bytes in zip(pairwise([*cuts, len(counted)]), sizes, strict=True)
    ]
    # Together the pieces release exactly the memory that the batch reserved.
    made[-1].buffered_bytes += batch.buffered_bytes - sum(piece.buffered_bytes for piece in made)
    return made


def too_large_alone(batch: ProducerBatch, error: BrokerError) -> RecordTooLargeError:
    """Return the error of a record that is too large even alone in its batch, with its size and the setting."""
    sent, before = len(batch.encoded or b""), batch.buffered_bytes
    is_segment = error.code == ErrorCode.RECORD_LIST_TOO_LARGE
    setting = "segment.bytes" if is_segment else "max.message.bytes"
    typed = RecordTooLargeError(
        f"{error.message}; the record, of at most {before} bytes, is alone in a batch of {sent} bytes",
        code=error.code,
        remedy=f"raise {setting} of topic {batch.topic} above {sent}, compress, or send the record in parts",
        **error.where,
    )
    typed.__cause__ = error
    return typed
