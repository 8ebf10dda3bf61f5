"""Run one scenario, from the start of the brokers to the outcome."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from brokers.cluster import KafkaCluster
from brokers.jars import version_numbers

from chaos_runs.copiers import Copiers
from chaos_runs.copy_job import Job
from chaos_runs.proof import Proof, judge_copy, judge_log, judge_offsets, judge_readers
from chaos_runs.readers import Follower, Reader, reader_for
from chaos_runs.relay import Relay
from chaos_runs.run_log import RunLog
from chaos_runs.scenarios import PARTITIONS, ZOOKEEPER_MS, Scenario
from chaos_runs.stage import LiveStage
from chaos_runs.writers import Writers
from kwire import Admin, NewTopic

SOURCE, COPY, GROUP = "sequenced", "copied", "copiers"
COPY_PARTITIONS = 4
_CATCH_UP_S = 120.0
_POLL_S = 0.25


@dataclass
class RunOutcome:
    """Hold the result of a run. `complaints` are anomalies outside the logs: a client that died, a reader's error."""

    scenario: Scenario
    log: Proof
    copy: Proof | None
    acknowledged: int
    seconds: float
    longest_stall: float
    retries: int = 0
    cuts: int = 0
    clients: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.complaints or self.log.anomalies or (self.copy is not None and self.copy.anomalies))


def run(scenario: Scenario, records: int, seed: str, say: Callable[[str], None]) -> RunOutcome:
    """Run a scenario on new brokers. Raises errors of the harness: brokers that do not start, a failing reader."""
    with cluster_for(scenario) as cluster:
        return run_on(cluster, scenario, records, seed, say)


def run_on(
    cluster: KafkaCluster, scenario: Scenario, records: int, seed: str, say: Callable[[str], None]
) -> RunOutcome:
    """Run a scenario on running brokers, as `cluster_for` starts them, that have had no run before."""
    began_at = time.monotonic()

    def tell(text: str) -> None:
        say(f"{time.monotonic() - began_at:6.1f} s  {text}")

    tell(f"{scenario.nodes} x Kafka {scenario.version} {'are' if scenario.nodes > 1 else 'is'} up")
    with contextlib.ExitStack() as stack:
        return _Run(scenario, cluster, records, seed, tell).outcome(stack)


class _Run:
    def __init__(
        self, scenario: Scenario, cluster: KafkaCluster, records: int, seed: str, say: Callable[[str], None]
    ) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._records = records
        self._seed = seed
        self._say = say
        numbers = version_numbers(scenario.version)
        self._is_copied = numbers >= (0, 11)
        self._is_idempotent = numbers >= (0, 11)
        self._reader: Reader = reader_for(cluster.bootstrap, numbers)
        self._topics = {SOURCE: PARTITIONS} | ({COPY: COPY_PARTITIONS} if self._is_copied else {})

    def outcome(self, stack: contextlib.ExitStack) -> RunOutcome:
        bootstrap, relay = self._cluster.bootstrap, None
        if self._scenario.is_relayed:
            bootstrap = self._cluster.addresses("relay")
            ports = {self._cluster.port(node, "relay"): node for node in self._cluster.node_ids}
            routes = {port: self._cluster.port(node, "relayed") for port, node in ports.items()}
            relay = stack.enter_context(Relay(routes, random=self._random("relay")))
        self._create_topics()
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kwire-chaos-")))
        log = stack.enter_context(RunLog())
        follower = stack.enter_context(Follower(bootstrap, self._topics))
        writers = Writers(
            bootstrap,
            SOURCE,
            self._records,
            self._scenario.seconds,
            delivery_timeout_ms=self._scenario.delivery_timeout_ms,
        )
        copiers = self._copiers(bootstrap, directory) if self._is_copied else None
        if copiers is not None:
            stack.enter_context(copiers)
        stack.enter_context(writers)
        stage = LiveStage(
            self._cluster, self._reader, SOURCE, self._random("stage"), self._say, relay=relay, copiers=copiers
        )
        self._scenario.act(stage)
        self._say(f"the scenario is over; {writers.acknowledged} records have an outcome")
        writers.finish()
        self._say("all records have an outcome")
        complaints = []
        if copiers is not None:
            complaints += self._catch_up()
            copiers.finish()
            self._say(", ".join(f"{name} {count}" for name, count in sorted(copiers.counts.items())))
            for reason, count in copiers.reasons.most_common():
                self._say(f"{count:4} x {reason}")
        outcome = self._judge(writers, copiers, follower, complaints)
        outcome.retries, outcome.cuts = log.retries, relay.cuts if relay else 0
        outcome.complaints += log.errors
        return outcome

    def _judge(
        self, writers: Writers, copiers: Copiers | None, follower: Follower, complaints: list[str]
    ) -> RunOutcome:
        logs = {topic: self._reader.read(topic) for topic in self._topics}
        followed = follower.finish({topic: len(log) for topic, log in logs.items()})
        places, failed = writers.outcomes()
        allowed = {"may_repeat": not self._is_idempotent, "may_fail": self._scenario.may_fail}
        log = judge_log(writers.sent(), places, failed, logs[SOURCE], **allowed)
        judge_readers(log, logs[SOURCE], followed[SOURCE], (self._reader.name, follower.name))
        copy = None
        if copiers is not None:
            copy = judge_copy(logs[SOURCE], logs[COPY])
            judge_readers(copy, logs[COPY], followed[COPY], (self._reader.name, follower.name))
            judge_offsets(copy, self._reader.committed(GROUP, SOURCE, PARTITIONS), self._reader.ends(SOURCE))
        return RunOutcome(
            self._scenario,
            log,
            copy,
            acknowledged=len(places),
            seconds=writers.seconds,
            longest_stall=writers.longest_stall,
            clients=copiers.counts if copiers else Counter(),
            complaints=[*complaints, *(copiers.complaints if copiers else ()), *follower.errors],
        )

    def _random(self, what: str) -> Random:
        return Random(f"{self._seed}/{self._scenario.name}/{what}")

    def _create_topics(self) -> None:
        copies = min(3, self._scenario.nodes)
        if version_numbers(self._scenario.version) < (0, 10, 1):
            for name, partitions in self._topics.items():
                self._cluster.commands.create_topic(name, partitions=partitions, replicas=copies)
            return
        with Admin(self._cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(name, count, copies) for name, count in self._topics.items()], timeout=60)

    def _copiers(self, bootstrap: str, directory: Path) -> Copiers:
        count = self._scenario.copiers
        shares = [tuple(range(number, PARTITIONS, count)) for number in range(count)]
        timeout_ms = self._scenario.transaction_timeout_ms
        template = Job(bootstrap, SOURCE, COPY, GROUP, "", (), timeout_ms, 0, directory)
        return Copiers(template, shares, self._random("clients"), self._scenario.client_kills)

    def _catch_up(self) -> list[str]:
        """Wait until everything is copied; return a complaint if that does not happen in time."""
        ends = self._reader.ends(SOURCE)
        deadline = time.monotonic() + _CATCH_UP_S
        at: dict[int, int] = {}
        while time.monotonic() < deadline:
            try:
                at = self._reader.committed(GROUP, SOURCE, PARTITIONS)
            except Exception as error:  # the reader's error: offsets of open transactions are not available
                self._say(f"where the copy stands is not known yet: {error}")
            if at == ends:
                return []
            time.sleep(_POLL_S)
        return [f"after {_CATCH_UP_S:.0f} s the copy stands at {at} of {ends}"]


@contextlib.contextmanager
def cluster_for(scenario: Scenario) -> Iterator[KafkaCluster]:
    settings = {"auto.create.topics.enable": "false"}
    if scenario.nodes > 1:
        # Two of three replicas must have a record: acknowledged records survive the loss of one broker.
        settings |= {
            "min.insync.replicas": "2",
            "transaction.state.log.min.isr": "2",
            "unclean.leader.election.enable": "false",
        }
    numbers = version_numbers(scenario.version)
    if numbers >= (0, 11):
        settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "1000"
    if numbers < (3, 3):
        settings["zookeeper.session.timeout.ms"] = str(ZOOKEEPER_MS)
    if numbers < (0, 9):
        del settings["auto.create.topics.enable"]  # the probe creates a topic by its request
    cluster = KafkaCluster(
        scenario.version, nodes=scenario.nodes, relayed=scenario.is_relayed, partitions=PARTITIONS, settings=settings
    )
    with cluster:
        yield cluster
