"""One run: build a world from a plan, run it until everything has resolved, check its history, and report.

First work and disturbances happen. Then the faults end, and everything must resolve within bounded time. Then probes
must reach every partition. At last everything late arrives, and the logs are copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kwire.broker.faults import Fault
from kwire.cluster import ClientConfig
from kwire.consumer.options import ConsumerOptions
from kwire.errors import DeliveryError
from kwire.producer.options import ProducerSettings
from kwire.producer.sender import Sender
from kwire.protocol import ApiKey
from kwire.simulation.checker import Anomaly, Checker, Promises, anomalies_of_transactions
from kwire.simulation.clients import Job, SimulatedProducer, SimulatedReader
from kwire.simulation.cluster import SimulatedCluster
from kwire.simulation.copiers import OUTPUT, OUTPUT_PARTITIONS
from kwire.simulation.group_world import GroupWorld
from kwire.simulation.history import History, Sent
from kwire.simulation.members import Member
from kwire.simulation.network import Connection, Network
from kwire.simulation.scenario import KAFKAS, Client, Plan
from kwire.simulation.schedule import (
    AddPartitions,
    CloseMember,
    CloseProducer,
    CreateTopic,
    CutConnection,
    Disturbance,
    FailRequests,
    Flush,
    ForgetProducers,
    FreezeMember,
    Hold,
    JumpClock,
    KillMember,
    LagMetadata,
    MemberDisturbance,
    MoveCoordinators,
    MoveLeader,
    PauseMember,
    RaiseInCallback,
    RecreateTopic,
    RefuseConnections,
    Rival,
    SeekMember,
    Send,
    Silence,
    SlowMember,
    StopBroker,
    Throttle,
    Toward,
    Transact,
    Trickle,
    UncleanElection,
    Work,
)
from kwire.simulation.world import SpinningError, Trace, World

_MAKING_PAUSE = 0.5


class Injector:
    """Carry out disturbances. `hits` counts by kind those that had something to disturb."""

    def __init__(
        self,
        net: Network,
        cluster: SimulatedCluster,
        producers: Mapping[str, SimulatedProducer],
        jobs: Mapping[str, Job],
        members: Mapping[str, Member],
    ) -> None:
        self.hits: Counter[str] = Counter()
        self._net = net
        self._world = net.world
        self._cluster = cluster
        self._producers = producers
        self._jobs = jobs
        self._members = members
        self._faults: list[Fault] = []

    def plan(self, disturbances: Sequence[Disturbance]) -> None:
        for one in disturbances:
            self._world.at(one.at, partial(self._apply, one))

    def heal(self) -> None:
        """End all faults and repair their effects."""
        for fault in self._faults:
            self.hits[f"FailRequests {type(fault.effect).__name__}"] += fault.hits
        self._net.heal()
        self._cluster.heal()

    def _apply(self, one: Disturbance, now: float) -> None:
        self._net.trace.note(now, f"-- {one}")
        self._do(one)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        def act(now: float) -> None:
            action()

        self._world.at(self._world.now() + seconds, act)

    def _hit(self, one: Disturbance) -> None:
        self.hits[type(one).__name__] += 1

    def _do(self, one: Disturbance) -> None:
        match one:
            case CutConnection() | Silence() | Hold() | Trickle() | RefuseConnections():
                self._disturb_net(one)
            case CreateTopic() | AddPartitions() | RecreateTopic() | ForgetProducers():
                self._hit(one)
                self._change_topic(one)
            case CloseProducer(client=client):
                self._hit(one)
                if client in self._jobs:
                    self._jobs[client].kill()
                else:
                    self._producers[client].close()
            case JumpClock(ms=ms):
                self._hit(one)
                self._world.jump(ms)
            case Rival(client=client):
                self._hit(one)
                self._jobs[client].rival()
            case (
                KillMember() | FreezeMember() | CloseMember() | SlowMember() | RaiseInCallback() | PauseMember()
                | SeekMember()
            ):  # fmt: skip
                self._disturb_member(one)
            case _:
                self._disturb_brokers(one)

    def _disturb_member(self, one: MemberDisturbance) -> None:
        member = self._members[one.member]
        process = member.process
        if process is None:
            return
        self._hit(one)
        orders = process.orders
        match one:
            case KillMember(seconds=seconds, is_silent=is_silent):
                process.kill(is_silent=is_silent)
                member.restart_after(seconds)
            case FreezeMember(seconds=seconds):
                process.freeze(seconds)
            case CloseMember(leave=leave):
                orders.close, orders.leave = True, leave
            case SlowMember(seconds=seconds):
                orders.slow_seconds += seconds
            case RaiseInCallback(times=times):
                orders.raises += times
            case PauseMember(seconds=seconds):
                orders.pause_until = self._world.now() + seconds
            case SeekMember():
                orders.seek = True

    def _disturb_net(self, one: CutConnection | Silence | Hold | Trickle | RefuseConnections) -> None:
        address = self._cluster.address(one.node)
        now = self._world.now()
        match one:
            case CutConnection():

                def cut(connection: Connection) -> None:
                    self._hit(one)
                    connection.pipe(to_broker=one.toward != "client").cut_after = one.after_bytes
                    if not one.after_bytes:
                        connection.lose()

                self._net.apply_to_newest(one.client, address, cut)
            case Silence():

                def silence(connection: Connection) -> None:
                    self._hit(one)
                    connection.silence()

                self._net.apply_to_newest(one.client, address, silence)
            case Hold(seconds=seconds):

                def hold(connection: Connection) -> None:
                    self._hit(one)
                    for to_broker in _directions(one.toward):
                        connection.pipe(to_broker=to_broker).hold(now + seconds)

                self._net.apply_to_all(one.client, address, hold, now + seconds)
            case Trickle(seconds=seconds):

                def trickle(connection: Connection) -> None:
                    self._hit(one)
                    for to_broker in _directions(one.toward):
                        connection.pipe(to_broker=to_broker).trickle = one.chunk_bytes, one.pause, now + seconds

                self._net.apply_to_all(one.client, address, trickle, now + seconds)
            case RefuseConnections(seconds=seconds, swallows=swallows):
                self._hit(one)
                stop = self._net.swallow if swallows else self._net.refuse
                stop(address, now + seconds)

    def _disturb_brokers(self, one: Disturbance) -> None:
        now = self._world.now()
        match one:
            case StopBroker(node=node, seconds=seconds, is_silent=is_silent):
                if self._cluster.state.nodes[node].is_up:
                    self._hit(one)
                    self._cluster.stop(node, is_silent=is_silent)
                    if is_silent:
                        self._net.swallow(self._cluster.address(node), now + seconds)
                    self._later(seconds, partial(self._cluster.restart, node))
            case MoveLeader(topic=topic, partition=partition, is_same=is_same):
                if self._cluster.move_leader(topic, partition, is_same=is_same):
                    self._hit(one)
            case UncleanElection(topic=topic, partition=partition, lost=lost):
                if self._cluster.elect_uncleanly(topic, partition, lost):
                    self._hit(one)
            case LagMetadata(node=node, seconds=seconds):
                self._hit(one)
                self._cluster.brokers[node].lag(now + seconds, now)
            case Throttle(node=node, ms=ms, times=times, is_all=is_all):
                self._hit(one)
                self._cluster.brokers[node].throttle(ms, times, is_all=is_all)
            case MoveCoordinators():
                self._hit(one)
                self._cluster.move_coordinators()
            case FailRequests():
                fault = self._cluster.add_fault(
                    one.effect, api=one.api, node=one.node, topic=one.topic, partition=one.partition, times=one.times,
                    after=one.after,
                )  # fmt: skip
                self._faults.append(fault)

    def _change_topic(self, one: CreateTopic | AddPartitions | RecreateTopic | ForgetProducers) -> None:
        match one:
            case CreateTopic(topic=topic, partitions=partitions):
                self._make(lambda: self._cluster.create_topic(topic, partitions))
            case AddPartitions(topic=topic, more=more):
                self._make(lambda: self._cluster.add_partitions(topic, more))
            case RecreateTopic(topic=topic, partitions=partitions, seconds=seconds):
                leaders = self._cluster.leaders(topic) if one.keeps_leaders else {}
                self._cluster.delete_topic(topic)
                self._later(
                    seconds, lambda: self._make(lambda: self._cluster.create_topic(topic, partitions, leaders=leaders))
                )
            case ForgetProducers(topic=topic, partition=index):
                self._cluster.forget_producers(topic, index)

    def _make(self, make: Callable[[], object]) -> None:
        """Create partitions only while all brokers are up, so that their replicas are spread."""
        if len(self._cluster.state.live_nodes) == len(self._cluster.state.nodes):
            make()
        else:
            self._later(_MAKING_PAUSE, lambda: self._make(make))


def _directions(toward: Toward) -> tuple[bool, ...]:
    return (True, False) if toward == "both" else (toward == "broker",)


START_MS = 1_700_000_000_000
# After the faults back-offs must end, dead connections time out, and new leaders become known. A producer without
# delivery timeout may take so long until everything is acknowledged.
_SETTLING_SECONDS = 30.0
# A probe is sent again, because it may meet dead connections, or partitions that the client does not know yet.
_PROBES, _PROBE_SECONDS = 4, 5.0
# How long a group may take to own, process and commit everything, and then to close.
_GROUP_SECONDS, _CLOSING_SECONDS = 60.0, 60.0
# The disturbances that separate no member from its group, and those of them after which nothing is read again.
_TIDY = (CloseMember, SlowMember, PauseMember, RaiseInCallback, AddPartitions)
_GENTLE = (*_TIDY, KillMember, SeekMember)
_NEVER_SLOW_MS = 30_000  # a poll interval that no program exceeds
# How long bytes and delayed requests may be under way.
_LATE_SECONDS = 15.0
# Turns that a loop may make for each virtual second, and for each record.
_TURNS_PER_SECOND, _TURNS_PER_RECORD = 60, 40

_FAULT = "fault: "  # prefix of their names in `coverage`

_Probe = tuple[SimulatedProducer, str, int]


@dataclass(slots=True)
class Report:
    """The result of a run. `digest` is equal for all runs of the same plan with the same code."""

    plan: Plan
    anomalies: list[Anomaly] = field(default_factory=list)
    digest: str = ""
    seconds: float = 0.0  # virtual
    coverage: Counter[str] = field(default_factory=Counter)
    trace: list[str] | None = None

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(anomaly.kind for anomaly in self.anomalies)

    @property
    def faults(self) -> int:
        """Return how many disturbances had something to disturb."""
        return sum(count for name, count in self.coverage.items() if name.startswith(_FAULT))


# What runs the plans of other worlds, with or without the lines of the trace.
RUNS: dict[type[Plan], Callable[[Any, bool], Report]] = {}


def run(plan: Plan, *, sender: type[Sender] = Sender, keeps_trace: bool = False) -> Report:
    """Run a plan. An exception in the simulated code is an anomaly of the report, and is not raised."""
    other = RUNS.get(type(plan))
    if other is not None:
        return other(plan, keeps_trace)
    return Run(plan, sender, keeps_trace=keeps_trace).run()


class Run:
    """The world of one plan."""

    def __init__(self, plan: Plan, sender: type[Sender] = Sender, *, keeps_trace: bool = False) -> None:
        self.plan = plan
        self.world = World(time_ms=START_MS)
        self.trace = Trace(keeps_lines=keeps_trace)
        self.history = History()
        self.net = Network(self.world, self._chance("net"), self.trace)
        self.cluster = SimulatedCluster(
            self.net, self.history, self._chance("brokers"), api_versions=KAFKAS[plan.kafka],
            api_versions_of={node: KAFKAS[kafka] for node, kafka in plan.kafka_of.items()},
            topic_configs=plan.topic_configs, **plan.options,
        )  # fmt: skip
        for name, partitions in plan.topics.items():
            self.cluster.create_topic(name, partitions)
        if plan.group_kind == "copiers":
            self.cluster.create_topic(OUTPUT, OUTPUT_PARTITIONS)
        self._sender = sender
        self.producers: dict[str, SimulatedProducer] = {}  # instances of jobs included
        self.jobs: dict[str, Job] = {}
        for client in plan.clients:
            if "transactional_id" in client.settings:
                self.jobs[client.name] = Job(self.world, self.history, client.name, partial(self._producer, client))
            else:
                self._producer(client, client.name)
        self.readers = [self._reader("reader")] if self.jobs else []
        self.group = GroupWorld(
            self.net,
            self.cluster,
            plan.members,
            list(plan.topics),
            f"{plan.scenario} {plan.seed}",
            kind=plan.group_kind,
            is_gentle=self._is_gentle,
        )
        self.injector = Injector(self.net, self.cluster, self.producers, self.jobs, self.group.members)
        self._found: list[Anomaly] = []

    def run(self) -> Report:
        report = Report(self.plan)
        try:
            self._go()
        except SpinningError as error:
            self._found.append(Anomaly("spinning", str(error)))
        except Exception as error:  # the report must name the seed, whatever the exception is
            self._found.append(Anomaly("crash", f"at {self.world.now():.3f} s: {type(error).__name__}: {error}"))
            self._found[-1:] = [Anomaly("crash", f"{self._found[-1].what}{where(error)}")]
        self._find_crashes_of_brokers()
        self.cluster.copy_logs(without=OUTPUT)  # what copiers write has a checker of its own
        buffered = {name: producer.buffer_pool.used_bytes for name, producer in self.producers.items()}
        self._check_readers()
        try:
            self._close()
        except Exception as error:  # as above
            self._found.append(Anomaly("crash", f"in close: {type(error).__name__}: {error}{where(error)}"))
        if not self._has_crashed:
            for producer in self.producers.values():
                self._found += producer.conduct.anomalies
            checker = Checker(self.history, self._promises(), buffered)
            self._found += [*checker.anomalies(), *anomalies_of_transactions(self.history)]
            self._found += self.group.anomalies(self.history.logs, is_tidy=self._is_tidy)
        report.anomalies = self._found
        report.seconds = self.world.now()
        report.digest = self.trace.digest()
        report.coverage = self._coverage()
        report.trace = self.trace.lines
        return report

    def _close(self) -> None:
        for job in self.jobs.values():
            job.close()
        for one in self._clients:
            one.close()
        self.group.close()

    @property
    def _is_tidy(self) -> bool:
        """Return whether nothing is processed twice. A commit by the program itself may be too late for that."""
        is_automatic = all(plan.commits in ("auto", "marks") for plan in self.plan.members)
        return is_automatic and self._is_gentle and self._has_only(_TIDY)

    @property
    def _is_gentle(self) -> bool:
        """Return whether nothing separates a member from the group, not even a slow program."""
        intervals = [plan.settings.get("max_poll_interval_ms", 0) for plan in self.plan.members]
        return all(interval >= _NEVER_SLOW_MS for interval in intervals) and self._has_only(_GENTLE)

    def _has_only(self, kinds: tuple[type, ...]) -> bool:
        return all(isinstance(one, kinds) for one in self.plan.disturbances)

    @property
    def _clients(self) -> list[SimulatedProducer | SimulatedReader]:
        return [*self.producers.values(), *self.readers]

    @property
    def _has_crashed(self) -> bool:
        return any(anomaly.kind in ("crash", "spinning") for anomaly in self._found)

    def _go(self) -> None:
        for one in self.plan.work:
            self.world.at(one.at, partial(self._work, one))
        self.injector.plan(self.plan.disturbances)
        self.world.run(self.plan.calm_at)
        self.injector.heal()
        self.group.heal()
        if self.jobs:
            self.readers.append(
                self._reader("late reader", partition_max_bytes=100_000)
            )  # many transactions in one fetch
        self._settle()
        self._probe_jobs()
        self._probe()
        self._end_group()
        self.world.run(self.world.now() + _LATE_SECONDS)
        self._check_spinning()

    def _settle(self) -> None:
        """Wait until everything resolves, by delivery or by the delivery timeout."""
        patience = _SETTLING_SECONDS
        timeouts = [client.settings["delivery_timeout_ms"] for client in self.plan.clients if not client.delivers]
        patience += max(timeouts, default=0) / 1000
        self.world.run(self.world.now() + patience, is_over=self._is_settled)
        for sent in self.history.unresolved:
            self._found.append(Anomaly("stuck", f"{sent.id} after {patience:.0f} s of calm"))
        for job in self.jobs.values():
            if not job.is_idle:
                self._found.append(Anomaly("stuck", f"job {job.name} after {patience:.0f} s of calm"))

    def _end_group(self) -> None:
        """Wait until the members have processed and committed everything, then close them."""
        if self.group.members:
            self.world.run(self.world.now() + _GROUP_SECONDS, is_over=self.group.is_settled)
            self.group.begin_to_end()
            self.world.run(self.world.now() + _CLOSING_SECONDS, is_over=self.group.has_ended)
            for member in self.group.members.values():
                if member.process is not None:
                    self._found.append(Anomaly("stuck", f"{member.process.name} does not close"))

    def _is_settled(self) -> bool:
        return not self.history.unresolved and all(job.is_idle for job in self.jobs.values())

    def _probe_jobs(self) -> None:
        """Check that every job can still commit a transaction in every partition."""
        places = list(self.cluster.end_offsets())
        before = {name: self._committed(name) for name in self.jobs}
        for _ in range(_PROBES):
            for name, job in self.jobs.items():
                if self._committed(name) == before[name]:
                    now = self.world.now()
                    sends = tuple(Send(at=now, client=name, topic=topic, partition=index) for topic, index in places)
                    job.add(Transact(at=now, client=name, sends=sends, pause=0.0, is_commit=True))
            self.world.run(self.world.now() + _PROBE_SECONDS, is_over=self._is_settled)
        for name in self.jobs:
            if self._committed(name) == before[name] and not self._found:
                self._found.append(Anomaly("probe", f"job {name} cannot commit any more"))

    def _committed(self, job: str) -> int:
        return sum(one.is_committed for one in self.history.transactions if one.producer.rpartition(".")[0] == job)

    def _check_readers(self) -> None:
        ends = self.cluster.end_offsets()
        for reader in self.readers:
            self.history.reads += reader.copies()
            self._found += [Anomaly("reader", f"{reader.name}: {error}") for error in reader.errors]
            for place, position in reader.positions().items():
                if position < ends[place]:
                    self._found.append(Anomaly("behind", f"{reader.name} at {position} of {ends[place]} in {place}"))

    def _probe(self) -> None:
        """Check that every producer can still reach every partition."""
        wanted = [
            (producer, topic.name, partition.index)
            for producer in self.producers.values() if not producer.is_closed and producer.sender.transaction is None
            for topic in self.cluster.state.topics.values() if topic.name != OUTPUT
            for partition in topic.partitions
        ]  # fmt: skip
        for attempt in range(_PROBES):
            wanted = self._missed(wanted, is_last=attempt == _PROBES - 1)

    def _missed(self, wanted: list[_Probe], *, is_last: bool) -> list[_Probe]:
        """Send a probe to each; return those that were not acknowledged."""
        sent: dict[_Probe, Sent] = {}
        for producer, topic, index in wanted:
            probe = producer.send(topic, partition=index)
            if probe is not None:
                sent[producer, topic, index] = probe
        until = self.world.now() + _PROBE_SECONDS
        self.world.run(until, is_over=lambda: all(probe.acknowledged is not None for probe in sent.values()))
        missed = [probe for probe in wanted if probe not in sent or sent[probe].acknowledged is None]
        if is_last and not self._found:
            for one in (sent[probe] for probe in missed if probe in sent):
                self._found.append(Anomaly("probe", f"{one.id} for {one.partition}: {one.error or 'no outcome'}"))
        return missed

    def _work(self, one: Work, now: float) -> None:
        match one:
            case Send():
                for _ in range(one.count):
                    self.producers[one.client].send(
                        one.topic, partition=one.partition, key=one.key, size=one.size, timeout=one.timeout
                    )
            case Flush():
                self.producers[one.client].flush()
            case Transact():
                self.jobs[one.client].add(one)

    # Promises and findings.

    def _promises(self) -> dict[str, Promises]:
        delivers = {client.name: client.delivers for client in self.plan.clients}
        return {
            name: Promises(
                is_idempotent=producer.settings.wants_idempotence and self.plan.recognises_duplicates,
                is_ordered=producer.settings.ordered,
                acks=producer.settings.required_acks,
                delivers=delivers.get(name, False),
            )
            for name, producer in self.producers.items()
        }

    def _check_spinning(self) -> None:
        bound = int(_TURNS_PER_SECOND * self.world.now() + _TURNS_PER_RECORD * len(self.history.sent))
        members = [thread for process in self.group.processes for thread in process.threads]
        for loop in (self.cluster.loop, *(one.loop for one in (*self._clients, *members))):
            served = 1 + len(self.group.members) if loop is self.cluster.loop else 1
            if loop.turns > bound * served:
                self._found.append(
                    Anomaly("spinning", f"{loop.name} made {loop.turns} turns in {self.world.now():.0f} s")
                )

    def _find_crashes_of_brokers(self) -> None:
        for error in self.cluster.server.failures:
            self._found.append(Anomaly("crash", f"a broker: {type(error).__name__}: {error}{where(error)}"))

    def _coverage(self) -> Counter[str]:
        found = Counter({f"{_FAULT}{name}": count for name, count in self.injector.hits.items()})
        found.update({f"net: {name}": count for name, count in self.net.seen.items()})
        sent = list(self.history.sent.values())
        found["records: sent"] = len(sent)
        found["records: refused for want of memory"] = self.history.refused
        found["records: acknowledged"] = sum(one.acknowledged is not None for one in sent)
        found["records: given up, surely not stored"] = sum(
            one.error is not None and not one.resolutions[0].may_be_stored for one in sent
        )
        found["records: given up, possibly stored"] = sum(
            isinstance(one.error, DeliveryError) and one.error.possibly_persisted for one in sent
        )
        found["records: lost with a leader"] = self.history.truncated.total()
        found["records: lost by an unclean election"] = self.history.unclean.total()
        found["requests: Produce"] = self.cluster.state.requests[ApiKey.PRODUCE]
        found["requests: Metadata"] = self.cluster.state.requests[ApiKey.METADATA]
        found["requests: InitProducerId"] = self.cluster.state.requests[ApiKey.INIT_PRODUCER_ID]
        found["requests: EndTxn"] = self.cluster.state.requests[ApiKey.END_TXN]
        for name in ("is_committed", "is_aborted"):
            found[f"transactions: {name[3:]}"] = sum(getattr(one, name) for one in self.history.transactions)
        found["transactions: started"] = len(self.history.transactions)
        found["turns"] = sum(producer.loop.turns for producer in self.producers.values())
        found.update(self.group.coverage())
        return found

    def _producer(self, client: Client, name: str) -> SimulatedProducer:
        config = ClientConfig(self.cluster.bootstrap, client_id=client.name, **client.config)
        settings = ProducerSettings(**client.settings)
        self.producers[name] = SimulatedProducer(
            self.net, name, self.history, self._chance(name), config, settings, self._sender, network_name=client.name,
            first_sequence=client.first_sequence, keeps_producer_id=self.plan.recognises_duplicates,
        )  # fmt: skip
        return self.producers[name]

    def _reader(self, name: str, partition_max_bytes: int | None = None) -> SimulatedReader:
        config = ClientConfig(self.cluster.bootstrap, client_id=name, **self.plan.clients[0].config)
        chance = self._chance(name)
        options = ConsumerOptions(
            isolation="read_committed", max_wait_ms=chance.choice((200, 500)),
            partition_max_bytes=partition_max_bytes or chance.choice((100, 1_000, 100_000)),
        )  # fmt: skip
        return SimulatedReader(self.net, name, chance, config, options, list(self.cluster.end_offsets()))

    def _chance(self, who: str) -> Random:
        return Random(f"{self.plan.scenario} {self.plan.seed} {who}")


def where(error: BaseException) -> str:
    """Return the innermost line that raised."""
    traceback, place = error.__traceback__, ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = f" ({code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno} in {code.co_name})"
        traceback = traceback.tb_next
    return place
