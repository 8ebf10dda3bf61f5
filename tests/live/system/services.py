"""Verifiable clients as processes, and what they have told: the services of kafkatest, on one machine.

A `VerifiableConsumer` is the members of one group. Each runs kwire's client, Java's, confluent-kafka's, or franz-go's.
What their event handlers assert is raised by the next wait, and by `stop_all`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from brokers.cluster import KafkaCluster
from brokers.java import java_command

from tests.broker.peers import built_franz_go
from tests.live.system.handlers import (
    ConsumerEventHandler,
    ConsumerProtocolConsumerEventHandler,
    ConsumerState,
    Event,
    IncrementalAssignmentConsumerEventHandler,
    TopicPartition,
)

KWIRE = [sys.executable, "-c", "from kwire.cli import main; main()"]
CONFLUENT = [sys.executable, str(Path(__file__).parent / "confluent_member.py")]
JAVA = "org.apache.kafka.tools.VerifiableConsumer"
ASSIGNORS = "org.apache.kafka.clients.consumer."
SHORT_NAMES = {"RangeAssignor": "range", "CooperativeStickyAssignor": "cooperative-sticky", "": "range"}
CLASSIC, CONSUMER = "classic", "consumer"
PATIENCE_S = 120.0
# Events that are kept of each process, to explain a failure.
_TAIL = 12


class Service:
    """Processes that print events. `changed` guards everything and is notified at each event."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.changed = threading.Condition()
        self.failures: list[BaseException] = []
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.tails: dict[int, list[str]] = {}
        self._readers: list[threading.Thread] = []
        self._logs: list[Path] = []

    def launch(self, index: int, command: Sequence[str], handle: Callable[[Event], None]) -> None:
        assert index not in self.processes or self.processes[index].poll() is not None, f"{index} runs already"
        log = self.cluster.directory / f"{type(self).__name__}-{id(self)}-{index}.log"
        with log.open("ab") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self._logs.append(log)
        self.processes[index] = process
        self.tails[index] = []
        reader = threading.Thread(target=self._read, args=(index, process, handle))
        reader.start()
        self._readers.append(reader)

    def _read(self, index: int, process: subprocess.Popen[str], handle: Callable[[Event], None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            with self.changed:
                self.tails[index] = [*self.tails[index][-_TAIL:], line.strip()[:300]]
                try:
                    handle(json.loads(line))
                except BaseException as error:
                    self.failures.append(error)
                self.changed.notify_all()
        process.stdout.close()
        process.wait()
        with self.changed:
            self.changed.notify_all()

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait for events until `is_so`. Raises AssertionError after the timeout, and what the handlers asserted."""
        give_up_at = time.monotonic() + timeout_s
        with self.changed:
            while True:
                self.check()
                if is_so():
                    return
                left = give_up_at - time.monotonic()
                assert left > 0, f"not within {timeout_s} s: {what}\n{self.explain()}"
                self.changed.wait(min(left, 1.0))

    def check(self) -> None:
        if self.failures:
            raise AssertionError(f"{self.failures[0]}\n{self.explain()}") from self.failures[0]

    def explain(self) -> str:
        """Return the last events and remarks of each process."""
        lines = [f"-- {index}\n" + "\n".join(tail) for index, tail in self.tails.items()]
        logs = [f"-- {log.name}\n{log.read_text()[-1500:]}" for log in dict.fromkeys(self._logs) if log.exists()]
        return "\n".join(lines + logs)

    def signal(self, index: int, number: int) -> None:
        if self.processes[index].poll() is None:
            self.processes[index].send_signal(number)

    def end(self, index: int, *, clean: bool = True, timeout_s: float = PATIENCE_S) -> None:
        self.signal(index, signal.SIGTERM if clean else signal.SIGKILL)
        self.processes[index].wait(timeout_s)

    def stop_all(self) -> None:
        """End all processes by SIGTERM, and check what they did to the end."""
        for index in self.processes:
            self.signal(index, signal.SIGTERM)
        for process in self.processes.values():
            process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        self.check()

    def kill(self) -> None:
        for index, process in self.processes.items():
            self.signal(index, signal.SIGKILL)
            process.wait()
        for reader in self._readers:
            reader.join(PATIENCE_S)


def keep_logs(cluster: KafkaCluster, topics: Sequence[str], directory: Path) -> None:
    """Write what the brokers have of the topics as JSON lines: each record, producer id and epoch, and marker."""
    for node in cluster.node_ids:
        for folder in sorted((cluster.directory / f"node-{node}" / "data").iterdir()):
            if folder.name.rpartition("-")[0] in topics:
                with (directory / f"{folder.name}.{node}.jsonl").open("wb") as file:
                    command = [*KWIRE, "dump-log", "--print-data", "--format", "json", str(folder)]
                    subprocess.run(command, stdout=file, check=False)


class VerifiableProducer(Service):
    """A producer of numbers, about `throughput` a second. `acked` has (partition, offset) by value.

    Keys from 0 to `keys` - 1 spread the records, also those of one batch; 0: no keys.
    """

    def __init__(
        self, cluster: KafkaCluster, topic: str, *, throughput: int = 500, max_messages: int = -1, keys: int = 0
    ) -> None:
        super().__init__(cluster)
        self.topic, self.throughput, self.max_messages, self.keys = topic, throughput, max_messages, keys
        self.acked: dict[str, tuple[int, int]] = {}
        self.not_acked: list[str] = []

    def start(self) -> None:
        keys = ["--repeating-keys", str(self.keys)] if self.keys else []
        self.launch(
            0, [*KWIRE, "verifiable-producer", "--bootstrap-server", self.cluster.bootstrap, "--topic", self.topic,
                "--throughput", str(self.throughput), "--max-messages", str(self.max_messages), *keys], self._handle,
        )  # fmt: skip

    def _handle(self, event: Event) -> None:
        if event["name"] == "producer_send_success":
            self.acked[event["value"]] = event["partition"], event["offset"]
        elif event["name"] == "producer_send_error":
            self.not_acked.append(f"{event['value']}: {event['message']}")

    def await_produced_messages(self, number: int = 200) -> None:
        goal = len(self.acked) + number
        self.wait_until(lambda: len(self.acked) >= goal, f"{number} acknowledged records")


class VerifiableConsumer(Service):
    """The members of one group, by index. Options that change (`protocol`, `clients`) are for later starts."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, group: str, members: int, *, protocol: str = CLASSIC,
        clients: Sequence[str] = ("kwire",), assignor: str = "RangeAssignor", static: bool = False,
        session_s: int = 10, autocommit: bool = False, verify_offsets: bool = True, reset_policy: str = "earliest",
    ) -> None:  # fmt: skip
        super().__init__(cluster)
        self.topic, self.group, self.members, self.protocol, self.clients = topic, group, members, protocol, clients
        self.assignor, self.static, self.session_s = assignor, static, session_s
        self.autocommit, self.verify_offsets, self.reset_policy = autocommit, verify_offsets, reset_policy
        self.handlers: dict[int, ConsumerEventHandler] = {}
        self.consumed: dict[TopicPartition, list[tuple[int, int]]] = {}  # spans of offsets
        self.global_position: dict[TopicPartition, int] = {}
        self.global_committed: dict[TopicPartition, int] = {}

    def start(self) -> None:
        for index in range(self.members):
            self.start_node(index)

    def start_node(self, index: int) -> None:
        new = self._new_handler(self._client(index))
        with self.changed:
            if index in self.handlers:  # counts go on, as in kafkatest
                old = self.handlers[index]
                new.revoked_count, new.assigned_count = old.revoked_count, old.assigned_count
                new.total_consumed = old.total_consumed
            self.handlers[index] = new
        self.launch(index, self._command(index), lambda event: self._handle(new, event))

    def _new_handler(self, client: str) -> ConsumerEventHandler:
        is_cooperative = self.assignor == "CooperativeStickyAssignor"
        # librdkafka and franz-go call on_assigned a round after on_revoked, and return records of what stays meanwhile.
        if self.protocol == CONSUMER or (is_cooperative and client in ("confluent", "franz")):
            return ConsumerProtocolConsumerEventHandler(self.verify_offsets)
        if is_cooperative:
            return IncrementalAssignmentConsumerEventHandler(self.verify_offsets)
        return ConsumerEventHandler(self.verify_offsets)

    def _client(self, index: int) -> str:
        return self.clients[index % len(self.clients)]

    def _command(self, index: int) -> list[str]:
        client = self._client(index)
        instance = ["--group-instance-id", f"{self.group}-instance-{index}"] if self.static else []
        shared = ["--topic", self.topic, "--group-id", self.group, "--reset-policy", self.reset_policy, *instance]
        shared += ["--enable-autocommit"] if self.autocommit else []
        if client == "confluent":
            return [*CONFLUENT, self.topic, json.dumps(self._librdkafka_settings(instance))]
        if client == "franz":
            return [built_franz_go("member"), json.dumps(self._franz_go_settings(instance))]
        own = ["--bootstrap-server", self.cluster.bootstrap, *shared]
        if self.protocol == CLASSIC:
            own += ["--session-timeout", str(self.session_s * 1000), "--assignment-strategy"]
            own.append(",".join(ASSIGNORS + name for name in self.assignor.split(",")))
        own += ["--group-protocol", self.protocol]
        if client == "java":
            log4j = self.cluster.directory / "log4j.properties"
            command: list[str] = java_command(self.cluster.jars, JAVA, own, heap_mb=128, log4j=log4j)
            return command
        return [*KWIRE, "verifiable-consumer", *own]

    def _franz_go_settings(self, instance: list[str]) -> dict[str, object]:
        return {
            "bootstrap": self.cluster.bootstrap, "topic": self.topic, "group": self.group, "protocol": self.protocol,
            "assignor": SHORT_NAMES[self.assignor], "instance": instance[1] if instance else "",
            "session_ms": self.session_s * 1000,
        }  # fmt: skip

    def _librdkafka_settings(self, instance: list[str]) -> dict[str, object]:
        settings: dict[str, object] = {
            "bootstrap.servers": self.cluster.bootstrap, "group.id": self.group, "group.protocol": self.protocol
        }  # fmt: skip
        if instance:
            settings["group.instance.id"] = instance[1]
        if self.protocol == CLASSIC:
            settings["session.timeout.ms"] = self.session_s * 1000
            settings["partition.assignment.strategy"] = SHORT_NAMES[self.assignor]
        return settings

    def _handle(self, handler: ConsumerEventHandler, event: Event) -> None:
        if event["name"] == "records_consumed":
            for batch in event["partitions"]:
                key = batch["topic"], batch["partition"]
                # No position may get behind what is committed.
                floor = self.global_committed.get(key, 0)
                assert floor <= batch["minOffset"] or not self.verify_offsets, f"{key}: {batch} behind commit {floor}"
                self.consumed.setdefault(key, []).append((batch["minOffset"], batch["maxOffset"] + 1))
                self.global_position[key] = batch["maxOffset"] + 1
        handler.handle(event)
        if event["name"] == "offsets_committed" and event["success"]:
            for one in event["offsets"]:
                key = one["topic"], one["partition"]
                assert self.global_position[key] >= one["offset"], f"{key}: committed {one}, ahead of what was consumed"
                self.global_committed[key] = one["offset"]

    # -- what kafkatest's tests ask

    def nodes_in(self, *states: ConsumerState) -> list[int]:
        return [index for index, handler in self.handlers.items() if handler.state in states]

    def joined_nodes(self) -> list[int]:
        return self.nodes_in(ConsumerState.JOINED)

    def dead_nodes(self) -> list[int]:
        return self.nodes_in(ConsumerState.DEAD)

    def current_assignment(self) -> list[TopicPartition]:
        return [key for handler in self.handlers.values() for key in handler.assignment]

    def owner(self, key: TopicPartition) -> int | None:
        return next((index for index, handler in self.handlers.items() if key in handler.assignment), None)

    def total_consumed(self) -> int:
        return sum(handler.total_consumed for handler in self.handlers.values())

    def num_rebalances(self) -> int:
        return max(handler.assigned_count for handler in self.handlers.values())

    def num_revokes_for_alive(self, keep_alive: int = 1) -> int:
        return max(self.handlers[index].revoked_count for index in range(keep_alive))

    def valid_assignment(self, partitions: int) -> bool:
        return sorted(self.current_assignment()) == [(self.topic, number) for number in range(partitions)]

    def await_members(self, count: int) -> None:
        self.wait_until(lambda: len(self.joined_nodes()) == count, f"{count} members joined")

    def await_all_members(self) -> None:
        self.await_members(self.members)

    def await_valid_assignment(self, partitions: int) -> None:
        self.wait_until(lambda: self.valid_assignment(partitions), f"{partitions} partitions, each with one owner")

    def await_consumed_messages(self, number: int = 1) -> None:
        goal = self.total_consumed() + number
        self.wait_until(lambda: self.total_consumed() >= goal, f"{number} more records consumed")

    def kill_node(self, index: int, *, clean: bool) -> None:
        self.end(index, clean=clean)
        if not clean:
            with self.changed:
                self.handlers[index].handle_shutdown_complete()

    def assert_nothing_lost(self, ends: dict[TopicPartition, int]) -> None:
        """Check that every offset below the ends was consumed, by whomever."""
        for key, end in ends.items():
            reached = 0
            for start, stop in sorted(self.consumed.get(key, [])):
                assert start <= reached, f"{key}: nobody consumed {reached} to {start}\n{self.explain()}"
                reached = max(reached, stop)
            assert reached >= end, f"{key}: nobody consumed {reached} to {end}\n{self.explain()}"

    def await_caught_up(self, ends: dict[TopicPartition, int]) -> None:
        self.wait_until(
            lambda: all(self.global_position.get(key, 0) >= end for key, end in ends.items()), "all was consumed"
        )


class Copier(Service):
    """One `kwire transactional-message-copier`: its events, what the last one has, and whether it ended well."""

    def __init__(self, cluster: KafkaCluster, *arguments: str) -> None:
        super().__init__(cluster)
        self._arguments = arguments
        self.last: Event = {}
        self.events: list[Event] = []

    def start(self) -> None:
        command = [*KWIRE, "transactional-message-copier", "--broker-list", self.cluster.bootstrap, *self._arguments]
        self.launch(0, command, self._handle)

    def _handle(self, event: Event) -> None:
        self.last.update(event)
        self.events.append(event)

    def restart(self, *, clean: bool) -> None:
        self.end(0, clean=clean)
        self.last = {}
        self.start()

    @property
    def is_done(self) -> bool:
        return "shutdown_complete" in self.last and self.last["remaining"] == 0
