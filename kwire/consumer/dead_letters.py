"""A topic for records that could not be processed."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kwire.cluster import ClientConfig
from kwire.consumer.record import ConsumerRecord
from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    from kwire.producer import Producer, ProduceResponse


class DeadLetterTopic:
    """Sends records to a topic, with headers that say where each was and why it is there.

    Key, value and headers are those of the record. The added headers have the names of KIP-1191: __dlq.errors.topic,
    .partition, .offset, .group and .message. A record counts as processed when the topic has it, so a record may be in
    the topic twice after a crash.
    """

    def __init__(self, topic: str, producer: Producer | None = None) -> None:
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError(f"topic is {topic!r}", remedy="give its name")
        self.topic = topic
        self._producer = producer
        self._is_own = producer is None
        self._config: ClientConfig | None = None
        self._group = ""
        self._lock = threading.Lock()

    def open(self, config: ClientConfig, group: str) -> None:
        """Use the brokers and the security of a consumer, unless a producer was given."""
        self._config, self._group = config, group

    def __call__(self, record: ConsumerRecord, error: BaseException) -> ProduceResponse:
        """Send a record; return the response to wait for."""
        source = {
            "topic": record.topic, "partition": str(record.partition), "offset": str(record.offset),
            "group": self._group, "message": f"{type(error).__name__}: {error}",
        }  # fmt: skip
        headers = [*record.headers, *((f"__dlq.errors.{name}", text.encode()) for name, text in source.items())]
        return self._opened().send(self.topic, record.value, key=record.key, headers=headers)

    def _opened(self) -> Producer:
        from kwire.producer import Producer

        with self._lock:
            if self._producer is None:
                if self._config is None:
                    raise ConfigurationError("no processor has this topic", remedy="give it as dead_letters=...")
                options: dict[str, Any] = {one.name: getattr(self._config, one.name) for one in fields(self._config)}
                self._producer = Producer(options.pop("bootstrap"), **options)
            return self._producer

    def close(self) -> None:
        """Close the producer, unless it was given."""
        with self._lock:
            if self._is_own and self._producer is not None:
                self._producer.close()
                self._producer = None


def to_topic(topic: str, producer: Producer | None = None) -> DeadLetterTopic:
    """Return dead letters for `Consumer.process`: a topic, by a producer of its own unless one is given."""
    return DeadLetterTopic(topic, producer)
