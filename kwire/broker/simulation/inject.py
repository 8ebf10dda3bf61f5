"""Carrying a schedule out on a world: each disturbance at its time, counted when it finds something to disturb.

Owns the step from the words of `schedule` to what network and brokers can do. It decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kwire.broker.faults import Fault
from kwire.broker.simulation.brokers import SimulatedCluster
from kwire.broker.simulation.connection import Connection
from kwire.broker.simulation.job import Job
from kwire.broker.simulation.net import Net
from kwire.broker.simulation.producer import SimulatedProducer
from kwire.broker.simulation.schedule import (
    AddPartitions,
    CloseProducer,
    CreateTopic,
    CutConnection,
    Disturbance,
    FailRequests,
    ForgetProducers,
    Hold,
    JumpClock,
    LagMetadata,
    MoveLeader,
    RecreateTopic,
    RefuseConnections,
    Rival,
    Silence,
    StopBroker,
    Throttle,
    Toward,
    Trickle,
    UncleanElection,
)

_MAKING_PAUSE = 0.5


class Injector:
    """`hits` counts disturbances by kind."""

    def __init__(
        self,
        net: Net,
        cluster: SimulatedCluster,
        producers: Mapping[str, SimulatedProducer],
        jobs: Mapping[str, Job],
    ) -> None:
        self.hits: Counter[str] = Counter()
        self._net = net
        self._world = net.world
        self._cluster = cluster
        self._producers = producers
        self._jobs = jobs
        self._faults: list[Fault] = []

    def plan(self, disturbances: Sequence[Disturbance]) -> None:
        for one in disturbances:
            self._world.at(one.at, partial(self._befall, one))

    def heal(self) -> None:
        """Nothing goes wrong any more, and what did is mended."""
        for fault in self._faults:
            self.hits[f"FailRequests {type(fault.effect).__name__}"] += fault.hits
        self._net.heal()
        self._cluster.heal()

    def _befall(self, one: Disturbance, now: float) -> None:
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
            case _:
                self._disturb_brokers(one)

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

                self._net.touch(one.client, address, cut)
            case Silence():

                def silence(connection: Connection) -> None:
                    self._hit(one)
                    connection.silence()

                self._net.touch(one.client, address, silence)
            case Hold(seconds=seconds):

                def hold(connection: Connection) -> None:
                    self._hit(one)
                    for to_broker in _directions(one.toward):
                        connection.pipe(to_broker=to_broker).hold(now + seconds)

                self._net.touch_all(one.client, address, hold, now + seconds)
            case Trickle(seconds=seconds):

                def trickle(connection: Connection) -> None:
                    self._hit(one)
                    for to_broker in _directions(one.toward):
                        connection.pipe(to_broker=to_broker).trickle = one.chunk_bytes, one.pause, now + seconds

                self._net.touch_all(one.client, address, trickle, now + seconds)
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
            case Throttle(node=node, ms=ms, times=times):
                self._hit(one)
                self._cluster.brokers[node].throttle(ms, times)
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
        """Partitions are made when their replicas can be spread: while all brokers are up."""
        if len(self._cluster.state.live_nodes) == len(self._cluster.state.nodes):
            make()
        else:
            self._later(_MAKING_PAUSE, lambda: self._make(make))


def _directions(toward: Toward) -> tuple[bool, ...]:
    return (True, False) if toward == "both" else (toward == "broker",)
