"""Serializers: the caller's functions that convert keys and values to bytes, on the thread that calls `send`.

    def as_json(topic: str, data: object) -> str:
        return json.dumps(data)

    producer = kwire.Producer("localhost:9092", value_serializer=as_json)

The arguments are those of Kafka's `Serializer.serialize(topic, data)`. Wrap a serializer of kafka-python or aiokafka,
which takes the data alone: `lambda topic, data: dumps(data)`; and one of confluent-kafka, which takes a
SerializationContext: `lambda topic, data: avro(data, SerializationContext(topic, "value"))`.

To type checkers `send` takes bytes, str and None, whatever a serializer takes: declare other data as `Any`.

None is never serialized: a record without a key stays without one, and a value of None stays a tombstone. A serializer
gets all other data, including bytes and str. `send_arrow` and `send_lines` call no serializer: what they
get are bytes already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from kwire.errors import SerializationError
from kwire.producer.message import Data, Message, to_bytes


class Serializer(Protocol):
    """Convert a key or a value. Called in `send`, on the caller's thread; in asyncio it must not block.

    `send` raises SerializationError if the serializer raises or returns anything but bytes, str or None.
    """

    def __call__(self, topic: str, data: Any, /) -> Data: ...


class Serializers:
    """The serializers of one producer, which has at least one."""

    def __init__(self, key: Serializer | None, value: Serializer | None) -> None:
        self._of = {"key": key, "value": value}

    def one(self, topic: str, argument: str, data: Any, index: int | None = None) -> Data:
        """Return a record's key or value in the form that `send` takes; `index` is for one of many."""
        serializer = self._of[argument]
        if serializer is None or data is None:
            return data  # type: ignore[no-any-return]  # unchanged: `to_bytes` checks it later
        try:
            return to_bytes(serializer(topic, data), f"the result of {argument}_serializer")
        except Exception as error:
            place = argument if index is None else f"item {index} of {argument}s"
            raise SerializationError(
                f"{argument}_serializer failed for {place}, of type {type(data).__name__}: "
                f"{type(error).__name__}: {error}",
                remedy=f"it is called as {argument}_serializer(topic, {argument}), and returns bytes, str or None",
                topic=topic,
            ) from error

    def message(self, message: Message) -> Message:
        """Return the message with its key and value serialized."""
        topic = message.topic
        return message._replace(key=self.one(topic, "key", message.key), value=self.one(topic, "value", message.value))

    def many(self, topic: str, argument: str, items: Iterable[Any]) -> Iterable[Data]:
        """Return the items of a column, "key" or "value", in the form that `send_many` takes."""
        if self._of[argument] is None:
            return items
        return [self.one(topic, argument, data, index) for index, data in enumerate(items)]
