"""Interceptors of producers: they see, and may change, each record, and learn what became of it.

    class Audit(kwire.ProducerInterceptor):
        def on_send(self, message):
            return message._replace(headers={"sent-by": "billing"})

        def on_acknowledgement(self, metadata, error):
            counts[metadata.topic, error is None] += 1

    producer = kwire.Producer("localhost:9092", interceptors=[Audit()])

After Java's ProducerInterceptor. What an interceptor raises is logged and changes nothing. A producer without
interceptors pays nothing: its `send` is the same, and a batch that resolves looks at one attribute.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from kwire.cluster.interceptors import Interceptors, log
from kwire.errors import KwireError
from kwire.producer.accumulator import ManyColumns
from kwire.producer.batch_builder import BatchBuilder
from kwire.producer.bulk import Slice
from kwire.producer.futures import RecordMetadata, own_copy
from kwire.producer.message import Message, to_bytes, to_headers


class ProducerInterceptor:
    """What a producer calls for each record. Override any of the methods; none may wait for long."""

    def on_send(self, message: Message) -> Message:
        """Return the message to send: this one, or a changed copy (`message._replace(...)`).

        Called in `send`, on the caller's thread, before serializers and the choice of the partition; key and value are
        what the caller gave. In `send_many` and `send_arrow` they are bytes already, and the topic stays.
        """
        return message

    def on_acknowledgement(self, metadata: RecordMetadata, error: KwireError | None) -> None:
        """Learn that a record was acknowledged, or with which `error` it failed. Called once for each record.

        The partition, offset and time of `metadata` are -1 where they are not known. Called where callbacks of records
        run, before that of this record: on the callback thread or, of asyncio, in the loop. A record that `send`
        refuses is reported at once, on the caller's thread.
        """

    def close(self) -> None:
        """Free what the interceptor holds. Called once, when the producer has ended, after all other calls."""


class ProducerInterceptors(Interceptors[ProducerInterceptor]):
    """The interceptors of one producer, called in their order; a message goes from one to the next."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        super().__init__(interceptors)
        self._changing = self._overriding(ProducerInterceptor, "on_send")
        self._told = self._overriding(ProducerInterceptor, "on_acknowledgement")

    @property
    def changes_messages(self) -> bool:
        return bool(self._changing)

    @property
    def is_told(self) -> bool:
        """Return whether an interceptor learns what became of records."""
        return bool(self._told)

    def on_send(self, message: Message) -> Message:
        for interceptor in self._changing:
            try:
                changed = interceptor.on_send(message)
                if not isinstance(changed, Message):
                    raise TypeError(f"on_send returned {type(changed).__name__}, not a Message")
                message = changed
            except Exception:
                log.exception("%s.on_send raised for topic %s", type(interceptor).__name__, message.topic)
        return message

    def changed(self, topic: str, one: Slice) -> Slice:
        """Return the records of `send_many` as the interceptors change them. Raises what `send` raises."""
        if not self._changing:
            return one
        rows = []
        for timestamp_ms, key, value, headers, partition in one.columns.rows(0, one.length):
            message = self.on_send(Message(topic, value, key, headers, partition, timestamp_ms))
            if message.topic != topic:
                log.error("on_send changed topic %s to %s: in send_many it stays", topic, message.topic)
            rows.append(message)
        columns = ManyColumns(
            [to_bytes(row.value, "value") for row in rows],
            [to_bytes(row.key, "key") for row in rows],
            [to_headers(row.headers) for row in rows],
            array("q", [one.timestamp_of(at) if row.timestamp_ms is None else row.timestamp_ms
                        for at, row in enumerate(rows)]),
            array("i", [-1 if row.partition is None else row.partition for row in rows]),
        )  # fmt: skip
        return Slice(columns, one.length)

    def resolved(self, builder: BatchBuilder, start: int, end: int, error: KwireError | None) -> None:
        """Tell of records start .. end - 1 of a builder, which have a result."""
        own = None if error is None else own_copy(error)
        for number in range(start, end):
            partition, offset, timestamp, _ = builder.outcome(number) or (-1, -1, -1, None)
            self._tell(RecordMetadata(builder.topic, max(-1, partition), offset, timestamp), own)

    def refused(self, topic: str, partition: int | None, error: KwireError, count: int = 1) -> None:
        """Tell of `count` records that the producer did not accept."""
        metadata = RecordMetadata(topic, -1 if partition is None else partition, -1, -1)
        for _ in range(count):
            self._tell(metadata, own_copy(error))

    def _tell(self, metadata: RecordMetadata, error: KwireError | None) -> None:
        for interceptor in self._told:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                log.exception(
                    "%s.on_acknowledgement raised for topic %s, partition %d, offset %d",
                    type(interceptor).__name__, metadata.topic, metadata.partition, metadata.offset,
                )  # fmt: skip


def is_producer_interceptors(value: Any) -> bool:
    """Return whether a value is a sequence of interceptors of producers."""
    return isinstance(value, (list, tuple)) and all(isinstance(one, ProducerInterceptor) for one in value)
