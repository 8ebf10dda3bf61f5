"""Writing: `BatchWriter` for df.write and `StreamWriter` for df.writeStream. At least once.

A task sends its rows as they come, an Arrow batch at once, and succeeds only when a broker has acknowledged every one.
Owns the error of a failed task: which row, which topic, partition and key, which broker. When Spark tries the task or
the micro-batch again, what was written before is written again; aborting takes nothing back. `commit` and `abort`
therefore do nothing.
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
from kwire.spark.options import WriteOptions
from kwire.spark.rows import Outgoing, Sending, SinkColumns
from kwire.spark.wording import in_sparks_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

# Of a key, in an error: enough to find it, little enough for a log line.
_KEY_SHOWN = 40
# Rows of Spark's row interface that are confirmed together; Arrow's batches have their own size.
_ROWS_TOGETHER = 10_000
# Rows that are sent and not confirmed: the producer fills its batches and has its requests under way meanwhile.
_UNCONFIRMED_BYTES_MAX = 16 * 1024 * 1024


class Response(Protocol):
    def done(self) -> bool: ...
    def settled(self, timeout: float | None = ...) -> object: ...
    @property
    def errors(self) -> list[tuple[int, KwireError]]: ...


class Sends(Protocol):
    """The part of `kwire.Producer` that a task needs."""

    def send_arrow(self, topic: str, table: pa.RecordBatch) -> Response: ...
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
        return write_task(self._options, map(self._columns.of_batch, iterator))


if hasattr(spark_api, "DataSourceStreamArrowWriter"):

    class StreamWriter(spark_api.DataSourceStreamArrowWriter):  # pyright: ignore[reportRedeclaration]
        """For Spark 4.1 and later."""

        def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
            self._options = options
            self._columns = columns

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            return write_task(self._options, map(self._columns.of_batch, iterator))

else:

    class StreamWriter(spark_api.DataSourceStreamWriter):  # type: ignore[no-redef]
        """For Spark 4.0, whose streaming sinks get rows."""

        def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
            self._options = options
            self._columns = columns

        def write(self, iterator: Iterator[Row]) -> Written:
            return write_task(self._options, map(self._columns.of_rows, in_portions(iterator)))


def in_portions(rows: Iterator[Row], size: int = _ROWS_TOGETHER) -> Iterator[list[Row]]:
    while portion := list(islice(rows, size)):
        yield portion


def write_task(options: WriteOptions, portions: Iterable[Outgoing]) -> Written:
    context = TaskContext.get()
    task = f"DataFrame partition {context.partitionId()}" if context is not None else "the DataFrame"
    try:
        with in_sparks_words():
            return Written(deliver(producers.get(options.client), portions, task))
    except BaseException:
        # What is still queued belongs to this attempt; the next one must not deliver it as well.
        producers.discard(options.client)
        raise


def deliver(producer: Sends, portions: Iterable[Outgoing], task: str) -> int:
    """Send all rows; answer how many, once every one is acknowledged.

    Portions are confirmed as they are acknowledged, so that a failure ends the task early; they are waited for only
    when more than _UNCONFIRMED_BYTES_MAX of them are held.
    """
    count = held_bytes = 0
    unconfirmed: deque[list[_Sent]] = deque()
    for rows in portions:
        unconfirmed.append(_send(producer, _Portion(rows, count, task)))
        count += len(rows)
        held_bytes += _bytes(unconfirmed[-1])
        while unconfirmed and (held_bytes > _UNCONFIRMED_BYTES_MAX or _is_done(unconfirmed[0])):
            oldest = unconfirmed.popleft()
            _confirm(oldest)
            held_bytes -= _bytes(oldest)
    producer.flush()
    for sent in unconfirmed:
        _confirm(sent)
    return count


class _Portion(NamedTuple):
    """Rows and how errors name them: `first` is the number of the first one in its task."""

    rows: Outgoing
    first: int
    task: str

    def name(self, row: int) -> str:
        key, value_bytes = self.rows.key(row), self.rows.value_bytes(row)
        shown = "no key" if key is None else f"key {key[:_KEY_SHOWN]!r}"
        if key is not None and len(key) > _KEY_SHOWN:
            shown += f"... of {_in_bytes(len(key))}"
        value = "no value" if value_bytes is None else f"value of {_in_bytes(value_bytes)}"
        return f"row {self.first + row} of {self.task} ({shown}, {value})"

    def failure(self, error: Exception, row: int, others: str = "") -> DeliveryError:
        places: dict[str, object] = {"topic": self.rows.topic(row), "partition": self.rows.partition(row)}
        cause: BaseException | None = error
        while isinstance(cause, KwireError):
            places = {**cause.where, **{name: place for name, place in places.items() if place is not None}}
            cause = cause.__cause__
        message, remedy = (error.message, error.remedy) if isinstance(error, KwireError) else (str(error), None)
        return DeliveryError(
            f"{self.name(row)} was not written{others}: {message}",
            possibly_persisted=getattr(error, "possibly_persisted", False),
            remedy=remedy,
            **places,
        )


def _in_bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"


class _Sent(NamedTuple):
    portion: _Portion
    sending: Sending
    response: Response


def _send(producer: Sends, portion: _Portion) -> list[_Sent]:
    fault = portion.rows.fault()
    if fault is not None:
        raise ConfigurationError(f"{portion.name(fault.row)} {fault.what}", remedy=fault.remedy)
    sent: list[_Sent] = []
    for sending in portion.rows.sendings():
        try:
            response = producer.send_arrow(sending.topic, sending.records)
        except (KwireError, TypeError, ValueError) as error:  # the last two for what no topic can be called
            raise portion.failure(error, sending.row(0)) from error
        sent.append(_Sent(portion, sending, response))
    return sent


def _bytes(sent: list[_Sent]) -> int:
    return sum(sending.records.nbytes for _, sending, _ in sent)


def _is_done(sent: list[_Sent]) -> bool:
    return all(response.done() for _, _, response in sent)


def _confirm(sent: list[_Sent]) -> None:
    """Wait for all; raise for the first row of a portion that failed, with the number of those that did."""
    failed: list[tuple[int, KwireError]] = []
    for _, sending, response in sent:
        response.settled()
        failed += [(sending.row(index), error) for index, error in response.errors]
    if failed:
        row, error = min(failed, key=lambda one: one[0])
        others = f", as were {len(failed) - 1} rows after it" if len(failed) > 1 else ""
        raise sent[0].portion.failure(error, row, others) from error
