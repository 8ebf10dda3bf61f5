"""How large batches may become: cut in pieces where a broker finds one too large, larger where records compress.

A batch that was refused for its size is in no log, so the pieces may take over its sequences: the first piece begins
where the batch began, each further one where the last ended, and the batches behind it keep theirs. That is safe even
when an earlier attempt got no response: if that one was stored after all, under a limit that has been lowered since,
brokers take no batch that begins within it, and refuse the pieces as out of order instead of storing them twice.

What is learnt is learnt of the topic, whose setting max.message.bytes it is, and whose records are alike. Brokers judge
a batch as it is sent, compressed; a batch is closed by the size of its records before that.
"""

from __future__ import annotations

import math
from itertools import pairwise

from kwire.errors import BrokerError, ErrorCode, RecordTooLargeError
from kwire.producer.batch import ProducerBatch
from kwire.records import BATCH_OVERHEAD_BYTES, record_bytes_max
from kwire.records.sizes import lead_bytes, record_bytes

_GROWTH = 1.5  # times the half of what was refused this is still less than that
_TRUST = 0.2  # in a batch that compresses better than those before it


class BatchSizeEstimator:
    """At what size a topic's batches are closed: `bytes_max`, before compression.

    A batch is to have `batch_bytes` as it is sent, so those of records that compress well may be larger before that, up
    to `plain_bytes_max`. One batch that compresses badly makes the next ones smaller at once, better ones let them grow
    by and by (Java's CompressionRatioEstimator does likewise).

    Each refusal halves it. A full batch that was taken lets it grow again, as far as a batch of that size, compressed
    as well as this one was, would stay below all that was refused: so records that compress badly for a while do not
    keep the batches small for ever.
    """

    __slots__ = ("_accepted_max", "_batch_bytes", "_plain_bytes_max", "_ratio", "_refused_bytes", "bytes_max", "learns")

    def __init__(self, batch_bytes: int, plain_bytes_max: int | None = None) -> None:
        """`plain_bytes_max` is for batches that are compressed; None: they are not."""
        self.bytes_max = self._batch_bytes = batch_bytes
        self._plain_bytes_max = None if plain_bytes_max is None else max(batch_bytes, plain_bytes_max)
        self._ratio = 1.0  # of the size as it is sent to that before compression
        self._refused_bytes: float = math.inf  # the smallest batch that was refused, as it was sent
        self._accepted_max: int | None = None  # what refusals have left, before compression
        self.learns = plain_bytes_max is not None  # whether sent batches teach it anything

    def refused(self, batch: ProducerBatch) -> None:
        self._refused_bytes = min(self._refused_bytes, len(batch.encoded or b""))
        self.bytes_max = self._accepted_max = max(1, min(self.bytes_max, batch.size_bytes // 2))
        self.learns = True

    def taken(self, batch: ProducerBatch) -> bool:
        """Learn from a batch that was acknowledged; one that is not nearly full proves nothing. Whether `bytes_max` is
        another now."""
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
        """What would fill a batch as it is sent."""
        if self._plain_bytes_max is None:
            return self._batch_bytes
        return min(self._plain_bytes_max, max(self._batch_bytes, int(self._batch_bytes / max(self._ratio, 1e-6))))

    def sent_bytes(self, plain_bytes: int) -> int:
        """What a batch that has so many bytes before compression will have about as it is sent."""
        return plain_bytes if self._plain_bytes_max is None else int(plain_bytes * min(self._ratio, 1.0))

    def is_exceeded(self, batch: ProducerBatch) -> bool:
        """Whether a batch that was filled before is to be cut before it is sent."""
        accepted = self._accepted_max
        return accepted is not None and batch.size_bytes > accepted and len(batch) > 1 and batch.attempts == 0


def split_batch(batch: ProducerBatch, bytes_max: int) -> list[ProducerBatch]:
    """Closed batches of the same records in the same order, each within `bytes_max` or of one record; at least
    two, unless the batch has one record."""
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
    # What came in is what is given back, whatever it was counted as.
    made[-1].buffered_bytes += batch.buffered_bytes - sum(piece.buffered_bytes for piece in made)
    return made


def too_large_alone(batch: ProducerBatch, error: BrokerError) -> RecordTooLargeError:
    """The error of a record that is refused though it is alone in its batch: how large it is, and which setting."""
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
