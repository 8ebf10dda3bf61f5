"""Batches that a broker finds too large: how they are cut in pieces, and what is learnt so that the next ones fit.

A batch that was refused for its size is in no log, so the pieces may take over its sequences: the first piece begins
where the batch began, each further one where the last ended, and the batches behind it keep theirs. That is safe even
when an earlier attempt got no answer: if that one was stored after all, under a limit that has been lowered since,
brokers take no batch that begins within it, and refuse the pieces as out of order instead of storing them twice.

What is learnt is learnt of the topic, whose setting max.message.bytes it is. Brokers judge a batch as it is sent,
compressed; a batch is closed by the size of its records before that.
"""

from __future__ import annotations

import math
from itertools import pairwise

from kwire.errors import BrokerError, ErrorCode, RecordTooLargeError
from kwire.producer.batch import Batch
from kwire.records import BATCH_OVERHEAD_BYTES, record_bytes_max

_GROWTH = 1.5  # times the half of what was refused this is still less than that


class SizeLimit:
    """At what size a topic's batches are closed: `bytes_max`, before compression.

    Each refusal halves it. A full batch that was taken lets it grow again, as far as a batch of that size, compressed
    as well as this one was, would stay below all that was refused: so records that compress badly for a while do not
    keep the batches small for ever.
    """

    __slots__ = ("_configured", "_refused_bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = self._configured = bytes_max
        self._refused_bytes: float = math.inf  # the smallest batch that was refused, as it was sent

    def refused(self, batch: Batch) -> None:
        self._refused_bytes = min(self._refused_bytes, len(batch.encoded or b""))
        self.bytes_max = max(1, min(self.bytes_max, batch.size_bytes // 2))

    def taken(self, batch: Batch) -> None:
        if self.bytes_max == self._configured or batch.size_bytes < self.bytes_max // 2 or batch.encoded is None:
            return
        grown = min(self._configured, int(self.bytes_max * _GROWTH))
        if len(batch.encoded) / batch.size_bytes * grown < self._refused_bytes:
            self.bytes_max = grown

    def is_exceeded(self, batch: Batch) -> bool:
        """Whether a batch that was filled before is to be cut before it is sent."""
        return batch.size_bytes > self.bytes_max < self._configured and len(batch) > 1 and batch.attempts == 0


def pieces(batch: Batch, bytes_max: int) -> list[Batch]:
    """Closed batches of the same records in the same order, each within `bytes_max` or of one record; at least
    two, unless the batch has one record."""
    sizes = [record_bytes_max(key, value, headers) for _, key, value, headers in batch.records]
    bytes_max = min(bytes_max, BATCH_OVERHEAD_BYTES + sum(sizes) - 1)
    cuts = [0]
    size_bytes = BATCH_OVERHEAD_BYTES
    for index, size in enumerate(sizes):
        if index > cuts[-1] and size_bytes + size > bytes_max:
            cuts.append(index)
            size_bytes = BATCH_OVERHEAD_BYTES
        size_bytes += size
    cuts.append(len(sizes))
    made = [batch.piece(start, end, sum(sizes[start:end])) for start, end in pairwise(cuts)]
    # What came in is what is given back, whatever it was counted as.
    made[-1].size_bytes += batch.buffered_bytes - sum(piece.buffered_bytes for piece in made)
    return made


def too_large_alone(batch: Batch, error: BrokerError) -> RecordTooLargeError:
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
