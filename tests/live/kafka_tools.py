"""Kafka's own command line tools in one JVM that keeps running: a start costs more than most of their work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brokers.cluster import NEWEST
from brokers.jars import fetch_jars

from tests.java_program import JavaProgram

_TOOLS = "org.apache.kafka.tools."
# The name of a tool's script without "kafka-", and its class.
_CLASSES = {
    "acls": f"{_TOOLS}AclCommand",
    "client-metrics": f"{_TOOLS}ClientMetricsCommand",
    "cluster": f"{_TOOLS}ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": f"{_TOOLS}consumer.group.ConsumerGroupCommand",
    "delegation-tokens": f"{_TOOLS}DelegationTokenCommand",
    "delete-records": f"{_TOOLS}DeleteRecordsCommand",
    "features": f"{_TOOLS}FeatureCommand",
    "get-offsets": f"{_TOOLS}GetOffsetShell",
    "groups": f"{_TOOLS}GroupsCommand",
    "leader-election": f"{_TOOLS}LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}MetadataQuorumCommand",
    "reassign-partitions": f"{_TOOLS}reassign.ReassignPartitionsCommand",
    "share-groups": f"{_TOOLS}consumer.group.ShareGroupCommand",
    "streams-groups": f"{_TOOLS}streams.StreamsGroupCommand",
    "topics": f"{_TOOLS}TopicCommand",
    "transactions": f"{_TOOLS}TransactionsCommand",
}


class KafkaTools:
    """The tools of the newest version, for brokers from 2.1 on."""

    def __init__(self, program: JavaProgram) -> None:
        self._program = program

    def run(self, tool: str, bootstrap: str, *arguments: str, may_fail: bool = False) -> str:
        """Return what a tool prints, such as `run("topics", bootstrap, "--list")`. A failure is an AssertionError."""
        where = ["--bootstrap-server", bootstrap]
        line = "\t".join([_CLASSES[tool], *([*arguments, *where] if tool == "cluster" else [*where, *arguments])])
        *printed, status = self._program.ask([line])
        text = "\n".join(printed)
        assert may_fail or status == "exit 0", f"{tool} {' '.join(arguments)}: {status}\n{text}"
        return text


@contextmanager
def kafka_tools() -> Iterator[KafkaTools]:
    program = JavaProgram(fetch_jars("kafka", NEWEST), Path(__file__).with_name("KafkaTools.java"))
    try:
        yield KafkaTools(program)
    finally:
        program.close()
