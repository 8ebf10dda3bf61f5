"""Scenarios: families of runs. A scenario and a seed make a `Plan`, and a plan is all that a run depends on.

Owns what a scenario may choose from: settings of producers and brokers, versions of Kafka to play, kinds of faults and
how often each is drawn. `chance` draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from kwire.broker.options import FirstSequence
from kwire.broker.simulation.schedule import Disturbance, Work
from kwire.protocol import ApiKey
from kwire.session.versions import BROKERS_BEFORE_API_VERSIONS

Versions = Mapping[ApiKey, range]
_NONE = range(0)

# What a producer needs of a Kafka of that age; APIs that are not named are as new as this package.
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
# These do not recognise duplicates.
WITHOUT_IDEMPOTENCE = frozenset({"0.8.2", "0.10"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """`settings` are the producer's own options, `config` those of every client. `delivers`: it has all the time that
    it takes, so that everything must be acknowledged."""

    name: str
    settings: Mapping[str, Any]
    config: Mapping[str, Any]
    delivers: bool
    first_sequence: int = 0  # in every partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a run depends on. `calm_at`: from then on nothing goes wrong any more."""

    scenario: str
    seed: int
    kafka: str
    options: Mapping[str, Any]
    topics: Mapping[str, int]
    clients: tuple[Client, ...]
    work: tuple[Work, ...]
    disturbances: tuple[Disturbance, ...]
    calm_at: float
    kafka_of: Mapping[int, str] = field(default_factory=dict)  # brokers of another version than `kafka`
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def recognises_duplicates(self) -> bool:
        return not WITHOUT_IDEMPOTENCE & {self.kafka, *self.kafka_of.values()}

    def with_disturbances(self, disturbances: Sequence[Disturbance]) -> Plan:
        return replace(self, disturbances=tuple(disturbances))


_SETTINGS: Mapping[str, Sequence[Any]] = {
    "linger_ms": (0, 0, 5, 20),
    "batch_bytes": (200, 400, 1_000),
    "max_request_bytes": (1_000, 4_000, 100_000),
    "compression": ("none", "none", "gzip", "lz4", "snappy"),
}
_CONFIG: Mapping[str, Sequence[Any]] = {
    "request_timeout_ms": (1_000, 3_000),
    "connect_timeout_ms": (500, 2_000),
    "idle_timeout_ms": (4_000, 540_000),  # above the request timeout, as a sane client has it
    "metadata_max_age_ms": (3_000, 300_000),
    "retry_backoff_ms": (10, 100),
    "retry_backoff_ms_max": (200, 1_000),
    "max_in_flight": (1, 3, 5, 8),
}
_OPTIONS: Mapping[str, Sequence[Any]] = {
    "replication_ms": (0, 5, 40),
    "min_insync_replicas": (1, 2),
    "default_replication_factor": (2, 3),
    "first_sequence": (FirstSequence.ANY, FirstSequence.ANY, FirstSequence.ZERO_IN_NEW_LOG),
    "auto_create_topics": (False,),
}
# A delivery timeout that outlasts every fault and the time after it.
FOR_EVER_MS = 300_000
# How often each kind of disturbance is drawn, relative to the others.
_FAULTS: Mapping[str, int] = {
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
    "identity": 1,
    "greeting": 1,
    "jump": 1,
}
_NEWEST = ("newest", "newest", "newest", "2.8", "0.11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What may be chosen. `patience_ms` are delivery timeouts. Where `delivers` everything is acknowledged in the end
    by a producer whose patience is FOR_EVER_MS."""

    name: str
    about: str
    settings: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _SETTINGS)
    config: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _CONFIG)
    options: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _OPTIONS)
    faults: Mapping[str, int] = field(default_factory=lambda: _FAULTS)
    kafkas: Sequence[str] = _NEWEST
    patience_ms: Sequence[int] = (FOR_EVER_MS,)
    delivers: bool = True
    seconds: float = 6.0  # during which there is work and things go wrong
    faults_max: int = 8
    topics_max: int = 2
    partitions_max: int = 4
    sends: tuple[int, int] = (15, 30)
    burst_max: int = 6
    topic_is_late: bool = False  # it is made while records wait for it
    closes: bool = False  # some producer is closed half way
    silence: float = 0.0  # in the middle, in which nothing is sent
    timeouts: Sequence[float | None] = (None,)  # records' own, in seconds
    first_sequences: Sequence[int] = (0,)
    is_mixed: bool = False  # each broker is of a version of its own
    topic_configs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    transactions: tuple[int, int] | None = None  # how many a client makes; None: it writes without


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
    "faults": {"coordinator": 10, "identity": 0, "rival": 3, "kill": 3, "produce": 4, "hold": 3},
    "faults_max": 10,
    "partitions_max": 3,
    "transactions": (3, 7),
    "patience_ms": (1_500, FOR_EVER_MS, FOR_EVER_MS),
    "delivers": False,
}


def _scenario(name: str, about: str, **choices: Any) -> Scenario:
    """Choices are added to those that every scenario has; a fault with weight 0 is not drawn."""
    parts = {"settings": _SETTINGS, "config": _CONFIG, "options": _OPTIONS, "faults": _FAULTS}
    for part, default in parts.items():
        choices[part] = {**default, **choices.get(part, {})}
    return Scenario(name=name, about=about, **choices)


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _scenario("patient", "an idempotent producer with time enough: everything arrives, once and in order"),
        _scenario(
            "hasty",
            "an idempotent producer that gives records up after seconds, and some of them earlier",
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
            "many batches for few partitions, impatience, and refusals for good: sequences break, and begin anew",
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
            "acks=1: what a leader takes with it is lost, and nothing else",
            settings={"acks": (1,)},
            options={"replication_ms": (0, 40, 200)},
        ),
        _scenario(
            "careless",
            "acks=0 and ordered=False: each response resolves once, and no more is promised",
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
            "topics that come late, grow, and are deleted and made again",
            faults={"grow": 3, "recreate": 4},
            topic_is_late=True,
            delivers=False,
        ),
        _scenario(
            "swapped",
            "topics that are made again while requests by name are under way: those reach the new topic",
            **{**_CROWD, "faults": {**dict.fromkeys(_FAULTS, 0), "swap": 1}, "faults_max": 4},
            options={"first_sequence": (FirstSequence.ANY,)},
            kafkas=("2.8",),
            delivers=False,
        ),
        _scenario(
            "closing",
            "a producer is closed with records under way",
            delivers=False,
            closes=True,
        ),
        _scenario(
            "narrow",
            "little memory: sends are refused, and what was taken is delivered",
            settings={"max_buffered_bytes": (400, 1_000)},
        ),
        _scenario(
            "refusing",
            "leaders that refuse what they appended, or do not know the producer any more",
            **{**_CROWD, "faults": {**dict.fromkeys(_FAULTS, 0), "storage": 6, "sequence": 5, "fatal": 1, "move": 1}},
            patience_ms=(500, 1_500),
            delivers=False,
        ),
        _scenario(
            "unclean",
            "replicas that were not in sync lead: what they lack is lost, and nothing else",
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
            "a cluster of which some brokers are from before idempotence",
            kafkas=("newest", "0.11", "0.10"),
            is_mixed=True,
            delivers=False,
        ),
        _scenario(
            "idle",
            "a silence of more than a minute, in which the leaders may have forgotten the producer",
            **{**_CROWD, "faults": {"move": 10}},
            silence=70.0,
        ),
        _scenario(
            "small",
            "topics that take small batches only: those that are too large are sent again in pieces",
            topic_configs={"max.message.bytes": ("250", "400")},
            settings={"batch_bytes": (400, 1_000)},
        ),
        _scenario(
            "wrap",
            "sequences begin just before 2^31, and go on at 0",
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
            "transactions of the older protocol, in which nothing tells the end of one from that of the next",
            **_TRANSACTIONS,
            options={"transaction_version": (0, 1), "transaction_marker_ms": (0, 0, 20)},
            kafkas=("newest", "2.8"),
        ),
        _scenario(
            "tardy",
            "as elder, with ends that are carried out late, when the next transaction is under way (KAFKA-17754)",
            **{
                **_TRANSACTIONS,
                "faults": {**dict.fromkeys(_FAULTS, 0), "late end": 10, "move": 1},
                "transactions": (10, 16),
                "patience_ms": (FOR_EVER_MS,),
            },
            options={"transaction_version": (0, 1)},
            kafkas=("newest", "2.8"),
        ),
    )
}
