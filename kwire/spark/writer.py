"""Writes: `BatchWriter` for df.write and `StreamWriter` for df.writeStream. Exactly once: see `exactly_once`.

At least once, a task sends its Arrow batches as they arrive and succeeds once every row is acknowledged. If Spark
retries a task or a micro-batch, rows that were written before are written again. An abort cannot take rows back, so
`commit` and `abort` do nothing then. The error of a failed task names the row, its topic, partition and key, and the
broker.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kwire.errors import KwireError
from kwire.spark.clients import producers
from kwire.spark.error_messages import with_option_names
from kwire.spark.options import WriteOptions
from kwire.spark.rows import TaskBatch, checked
from kwire.spark.sink import SinkBatch, SinkColumns, TopicSlice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

# Spark's local properties that say which micro-batch a task is of.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
# Rows in one batch where Spark passes rows instead of Arrow batches.
_ROWS_PER_BATCH = 10_000
# Bytes that may be sent and not yet acknowledged, so that the producer can fill batches and pipeline requests.
_UNACKNOWLEDGED_BYTES_MAX = 16 * 1024 * 1024


class Response(Protocol):
    def done(self) -> bool: ...
    def settled(self, timeout: float | None = ...) -> object: ...
    @property
    def errors(self) -> list[tuple[int, KwireError]]: ...


class ArrowProducer(Protocol):
    """The part of `kwire.Producer` that a task uses."""

    def send_arrow(self, topic: str, table: pa.RecordBatch) -> Response: ...
    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The number of rows that a task wrote, as its message to the driver."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        # Made on the driver, and the same in its tasks: Spark pickles the writer.
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = records(self._options, map(self._columns.convert_batch, iterator), self._run)
        if self._options.exactly_once is not None:
            prepared: WriterCommitMessage = _exactly_once().prepare(self._options, self._run, batches)
            return prepared
        return write_task(self._options, batches)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once is not None:
            _exactly_once().commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once is not None:
            _exactly_once().abort(self._options, messages)


class _StreamWriter:
    """The part that is common to all versions of Spark."""

    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.exactly_once is not None:
            _exactly_once().commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._options.exactly_once is not None:
            _exactly_once().abort(self._options, messages)

    def __getstate__(self) -> dict[str, Any]:
        # Spark ships the writer to the tasks of a batch just before they start, and at no other time.
        if self._options.exactly_once is not None:
            _exactly_once().recover(self._options)
        return self.__dict__

    def _write(self, batches: Iterable[SinkBatch]) -> WriterCommitMessage:
        batches = records(self._options, batches, None)
        if self._options.exactly_once is not None:
            prepared: WriterCommitMessage = _exactly_once().prepare(self._options, None, batches)
            return prepared
        return write_task(self._options, batches)


if hasattr(spark_api, "DataSourceStreamArrowWriter"):

    class StreamWriter(_StreamWriter, spark_api.DataSourceStreamArrowWriter):  # pyright: ignore[reportRedeclaration]
        """For Spark 4.1 and later."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return self._write(map(self._columns.convert_batch, iterator))

else:

    class StreamWriter(_StreamWriter, spark_api.DataSourceStreamWriter):  # type: ignore[no-redef]
        """For Spark 4.0, which passes rows to streaming sinks."""

        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            return self._write(map(self._columns.convert_rows, row_batches(iterator)))


def _exactly_once() -> ModuleType:
    """Return the module `exactly_once`; only writes that need it import it."""
    from kwire.spark import exactly_once

    return exactly_once


def records(options: WriteOptions, batches: Iterable[SinkBatch], run: str | None) -> Iterable[SinkBatch]:
    """Return the rows as records to write. `run` identifies a batch write; a streaming query says what it is."""
    if options.queue is None:
        return batches
    from kwire.spark import queue_write  # only a write to a queue needs it

    context = TaskContext.get()
    place = -1 if context is None else context.partitionId()
    write = options.write_id or run
    if write is None and context is not None:
        write = "/".join(str(context.getLocalProperty(name)) for name in (_QUERY_ID, _BATCH_ID))
    return queue_write.messages(batches, options.queue, f"{write}/{place}", f"DataFrame partition {place}")


def row_batches(rows: Iterator[Row], size: int = _ROWS_PER_BATCH) -> Iterator[list[Row]]:
    while batch := list(islice(rows, size)):
        yield batch


def write_task(options: WriteOptions, batches: Iterable[SinkBatch]) -> Written:
    context = TaskContext.get()
    task = f"DataFrame partition {context.partitionId()}" if context is not None else "the DataFrame"
    try:
        with with_option_names():
            return Written(deliver(producers.get(options.client), batches, task))
    except BaseException:
        # Queued records belong to this attempt: the next attempt must not deliver them as well.
        producers.discard(options.client)
        raise


def deliver(producer: ArrowProducer, batches: Iterable[SinkBatch], task: str) -> int:
    """Send all rows. Return their number once all are acknowledged.

    The results of completed batches are checked while sending, so that a failure ends the task early. The task waits
    only while more than _UNACKNOWLEDGED_BYTES_MAX bytes are unacknowledged.
    """
    count = unacknowledged_bytes = 0
    unacknowledged: deque[list[_SentSlice]] = deque()
    for batch in batches:
        unacknowledged.append(_send(producer, TaskBatch(batch, count, task)))
        count += len(batch)
        unacknowledged_bytes += _size(unacknowledged[-1])
        while unacknowledged and (unacknowledged_bytes > _UNACKNOWLEDGED_BYTES_MAX or _is_done(unacknowledged[0])):
            oldest = unacknowledged.popleft()
            _check_result(oldest)
            unacknowledged_bytes -= _size(oldest)
    producer.flush()
    for sent in unacknowledged:
        _check_result(sent)
    return count


class _SentSlice(NamedTuple):
    batch: TaskBatch
    topic_slice: TopicSlice
    response: Response


def _send(producer: ArrowProducer, batch: TaskBatch) -> list[_SentSlice]:
    checked(batch)
    sent: list[_SentSlice] = []
    for topic_slice in batch.batch.by_topic():
        try:
            response = producer.send_arrow(topic_slice.topic, topic_slice.records)
        except (KwireError, TypeError, ValueError) as error:  # the last two for an invalid topic name
            raise batch.failure(error, topic_slice.row(0)) from error
        sent.append(_SentSlice(batch, topic_slice, response))
    return sent


def _size(sent: list[_SentSlice]) -> int:
    return sum(topic_slice.records.nbytes for _, topic_slice, _ in sent)


def _is_done(sent: list[_SentSlice]) -> bool:
    return all(response.done() for _, _, response in sent)


def _check_result(sent: list[_SentSlice]) -> None:
    """Wait for the responses of a batch. Raise for its first failed row, with the number of other failed rows."""
    failed: list[tuple[int, KwireError]] = []
    for _, topic_slice, response in sent:
        response.settled()
        failed += [(topic_slice.row(index), error) for index, error in response.errors]
    if failed:
        row, error = min(failed, key=lambda item: item[0])
        others = f" (other rows of this batch that failed: {len(failed) - 1})" if len(failed) > 1 else ""
        raise sent[0].batch.failure(error, row, others) from error
