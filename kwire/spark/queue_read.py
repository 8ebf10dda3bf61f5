"""Dead letters and markers of queues as tables: `option("queueTable", ...)` on a read, batch or streaming.

Each record of the dead letter topic, or of the markers topic, is a row, whose headers or bytes are read into columns.
What was sent back stays in the dead letter topic, with a note after it: a row with `redriven`, the offset of the dead
letter in the same partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kwire.consumer import ConsumerRecord
from kwire.errors import ConfigurationError, DecodeError
from kwire.queue.browser import read_dead_letter
from kwire.queue.envelope import REDRIVEN, read_number
from kwire.queue.markers import NO_TOPIC_ID, MarkerType, decode_marker
from kwire.queue.options import QueueOptions
from kwire.spark.columns import ARROW_TYPES, HEADERS, TIMESTAMP_MS_MAX

TableName = Literal["deadLetters", "markers"]

# What is decoded; the offset also bounds the range.
POLLED = ("offset", "partition", "topic", "timestamp", "timestamp_type", "key", "value", "headers")

_PLACE: dict[str, DataType] = {"partition": IntegerType(), "offset": LongType()}
_COLUMNS: dict[TableName, dict[str, DataType]] = {
    "deadLetters": {
        "queue": StringType(),
        "id": StringType(),
        "value": BinaryType(),
        "headers": HEADERS,
        "reason": StringType(),
        "deliveries": IntegerType(),
        "firstSentAt": TimestampType(),
        "deadSince": TimestampType(),
        "source": StringType(),
        "redriven": LongType(),
        **_PLACE,
    },
    "markers": {
        "type": StringType(),
        "messagePartition": IntegerType(),
        "messageOffset": LongType(),
        "messageTopicId": StringType(),
        "redeliverAfterMs": LongType(),
        "queue": StringType(),
        "value": BinaryType(),
        "timestamp": TimestampType(),
        "error": StringType(),
        **_PLACE,
    },
}
TABLES: tuple[TableName, ...] = tuple(_COLUMNS)
_ARROW = {
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    TimestampType(): ARROW_TYPES["timestamp"],
    HEADERS: ARROW_TYPES["headers"],
}


class QueueTable(NamedTuple):
    """Which table a read is of, of which topic, and of which queue; None: of all."""

    name: TableName
    topic: str
    queue: str | None

    @property
    def schema(self) -> StructType:
        return StructType([StructField(name, kind) for name, kind in _COLUMNS[self.name].items()])

    def check_schema(self, schema: StructType) -> None:
        """Raise ConfigurationError for a column that the table does not have."""
        known = _COLUMNS[self.name]
        for field in schema.fields:
            if known.get(field.name) != field.dataType:
                listed = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
                raise ConfigurationError(
                    f"the table {self.name} has no column {field.name} {field.dataType.simpleString()}",
                    remedy=f"its columns are {listed}",
                )

    def rows(self, polled: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
        """Return the rows of these records, without those of other queues."""
        read = _dead_letter if self.name == "deadLetters" else _marker
        found = [read(_record(row)) for row in polled.to_pylist()]
        kept = [row for row in found if self.queue is None or row["queue"] == self.queue]
        kinds = {name: _ARROW[_COLUMNS[self.name][name]] for name in names}
        arrays = [pa.array([row[name] for row in kept], kind) for name, kind in kinds.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(kinds.items()))


def table_of(name: TableName, queue: str | None, service: Mapping[str, Any]) -> QueueTable:
    """Return the table of queues with these options of `QueueOptions`."""
    options = QueueOptions(**service)
    if name == "markers":
        if options.backend == "share":
            raise ConfigurationError("share groups have no markers", remedy="read the table deadLetters")
        return QueueTable(name, options.marker_topic, queue)
    if not options.dead_letters:
        raise ConfigurationError("these queues drop dead letters", remedy="name the topic in queueDeadLetterTopic")
    return QueueTable(name, options.dead_letters, queue)


def _record(row: Mapping[str, Any]) -> ConsumerRecord:
    headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
    stamp = int(row["timestamp"].timestamp() * 1_000)
    return ConsumerRecord(
        row["topic"], row["partition"], row["offset"], stamp, row["timestamp_type"], row["key"], row["value"], headers
    )


def _dead_letter(record: ConsumerRecord) -> dict[str, Any]:
    letter = read_dead_letter(record)
    note = read_number(dict(record.headers).get(REDRIVEN))
    return {
        "queue": letter.queue,
        "id": None if note is not None else letter.id,
        "value": letter.payload,
        "headers": [{"key": name, "value": value} for name, value in letter.headers] or None,
        "reason": letter.reason,
        "deliveries": letter.deliveries,
        "firstSentAt": letter.first_sent_at_ms * 1_000 if letter.first_sent_at_ms <= TIMESTAMP_MS_MAX else None,
        "deadSince": letter.dead_since_ms * 1_000,
        "source": letter.source,
        "redriven": note,
        "partition": letter.partition,
        "offset": letter.offset,
    }


def _marker(record: ConsumerRecord) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(_COLUMNS["markers"])
    row |= {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp_ms * 1_000}
    try:
        marker = decode_marker(record.value or b"")
    except DecodeError as error:
        return row | {"error": str(error)}
    kinds = {int(kind): kind.name for kind in MarkerType}
    topic_id, partition, offset = marker.identity
    return row | {
        "type": kinds.get(marker.type, str(marker.type)),
        "messagePartition": partition,
        "messageOffset": offset,
        "messageTopicId": None if topic_id == NO_TOPIC_ID else str(topic_id),
        "redeliverAfterMs": marker.redeliver_after_ms,
        "queue": None if marker.key is None else marker.key.decode(errors="replace"),
        "value": marker.value,
    }
