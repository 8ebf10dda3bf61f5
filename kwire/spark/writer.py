"""Writing: `BatchWriter` for df.write and `StreamWriter` for df.writeStream. At least once.

A task sends its rows as they come, and succeeds only when a broker has acknowledged every one. Owns the error of a
failed task: which row, which topic, partition and key, which broker. When Spark tries the task or the micro-batch
again, what was written before is written again; aborting takes nothing back. `commit` and `abort` therefore do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kwire.errors import ConfigurationError, DeliveryError, KwireError
from kwire.spark.clients import producers
from kwire.spark.options import WriteOptions
from kwire.spark.rows import OutgoingRow, SinkColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

# Of a key, in an error: enough to find it, little enough for a log line.
_KEY_SHOWN = 40
# Rows of Spark's row interface that are confirmed together; Arrow's batches have their own size.
_ROWS_TOGETHER = 10_000


class Response(Protocol):
    def result(self, timeout: float | None = ...) -> object: ...
    def exception(self, timeout: float | None = ...) -> KwireError | None: ...


class Sends(Protocol):
    """The part of `kwire.Producer` that a task needs."""

    def send(
        self,
        topic: str,
        value: bytes | None = ...,
        key: bytes | None = ...,
        headers: tuple[tuple[str, bytes | None], ...] = ...,
        partition: int | None = ...,
        timestamp_ms: int | None = ...,
    ) -> Response: ...
    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._options, map(self._columns.rows_of, iterator))


if hasattr(spark_api, "DataSourceStreamArrowWriter"):

    class StreamWriter(spark_api.DataSourceStreamArrowWriter):
        """For Spark 4.1 and later."""

        def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
            self._options = options
            self._columns = columns

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            return write_task(self._options, map(self._columns.rows_of, iterator))

else:

    class StreamWriter(spark_api.DataSourceStreamWriter):  # type: ignore[no-redef]
        """For Spark 4.0, whose streaming sinks get rows."""

        def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
            self._options = options
            self._columns = columns

        def write(self, iterator: Iterator[Row]) -> Written:
            return write_task(self._options, in_portions(map(self._columns.row_of, iterator)))


def in_portions(rows: Iterator[OutgoingRow], size: int = _ROWS_TOGETHER) -> Iterator[list[OutgoingRow]]:
    portion: list[OutgoingRow] = []
    for row in rows:
        portion.append(row)
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion


def write_task(options: WriteOptions, portions: Iterable[Iterable[OutgoingRow]]) -> Written:
    context = TaskContext.get()
    task = f"DataFrame partition {context.partitionId()}" if context is not None else "the DataFrame"
    try:
        return Written(deliver(producers.get(options.client), portions, task))
    except BaseException:
        # What is still queued belongs to this attempt; the next one must not deliver it as well.
        producers.discard(options.client)
        raise


def deliver(producer: Sends, portions: Iterable[Iterable[OutgoingRow]], task: str) -> int:
    """Send all rows; answer how many, once every one is acknowledged.

    A portion is confirmed after the next one was sent, so that the producer never runs dry, a failure ends the task
    early, and no more than two portions of rows are held.
    """
    count = 0
    before: list[tuple[OutgoingRow, Response]] = []
    for portion in portions:
        sent: list[tuple[OutgoingRow, Response]] = []
        for row in portion:
            sent.append((row, _send(producer, row, count, task)))
            count += 1
        _confirm(before, count - len(sent) - len(before), task)
        before = sent
    producer.flush()
    _confirm(before, count - len(before), task)
    return count


def _send(producer: Sends, row: OutgoingRow, number: int, task: str) -> Response:
    topic, value, key, headers, partition, timestamp_ms = row
    if topic is None:
        raise ConfigurationError(
            f"{_name(row, number, task)} has no topic", remedy="fill the column topic, or give the option topic"
        )
    if headers and any(name is None for name, _ in headers):
        raise ConfigurationError(
            f"{_name(row, number, task)} has a header without a key", remedy="give each header a key"
        )
    try:
        return producer.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
    except (KwireError, TypeError, ValueError) as error:  # the last two for what no record can have
        raise _failure(error, row, number, task, 1) from error


def _confirm(sent: list[tuple[OutgoingRow, Response]], first_number: int, task: str) -> None:
    """Wait for all; raise for the first row that failed, with the number of those that did."""
    failed: list[tuple[int, KwireError]] = []
    for index, (_, response) in enumerate(sent):
        error = response.exception()
        if error is not None:
            failed.append((index, error))
    if failed:
        index, error = failed[0]
        raise _failure(error, sent[index][0], first_number + index, task, len(failed)) from error


def _failure(error: Exception, row: OutgoingRow, number: int, task: str, failures: int) -> DeliveryError:
    others = f", as were {failures - 1} rows after it" if failures > 1 else ""
    places: dict[str, object] = {"topic": row.topic, "partition": row.partition}
    cause: BaseException | None = error
    while isinstance(cause, KwireError):
        places = {**cause.where, **{name: place for name, place in places.items() if place is not None}}
        cause = cause.__cause__
    message, remedy = (error.message, error.remedy) if isinstance(error, KwireError) else (str(error), None)
    return DeliveryError(
        f"{_name(row, number, task)} was not written{others}: {message}",
        possibly_persisted=getattr(error, "possibly_persisted", False),
        remedy=remedy,
        **places,
    )


def _name(row: OutgoingRow, number: int, task: str) -> str:
    key = "no key" if row.key is None else f"key {row.key[:_KEY_SHOWN]!r}{'...' if len(row.key) > _KEY_SHOWN else ''}"
    return f"row {number} of {task} ({key})"
