"""Provide the real broker of a contest, its topics, and the count of the records that arrived.

confluent-kafka counts and fills the topics, so that kwire does not judge itself.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from brokers.cluster import NEWEST, KafkaCluster

from bench.task import Task

FILL_BATCH_BYTES = 131_072  # of the batches in a log that is to be read
_admin: Any = import_module("confluent_kafka.admin")  # a type checker would say that it exports no names
_DELETE_AT_ONCE = {"file.delete.delay.ms": "100", "retention.ms": "-1"}


class Stand:
    """Start a broker, with its files in `files` if given, or use the cluster at `bootstrap`.

    `settings` and `relayed` are those of `KafkaCluster`.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        files: Path | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        relayed: bool = False,
    ) -> None:
        self._given = bootstrap
        self._files = files
        self._settings = settings
        self._relayed = relayed
        self._cluster: KafkaCluster | None = None
        self._numbers = itertools.count(1)
        self._topics: set[str] = set()

    def __enter__(self) -> Self:
        if self._given is None:
            self._cluster = KafkaCluster(
                NEWEST, heap_mb=768, is_brief=False, parent=self._files,
                settings=self._settings, relayed=self._relayed,
            ).start()  # fmt: skip
        self._admin: Any = _admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.go_on()
            if self._given is not None:
                self.delete(*self._topics)
        finally:
            if self._cluster is not None:
                self._cluster.stop()

    @property
    def bootstrap(self) -> str:
        if self._given is not None:
            return self._given
        assert self._cluster is not None
        return self._cluster.bootstrap

    @property
    def is_given(self) -> bool:
        """Whether the cluster was there before."""
        return self._given is not None

    def port(self, listener: str) -> int:
        assert self._cluster is not None
        return self._cluster.port(1, listener)

    @property
    def broker(self) -> str:
        """Describe the broker for the report."""
        if self._given is not None:
            return f"the cluster at {self._given}"
        where = f", its files in {self._files}" if self._files is not None else ""
        return f"one broker, Kafka {NEWEST}, on this machine{where}"

    # -- topics

    def new_topic(self, partitions: int) -> str:
        name = f"bench-{os.getpid()}-{next(self._numbers)}"
        wanted = _admin.NewTopic(name, partitions, 1, config=_DELETE_AT_ONCE)
        for future in self._admin.create_topics([wanted]).values():
            future.result()
        self._topics.add(name)
        return name

    def delete(self, *names: str) -> None:
        if names:
            for future in self._admin.delete_topics(list(names)).values():
                future.result()
        self._topics.difference_update(names)

    def delete_prefixed(self, prefix: str) -> None:
        """Delete what a contestant created."""
        self.delete(*(name for name in self._admin.list_topics(timeout=30).topics if name.startswith(prefix)))

    def count(self, topic: str, partitions: int) -> int:
        """Return the number of records of a topic, from its end offsets."""
        latest = _admin.OffsetSpec.latest()
        wanted = {confluent_kafka.TopicPartition(topic, index): latest for index in range(partitions)}
        while True:
            try:
                return sum(future.result().offset for future in self._admin.list_offsets(wanted).values())
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() != confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                time.sleep(0.5)  # partitions of a new topic may not have a leader yet

    def fill(self, topic: str, task: Task, count: int) -> None:
        """Write `count` records, spread evenly over the partitions, in batches of FILL_BATCH_BYTES."""
        producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 50,
                "batch.size": FILL_BATCH_BYTES,
                "compression.type": task.compression,
            }
        )
        run = max(1, min(1_000, count // task.partitions))  # records of a partition in a row
        for number, (value, key) in enumerate(zip(task.values(count), task.key_list(count), strict=True)):
            while True:
                try:
                    producer.produce(topic, value, key, partition=number // run % task.partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        arrived = self.count(topic, task.partitions)
        if arrived != count:
            raise RuntimeError(f"{arrived} of {count} records arrived in the topic that was to be filled")

    # -- a paused broker

    @property
    def can_stop(self) -> bool:
        return self._cluster is not None

    def stop(self) -> None:
        """Pause the broker's process until `go_on`; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._cluster is not None:
            for process in self._cluster.processes.values():
                os.kill(process.pid, number)
