"""What a task does in a write exactly once: encode its rows, and hand them to the driver or to a side transaction.

Up to `inline_bytes_max`, less for tasks with a high number, the encoded batches travel in the message to the driver.
A task with more begins a transaction of its own, writes to it as its rows arrive, and leaves it open: whether its rows
become visible is for the driver to decide. Nothing that a task does is visible by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from kwire.errors import KwireError
from kwire.net import Clock, SystemClock
from kwire.producer.options import ProducerSettings
from kwire.spark import fault_points
from kwire.spark.encoder import BatchEncoder, RowRefusedError
from kwire.spark.fault_points import FaultPoint
from kwire.spark.lead import BatchId, LeadTransaction, Prepared
from kwire.spark.marker import Side, side_id
from kwire.spark.options import ExactlyOnce
from kwire.spark.rows import TaskBatch, checked
from kwire.spark.sink import SinkBatch
from kwire.spark.transactions import EncodedBatch, TransactionRequests, TransactionWriter

_log = logging.getLogger("kwire.spark")

# Bytes that are encoded before they are written to a side transaction, so that requests carry several partitions.
_WRITTEN_AT_ONCE = 4 * 1024 * 1024
# Spark does not tell a task how many tasks there are. With this divisor the shares of a thousand tasks add up to at
# most the whole budget: the sum of 1 / n up to 1,000 is less than 8.
_SHARES = 8


class TaskId(NamedTuple):
    """A task and its attempt. `run` is the same for all tasks of one run of the query, and of no other."""

    batch: BatchId
    run: str
    task: int
    attempt: int

    def __str__(self) -> str:
        return f"DataFrame partition {self.task}"


class TaskWrite:
    """The write of one attempt of a task."""

    def __init__(
        self,
        requests: TransactionRequests,
        options: ExactlyOnce,
        settings: ProducerSettings,
        task: TaskId,
        *,
        reach: FaultPoint = fault_points.reach,
        clock: Clock | None = None,
    ) -> None:
        self._requests = requests
        self._options = options
        self._task = task
        self._prefix = task.batch.prefix(options)
        self._reach = reach
        now_ms = (clock or SystemClock()).time_ms()
        self._encoder = BatchEncoder(settings, self._partition_count, now_ms=now_ms, turn=task.task)
        self._inline_bytes_max = min(
            options.inline_bytes_max, options.inline_batch_bytes_max // (_SHARES * (task.task + 1))
        )
        self._batches: list[EncodedBatch] = []  # not written
        self._bytes = 0
        self._side: TransactionWriter | None = None

    def write(self, batches: Iterable[SinkBatch]) -> Prepared:
        """Return the message to the driver. If the task fails, its transaction is aborted."""
        self._reach(fault_points.TASK_BEGUN)
        if self._is_decided():
            for _ in batches:  # if a task leaves its input unread, Spark loses the worker
                pass
            return Prepared(self._task.batch, self._task.task, 0, 0)
        try:
            self._encode(batches)
            return self._prepared()
        except Exception:
            self._abort()
            raise

    def _is_decided(self) -> bool:
        """Return whether the batch was written before, and none of its rows can be needed again."""
        lead = LeadTransaction(self._requests, self._options, self._prefix)
        marker = lead.read_marker(is_stable=False)
        if marker is None or (marker.query, marker.batch) != self._task.batch[:2]:
            return False  # the driver judges markers of other batches
        return not (marker.sides and self._options.repeats_decided)

    def _encode(self, batches: Iterable[SinkBatch]) -> None:
        count = 0
        for batch in batches:
            named = TaskBatch(batch, count, str(self._task))
            checked(named)
            for topic_slice in batch.by_topic():
                try:
                    self._add(self._encoder.append(topic_slice.topic, topic_slice.records))
                except RowRefusedError as refused:
                    raise named.failure(refused.error, topic_slice.row(refused.row)) from refused.error
                except KwireError as error:
                    raise named.failure(error, topic_slice.row(0)) from error
            count += len(batch)
        self._add(self._encoder.finish())
        self._reach(fault_points.ENCODED)

    def _add(self, encoded: list[EncodedBatch]) -> None:
        self._batches += encoded
        self._bytes += sum(len(one.batch) for one in encoded)
        if self._side is None and self._bytes > self._inline_bytes_max:
            self._side = self._begin()
        if self._side is not None and self._bytes >= _WRITTEN_AT_ONCE:
            self._write()

    def _begin(self) -> TransactionWriter:
        name = side_id(self._prefix, self._task.run, self._task.task, self._task.attempt)
        side = TransactionWriter(self._requests, self._requests.begin(name, self._options.transaction_timeout_ms))
        self._reach(fault_points.SIDE_INITIALIZED)
        return side

    def _write(self) -> None:
        assert self._side is not None
        batches, self._batches, self._bytes = self._batches, [], 0
        self._side.write(batches)
        self._reach(fault_points.SIDE_PRODUCING)

    def _prepared(self) -> Prepared:
        batch, task, encoder = self._task.batch, self._task.task, self._encoder
        if self._side is None:
            return Prepared(batch, task, encoder.rows, encoder.digest, inline=tuple(self._batches))
        self._write()
        self._reach(fault_points.SIDE_PREPARED)
        opened = self._side.transaction
        side = Side(
            self._task.run, task, self._task.attempt, opened.producer_id, opened.producer_epoch, encoder.rows,
            encoder.digest,
        )  # fmt: skip
        return Prepared(
            batch, task, encoder.rows, encoder.digest, side=side, partitions=tuple(self._side.partitions),
            transaction_version=opened.version,
        )  # fmt: skip

    def _abort(self) -> None:
        if self._side is None:
            return
        try:
            self._requests.end([self._side.transaction], is_commit=False)
        except KwireError as error:
            _log.warning("the transaction of %s stays open until the batch ends: %s", self._task, error)

    def _partition_count(self, topic: str) -> int:
        return self._requests.partition_counts([topic])[topic]
