"""Start the clusters of the live tests, each when a test first uses it.

`embedded` is kwire's broker. `kafka-4.3.1` is the cluster in KWIRE_BOOTSTRAP if that is set, else a container if a
Docker engine runs and has the image of tools/image, else from Maven's jars. `kafka-0.8.2.2` is always from jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from brokers.cluster import NEWEST, KafkaCluster
from brokers.commands import Commands
from brokers.jars import fetch_jars

from kwire import Admin, NewTopic
from kwire.broker import Cluster
from tests.java_program import JavaProgram
from tests.live.container import IMAGE, kafka_container

PARTITIONS = 8
_ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class _OldCommands(Commands):
    """Those of an ancient cluster, with one JVM for all topics: a start costs more than a topic."""

    topics: JavaProgram

    def topic(self, arguments: Sequence[str]) -> str:
        printed = "\n".join(self.topics.ask(["\t".join([*self.topic_where, *arguments])]))
        assert printed.startswith("Created topic"), printed  # the tool has no other sign of success
        return printed


@dataclass(frozen=True)
class Backend:
    """Describe a running cluster and the features of its version."""

    name: str
    bootstrap: str
    source: str
    commands: Commands
    is_ancient: bool = False  # before 0.10: no timestamps, no headers, no ApiVersions, topics only through ZooKeeper
    is_external: bool = False

    def create_topic(self, name: str, partitions: int) -> None:
        if self.is_ancient:
            self.commands.create_topic(name, partitions=partitions)
            return
        create_topic(self.bootstrap, name, partitions)


def create_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    """Create a topic by kwire: Kafka's tool would start a JVM for it."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=partitions, replication_factor=1)], timeout=30)


OLDEST = "kafka-0.8.2.2"
MODERN = ("embedded", f"kafka-{NEWEST}")
NAMES = (*MODERN, OLDEST)
# For parametrize(("backend", "codec"), ..., indirect=["backend"]): the codecs of each. zstd came with Kafka 2.1.
CODECS = [(name, codec) for name in NAMES for codec in _ALL_CODECS if (name, codec) != (OLDEST, "zstd")]
MODERN_CODECS = [(name, codec) for name, codec in CODECS if name != OLDEST]


@contextmanager
def running(name: str) -> Iterator[Backend]:
    """Start the backend with this name, and end it afterwards."""
    if name == "embedded":
        with _embedded() as backend:
            yield backend
    elif name == OLDEST:
        with (
            KafkaCluster("0.8.2.2", partitions=PARTITIONS) as cluster,
            closing(JavaProgram(cluster.jars, Path(__file__).with_name("OldTopics.java"))) as topics,
        ):
            tools = cluster.commands
            commands = _OldCommands(tools.version, tools.jars, tools.bootstrap, tools.zookeeper, topics)
            yield Backend(name, cluster.bootstrap, "jars", commands, is_ancient=True)
    else:
        with _newest() as backend:
            yield backend


@contextmanager
def _embedded() -> Iterator[Backend]:
    with Cluster(brokers=3, default_partitions=PARTITIONS, default_replication_factor=1) as cluster:
        yield Backend("embedded", cluster.bootstrap, "embedded", _newest_commands(cluster.bootstrap))


@contextmanager
def _newest() -> Iterator[Backend]:
    name = f"kafka-{NEWEST}"
    external = os.environ.get("KWIRE_BOOTSTRAP")
    if external:
        yield Backend(name, external, "KWIRE_BOOTSTRAP", _newest_commands(external), is_external=True)
    elif has_image():
        with kafka_container(partitions=PARTITIONS) as bootstrap:
            yield Backend(name, bootstrap, "container", _newest_commands(bootstrap))
    else:
        with KafkaCluster(NEWEST, partitions=PARTITIONS) as cluster:
            yield Backend(name, cluster.bootstrap, "jars", cluster.commands)


def has_image() -> bool:
    """Return whether a Docker engine runs and has the image of tools/image."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "image", "inspect", IMAGE], capture_output=True, check=False).returncode == 0


def _newest_commands(bootstrap: str) -> Commands:
    return Commands(NEWEST, fetch_jars("kafka", NEWEST), bootstrap, None)
