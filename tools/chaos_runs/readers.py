"""Read the logs with a client other than kwire, and with kwire.Consumer during the scenario.

The independent reader is librdkafka, or kafka-python for brokers that librdkafka does not support (before 0.9).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from chaos_runs.sequence import TRANSACTION_HEADER, Label, Seen, label_of, number_of
from kwire import Consumer
from kwire.consumer import StartOffset
from kwire.errors import KwireError

_LIMIT_S = 120.0
_BATCH = 10_000


class Reader(Protocol):
    """Read one cluster with a client other than kwire."""

    name: str

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition."""
        ...

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]: ...
    def read(self, topic: str) -> list[Seen]:
        """Return all committed records from the beginning, each partition in order."""
        ...

    def leaders(self, topic: str) -> dict[int, int]: ...
    def out_of_sync(self) -> int:
        """Return the number of partitions of the cluster without a leader or with a replica out of sync."""
        ...


class Librdkafka:
    name = "librdkafka"

    def __init__(self, bootstrap: str) -> None:
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }

    def ends(self, topic: str) -> dict[int, int]:
        from confluent_kafka import Consumer as Confluent
        from confluent_kafka import TopicPartition

        consumer = Confluent(self._config)
        try:
            known = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1] for number in known
            }
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        from confluent_kafka import Consumer as Confluent
        from confluent_kafka import TopicPartition

        consumer = Confluent({**self._config, "group.id": group})
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            found = consumer.committed(wanted, timeout=10)
            return {one.partition: one.offset for one in found if one.offset >= 0}
        finally:
            consumer.close()

    def read(self, topic: str) -> list[Seen]:
        from confluent_kafka import Consumer as Confluent
        from confluent_kafka import KafkaError, TopicPartition

        consumer = Confluent(self._config)
        try:
            open_partitions = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in open_partitions])
            found: list[Seen] = []
            deadline = time.monotonic() + _LIMIT_S
            while open_partitions:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"librdkafka has not read {topic}-{sorted(open_partitions)} to the end")
                for message in consumer.consume(_BATCH, 0.5):
                    error = message.error()
                    if error is None:
                        found.append(_seen(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                    elif not error.retriable():
                        raise RuntimeError(f"librdkafka: {error}")
            return found
        finally:
            consumer.close()

    def leaders(self, topic: str) -> dict[int, int]:
        known = self._metadata(topic).topics[topic].partitions
        return {number: one.leader for number, one in known.items()}

    def out_of_sync(self) -> int:
        topics = self._metadata(None).topics.values()
        return sum(
            one.leader < 0 or len(one.isrs) < len(one.replicas) for topic in topics for one in topic.partitions.values()
        )

    def _metadata(self, topic: str | None) -> Any:
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self._config["bootstrap.servers"], "log_level": 0})
        return client.list_topics(topic, timeout=10) if topic else client.list_topics(timeout=10)


def _seen(message: Any) -> Seen:
    label = label_of(dict(message.headers() or ()).get(TRANSACTION_HEADER))
    return Seen(message.partition(), message.offset(), number_of(message.key(), message.value()), label)


class KafkaPython:
    """Read from 0.8.2, which has no transactions and, here, a single broker."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def ends(self, topic: str) -> dict[int, int]:
        with closing(self._consumer()) as consumer:
            found = consumer.end_offsets(self._partitions(consumer, topic))
            return {where.partition: offset for where, offset in found.items()}

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        return {}

    def read(self, topic: str) -> list[Seen]:
        ends = self.ends(topic)
        found: list[Seen] = []
        with closing(self._consumer()) as consumer:
            partitions = self._partitions(consumer, topic)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            deadline = time.monotonic() + _LIMIT_S
            while any(consumer.position(where) < ends[where.partition] for where in partitions):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"kafka-python has not read {topic} to the end")
                for records in consumer.poll(500, max_records=_BATCH).values():
                    found += (
                        Seen(record.partition, record.offset, number_of(record.key, record.value)) for record in records
                    )
        return found

    def leaders(self, topic: str) -> dict[int, int]:
        return dict.fromkeys(range(len(self.ends(topic))), 1)

    def out_of_sync(self) -> int:
        return 0

    def _consumer(self) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(bootstrap_servers=self._bootstrap, api_version=(0, 8, 2), group_id=None)

    def _partitions(self, consumer: Any, topic: str) -> list[Any]:
        from kafka import TopicPartition

        return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]


class Follower:
    """Read topics with kwire.Consumer during the scenario. A context manager; call `finish` after the last write."""

    name = "kwire"

    def __init__(self, bootstrap: str, topics: Mapping[str, int]) -> None:
        self._consumer = Consumer(
            bootstrap, isolation="read_committed", request_timeout_ms=10_000, client_id="follower"
        )
        self._starts: list[tuple[str, int, StartOffset]] = [
            (topic, number, "earliest") for topic, count in topics.items() for number in range(count)
        ]
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._is_over = threading.Event()
        self._read: dict[str, list[Seen]] = {topic: [] for topic in topics}
        self._last_at = time.monotonic()
        self.errors: list[str] = []

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def finish(self, counts: Mapping[str, int], idle_s: float = 15.0) -> dict[str, list[Seen]]:
        """Return the records read, after as many of each topic as expected or `idle_s` without a record."""
        self._last_at = time.monotonic()
        while time.monotonic() < self._last_at + idle_s and self._thread.is_alive():
            if all(len(self._read[topic]) >= count for topic, count in counts.items()):
                break
            self._is_over.wait(0.05)
        self._is_over.set()
        self._thread.join()
        return self._read

    def _run(self) -> None:
        self._consumer.assign(self._starts)
        while not self._is_over.is_set():
            try:
                records = self._consumer.poll(_BATCH, 0.2)
            except KwireError as error:
                if error.is_retriable:
                    continue  # no broker was available for longer than the request timeout
                self.errors.append(f"{type(error).__name__}: {error}")
                return
            for record in records:
                label: Label | None = None
                for name, value in record.headers:
                    label = label_of(value) if name == TRANSACTION_HEADER else label
                seen = Seen(record.partition, record.offset, number_of(record.key, record.value), label)
                self._read[record.topic].append(seen)
            if records:
                self._last_at = time.monotonic()


def reader_for(bootstrap: str, version: Sequence[int]) -> Reader:
    return Librdkafka(bootstrap) if tuple(version) >= (0, 9) else KafkaPython(bootstrap)
