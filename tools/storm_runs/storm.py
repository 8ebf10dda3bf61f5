"""One storm: brokers, a writer, three groups in a chain whose members have no rest, and a reader of what arrives."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from brokers.cluster import KafkaCluster
from brokers.jars import version_numbers

from kwire import Admin, Consumer, NewTopic, Producer
from storm_runs.member import Settings
from storm_runs.members import Member

STAGES = 3
PARTITIONS = 8
# Without anything new at the end of the chain for so long, what is missing is lost.
_GIVE_UP_S = 120.0
_STATIC_MEMBERS = 4
_SETTLED_S = 5.0
_BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "1000", "auto.create.topics.enable": "false", "min.insync.replicas": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    version: str
    members: int
    minutes: float
    records: int
    exactly_once: bool
    seed: str
    session_s: float = 6.0

    @property
    def has_new_groups(self) -> bool:
        return version_numbers(self.version) >= (4,)


@dataclass
class Outcome:
    """`lost` and `duplicated` count records at the end of the chain. `static` are rebalances that a restart caused."""

    plan: Plan
    lost: int
    duplicated: int
    seconds: float
    stall: float
    after: float  # seconds from the last disturbance until all had arrived
    actions: Counter[str] = field(default_factory=Counter)
    rebalances: Counter[str] = field(default_factory=Counter)
    static: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.static or self.complaints or (self.plan.exactly_once and self.duplicated))


def run(plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Run a storm on new brokers, to its outcome. Raises errors of the harness."""
    settings = dict(_BROKER_SETTINGS)
    if plan.has_new_groups:
        session = str(int(plan.session_s * 1000))
        settings |= {
            "group.consumer.min.session.timeout.ms": session, "group.consumer.session.timeout.ms": session,
            "group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "1000",
        }  # fmt: skip
    with KafkaCluster(plan.version, nodes=3, settings=settings) as cluster:
        return _Storm(plan, cluster, say).run()


class _Storm:
    def __init__(self, plan: Plan, cluster: KafkaCluster, say: Callable[[str], None]) -> None:
        self._plan, self._cluster, self._say = plan, cluster, say
        self._random = Random(plan.seed)
        self._actions: Counter[str] = Counter()
        self._seen: Counter[int] = Counter()
        self._stall = 0.0
        self._last_arrival = time.monotonic()
        self._is_over = threading.Event()
        self._members = [self._member(f"member-{index}", index % STAGES) for index in range(plan.members)]

    def _member(self, name: str, stage: int, *, static: bool = False) -> Member:
        plan = self._plan
        group = "static" if static else f"group-{stage}"
        settings = Settings(
            self._cluster.bootstrap, f"stage-{stage}", "static" if static else f"stage-{stage + 1}", group, name,
            plan.exactly_once, self._static_session_ms if static else int(plan.session_s * 1000),
            not plan.has_new_groups, static,
        )  # fmt: skip
        return Member(settings, self._cluster.directory / f"{name}.log")

    @property
    def _static_session_ms(self) -> int:
        """Return how long the group waits for a static member: on a busy computer a restart takes many seconds."""
        return int(self._plan.session_s * 10_000)

    def run(self) -> Outcome:
        plan = self._plan
        with Admin(self._cluster.bootstrap) as admin:
            names = [*(f"stage-{stage}" for stage in range(STAGES + 1)), "static"]
            admin.create_topics(
                [NewTopic(name, partitions=PARTITIONS, replication_factor=3) for name in names], timeout=60
            )
            if plan.has_new_groups:
                admin.configs.set({"consumer.session.timeout.ms": self._static_session_ms}, group="static")
        start = time.monotonic()
        reader = threading.Thread(target=self._read)
        writer = threading.Thread(target=self._write)
        try:
            for member in self._members:
                member.start()
            reader.start()
            writer.start()
            self._disturb(start + plan.minutes * 60)
            writer.join()
            calm_at = time.monotonic()
            self._say(f"calm after {calm_at - start:.0f} s: {len(self._seen):,} of {plan.records:,} have arrived")
            while len(self._seen) < plan.records and time.monotonic() - self._last_arrival < _GIVE_UP_S:
                self._is_over.wait(0.5)
                for member in self._members:
                    member.check()
            after = max(0.0, self._last_arrival - calm_at)
            self._is_over.wait(3)  # for duplicates
            for member in self._members:
                member.leave()
            static = self._restart_static_members()
        finally:
            self._is_over.set()
            for member in self._members:
                if member.is_running:
                    member.kill()
            if reader.is_alive():
                reader.join()
        return Outcome(
            plan, plan.records - len(self._seen), self._seen.total() - len(self._seen), time.monotonic() - start,
            self._stall, after, self._actions, sum((member.rebalances for member in self._members), Counter()), static,
            [text for member in self._members for text in member.complaints],
        )  # fmt: skip

    def _write(self) -> None:
        """Write the records, spread over the storm."""
        plan = self._plan
        start = time.monotonic()
        with Producer(self._cluster.bootstrap) as producer:
            for number in range(plan.records):
                producer.send("stage-0", b"%d" % number, key=b"%d" % number)
                if number % 100 == 0:
                    due = start + plan.minutes * 60 * number / plan.records
                    self._is_over.wait(max(0.0, due - time.monotonic()))

    def _read(self) -> None:
        """Count what arrives at the end of the chain, and the longest silence between two arrivals."""
        with Consumer(self._cluster.bootstrap, isolation="read_committed") as consumer:
            consumer.assign([(f"stage-{STAGES}", number, "earliest") for number in range(PARTITIONS)])
            while not self._is_over.is_set():
                records = consumer.poll(10_000, timeout=0.5)
                if not records:
                    continue
                now = time.monotonic()
                if self._seen and len(self._seen) < self._plan.records:
                    self._stall = max(self._stall, now - self._last_arrival)
                self._last_arrival = now
                self._seen.update(int(record.value or b"") for record in records)

    def _disturb(self, until: float) -> None:
        """Until then, do something to a member every second or so. Afterwards all run."""
        plan, random = self._plan, self._random
        frozen: dict[int, float] = {}
        said_at = time.monotonic()
        while (now := time.monotonic()) < until:
            for index in [index for index, thaw_at in frozen.items() if now >= thaw_at]:
                del frozen[index]
                self._members[index].thaw()
            index = random.randrange(plan.members)
            member = self._members[index]
            if index not in frozen:
                action = random.choice(["kill", "leave", "freeze", "join"])
                if not member.is_running:
                    action = "join"
                if action == "freeze":
                    member.freeze()
                    frozen[index] = now + random.uniform(0.5, 2 * plan.session_s)
                elif action == "kill":
                    member.kill()
                elif action == "leave":
                    member.leave()
                elif not member.is_running:
                    member.check() if member.process is not None else member.start()
                else:
                    action = "nothing"
                self._actions[action] += 1
            if now - said_at > 30:
                said_at = now
                self._say(f"{len(self._seen):,} have arrived; {dict(self._actions)}")
            self._is_over.wait(random.uniform(0.2, 12 / plan.members))
        for index in frozen:
            self._members[index].thaw()
        for member in self._members:
            if not member.is_running:
                member.check() if member.process is not None else member.start()

    def _restart_static_members(self) -> int:
        """Restart all but one static member, one after the other; return how many rebalances the first one saw."""
        members = [self._member(f"static-{index}", 0, static=True) for index in range(_STATIC_MEMBERS)]
        first = members[0]
        try:
            for member in members:
                member.start()
            self._await_owned(members, PARTITIONS)
            before = first.rebalances.total()
            for member in members[1:]:
                member.leave()
                member.start()
                self._await_owned([member], PARTITIONS // _STATIC_MEMBERS)
            return first.rebalances.total() - before
        finally:
            for member in members:
                if member.is_running:
                    member.kill()

    def _await_owned(self, members: list[Member], partitions: int) -> None:
        """Wait until these members have so many partitions between them, and nothing changes any more."""
        give_up_at = time.monotonic() + 90
        stable_since, seen = time.monotonic(), -1
        while True:
            now = time.monotonic()
            total = sum(member.rebalances.total() for member in members)
            if total != seen:
                stable_since, seen = now, total
            if sum(member.owned for member in members) == partitions and now - stable_since > _SETTLED_S:
                return
            if now > give_up_at:
                logs = "\n".join(member.log_tail() for member in members)
                raise TimeoutError(f"static members have {[member.owned for member in members]} partitions:\n{logs}")
            self._is_over.wait(0.2)
