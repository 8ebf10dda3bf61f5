"""`ConsumerRecord`: one record, with where and when it was written."""

from __future__ import annotations

from typing import Self

from kwire.records.reader import RecordFields, record_class


@record_class
class ConsumerRecord(RecordFields):
    """One record of a partition. Records compare by value and can be pickled; kwire never changes them.

    topic, partition, offset  its place
    timestamp_ms     milliseconds since 1970; -1 in logs older than Kafka 0.10
    timestamp_type   0: set by the producer; 1: set by the broker when it appended the record; -1: none
    key, value       bytes, or None
    headers          ((name, bytes or None), ...), in the order written; names may repeat

    With the C accelerator key, value and headers are made when they are first read. Until then a record refers to the
    response it came in, or to its decompressed batch. If the record still exists two polls after the last record of its
    batches was returned (when iterating: two groups of batches later), it copies its own bytes and releases the rest.
    """

    __slots__ = ()

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int = -1,
        timestamp_type: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic, self.partition, self.offset, self.timestamp_ms,
            self.timestamp_type, self.key, self.value, self.headers,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, ConsumerRecord) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), self._fields()

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord({self.topic!r}, {self.partition}, offset={self.offset}, timestamp_ms={self.timestamp_ms}, "
            f"key={_short(self.key)}, value={_short(self.value)}, headers={self.headers!r})"
        )


def _short(data: bytes | None, limit: int = 60) -> str:
    """Return a repr that is short enough for a log line."""
    if data is None or len(data) <= limit:
        return repr(data)
    return f"{data[:limit]!r}... ({len(data)} bytes)"
