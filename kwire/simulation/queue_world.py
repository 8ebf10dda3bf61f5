"""One run of a queue: producers, consumers and trackers, their faults, then calm, and the check of what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, cast

from kwire.broker.faults import Refuse
from kwire.broker.offsets import OffsetAndMetadata
from kwire.cluster import PendingRequest
from kwire.errors import ErrorCode
from kwire.queue.envelope import Envelope
from kwire.queue.options import QueueOptions
from kwire.simulation.checker import Anomaly
from kwire.simulation.cluster import SimulatedCluster
from kwire.simulation.history import History
from kwire.simulation.members import Member
from kwire.simulation.network import Network
from kwire.simulation.program import Program, Watch
from kwire.simulation.queue_checker import QueueChecker, QueuePromises
from kwire.simulation.queue_history import TOPICS, QueueHistory
from kwire.simulation.queue_processes import PROCESSES, QUEUE, Connections, QueueMemberPlan, QueueProcess, read_all
from kwire.simulation.queue_scenario import QueuePlan
from kwire.simulation.run import RUNS, START_MS, Injector, Report, where
from kwire.simulation.scenario import KAFKAS
from kwire.simulation.schedule import (
    AddPartitions,
    Disturbance,
    FailRequests,
    JumpBrokerClocks,
    JumpClock,
    KillAtRequest,
)
from kwire.simulation.world import SpinningError, Trace, World

# How long everything may take to be acknowledged once the faults are over: leases, back-offs, dead connections.
_SETTLING_SECONDS = 120.0
# A tracker that starts has its partitions after this time, where nothing disturbs the group.
_TAKEOVER_SECONDS = 2.0
_CLOSING_SECONDS = 70.0
# Faults that cannot end the lease of a consumer that lives.
_GENTLE = (KillAtRequest, JumpClock, JumpBrokerClocks, AddPartitions)


class _Steps:
    """Kills processes when they send a request, or have its response."""

    def __init__(self, members: Mapping[str, Member], hit: Any) -> None:
        self._members = members
        self._hit = hit
        self._armed: dict[str, list[KillAtRequest]] = {}
        self._seen: Counter[int] = Counter()

    def arm(self, one: KillAtRequest) -> None:
        self._armed.setdefault(one.member, []).append(one)

    def watch(self, process: str) -> Watch:
        name = process.rpartition(".")[0]

        def watch(call: PendingRequest, now: float) -> PendingRequest:
            for one in list(self._armed.get(name, ())):
                if one.api == call.api.API_KEY:
                    if one.is_answered:
                        call = self._watched(call, one, process)
                    else:
                        self._count(one, process)
            return call

        return watch

    def _watched(self, call: PendingRequest, one: KillAtRequest, process: str) -> PendingRequest:
        on_done = call.on_done

        def done(result: Any, now: float) -> None:
            self._count(one, process)
            on_done(result, now)

        call.on_done = done
        return call

    def _count(self, one: KillAtRequest, process: str) -> None:
        self._seen[id(one)] += 1
        armed = self._armed.get(one.member, [])
        if self._seen[id(one)] > one.after and one in armed:
            armed.remove(one)
            member = self._members[one.member]
            member.net.world.at(member.net.world.now(), lambda now: self._kill(one, member, process))

    def _kill(self, one: KillAtRequest, member: Member, process: str) -> None:
        if member.process is not None and member.process.name == process:
            self._hit(one)
            member.kill(is_silent=one.is_silent)
            member.restart_after(one.seconds)

    def disarm(self) -> None:
        self._armed.clear()


class _QueueInjector(Injector):
    """Carries out the disturbances of queues, too."""

    steps: _Steps

    def _do(self, one: Disturbance) -> None:
        if isinstance(one, KillAtRequest):
            self.steps.arm(one)
        elif isinstance(one, JumpBrokerClocks):
            self._hit(one)
            for topic in ("markers", "messages"):
                self._cluster.move_leader(topic, 0)
            self._cluster.jump_clock(one.ms)
        else:
            super()._do(one)


def _refusals(disturbances: Sequence[Disturbance]) -> frozenset[ErrorCode]:
    """Return the error codes that faults make brokers return."""
    effects = [one.effect for one in disturbances if isinstance(one, FailRequests)]
    return frozenset(effect.code for effect in effects if isinstance(effect, Refuse))


class QueueRun:
    """The world of one plan of a queue."""

    def __init__(self, plan: QueuePlan, *, keeps_trace: bool = False) -> None:
        self.plan = plan
        self.world = World(time_ms=START_MS)
        self.trace = Trace(keeps_lines=keeps_trace)
        self.net = Network(self.world, self._chance("net"), self.trace)
        self.cluster = SimulatedCluster(
            self.net, History(), self._chance("brokers"), api_versions=KAFKAS[plan.kafka], **plan.options
        )
        self.history = QueueHistory(start_ms=START_MS, refusals=_refusals(plan.disturbances))
        self.options = QueueOptions(**plan.service)
        self._found: list[Anomaly] = []
        self._record_commits()
        self.members: dict[str, Member] = {}
        self.injector = _QueueInjector(self.net, self.cluster, {}, {}, self.members)
        self.steps = self.injector.steps = _Steps(self.members, self.injector._hit)
        seed = f"{plan.scenario} {plan.seed}"
        for member in plan.members:
            assert isinstance(member, QueueMemberPlan)
            self.members[member.name] = Member(
                self.net, member, self.history, [], self.cluster.bootstrap, seed, self.steps.watch,  # type: ignore[arg-type]
                PROCESSES[member.role],  # type: ignore[arg-type]
            )  # fmt: skip
            self.world.at(member.starts_at, self.members[member.name].start)

    def _chance(self, who: str) -> Random:
        return Random(f"{self.plan.scenario} {self.plan.seed} {who}")

    def _record_commits(self) -> None:
        offsets, group = self.cluster.state.offsets, self.options.queue_group(QUEUE)
        commit = offsets.commit

        def recorded(of: str, partition: tuple[str, int], committed: OffsetAndMetadata) -> ErrorCode:
            error = commit(of, partition, committed)
            if error is ErrorCode.NONE and of == group:
                self.history.commits[partition[1]].append((self.world.now(), committed.offset))
            return error

        complete = offsets.complete_transaction

        def completed(producer_id: int, partition: int, *, is_commit: bool) -> None:
            complete(producer_id, partition, is_commit=is_commit)
            for (_, index), committed in offsets.of(group).items():
                self.history.commits[index].append((self.world.now(), committed.offset))

        offsets.commit = recorded  # type: ignore[method-assign, assignment]
        offsets.complete_transaction = completed  # type: ignore[method-assign]

    # -- the course

    def run(self) -> Report:
        report = Report(self.plan)
        checker = QueueChecker(self.history, self._promises())
        try:
            self._go()
            self._found += checker.anomalies()
        except SpinningError as error:
            self._found.append(Anomaly("spinning", str(error)))
        except Exception as error:  # the report must name the seed, whatever the exception is
            what = f"at {self.world.now():.3f} s: {type(error).__name__}: {error}{where(error)}"
            self._found.append(Anomaly("crash", what))
        for failure in self.cluster.server.failures:
            self._found.append(Anomaly("crash", f"a broker: {type(failure).__name__}: {failure}{where(failure)}"))
        self._discard()
        report.anomalies = self._found
        report.seconds = self.world.now()
        report.digest = self.trace.digest()
        report.coverage = self._coverage(checker.causes)
        report.trace = self.trace.lines
        return report

    def _go(self) -> None:
        self.injector.plan(self.plan.disturbances)
        self.world.run(self.plan.calm_at)
        self.steps.disarm()
        self.injector.heal()
        self.history.is_calm = True
        for member in self.members.values():
            member.start()
        until = self.world.now() + _SETTLING_SECONDS
        while not self._is_settled() and self.world.now() < until:
            self.world.run(self.world.now() + 1.0)
        self._end()
        self._audit()

    def _is_settled(self) -> bool:
        """Return whether every message that is stored is acknowledged or a dead letter, and nothing in progress."""
        producers = [member for member in self.members.values() if member.name.startswith("producer")]
        if any(self.history.numbers[one.name] < len(cast(QueueMemberPlan, one.plan).sends) for one in producers):
            return False
        sent = self.history.sent.values()
        if any(not one.is_resolved and one.process not in self.history.ended for one in sent):
            return False
        stored = {id for id, sent in self.history.sent.items() if sent.is_stored}
        missing = stored - self.history.acked
        if missing:
            dead = self.cluster.committed_records(TOPICS["dead"])
            missing -= {Envelope.read(record.headers).id for _, record in dead}
        trackers = [member.process for member in self.members.values() if member.name.startswith("tracker")]
        return not missing and not any(
            cast(Any, process).tracker.metrics().in_progress for process in trackers if process is not None
        )

    def _end(self) -> None:
        for member in self.members.values():
            member.is_over = True
            if member.process is not None:
                member.process.orders.close = True
        until = self.world.now() + _CLOSING_SECONDS
        self.world.run(until, is_over=lambda: all(one.process is None for one in self.members.values()))
        for member in self.members.values():
            if member.process is not None:
                self._found.append(Anomaly("stuck", f"{member.process.name} does not close"))

    def _audit(self) -> None:
        """Read all topics, and note which markers are those of trackers: theirs are in transactions, with an END."""
        ends = {key: end for key, end in self.cluster.end_offsets().items() if key[0] in TOPICS.values()}
        connections = Connections(
            self.net, "auditor", self._chance("auditor"), self.cluster.bootstrap, {}, lambda call, now: call
        )

        async def audit() -> None:
            self.history.records = await read_all(connections, ends)

        program = Program(self.world, audit(), self._audited)
        # Longer than the transaction of a tracker that was killed last.
        self.world.run(self.world.now() + 120.0, is_over=lambda: program.is_over)
        if not program.is_over:
            self._found.append(Anomaly("stuck", "the logs cannot be read to their ends"))
        program.discard()
        for thread in connections.threads:
            thread.close()
        for partition in self.cluster.state.partitions():
            if partition.topic == TOPICS["markers"]:
                for batch in partition.log:
                    if batch.is_transactional and not batch.is_control:
                        places = range(batch.base_offset, batch.last_offset + 1)
                        self.history.by_tracker.update((partition.index, offset) for offset in places)

    def _audited(self, error: BaseException | None) -> None:
        if error is not None:
            raise error

    def _discard(self) -> None:
        for member in self.members.values():
            for process in member.processes:
                cast(QueueProcess, process).discard()

    # -- the check

    def _promises(self) -> QueuePromises:
        kinds = {type(one) for one in self.plan.disturbances}
        return QueuePromises(
            is_transactional=self.options.transactional,
            timeout_ms=self.options.redelivery_timeout_ms,
            max_processing_ms=self.options.max_processing_ms,
            max_deliveries=self.options.max_deliveries,
            is_gentle=kinds <= set(_GENTLE) and not self._may_replay_a_jump(),
            is_true_clock=JumpBrokerClocks not in kinds,
        )

    def _may_replay_a_jump(self) -> bool:
        """Return whether a tracker may get a partition after a broker's clock has jumped.

        It cannot tell the jump from a time without trackers, after which messages are overdue.
        """
        jumps = [one.at for one in self.plan.disturbances if isinstance(one, JumpBrokerClocks)]
        starts = [one.starts_at for one in self.plan.members if cast(QueueMemberPlan, one).role == "tracker"]
        return bool(jumps) and max(starts, default=0.0) + _TAKEOVER_SECONDS > min(jumps)

    def _coverage(self, causes: Counter[str]) -> Counter[str]:
        found = Counter({f"fault: {name}": count for name, count in self.injector.hits.items()})
        found.update({f"duplicates: {cause}": count for cause, count in causes.items()})
        for event in self.history.events:
            found[f"queue: {event.kind.partition(':')[0]}"] += 1
        found["records: sent"] = len(self.history.sent)
        for process in (one for member in self.members.values() for one in member.processes):
            if member_tracker := getattr(process, "tracker", None):
                metrics = member_tracker.metrics()
                found["tracker: redelivered"] += metrics.redelivered
                found["tracker: dead letters"] += metrics.dead_lettered
                found["tracker: failures"] += metrics.failures
                found["tracker: ticks"] += metrics.ticks
        return found


RUNS[QueuePlan] = lambda plan, keeps_trace: QueueRun(plan, keeps_trace=keeps_trace).run()
