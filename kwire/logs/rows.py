"""The records of a log segment as rows: `read_rows`, for `format("kwire.log")`.

Control records and records of Kafka's own topics come with their meaning as JSON text, as `kwire dump-log --print-data`
shows them. A batch that is damaged yields its error instead of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, BinaryIO, NamedTuple

from kwire.errors import CorruptRecordsError, DecodeError, KwireError
from kwire.logs import segments
from kwire.logs.files import base_offset_of, topic_partition_of
from kwire.logs.internal_topics import INTERNAL_TOPICS, control_to_json, record_to_json
from kwire.records import NO_SEQUENCE, NO_TIMESTAMP, Batch
from kwire.records.rows import Header
from kwire.records.rows import Row as Record


class LogRow(NamedTuple):
    """A record and what its batch says. -1 of Kafka (no producer, no sequence, no timestamp) is None.

    `control` is the JSON text of a control record; `decoded` that of key and value of an internal topic's record, and
    None if their bytes make no sense. `position` is that of the batch in the file.
    """

    topic: str | None
    partition: int | None
    offset: int
    timestamp_ms: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    leader_epoch: int | None
    compression: str
    is_transactional: bool
    is_control: bool
    control: str | None
    decoded: str | None
    position: int


def read_rows(file: BinaryIO, path: PurePath, topic: str | None = None) -> Iterator[list[LogRow] | KwireError]:
    """Yield the rows of a segment, a list for each batch, and its problems where they are.

    `path` names the topic, the partition and the first offset; `topic` overrides its topic. A record of an internal
    topic that cannot be decoded is a problem, and its row follows.
    """
    found_topic, partition = topic_partition_of(path)
    topic = topic or found_topic
    for one in segments.check_order(segments.read_segment(file), base_offset_of(path)):
        if isinstance(one, KwireError):
            yield one
        elif isinstance(one, segments.PositionedBatch) and one.is_valid:
            yield from _rows(one, topic, partition)


def _rows(located: segments.PositionedBatch, topic: str | None, partition: int | None) -> Iterator[
    list[LogRow] | KwireError
]:  # fmt: skip
    batch = located.batch
    try:
        records = batch.rows()
    except CorruptRecordsError as error:
        yield segments.at_file_offset(error, located.position)
        return
    rows: list[LogRow] = []
    fixed = _of_batch(batch)
    for record in records:
        offset, timestamp_ms, key, value, headers = record
        control = decoded = None
        if batch.is_control or topic in INTERNAL_TOPICS:
            try:
                control, decoded = _meaning(batch, topic, record)
            except DecodeError as error:
                where = f"{error.where.get('path', 'record')} of offset {offset}"
                yield DecodeError(error.message, offset=located.position, path=where)
        rows.append(
            LogRow(
                topic, partition, offset, None if timestamp_ms == NO_TIMESTAMP else timestamp_ms, batch.timestamp_type,
                key, value, headers, *fixed[:2], _sequence(batch, offset), *fixed[2:], batch.is_transactional,
                batch.is_control, control, decoded, located.position,
            )
        )  # fmt: skip
    if rows:
        yield rows


def _of_batch(batch: Batch) -> tuple[int | None, int | None, int | None, str]:
    has_producer = batch.producer_id >= 0
    return (
        batch.producer_id if has_producer else None, batch.producer_epoch if has_producer else None,
        batch.partition_leader_epoch if batch.partition_leader_epoch >= 0 else None, batch.compression.name.lower(),
    )  # fmt: skip


def _sequence(batch: Batch, offset: int) -> int | None:
    """Return a record's sequence, which wraps from 2147483647 to 0."""
    if batch.base_sequence == NO_SEQUENCE:
        return None
    return (batch.base_sequence + offset - batch.base_offset) & 0x7FFFFFFF


def _meaning(batch: Batch, topic: str | None, record: Record) -> tuple[str | None, str | None]:
    if batch.is_control:
        return _text(control_to_json(record[2], record[3])), None
    assert topic is not None
    return None, _text(record_to_json(topic, record[2], record[3]))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
