"""Run Kafka's command line tools on a cluster: topics, the console producer and the console consumer.

Their classes and options differ between versions. The tools need only a folder of jars, addresses and, in old versions,
a ZooKeeper, so they work on a KafkaCluster and on a detached cluster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from brokers.configuration import log4j_properties
from brokers.jars import version_numbers
from brokers.java import java_command
from brokers.process import run_java

_NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Commands:
    """Run the tools of one version on one cluster."""

    version: str
    jars: Path
    bootstrap: str
    zookeeper: str | None

    def topic(self, arguments: Sequence[str]) -> str:
        """Run kafka-topics with these arguments, such as --create --topic t --partitions 8."""
        return self._run(self.topic_class, [*self.topic_where, *arguments]).decode()

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = 1, configs: Mapping[str, str] = _NO_SETTINGS
    ) -> None:
        options = [option for item in configs.items() for option in ("--config", "=".join(item))]
        sizes = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
        self.topic(["--create", "--topic", name, *sizes, *options])

    def produce(self, topic: str, lines: Sequence[bytes], *, properties: Mapping[str, str] = _NO_SETTINGS) -> None:
        """Produce a record per line with the console producer; `properties` are its reader's, such as parse.key."""
        arguments = [*self.producer_where, "--topic", topic, *self._pairs("reader", properties)]
        self._run(self.producer_class, arguments, stdin=b"".join(line + b"\n" for line in lines))

    def consume(
        self,
        topic: str,
        count: int,
        *,
        properties: Mapping[str, str] = _NO_SETTINGS,
        options: Sequence[str] = (),
        timeout_s: float = 60,
    ) -> list[bytes]:
        """Read `count` lines from the beginning with the console consumer; `properties` are its formatter's."""
        where = self.consumer_where
        limits = ["--from-beginning", "--topic", topic, "--max-messages", str(count)]
        arguments = [*where, *limits, *self._pairs("formatter", properties), *options]
        return self._run(self.consumer_class, arguments, timeout_s=timeout_s).split(b"\n")[:-1]

    @property
    def topic_class(self) -> str:
        return "kafka.admin.TopicCommand" if self._is_before(3, 5) else "org.apache.kafka.tools.TopicCommand"

    @property
    def topic_where(self) -> list[str]:
        if self._is_before(2, 2):
            assert self.zookeeper is not None
            return ["--zookeeper", self.zookeeper]
        return ["--bootstrap-server", self.bootstrap]

    @property
    def producer_class(self) -> str:
        return "kafka.tools.ConsoleProducer" if self._is_before(4) else "org.apache.kafka.tools.ConsoleProducer"

    @property
    def producer_where(self) -> list[str]:
        return ["--broker-list" if self._is_before(2, 5) else "--bootstrap-server", self.bootstrap]

    @property
    def consumer_class(self) -> str:
        if self._is_before(3, 8):
            return "kafka.tools.ConsoleConsumer"
        return "org.apache.kafka.tools.consumer.ConsoleConsumer"

    @property
    def consumer_where(self) -> list[str]:
        if self._is_before(0, 10):
            assert self.zookeeper is not None
            return ["--zookeeper", self.zookeeper]
        return ["--bootstrap-server", self.bootstrap]

    def java_command(self, main: str, arguments: Sequence[str], log4j: Path) -> list[str]:
        return java_command(self.jars, main, arguments, heap_mb=256, log4j=log4j)

    @staticmethod
    def write_log4j(path: Path) -> None:
        # The caller would take what log4j 1 writes to standard output for records.
        path.write_text(log4j_properties(target="System.err"))

    def _run(self, main: str, arguments: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60) -> bytes:
        with tempfile.NamedTemporaryFile(suffix=".properties") as log4j:
            self.write_log4j(Path(log4j.name))
            command = self.java_command(main, arguments, Path(log4j.name))
            return run_java(command, stdin=stdin, timeout_s=timeout_s)

    def _is_before(self, *numbers: int) -> bool:
        return version_numbers(self.version) < numbers

    def _pairs(self, whose: str, properties: Mapping[str, str]) -> list[str]:
        option = "--property" if self._is_before(4, 2) else f"--{whose}-property"
        return [part for item in properties.items() for part in (option, "=".join(item))]
