"""Scenarios of groups: members, their programs and what disturbs them, beside a producer that sends all the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kwire.broker.faults import Cut, Delay, Disconnect, Effect, Mute, Refuse
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.simulation.members import MemberPlan
from kwire.simulation.scenario import CONFIG, OPTIONS, SETTINGS, Draw, GroupKind, Plan, Scenario
from kwire.simulation.schedule import (
    CloseMember,
    Disturbance,
    FailRequests,
    FreezeMember,
    KillMember,
    MoveCoordinators,
    PauseMember,
    RaiseInCallback,
    SeekMember,
    SlowMember,
    Throttle,
)

# The broker's options that make a group quick.
_GROUP_OPTIONS: Mapping[str, Sequence[Any]] = {
    "group_initial_rebalance_delay_ms": (0, 0, 300),
    "group_min_session_timeout_ms": (500,),
    "consumer_group_session_timeout_ms": (1_500, 3_000),
    "consumer_group_min_session_timeout_ms": (500,),
    "consumer_group_heartbeat_interval_ms": (200, 500),
    "consumer_group_min_heartbeat_interval_ms": (100,),
}
_GROUP_CONFIG: Mapping[str, Sequence[Any]] = {
    "request_timeout_ms": (1_000, 3_000),
    "retry_backoff_ms": (10, 100),
    "retry_backoff_ms_max": (200, 1_000),
    "metadata_max_age_ms": (1_000, 5_000),  # so that members see new partitions
}
_CLASSIC: Mapping[str, Sequence[Any]] = {
    "group_protocol": ("classic",),
    "assignors": ("cooperative-sticky",),
    "session_timeout_ms": (1_500, 3_000),
    "heartbeat_interval_ms": (200, 500),
}
_SHARE: Mapping[str, Sequence[Any]] = {
    "acquire_mode": ("batch_optimized", "record_limit"),
    "max_poll_records": (1, 5, 50),
    "max_poll_interval_ms": (2_000, 10_000),
    "max_wait_ms": (100, 500),
}
_SHARE_OPTIONS: Mapping[str, Sequence[Any]] = {
    "share_session_timeout_ms": (1_500, 3_000),
    "share_heartbeat_interval_ms": (200, 500),
    "share_record_lock_ms": (1_000, 4_000),
    "share_min_record_lock_ms": (500,),
}
# No program is slow enough to lose its membership.
_PATIENT: Mapping[str, Sequence[Any]] = {"max_poll_interval_ms": (30_000, 300_000), "max_poll_records": (1, 5, 20)}
_MEMBER: Mapping[str, Sequence[Any]] = {
    "max_poll_records": (1, 5, 50, 500),
    "max_wait_ms": (100, 500),
    "max_poll_interval_ms": (2_000, 5_000, 10_000),
    "commit_interval_ms": (100, 500, 2_000),
    "partition_max_bytes": (200, 2_000, 100_000),
}
_CONSUMER: Mapping[str, Sequence[Any]] = {
    "group_protocol": ("consumer",),
    "remote_assignor": (None, "uniform", "range"),
}
_ISOLATIONS = ("read_committed", "read_uncommitted")
# The producers of members that copy. `keeps_id`: each process of a member has the same transactional id.
_PRODUCER: Mapping[str, Sequence[Any]] = {
    "keeps_id": (True, True, False),
    "transaction_timeout_ms": (2_000, 5_000),
    "linger_ms": (0, 5),
    "batch_bytes": (200, 1_000),
    "delivery_timeout_ms": (1_500, 30_000),
}
# What members and their users do, and what happens to a whole cluster.
_MEMBER_FAULTS: Mapping[str, int] = {
    "kill": 5, "close member": 4, "slow": 3, "raise": 2, "pause": 2, "seek": 1, "grow": 2,
}  # fmt: skip
_CLUSTER_FAULTS: Mapping[str, int] = {
    **_MEMBER_FAULTS, "freeze": 4, "group request": 12, "cut": 4, "silence": 2, "hold": 3, "trickle": 1, "refuse": 2,
    "stop": 5, "move": 3, "lag": 2, "throttle": 4, "metadata": 2, "jump": 1, "move coordinators": 3,
}  # fmt: skip

_COPIERS: Mapping[str, Any] = {
    "kind": "copiers",
    "commits": ("transactions",),
    "options": {"transaction_version": (0, 2, 2), "transaction_marker_ms": (0, 0, 20)},
    "faults": {**_CLUSTER_FAULTS, "seek": 0, "transaction request": 12},
    "faults_max": 10,
}
_TRANSACTION_APIS = (
    ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, ApiKey.END_TXN, ApiKey.PRODUCE, ApiKey.FIND_COORDINATOR,
)  # fmt: skip

# Requests of groups, with how often they are disturbed.
_APIS: Mapping[str, Sequence[ApiKey]] = {
    "classic": (
        ApiKey.JOIN_GROUP, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.FETCH, ApiKey.LIST_OFFSETS,
    ),
    "consumer": (
        *(ApiKey.CONSUMER_GROUP_HEARTBEAT,) * 6, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.FETCH, ApiKey.LIST_OFFSETS,
    ),
    "share": (
        ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.FIND_COORDINATOR,
    ),
}  # fmt: skip
_COORDINATOR_CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_LEADER_APIS = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
_LEADER_CODES = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScenario(Scenario):
    """The choices of a family of groups. `member_settings` are options of their consumers."""

    members: tuple[int, int] = (2, 4)
    member_settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    member_config: Mapping[str, Sequence[Any]] = field(default_factory=lambda: _GROUP_CONFIG)
    commits: Sequence[str] = ("auto", "auto", "marks", "manual", "async")
    protocol: str = "classic"  # or "consumer", "share", "classic+consumer"
    same: tuple[str, ...] = ()  # settings that are the same for all members
    static_share: float = 0.0  # of the members
    rolls: Sequence[Mapping[str, Sequence[Any]]] = ()  # each process of a member has the choices of one of these
    kind: GroupKind = "consumers"

    def plan(self, seed: int) -> Plan:
        return _GroupDraw(self, seed).plan()


def _group(name: str, about: str, **choices: Any) -> GroupScenario:
    parts = {"settings": SETTINGS, "config": CONFIG, "options": {**OPTIONS, **_GROUP_OPTIONS}}
    for part, default in parts.items():
        choices[part] = {**default, **choices.get(part, {})}
    defaults = {} if choices.get("kind") == "share" else _MEMBER
    choices["member_settings"] = {**defaults, **choices.get("member_settings", {})}
    return GroupScenario(
        name=name, about=about, **{"kafkas": ("newest",), "faults_max": 6, "sends": (10, 20), **choices}
    )


GROUP_SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _group(
            "cooperative",
            "classic members with the cooperative-sticky assignor are killed, closed and started again",
            member_settings={**_CLASSIC, **_PATIENT},
            faults=_MEMBER_FAULTS,
        ),
        _group(
            "eager",
            "classic members that give up everything in each rebalance, and all faults",
            member_settings={**_CLASSIC, "assignors": ("range", "roundrobin", "sticky")},
            same=("assignors",),
            faults=_CLUSTER_FAULTS,
            faults_max=10,
        ),
        _group(
            "classic",
            "classic members with the cooperative-sticky assignor, and all faults",
            member_settings=_CLASSIC,
            faults=_CLUSTER_FAULTS,
            faults_max=10,
        ),
        _group(
            "static",
            "static members of classic groups, and all faults",
            member_settings={**_CLASSIC, "assignors": ("cooperative-sticky", "range")},
            same=("assignors",),
            static_share=1.0,
            faults={**_CLUSTER_FAULTS, "kill": 10},
            faults_max=10,
        ),
        _group(
            "new",
            "members of the new protocol (KIP-848) are killed, closed and started again",
            member_settings={**_CONSUMER, **_PATIENT},
            same=("remote_assignor",),
            protocol="consumer",
            faults=_MEMBER_FAULTS,
        ),
        _group(
            "share",
            "members of a share group, and all faults",
            member_settings=_SHARE,
            protocol="share",
            kind="share",
            options=_SHARE_OPTIONS,
            faults={**_CLUSTER_FAULTS, "raise": 0, "pause": 0, "seek": 0},
            faults_max=8,
        ),
        _group(
            "locks",
            "members of a share group are killed, closed and started again",
            member_settings={**_SHARE, "max_poll_interval_ms": (30_000, 300_000)},
            protocol="share",
            kind="share",
            options=_SHARE_OPTIONS,
            faults={"kill": 5, "close member": 4, "slow": 6, "grow": 2},
        ),
        _group(
            "consumer",
            "members of the new protocol (KIP-848), static ones among them, and all faults",
            member_settings=_CONSUMER,
            same=("remote_assignor",),
            protocol="consumer",
            static_share=0.3,
            faults=_CLUSTER_FAULTS,
            faults_max=10,
        ),
        _group(
            "rolling",
            "each process of a member speaks the classic protocol or KIP-848's, so that the group is converted",
            member_settings=_PATIENT,
            rolls=(_CLASSIC, _CONSUMER, {"group_protocol": ("auto",)}),
            protocol="classic+consumer",
            static_share=0.3,
            # Not those that keep a SyncGroup from its member: Kafka, too, gives away what it has not given up then.
            faults={**_MEMBER_FAULTS, "kill": 8, "close member": 8, "move": 2, "lag": 2, "metadata": 2},
            faults_max=12,
        ),
        _group(
            "copiers",
            "classic members that copy what they read in transactions, of both protocols, and all faults",
            **_COPIERS,
            member_settings={**_CLASSIC, "assignors": ("cooperative-sticky", "range"), "isolation": _ISOLATIONS},
            same=("assignors",),
        ),
        _group(
            "newcopiers",
            "members of the new protocol (KIP-848) that copy what they read in transactions, and all faults",
            **_COPIERS,
            member_settings={**_CONSUMER, "isolation": _ISOLATIONS},
            same=("remote_assignor",),
            protocol="consumer",
        ),
    )
}


class _GroupDraw(Draw):
    def __init__(self, scenario: GroupScenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self._group = scenario
        self._shared = {name: self._random.choice(scenario.member_settings[name]) for name in scenario.same}
        self._names = ["p0"]
        self._members = [f"m{index}" for index in range(self._random.randint(*scenario.members))]

    def plan(self) -> Plan:
        members = tuple(self._member_plan(name) for name in self._members)
        return replace(super().plan(), members=members, group_kind=self._group.kind)

    def _member_plan(self, name: str) -> MemberPlan:
        random, scenario = self._random, self._group
        settings = {"group": "g", **self._choose(scenario.member_settings), **self._shared}
        config, work = self._choose(scenario.member_config), (0.0, random.choice((0.0, 0.005, 0.03)))
        starts_at = random.choice((0.0, random.uniform(0.0, self._seconds)))
        poll = random.choice((0.02, 0.1, 1.0))
        if scenario.kind == "share":
            return MemberPlan(name=name, settings=settings, config=config, work=work, poll=poll, starts_at=starts_at)
        if random.random() < scenario.static_share:
            settings["group_instance_id"] = name
        producer: dict[str, Any] = {}
        if scenario.kind == "copiers":
            producer = self._choose(_PRODUCER)
        rolls = tuple(self._choose(random.choice(scenario.rolls)) for _ in range(3 if scenario.rolls else 0))
        commits = random.choice(scenario.commits)
        settings["commit"] = commits if commits in ("auto", "marks") else "manual"
        return MemberPlan(
            name=name, settings=settings, config=config, commits=commits, work=work, poll=poll, starts_at=starts_at,
            producer=producer, rolls=rolls,
        )  # fmt: skip

    def _member(self) -> str:
        return self._random.choice(self._members)

    def _maybe_client(self) -> str | None:
        return None

    def _make(self, kind: str) -> Sequence[Disturbance]:
        random = self._random
        makers: dict[str, Callable[[], Disturbance]] = {
            "kill": lambda: KillMember(
                at=self._when(), member=self._member(), seconds=random.uniform(0.0, 4.0),
                is_silent=random.random() < 0.3,
            ),
            "freeze": lambda: FreezeMember(at=self._when(), member=self._member(), seconds=random.uniform(0.1, 6.0)),
            "close member": lambda: CloseMember(
                at=self._when(), member=self._member(), leave=random.choice((None, None, True, False))
            ),
            "slow": lambda: SlowMember(at=self._when(), member=self._member(), seconds=random.uniform(0.1, 5.0)),
            "raise": lambda: RaiseInCallback(at=self._when(), member=self._member(), times=random.randint(1, 3)),
            "pause": lambda: PauseMember(at=self._when(), member=self._member(), seconds=random.uniform(0.1, 3.0)),
            "seek": lambda: SeekMember(at=self._when(), member=self._member()),
            "move coordinators": lambda: MoveCoordinators(at=self._when()),
            "throttle": lambda: Throttle(
                at=self._when(), node=self._node(), ms=random.randint(1, 800), times=random.randint(1, 4), is_all=True
            ),
            "group request": lambda: self._request(self._apis()),
            "transaction request": lambda: self._request(_TRANSACTION_APIS),
        }  # fmt: skip
        return [makers[kind]()] if kind in makers else super()._make(kind)

    def _apis(self) -> Sequence[ApiKey]:
        protocols = self._group.protocol.split("+")
        return _APIS[protocols[0] if len(protocols) == 1 else self._random.choice(protocols)]

    def _request(self, apis: Sequence[ApiKey]) -> Disturbance:
        random = self._random
        api = random.choice(apis)
        codes = _LEADER_CODES if api in _LEADER_APIS else _COORDINATOR_CODES
        effects: list[Effect] = [
            Refuse(random.choice(codes)), Refuse(random.choice(codes), applied=True), Disconnect(),
            Disconnect(applied=True), Cut(random.randint(1, 40)), Mute(), Mute(applied=True),
            Delay(random.randint(50, 2_500)), Delay(random.randint(50, 2_500), applied=True),
        ]  # fmt: skip
        effect = random.choice(effects)
        if random.random() < 0.5:
            return FailRequests(at=0.0, api=api, effect=effect, after=random.randint(0, 10), times=random.randint(1, 2))
        return FailRequests(at=self._when(), api=api, effect=effect, times=random.randint(1, 3))
