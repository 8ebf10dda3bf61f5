"""From a scenario and a seed to a plan: everything that is left to chance is drawn here, before a run begins.

Owns the drawing. That the faults of a plan are a list, and not decisions taken on the way, is what lets a failing run
be cut down to the faults that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from kwire.broker.faults import ApplyLate, Cut, Delay, Disconnect, Effect, Mute, Refuse
from kwire.broker.simulation.scenario import FOR_EVER_MS, Client, Plan, Scenario
from kwire.broker.simulation.schedule import (
    AddPartitions,
    CloseProducer,
    CreateTopic,
    CutConnection,
    Disturbance,
    FailRequests,
    Flush,
    Hold,
    JumpClock,
    LagMetadata,
    MoveLeader,
    RecreateTopic,
    RefuseConnections,
    Rival,
    Send,
    Silence,
    StopBroker,
    Throttle,
    Toward,
    Transact,
    Trickle,
    UncleanElection,
    Work,
)
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey

_BROKERS = 3

# Codes that a broker answers without having stored anything, and that waiting or new metadata cures.
_NOT_STORED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.CORRUPT_MESSAGE,
)
# Codes that a broker may answer although it has appended the batch: its followers, or its leadership, were lost since.
_PERHAPS_STORED = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
# Codes that end a batch.
_FOR_GOOD = (ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR)
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
# Codes by which a broker says that it does not know the producer, or not as the producer knows itself.
_OUT_OF_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
# Records an hour ahead of the broker's clock are refused (message.timestamp.after.max.ms).
_JUMPS_MS = (-86_400_000, 3_000_000)
_IDENTITY_CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_COORDINATOR_APIS = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.FIND_COORDINATOR,
)
_COORDINATOR_CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def plan(scenario: Scenario, seed: int) -> Plan:
    return _Draw(scenario, seed).plan()


class _Draw:
    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._seed = seed
        # A string is hashed the same way in every process, whatever PYTHONHASHSEED is.
        self._random = Random(f"{scenario.name} {seed}")
        self._seconds = scenario.seconds
        self._closing: CloseProducer | None = None
        topics = self._random.randint(1, scenario.topics_max)
        self._topics = {f"t{index}": self._random.randint(1, scenario.partitions_max) for index in range(topics)}
        self._names = [f"p{index}" for index in range(self._random.randint(1, 2))]

    def plan(self) -> Plan:
        scenario = self._scenario
        kafka = self._random.choice(scenario.kafkas)
        options = self._choose(scenario.options)
        kafka_of = {}
        if scenario.is_mixed:
            kafka_of = {node: self._random.choice(scenario.kafkas) for node in range(1, _BROKERS + 1)}
        clients = tuple(self._client(name) for name in self._names)
        disturbances = self._disturbances()
        topics = {} if scenario.topic_is_late else self._topics
        if scenario.topic_is_late:
            disturbances += [
                CreateTopic(at=self._random.uniform(0, 2), topic=name, partitions=count)
                for name, count in self._topics.items()
            ]
        return Plan(
            scenario=scenario.name,
            seed=self._seed,
            kafka=kafka,
            options=options,
            topics=topics,
            clients=clients,
            work=tuple(sorted(self._work(), key=lambda one: one.at)),
            disturbances=tuple(sorted(disturbances, key=lambda one: one.at)),
            calm_at=self._seconds + scenario.silence + 3,
            kafka_of=kafka_of,
            topic_configs=self._choose(scenario.topic_configs),
        )

    def _choose(self, choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: self._random.choice(values) for name, values in sorted(choices.items())}

    def _client(self, name: str) -> Client:
        settings = self._choose(self._scenario.settings)
        if self._scenario.transactions is not None:
            settings["transactional_id"] = name
        settings["delivery_timeout_ms"] = self._random.choice(self._scenario.patience_ms)
        config = self._choose(self._scenario.config)
        delivers = self._scenario.delivers and settings["delivery_timeout_ms"] == FOR_EVER_MS
        first_sequence = self._random.choice(self._scenario.first_sequences)
        return Client(name=name, settings=settings, config=config, delivers=delivers, first_sequence=first_sequence)

    # Work.

    def _work(self) -> list[Work]:
        random = self._random
        work: list[Work] = []
        for name in self._names:
            if self._scenario.transactions is not None:
                work += [self._transact(name) for _ in range(random.randint(*self._scenario.transactions))]
                continue
            work += [self._send(name) for _ in range(random.randint(*self._scenario.sends))]
            work += [Flush(at=random.uniform(0, self._seconds), client=name) for _ in range(random.randint(0, 2))]
        if self._closing is not None:  # and in the moment before
            last = self._send(self._closing.client)
            work.append(replace(last, at=self._closing.at))
        return work

    def _send(self, name: str) -> Send:
        random = self._random
        topic = random.choice(sorted(self._topics))
        kind = random.random()
        return Send(
            at=self._when(),
            client=name,
            topic=topic,
            partition=random.randrange(self._topics[topic]) if kind < 0.4 else None,
            key=b"k%d" % random.randrange(5) if 0.4 <= kind < 0.75 else None,
            size=random.choice((0, 30, 150)),
            count=random.randint(1, self._scenario.burst_max),
            timeout=random.choice(self._scenario.timeouts),
        )

    def _transact(self, name: str) -> Transact:
        random = self._random
        return Transact(
            at=random.uniform(0, self._seconds),
            client=name,
            sends=tuple(self._send(name) for _ in range(random.randint(0, 4))),
            pause=random.choice((0.0, 0.01, random.uniform(0, 0.5), random.uniform(0, 0.5), 1.2)),
            is_commit=random.random() < 0.75,
        )

    # What goes wrong.

    def _disturbances(self) -> list[Disturbance]:
        kinds = sorted(kind for kind, weight in self._scenario.faults.items() if weight)
        weights = [self._scenario.faults[kind] for kind in kinds]
        count = self._random.randint(0, self._scenario.faults_max)
        drawn = [one for kind in self._random.choices(kinds, weights, k=count) for one in self._make(kind)]
        if self._scenario.closes:
            self._closing = CloseProducer(at=self._when(), client=self._random.choice(self._names))
            drawn.append(self._closing)
        return drawn

    def _make(self, kind: str) -> Sequence[Disturbance]:
        """Draw what goes wrong: mostly one thing, now and then some that only together are unkind."""
        together: dict[str, Callable[[], Sequence[Disturbance]]] = {
            "storage": self._storage, "sequence": self._sequence, "swap": self._swap,
        }  # fmt: skip
        if kind in together:
            return together[kind]()
        makers: dict[str, Callable[[], Disturbance]] = {
            "cut": self._cut,
            "silence": lambda: Silence(at=self._when(), node=self._node(), client=self._maybe_client()),
            "hold": self._hold,
            "trickle": self._trickle,
            "refuse": self._refuse,
            "stop": self._stop,
            "move": lambda: MoveLeader(at=self._when(), is_same=self._random.random() < 0.2, **self._place()),
            "unclean": lambda: UncleanElection(at=self._when(), lost=self._random.randint(1, 20), **self._place()),
            "jump": lambda: JumpClock(at=self._when(), ms=self._random.randint(*_JUMPS_MS)),
            "lag": lambda: LagMetadata(at=self._when(), node=self._node(), seconds=self._random.uniform(0.2, 4)),
            "throttle": lambda: Throttle(
                at=self._when(), node=self._node(), ms=self._random.randint(1, 800), times=self._random.randint(1, 3)
            ),
            "produce": self._produce,
            "fatal": self._fatal,
            "metadata": self._metadata,
            "identity": self._identity,
            "greeting": self._greeting,
            "grow": lambda: AddPartitions(at=self._when(), topic=self._topic(), more=self._random.randint(1, 2)),
            "recreate": self._recreate,
            "coordinator": self._coordinator,
            "late end": lambda: FailRequests(
                at=0.0,
                api=ApiKey.END_TXN,
                effect=ApplyLate(self._random.randint(20, 400)),
                after=self._random.randint(0, 10),
                times=self._random.randint(1, 3),
            ),
            "rival": lambda: Rival(at=self._when(), client=self._random.choice(self._names)),
            "kill": lambda: CloseProducer(at=self._when(), client=self._random.choice(self._names)),
        }
        return [makers[kind]()]

    def _when(self) -> float:
        """Some time of the run, but not in its silence."""
        at = self._random.uniform(0, self._seconds)
        return at + self._scenario.silence if at > self._seconds / 2 else at

    def _node(self) -> int:
        return self._random.randint(1, _BROKERS)

    def _maybe_client(self) -> str | None:
        return self._random.choice([None, *self._names])

    def _topic(self) -> str:
        return self._random.choice(sorted(self._topics))

    def _place(self) -> dict[str, Any]:
        topic = self._topic()
        return {"topic": topic, "partition": self._random.randrange(self._topics[topic])}

    def _toward(self) -> Toward:
        towards: tuple[Toward, ...] = ("broker", "client")
        return self._random.choice(towards)

    def _cut(self) -> Disturbance:
        return CutConnection(
            at=self._when(), node=self._node(), client=self._maybe_client(), toward=self._toward(),
            after_bytes=self._random.choice((0, self._random.randint(1, 60), self._random.randint(1, 1_500))),
        )  # fmt: skip

    def _hold(self) -> Disturbance:
        towards: tuple[Toward, ...] = ("both", "both", "broker", "client")
        return Hold(
            at=self._when(), node=self._node(), client=self._maybe_client(),
            seconds=self._random.uniform(0.05, 6), toward=self._random.choice(towards),
        )  # fmt: skip

    def _trickle(self) -> Disturbance:
        return Trickle(
            at=self._when(), node=self._node(), client=self._maybe_client(), toward=self._toward(),
            seconds=self._random.uniform(0.2, 2), chunk_bytes=self._random.randint(5, 60),
            pause=self._random.uniform(0.001, 0.02),
        )  # fmt: skip

    def _refuse(self) -> Disturbance:
        return RefuseConnections(
            at=self._when(), node=self._node(), seconds=self._random.uniform(0.2, 4),
            swallows=self._random.random() < 0.4,
        )  # fmt: skip

    def _stop(self) -> Disturbance:
        return StopBroker(
            at=self._when(), node=self._node(), seconds=self._random.uniform(0.1, 4),
            is_silent=self._random.random() < 0.3,
        )  # fmt: skip

    def _recreate(self) -> Disturbance:
        topic = self._topic()
        return RecreateTopic(
            at=self._when(), topic=topic, partitions=self._topics[topic], seconds=self._random.uniform(0, 2)
        )

    def _produce(self) -> Disturbance:
        random = self._random
        effects: list[Effect] = [
            Refuse(random.choice(_NOT_STORED)),
            Refuse(random.choice(_PERHAPS_STORED), applied=True),
            Disconnect(),
            Disconnect(applied=True),
            Cut(random.randint(1, 60)),
            Delay(random.randint(50, 4_000)),
            Delay(random.randint(50, 4_000), applied=True),
            Mute(),
            Mute(applied=True),
            ApplyLate(random.randint(50, 3_000)),
        ]
        effect = random.choice(effects)
        if random.random() < 0.5:  # by number, so that it meets a busy partition, or the first request for a new one
            return FailRequests(
                at=0.0, api=ApiKey.PRODUCE, effect=effect, after=random.randint(0, 15), times=random.randint(1, 2),
                **self._place(),
            )  # fmt: skip
        where = self._place() if isinstance(effect, Refuse) and random.random() < 0.7 else {}
        node = random.choice((None, self._node()))
        return FailRequests(
            at=self._when(), api=ApiKey.PRODUCE, effect=effect, node=node, times=random.randint(1, 3), **where
        )

    def _storage(self) -> Sequence[Disturbance]:
        """A leader appends and then says that it failed; from then on it takes nothing, for a while or for good."""
        place, after = self._place(), self._random.randint(0, 4)
        code = self._random.choice((*_PERHAPS_STORED, _UNKNOWN))
        lasting = self._random.choice((1, 8, 20))
        return [
            FailRequests(at=0.0, api=ApiKey.PRODUCE, effect=Refuse(code, applied=True), after=after, **place),
            FailRequests(
                at=0.0, api=ApiKey.PRODUCE, effect=Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), after=after, times=lasting,
                **place,
            ),
        ]  # fmt: skip

    def _sequence(self) -> Sequence[Disturbance]:
        """A leader does not know the producer any more; perhaps just after it appended, or while requests get lost."""
        place, after = self._place(), self._random.randint(0, 10)
        code = self._random.choice(_OUT_OF_SEQUENCE)
        refused = FailRequests(
            at=0.0, api=ApiKey.PRODUCE, effect=Refuse(code), after=after, times=self._random.choice((1, 1, 2, 8)),
            **place,
        )  # fmt: skip
        if self._random.random() < 0.6:  # and what was sent behind it gets lost
            once = FailRequests(at=0.0, api=ApiKey.PRODUCE, effect=Refuse(code), after=after, **place)
            lost = FailRequests(at=0.0, api=ApiKey.PRODUCE, effect=Disconnect(), after=after, **place)
            return [once, lost, replace(refused, times=8)]
        first: Sequence[Effect | None] = (
            None, None, Refuse(ErrorCode.REQUEST_TIMED_OUT, applied=True), Disconnect(applied=True), Disconnect(),
        )  # fmt: skip
        effect = self._random.choice(first)
        if effect is None:
            return [refused]
        return [FailRequests(at=0.0, api=ApiKey.PRODUCE, effect=effect, after=after, **place), refused]

    def _swap(self) -> Sequence[Disturbance]:
        """A topic is made again while requests are on their way to it, whose answers get lost."""
        at, topic = self._when(), self._topic()
        held = [
            Hold(at=max(0.0, at - 0.4), node=node, seconds=self._random.uniform(0.45, 0.8), toward="broker")
            for node in range(1, _BROKERS + 1)
        ]
        return [
            *held,
            RecreateTopic(at=at, topic=topic, partitions=self._topics[topic], seconds=0.0, keeps_leaders=True),
            FailRequests(at=at, api=ApiKey.PRODUCE, effect=Disconnect(applied=True), topic=topic, times=4),
        ]

    def _fatal(self) -> Disturbance:
        effect = self._random.choice([Refuse(code) for code in _FOR_GOOD] + [Refuse(_UNKNOWN, applied=True)])
        return FailRequests(
            at=0.0, api=ApiKey.PRODUCE, effect=effect, after=self._random.randint(0, 15), **self._place()
        )

    def _metadata(self) -> Disturbance:
        random = self._random
        codes = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        effects: list[Effect] = [Refuse(random.choice(codes)), Disconnect(), Mute(), Delay(random.randint(50, 4_000))]
        effect = random.choice(effects)
        topic = self._topic() if isinstance(effect, Refuse) else None
        return FailRequests(
            at=self._when(), api=ApiKey.METADATA, effect=effect, topic=topic, times=random.randint(1, 4)
        )

    def _identity(self) -> Disturbance:
        random = self._random
        effects: list[Effect] = [
            Refuse(random.choice(_IDENTITY_CODES)), Disconnect(), Disconnect(applied=True), Mute(),
            Delay(random.randint(50, 4_000)),
        ]  # fmt: skip
        return FailRequests(
            at=self._when() / 4, api=ApiKey.INIT_PRODUCER_ID, effect=random.choice(effects), times=random.randint(1, 3)
        )

    def _coordinator(self) -> Disturbance:
        random = self._random
        api = random.choice(_COORDINATOR_APIS)
        effects: list[Effect] = [
            Refuse(random.choice(_COORDINATOR_CODES)), Refuse(random.choice(_COORDINATOR_CODES), applied=True),
            Disconnect(), Disconnect(applied=True), Cut(random.randint(1, 20)), Mute(), Mute(applied=True),
            Delay(random.randint(50, 2_000)), Delay(random.randint(50, 2_000), applied=True),
            ApplyLate(random.randint(20, 2_000)),
        ]  # fmt: skip
        if random.random() < 0.5:
            return FailRequests(at=0.0, api=api, effect=random.choice(effects), after=random.randint(0, 6))
        return FailRequests(at=self._when(), api=api, effect=random.choice(effects), times=random.randint(1, 2))

    def _greeting(self) -> Disturbance:
        random = self._random
        effects: list[Effect] = [Disconnect(), Mute(), Delay(random.randint(50, 4_000))]
        return FailRequests(
            at=self._when(), api=ApiKey.API_VERSIONS, effect=random.choice(effects), node=self._node(),
            times=random.randint(1, 3),
        )  # fmt: skip
