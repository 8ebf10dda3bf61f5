"""Writes: `BatchWriter` for df.write and `StreamWriter` for df.writeStream. At least once.

A task sends its Arrow batches as they arrive and succeeds once every row is acknowledged. The error of a failed task
names the row, its topic, partition and key, and the broker. If Spark retries a task or a micro-batch, rows that were
written before are written again. An abort cannot take rows back, so `commit` and `abort` do nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kwire.errors import ConfigurationError, DeliveryError, KwireError
from kwire.spark.clients import producers
from kwire.spark.error_messages import with_option_names
from kwire.spark.options import WriteOptions
from kwire.spark.sink import SinkBatch, SinkColumns, TopicSlice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

# Bytes of a key that an error shows.
_KEY_SHOWN = 40
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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._options, map(self._columns.convert_batch, iterator))


if hasattr(spark_api, "DataSourceStreamArrowWriter"):

    class StreamWriter(spark_api.DataSourceStreamArrowWriter):  # pyright: ignore[reportRedeclaration]
        """For Spark 4.1 and later."""

        def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
            self._options = options
            self._columns = columns

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            return write_task(self._options, map(self._columns.convert_batch, iterator))

else:

    class StreamWriter(spark_api.DataSourceStreamWriter):  # type: ignore[no-redef]
        """For Spark 4.0, which passes rows to streaming sinks."""

        def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
            self._options = options
            self._columns = columns

        def write(self, iterator: Iterator[Row]) -> Written:
            return write_task(self._options, map(self._columns.convert_rows, row_batches(iterator)))


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
        unacknowledged.append(_send(producer, _TaskBatch(batch, count, task)))
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


class _TaskBatch(NamedTuple):
    """A batch of a task, and how errors name its rows. `first_row` is the number of its first row in the task."""

    batch: SinkBatch
    first_row: int
    task: str

    def name(self, row: int) -> str:
        key, value_bytes = self.batch.key(row), self.batch.value_bytes(row)
        shown = "no key" if key is None else f"key {key[:_KEY_SHOWN]!r}"
        if key is not None and len(key) > _KEY_SHOWN:
            shown += f"... of {_in_bytes(len(key))}"
        value = "no value" if value_bytes is None else f"value of {_in_bytes(value_bytes)}"
        return f"row {self.first_row + row} of {self.task} ({shown}, {value})"

    def failure(self, error: Exception, row: int, others: str = "") -> DeliveryError:
        where: dict[str, object] = {"topic": self.batch.topic(row), "partition": self.batch.partition(row)}
        cause: BaseException | None = error
        while isinstance(cause, KwireError):
            where = {**cause.where, **{name: value for name, value in where.items() if value is not None}}
            cause = cause.__cause__
        message, remedy = (error.message, error.remedy) if isinstance(error, KwireError) else (str(error), None)
        return DeliveryError(
            f"{self.name(row)} was not written{others}: {message}",
            possibly_persisted=getattr(error, "possibly_persisted", False),
            remedy=remedy,
            **where,
        )


def _in_bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"


class _SentSlice(NamedTuple):
    batch: _TaskBatch
    topic_slice: TopicSlice
    response: Response


def _send(producer: ArrowProducer, batch: _TaskBatch) -> list[_SentSlice]:
    row_error = batch.batch.first_error()
    if row_error is not None:
        raise ConfigurationError(f"{batch.name(row_error.row)} {row_error.what}", remedy=row_error.remedy)
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
