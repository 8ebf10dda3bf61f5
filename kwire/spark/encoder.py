"""Rows of a task as encoded batches, before it is known which transaction they will be part of.

It is the producer's own accumulator and encoder without a producer: keys choose the same partitions, and a batch of
records without keys goes to the next partition in turn. Records without a timestamp get that of the task, so that a
repeated task makes the same bytes: `digest` compares them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pyarrow as pa

from kwire.errors import ErrorCode, KwireError, RecordTooLargeError, broker_error, counted
from kwire.producer import arrow
from kwire.producer.batch_builder import BatchBuilder, encode_builder
from kwire.producer.client import make_accumulator
from kwire.producer.options import ProducerSettings
from kwire.records.rows import BATCH_OVERHEAD_BYTES
from kwire.spark.transactions import EncodedBatch
from kwire.wire.checksums import crc32c

_DIGEST_BYTES = 0xFFFFFFFF


class RowRefusedError(Exception):
    """A row that cannot become a record: its index among the records appended, and why."""

    def __init__(self, row: int, error: KwireError) -> None:
        super().__init__(row, error)
        self.row = row
        self.error = error


class BatchEncoder:
    """Encodes the records of one task. `counts` are the partition counts of topics; `turn` spreads tasks."""

    def __init__(self, settings: ProducerSettings, counts: Callable[[str], int], *, now_ms: int, turn: int) -> None:
        self._settings = settings
        self._accumulator = make_accumulator(settings, _no_callback, _nothing)
        self._partition_count = counts
        self._now_ms = now_ms
        self._turn = turn
        self._counts: dict[str, int] = {}
        self._builders: list[BatchBuilder] = []
        self._crc = 0
        self._body_bytes = 0
        self.rows = 0

    @property
    def digest(self) -> int:
        """Return the CRC-32C of all records that were taken, and their size modulo 2 ** 32."""
        return self._crc << 32 | self._body_bytes & _DIGEST_BYTES

    def append(self, topic: str, records: pa.RecordBatch) -> list[EncodedBatch]:
        """Append rows. Return the batches that are full. Raises RowRefusedError for a row that no partition takes."""
        if topic not in self._counts:
            self._counts[topic] = self._partition_count(topic)
            self._accumulator.route(topic, self._counts[topic], (), (), False)
        full: list[EncodedBatch] = []
        for columns, length in arrow.slices_of(records, self._now_ms):
            self._check_partitions(topic, columns.partitions)
            start = 0
            while start < length:
                after, size_bytes, _, _ = self._accumulator.append_many(topic, columns, start, length)
                if size_bytes:
                    raise RowRefusedError(after, self._too_large(topic, size_bytes))
                self.rows += after - start
                full += self._take(are_all=after == start)
                start = after
        return full

    def finish(self) -> list[EncodedBatch]:
        """Return the batches that are not full."""
        return self._take(are_all=True)

    def _take(self, *, are_all: bool) -> list[EncodedBatch]:
        self._builders += self._accumulator.take()
        ready = [one for one in self._builders if are_all or one.is_closed]
        self._builders = [] if are_all else [one for one in self._builders if not one.is_closed]
        return [self._encoded(one) for one in ready]

    def _encoded(self, builder: BatchBuilder) -> EncodedBatch:
        builder.close()
        topic, partition = builder.topic, builder.partition
        if partition < 0:
            partition = self._turn % self._counts[topic]
            self._turn += 1
        batch = encode_builder(
            builder, compression=self._settings.codec, level=self._settings.compression_level, producer_id=-1,
            producer_epoch=-1, base_sequence=-1, is_transactional=True,
        )  # fmt: skip
        count = len(builder)
        self._accumulator.release(topic, builder.buffered_bytes)
        builder.drop(count)
        body = memoryview(batch)[BATCH_OVERHEAD_BYTES:]
        self._crc = crc32c(body, crc32c(f"{topic} {partition} {count}".encode(), self._crc))
        self._body_bytes += len(body)
        return EncodedBatch(topic, partition, count, bytes(batch))

    def _check_partitions(self, topic: str, partitions: int | array[int] | None) -> None:
        given = partitions if isinstance(partitions, array) else array("i", () if partitions is None else [partitions])
        count = self._counts[topic]
        if len(given) and max(given) >= count:
            row = next(row for row, partition in enumerate(given) if partition >= count)
            raise RowRefusedError(
                row,
                broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    topic=topic,
                    partition=given[row],
                    remedy=f"the topic has {counted(count, 'partition')}, numbered from 0",
                ),
            )

    def _too_large(self, topic: str, size_bytes: int) -> KwireError:
        return RecordTooLargeError(
            f"it has {size_bytes:,} bytes: more than kafka.max.request.size allows",
            code=ErrorCode.MESSAGE_TOO_LARGE,
            remedy="raise kafka.max.request.size, and the topic's max.message.bytes on the brokers",
            topic=topic,
        )


def _nothing() -> None:
    """Wake nobody: there is no event loop."""


def _no_callback(*_: object) -> None:
    raise AssertionError("no record has a callback")
