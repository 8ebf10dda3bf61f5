"""Scenarios of queues: the families of what can go wrong (Q64 to Q75), each with producers, consumers and trackers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kwire.broker.faults import Delay, Disconnect, Effect, Mute, Refuse
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.simulation.queue_history import TOPICS, Behaviour
from kwire.simulation.queue_processes import QueueMemberPlan
from kwire.simulation.scenario import Draw, Plan, Scenario
from kwire.simulation.schedule import (
    AddPartitions,
    CloseMember,
    Disturbance,
    FailRequests,
    FreezeMember,
    JumpBrokerClocks,
    JumpClock,
    KillAtRequest,
    KillMember,
    SlowMember,
    StopBroker,
)

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan(Plan):
    """A plan with the processes of a queue as its members."""

    service: Mapping[str, Any]


_OPTIONS: Mapping[str, Sequence[Any]] = {
    "replication_ms": (0, 5, 40),
    "default_replication_factor": (3,),
    "auto_create_topics": (False,),
    "group_initial_rebalance_delay_ms": (0,),
    "group_min_session_timeout_ms": (500,),
    "consumer_group_session_timeout_ms": (1_500,),
    "consumer_group_min_session_timeout_ms": (500,),
    "consumer_group_heartbeat_interval_ms": (200, 500),
    "consumer_group_min_heartbeat_interval_ms": (100,),
}
_CONFIG: Mapping[str, Sequence[Any]] = {
    "request_timeout_ms": (1_000, 3_000),
    "retry_backoff_ms": (10, 100),
    "retry_backoff_ms_max": (200, 1_000),
    "metadata_max_age_ms": (1_000, 5_000),
}
_SERVICE: Mapping[str, Sequence[Any]] = {
    "backend": ("tracker",),
    "redelivery_timeout_ms": (1_500, 3_000),
    "consumer_receive_buffer_capacity": (1, 5, 20),
    "max_in_progress": (20, 40),
    "consumer_next_message_timeout_ms": (100, 500),
    "consumer_max_messages_per_commit": (1, 50),
    "num_offsets_per_commit": (1, 20, 1_000),
    "max_processing_ms": (6_000,),
    "max_deliveries": (None, 3, 5),
    "backoff_ms": (0, 100),
    "backoff_ms_max": (200,),
    "transactional": (False, True),
    "partitions": (1, 2, 3),
}
# What handlers do with messages, and how often.
_CALM: Mapping[str, int] = {"ack": 1}
_MIXED: Mapping[str, int] = {"ack": 12, "release": 2, "nack": 1, "slow": 2, "extend": 1, "delay": 2}
_CLUSTER: Mapping[str, int] = {
    "cut": 4, "silence": 1, "hold": 3, "refuse": 1, "stop": 4, "move": 4, "lag": 1, "produce": 2, "metadata": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueScenario(Scenario):
    """The choices of a family of queues. `gentle`: no fault of it explains that a live consumer loses a lease."""

    service: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _SERVICE)
    behaviours: Mapping[str, int] = field(default_factory=lambda: _MIXED)
    sizes: Sequence[int | None] = (10, 30)
    consumers: tuple[int, int] = (2, 4)
    trackers: tuple[int, int] = (2, 3)

    def plan(self, seed: int) -> Plan:
        return _QueueDraw(self, seed).plan()


def _queue(name: str, about: str, **choices: Any) -> QueueScenario:
    choices["service"] = {**_SERVICE, **choices.get("service", {})}
    return QueueScenario(
        name=f"queue-{name}", about=about,
        **{"kafkas": ("newest",), "options": _OPTIONS, "config": _CONFIG, "faults_max": 6, "seconds": 8.0, **choices},
    )  # fmt: skip


QUEUE_SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _queue("consumer", "Q64: consumers die, at each step of a message", faults={"kill consumer": 1, "step": 4}),
        _queue(
            "lease", "Q65: keep-alives come late, are lost or refused, handlers hang",
            behaviours={"ack": 8, "slow": 4, "hang": 1, "extend": 2}, faults={"markers": 4, "slow": 3, "freeze": 2},
        ),
        _queue(
            "tracker", "Q66: trackers die at each step, and go on after others have their partitions",
            behaviours={**_MIXED, "poison": 1, "hang": 1},
            faults={"kill tracker": 1, "tracker step": 4, "freeze tracker": 3, "end txn": 2},
        ),
        _queue(
            "away", "Q67: all trackers are away for longer than deadlines, and consumers die meanwhile",
            faults={"trackers away": 3, "kill consumer": 1, "step": 1},
        ),
        _queue(
            "clocks", "Q68: clocks of clients and of new leaders are an hour ahead or behind",
            faults={"clock": 2, "broker clock": 2, "move": 2}, behaviours={**_MIXED, "hang": 1},
        ),
        _queue("unavailable", "Q69: one of the topics cannot be written", faults={"topic away": 3, "kill consumer": 1}),
        _queue("grow", "Q70: partitions are added to the topics", faults={"grow": 3, "step": 1, "tracker step": 1}),
        _queue(
            "sizes", "Q71: empty payloads, none, large ones", sizes=(None, 0, 1, 3_000, 40_000),
            faults={"step": 2, "cut": 1},
        ),
        _queue(
            "poison", "Q72: messages that always fail, and a dead letter topic that cannot be written",
            behaviours={"ack": 6, "poison": 3, "nack": 2}, service={"max_deliveries": (2, 3)},
            faults={"dead letters away": 3, "tracker step": 1},
        ),
        _queue(
            "rebalance", "Q73: consumers come and go with messages in progress",
            faults={"close consumer": 3, "freeze": 2, "group request": 2}, behaviours={**_MIXED, "hang": 1},
        ),
        _queue(
            "producer", "Q74: acknowledgements are lost, leaders move, producers die",
            faults={"lost ack": 3, "move": 2, "kill producer": 2}, behaviours=_CALM,
        ),
        _queue("close", "Q75: everything is closed with messages in progress", faults={"close": 1}),
        _queue(
            "rough", "all of it, and brokers and networks that fail",
            faults={
                **_CLUSTER, "step": 3, "tracker step": 3, "kill consumer": 1, "kill tracker": 1, "freeze": 1,
                "freeze tracker": 1, "close": 2, "markers": 1, "grow": 1,
            },
            behaviours={**_MIXED, "poison": 1, "hang": 1}, faults_max=10,
        ),
    )
}  # fmt: skip

# What a consumer sends for a batch, with transactions and without.
_STEP_APIS = {
    False: (ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT, ApiKey.FETCH),
    True: (ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.FETCH),
}
_TRACKER_APIS = (
    ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID, ApiKey.FETCH,
    ApiKey.OFFSET_COMMIT, ApiKey.ADD_PARTITIONS_TO_TXN,
)  # fmt: skip
_GROUP_APIS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR)
_REFUSED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.KAFKA_STORAGE_ERROR)


class _QueueDraw(Draw):
    def __init__(self, scenario: QueueScenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self._queue = scenario
        random = self._random
        self._service = self._choose(scenario.service)
        self._topics = dict.fromkeys(TOPICS.values(), self._service["partitions"])
        self._names = []
        self._producers = [f"producer{index}" for index in range(random.randint(1, 2))]
        self._consumers = [f"consumer{index}" for index in range(random.randint(*scenario.consumers))]
        self._trackers = [f"tracker{index}" for index in range(random.randint(*scenario.trackers))]

    def plan(self) -> Plan:
        options = self._choose(self._queue.options)
        members = [
            self._member_plan(name, role)
            for role, names in (
                ("producer", self._producers), ("consumer", self._consumers), ("tracker", self._trackers),
            )
            for name in names
        ]  # fmt: skip
        return QueuePlan(
            scenario=self._queue.name, seed=self._seed, kafka="newest", options=options, topics={}, clients=(),
            work=(), disturbances=tuple(sorted(self._disturbances(), key=lambda one: one.at)),
            calm_at=self._seconds + 4, members=tuple(members), service=self._service,
        )  # fmt: skip

    def _member_plan(self, name: str, role: str) -> QueueMemberPlan:
        random = self._random
        starts_at = random.choice((0.0, random.uniform(0.0, 2.0)))
        sends = tuple(self._message() for _ in range(random.randint(8, 25))) if role == "producer" else ()
        return QueueMemberPlan(
            name=name, role=role, settings=self._service, config=self._choose(self._queue.config),
            record_consumer={"group_protocol": "consumer", "max_wait_ms": random.choice((50, 200))},
            work=(0.0, random.choice((0.0, 0.05, 0.5))), poll=random.choice((0.1, 0.5)), starts_at=starts_at,
            workers=random.choice((1, 1, 3)) if role == "consumer" else 1, sends=sends,
        )  # fmt: skip

    def _message(self) -> tuple[float, Behaviour, int | None]:
        random, behaviours = self._random, self._queue.behaviours
        kind = random.choices(sorted(behaviours), [behaviours[one] for one in sorted(behaviours)])[0]
        if kind == "poison" and self._service["max_deliveries"] is None:
            kind = "ack"
        timeout = self._service["redelivery_timeout_ms"] / 1000
        seconds = {"slow": timeout * random.uniform(1.0, 1.6), "hang": 9.0}.get(kind, 0.0)
        options = (("delay_ms", random.choice((1, 300, 2_500))),) if kind == "delay" else ()
        gap = random.choice((0.0, 0.01, 0.3, 0.6))
        return gap, Behaviour("ack" if kind == "delay" else kind, seconds, options), random.choice(self._queue.sizes)

    # -- disturbances

    def _maybe_client(self) -> str | None:
        return None

    def _disturbances(self) -> list[Disturbance]:
        # Topics are created, and groups formed, in the first second.
        return [replace(one, at=max(one.at, 0.5)) if one.at else one for one in super()._disturbances()]

    def _make(self, kind: str) -> Sequence[Disturbance]:
        random = self._random
        makers: dict[str, Callable[[], Sequence[Any]]] = {
            "kill consumer": lambda: [self._kill(self._consumers)],
            "kill tracker": lambda: [self._kill(self._trackers)],
            "kill producer": lambda: [self._kill(self._producers)],
            "step": lambda: [self._step(self._consumers, _STEP_APIS[self._service["transactional"]])],
            "tracker step": lambda: [self._step(self._trackers, _TRACKER_APIS)],
            "trackers away": self._trackers_away,
            "freeze": lambda: [self._freeze(self._consumers)],
            "freeze tracker": lambda: [self._freeze(self._trackers)],
            "slow": lambda: [
                SlowMember(at=self._when(), member=random.choice(self._consumers), seconds=random.uniform(0.5, 8.0))
            ],
            "close consumer": lambda: [CloseMember(at=self._when(), member=random.choice(self._consumers))],
            "close": lambda: [
                CloseMember(at=self._when(), member=random.choice([*self._consumers, *self._trackers]))
            ],
            "clock": lambda: [self._clock()],
            "broker clock": lambda: [JumpBrokerClocks(at=self._when(), ms=random.choice((_HOUR_MS, -_HOUR_MS)))],
            "markers": lambda: [self._fail_produce("markers", times=random.randint(1, 5))],
            "topic away": lambda: [self._fail_produce(random.choice(("markers", "messages")), times=40)],
            "dead letters away": lambda: [self._fail_produce("dead", times=random.randint(1, 40))],
            "lost ack": lambda: [self._lost_ack()],
            "grow": lambda: [
                AddPartitions(at=random.uniform(2.0, 7.0), topic=random.choice(list(TOPICS.values())), more=1)
            ],
            "end txn": lambda: [self._fail((ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.ADD_PARTITIONS_TO_TXN))],
            "group request": lambda: [self._fail(_GROUP_APIS)],
            "stop": lambda: [
                StopBroker(at=self._when(), node=self._node(), seconds=random.uniform(0.2, 3.0))
            ],
        }  # fmt: skip
        return makers[kind]() if kind in makers else super()._make(kind)

    def _clock(self) -> Disturbance:
        return JumpClock(at=self._when(), ms=self._random.choice((_HOUR_MS, -_HOUR_MS)))

    def _kill(self, names: Sequence[str]) -> KillMember:
        random = self._random
        return KillMember(
            at=self._when(), member=random.choice(names), seconds=random.uniform(0.0, 3.0),
            is_silent=random.random() < 0.3,
        )  # fmt: skip

    def _step(self, names: Sequence[str], apis: Sequence[ApiKey]) -> KillAtRequest:
        random = self._random
        return KillAtRequest(
            at=self._when(), member=random.choice(names), api=random.choice(apis), is_answered=random.random() < 0.5,
            after=random.randint(0, 3), seconds=random.uniform(0.0, 3.0), is_silent=random.random() < 0.3,
        )  # fmt: skip

    def _trackers_away(self) -> list[Disturbance]:
        at, seconds = self._when(), self._random.uniform(3.0, 8.0)
        return [KillMember(at=at, member=name, seconds=seconds) for name in self._trackers]

    def _freeze(self, names: Sequence[str]) -> Disturbance:
        random = self._random
        return FreezeMember(at=self._when(), member=random.choice(names), seconds=random.uniform(0.5, 6.0))

    def _fail_produce(self, topic: str, times: int) -> Disturbance:
        random = self._random
        effects: list[Effect] = [
            Refuse(random.choice(_REFUSED)),
            Delay(random.randint(100, 2_500)),
            Mute(),
            Disconnect(),
        ]
        return FailRequests(
            at=self._when(), api=ApiKey.PRODUCE, topic=TOPICS[topic], times=times, effect=random.choice(effects)
        )

    def _lost_ack(self) -> Disturbance:
        random = self._random
        effects: list[Effect] = [
            Disconnect(applied=True),
            Mute(applied=True),
            Delay(random.randint(100, 3_000), applied=True),
        ]
        return FailRequests(
            at=self._when(), api=ApiKey.PRODUCE, topic="messages", times=random.randint(1, 4),
            effect=random.choice(effects),
        )  # fmt: skip

    def _fail(self, apis: Sequence[ApiKey]) -> Disturbance:
        random = self._random
        effects: list[Effect] = [
            Refuse(ErrorCode.NOT_COORDINATOR), Disconnect(), Disconnect(applied=True), Mute(applied=True),
            Delay(random.randint(50, 2_500), applied=True),
        ]  # fmt: skip
        return FailRequests(
            at=self._when(), api=random.choice(apis), times=random.randint(1, 3), effect=random.choice(effects)
        )
