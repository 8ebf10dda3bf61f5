"""Scenarios: named families of plans. A scenario and a seed make a `Plan`, and a run depends on its plan only.

A `Scenario` holds the choices: settings of producers and brokers, versions of Kafka, kinds of faults and their weights.
`plan` draws from them. All faults are drawn before the run begins, so that a failing run can be reduced to the faults
that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any, Literal

from kwire.broker.faults import ApplyLate, Cut, Delay, Disconnect, Effect, Mute, Refuse
from kwire.broker.options import FirstSequence
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS
from kwire.simulation.members import MemberPlan
from kwire.simulation.schedule import (
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

Versions = Mapping[ApiKey, range]
# What the members of a group are: consumers, share consumers, or consumers that copy records in transactions.
GroupKind = Literal["consumers", "share", "copiers"]
_NONE = range(0)

# The API versions of a Kafka that clients meet; other APIs have the versions of this package.
KAFKAS: Mapping[str, Versions] = MappingProxyType(
    {
        "0.8.2": {
            **{ApiKey(key): versions for key, versions in BROKERS_BEFORE_API_VERSIONS["0.8.2"].items()},
            ApiKey.API_VERSIONS: _NONE,
            ApiKey.INIT_PRODUCER_ID: _NONE,
            ApiKey.DESCRIBE_CLUSTER: _NONE,
        },
        "0.10": {
            ApiKey.PRODUCE: range(0, 3),
            ApiKey.FETCH: range(0, 3),
            ApiKey.METADATA: range(0, 2),
            ApiKey.API_VERSIONS: range(0, 1),
            ApiKey.INIT_PRODUCER_ID: _NONE,
            ApiKey.DESCRIBE_CLUSTER: _NONE,
        },
        "0.11": {
            ApiKey.PRODUCE: range(0, 4),
            ApiKey.FETCH: range(0, 6),
            ApiKey.METADATA: range(0, 5),
            ApiKey.API_VERSIONS: range(0, 2),
            ApiKey.INIT_PRODUCER_ID: range(0, 1),
            ApiKey.DESCRIBE_CLUSTER: _NONE,
        },
        "2.8": {
            ApiKey.PRODUCE: range(0, 10),
            ApiKey.FETCH: range(0, 13),
            ApiKey.METADATA: range(0, 12),
            ApiKey.API_VERSIONS: range(0, 4),
            ApiKey.INIT_PRODUCER_ID: range(0, 5),
            ApiKey.ADD_PARTITIONS_TO_TXN: range(0, 4),
            ApiKey.END_TXN: range(0, 4),
        },
        "newest": {},
    }
)
# Brokers of these versions do not recognise duplicates.
WITHOUT_IDEMPOTENCE = frozenset({"0.8.2", "0.10"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`settings` are options of the producer, `config` those of all clients. `delivers`: its delivery timeout outlasts
    all faults, so that every record must be acknowledged."""

    name: str
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    delivers: bool
    first_sequence: int = 0  # in every partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a run depends on. All faults end at `calm_at`."""

    scenario: str
    seed: int
    kafka: str
    options: Mapping[str, Any]
    topics: Mapping[str, int]
    clients: tuple[Client, ...]
    work: tuple[Work, ...]
    disturbances: tuple[Disturbance, ...]
    calm_at: float
    kafka_of: Mapping[int, str] = field(default_factory=dict)  # brokers with another version than `kafka`
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    members: tuple[MemberPlan, ...] = ()  # of the group, if there is one
    group_kind: GroupKind = "consumers"

    @property
    def recognises_duplicates(self) -> bool:
        return not WITHOUT_IDEMPOTENCE & {self.kafka, *self.kafka_of.values()}

    def with_disturbances(self, disturbances: Sequence[Disturbance]) -> Plan:
        return replace(self, disturbances=tuple(disturbances))


SETTINGS: Mapping[str, Sequence[Any]] = {
    "linger_ms": (0, 0, 5, 20),
    "batch_bytes": (200, 400, 1_000),
    "max_request_bytes": (1_000, 4_000, 100_000),
    "compression": ("none", "none", "gzip", "lz4", "snappy"),
}
CONFIG: Mapping[str, Sequence[Any]] = {
    "request_timeout_ms": (1_000, 3_000),
    "connect_timeout_ms": (500, 2_000),
    "idle_timeout_ms": (4_000, 540_000),  # longer than the request timeout
    "metadata_max_age_ms": (3_000, 300_000),
    "retry_backoff_ms": (10, 100),
    "retry_backoff_ms_max": (200, 1_000),
    "max_in_flight": (1, 3, 5, 8),
}
OPTIONS: Mapping[str, Sequence[Any]] = {
    "replication_ms": (0, 5, 40),
    "min_insync_replicas": (1, 2),
    "default_replication_factor": (2, 3),
    "first_sequence": (FirstSequence.ANY, FirstSequence.ANY, FirstSequence.ZERO_IN_NEW_LOG),
    "auto_create_topics": (False,),
}
# A delivery timeout that outlasts every fault.
FOR_EVER_MS = 300_000
# Relative weights of the kinds of disturbances.
FAULTS: Mapping[str, int] = {
    "cut": 6,
    "silence": 2,
    "hold": 4,
    "trickle": 1,
    "refuse": 2,
    "stop": 4,
    "move": 5,
    "lag": 2,
    "throttle": 1,
    "produce": 8,
    "metadata": 2,
    "init producer id": 1,
    "first request": 1,
    "jump": 1,
}
_NEWEST = ("newest", "newest", "newest", "2.8", "0.11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The choices of a family of plans. `patience_ms` are delivery timeouts.

    With `delivers` a producer whose timeout is FOR_EVER_MS must deliver everything.
    """

    name: str
    about: str
    settings: Mapping[str, Sequence[Any]] = field(default_factory=lambda: SETTINGS)
    config: Mapping[str, Sequence[Any]] = field(default_factory=lambda: CONFIG)
    options: Mapping[str, Sequence[Any]] = field(default_factory=lambda: OPTIONS)
    faults: Mapping[str, int] = field(default_factory=lambda: FAULTS)
    kafkas: Sequence[str] = _NEWEST
    patience_ms: Sequence[int] = (FOR_EVER_MS,)
    delivers: bool = True
    seconds: float = 6.0  # of work and faults
    faults_max: int = 8
    topics_max: int = 2
    partitions_max: int = 4
    sends: tuple[int, int] = (15, 30)
    burst_max: int = 6
    topic_is_late: bool = False  # it is created while records wait for it
    closes: bool = False  # one producer is closed before the end
    silence: float = 0.0  # seconds without sends in the middle
    timeouts: Sequence[float | None] = (None,)  # of single records, in seconds
    first_sequences: Sequence[int] = (0,)
    is_mixed: bool = False  # each broker has a version of its own
    topic_configs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    transactions: tuple[int, int] | None = None  # per client; None: no transactions

    def plan(self, seed: int) -> Plan:
        """Return the plan that a seed draws from this scenario."""
        return Draw(self, seed).plan()


_CROWD: Mapping[str, Any] = {
    "settings": {"batch_bytes": (150, 250), "max_request_bytes": (400, 1_000, 4_000)},
    "config": {"max_in_flight": (3, 5, 8), "request_timeout_ms": (400, 1_000)},
    "faults_max": 10,
    "topics_max": 1,
    "partitions_max": 2,
    "sends": (6, 12),
    "burst_max": 25,
    "seconds": 3.0,
}


_TRANSACTIONS: Mapping[str, Any] = {
    "settings": {"transaction_timeout_ms": (1_000, 1_500, 6_000)},
    "config": {"request_timeout_ms": (400, 1_000)},
    "faults": {"coordinator": 10, "init producer id": 0, "rival": 3, "kill": 3, "produce": 4, "hold": 3},
    "faults_max": 10,
    "partitions_max": 3,
    "transactions": (3, 7),
    "patience_ms": (1_500, FOR_EVER_MS, FOR_EVER_MS),
    "delivers": False,
}


def _scenario(name: str, about: str, **choices: Any) -> Scenario:
    """Return a scenario: the default choices, overridden by `choices`. A fault with weight 0 is never drawn."""
    parts = {"settings": SETTINGS, "config": CONFIG, "options": OPTIONS, "faults": FAULTS}
    for part, default in parts.items():
        choices[part] = {**default, **choices.get(part, {})}
    return Scenario(name=name, about=about, **choices)


PRODUCER_SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _scenario("patient", "an idempotent producer with time enough: everything arrives, once and in order"),
        _scenario(
            "hasty",
            "an idempotent producer with short delivery timeouts",
            patience_ms=(400, 1_500, 4_000),
            faults={"storage": 4},
            timeouts=(None, None, 0.2, 0.8, 2.0),
        ),
        _scenario(
            "rush",
            "as patient, with many batches at once for few partitions",
            **_CROWD,
        ),
        _scenario(
            "rough",
            "many batches for few partitions, short timeouts, fatal errors: sequences break and restart",
            **{**_CROWD, "faults": {"fatal": 6, "sequence": 6, "storage": 3}},
            patience_ms=(600, 2_000, FOR_EVER_MS),
            delivers=False,
        ),
        _scenario(
            "plain",
            "acks=all without idempotence: everything arrives in order, perhaps twice",
            settings={"idempotence": (False,)},
        ),
        _scenario(
            "leader",
            "acks=1: only records that a leader alone had are lost",
            settings={"acks": (1,)},
            options={"replication_ms": (0, 40, 200)},
        ),
        _scenario(
            "careless",
            "acks=0 and ordered=False: each response resolves once; nothing else is promised",
            settings={"acks": (0, "all"), "ordered": (False,)},
            patience_ms=(1_500, FOR_EVER_MS),
            delivers=False,
        ),
        _scenario(
            "old",
            "brokers before idempotence: 0.8.2 without ApiVersions, 0.10",
            kafkas=("0.8.2", "0.10"),
        ),
        _scenario(
            "topics",
            "topics that are created late, grow, and are deleted and created again",
            faults={"grow": 3, "recreate": 4},
            topic_is_late=True,
            delivers=False,
        ),
        _scenario(
            "swapped",
            "topics that are created again while requests by name are in flight: the new topic gets them",
            **{**_CROWD, "faults": {**dict.fromkeys(FAULTS, 0), "swap": 1}, "faults_max": 4},
            options={"first_sequence": (FirstSequence.ANY,)},
            kafkas=("2.8",),
            delivers=False,
        ),
        _scenario(
            "closing",
            "a producer is closed while records are in flight",
            delivers=False,
            closes=True,
        ),
        _scenario(
            "narrow",
            "little memory: sends are refused, and accepted records are delivered",
            settings={"max_buffered_bytes": (400, 1_000)},
        ),
        _scenario(
            "refusing",
            "leaders that return an error for what they appended, or forget the producer",
            **{**_CROWD, "faults": {**dict.fromkeys(FAULTS, 0), "storage": 6, "sequence": 5, "fatal": 1, "move": 1}},
            patience_ms=(500, 1_500),
            delivers=False,
        ),
        _scenario(
            "unclean",
            "unclean elections: only records that the new leader lacks are lost",
            faults={"unclean": 8, "move": 8},
            patience_ms=(1_500, FOR_EVER_MS),
            delivers=False,
        ),
        _scenario(
            "mixed",
            "brokers of several versions in one cluster, in the middle of an upgrade",
            kafkas=("newest", "newest", "2.8", "0.11"),
            is_mixed=True,
        ),
        _scenario(
            "ancient",
            "some brokers are older than idempotence",
            kafkas=("newest", "0.11", "0.10"),
            is_mixed=True,
            delivers=False,
        ),
        _scenario(
            "idle",
            "a pause of more than a minute, after which leaders may have forgotten the producer",
            **{**_CROWD, "faults": {"move": 10}},
            silence=70.0,
        ),
        _scenario(
            "small",
            "a small max.message.bytes: batches that are too large are split",
            topic_configs={"max.message.bytes": ("250", "400")},
            settings={"batch_bytes": (400, 1_000)},
        ),
        _scenario(
            "wrap",
            "sequences begin just below 2^31 and continue at 0",
            **_CROWD,
            first_sequences=tuple(2**31 - count for count in (1, 3, 20, 60)),
            options={"first_sequence": (FirstSequence.ANY,)},
            kafkas=("newest", "2.8", "0.11"),
        ),
        _scenario(
            "transactions",
            "each end brings a new epoch (KIP-890): readers see whole transactions only",
            **_TRANSACTIONS,
            options={"transaction_version": (2,), "transaction_marker_ms": (0, 0, 20)},
            kafkas=("newest",),
        ),
        _scenario(
            "elder",
            "transactions of the older protocol, in which the end of one can be taken for that of the next",
            **_TRANSACTIONS,
            options={"transaction_version": (0, 1), "transaction_marker_ms": (0, 0, 20)},
            kafkas=("newest", "2.8"),
        ),
        _scenario(
            "tardy",
            "as elder, with EndTxn requests that are applied during the next transaction (KAFKA-17754)",
            **{
                **_TRANSACTIONS,
                "faults": {**dict.fromkeys(FAULTS, 0), "late end": 10, "move": 1},
                "transactions": (10, 16),
                "patience_ms": (FOR_EVER_MS,),
            },
            options={"transaction_version": (0, 1)},
            kafkas=("newest", "2.8"),
        ),
    )
}


_BROKERS = 3

# Errors of a broker that has stored nothing; a retry or new metadata helps.
_NOT_STORED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.CORRUPT_MESSAGE,
)
# Errors that a broker may return although it has appended the batch.
_PERHAPS_STORED = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
# Errors that end a batch.
_FOR_GOOD = (ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR)
_UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
# Errors of a broker that has no matching producer state.
_OUT_OF_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
# Records an hour ahead of the broker's clock are refused (message.timestamp.after.max.ms).
_JUMPS_MS = (-86_400_000, 3_000_000)
_INIT_PRODUCER_ID_CODES = (
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
    """Return the plan that a seed draws from a scenario."""
    return scenario.plan(seed)


class Draw:
    """The choices of one seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._seed = seed
        # `Random` hashes a string alike in every process, whatever PYTHONHASHSEED is.
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
        if self._closing is not None:  # and a send at the moment of the close
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

    # Disturbances.

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
        """Draw a disturbance of a kind; some kinds consist of several that matter only together."""
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
            "init producer id": self._init_producer_id,
            "first request": self._api_versions,
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
        """Draw a time of the run outside of its silence."""
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
        if (
            random.random() < 0.5
        ):  # by number of the request, so that it hits a busy partition or the first request to a new one
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
        """A leader appends a batch and returns an error; then it refuses some or all later batches."""
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
        """A leader loses its producer state, perhaps right after an append or while requests get lost."""
        place, after = self._place(), self._random.randint(0, 10)
        code = self._random.choice(_OUT_OF_SEQUENCE)
        refused = FailRequests(
            at=0.0, api=ApiKey.PRODUCE, effect=Refuse(code), after=after, times=self._random.choice((1, 1, 2, 8)),
            **place,
        )  # fmt: skip
        if self._random.random() < 0.6:  # and the requests behind it get lost
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
        """A topic is created again while requests to it are under way, and their responses get lost."""
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

    def _init_producer_id(self) -> Disturbance:
        random = self._random
        effects: list[Effect] = [
            Refuse(random.choice(_INIT_PRODUCER_ID_CODES)), Disconnect(), Disconnect(applied=True), Mute(),
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

    def _api_versions(self) -> Disturbance:
        random = self._random
        effects: list[Effect] = [Disconnect(), Mute(), Delay(random.randint(50, 4_000))]
        return FailRequests(
            at=self._when(), api=ApiKey.API_VERSIONS, effect=random.choice(effects), node=self._node(),
            times=random.randint(1, 3),
        )  # fmt: skip
