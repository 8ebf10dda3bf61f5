"""Faults on purpose: which requests go wrong, how, and how often.

Owns the rules and their counting. A rule says what it matches (API, broker, topic, partition, client) and which of the
matching requests it takes (`after` and `times`); its effect says what becomes of them. Carrying the effect out is
`node`'s. Rules are tried in the order in which they were added, and the first that matches has the request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_args

from kwire.errors import ConfigurationError, ErrorCode
from kwire.options import did_you_mean
from kwire.protocol import ApiKey

NO_PARTITION = -1

# What the session answers by itself: only a rule that names one of these takes it, and only to be dropped or held up.
SESSION_APIS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


_MILLISECONDS = "give whole milliseconds, from 0 on"


def _check(owner: str, name: str, value: object, kind: type, remedy: str, least: int | None = None) -> None:
    """Raise ConfigurationError for a value of another kind, or a number below `least`."""
    is_kind = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not is_kind or (least is not None and isinstance(value, int) and value < least):
        raise ConfigurationError(f"{owner}: {name} is {value!r}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error code. `applied`: carry the request out first, and then say that it failed."""

    code: ErrorCode
    applied: bool = False

    def __post_init__(self) -> None:
        remedy = "give a kwire.errors.ErrorCode, such as ErrorCode.NOT_LEADER_OR_FOLLOWER"
        _check("Refuse", "code", self.code, ErrorCode, remedy)
        _check("Refuse", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection instead of answering. `applied`: after the request was carried out, so that the
    acknowledgement is lost; else before."""

    applied: bool = False

    def __post_init__(self) -> None:
        _check("Disconnect", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Cut:
    """Carry the request out, write only so many bytes of the answer's frame (its 4-byte size included), and close."""

    keep_bytes: int

    def __post_init__(self) -> None:
        _check("Cut", "keep_bytes", self.keep_bytes, int, "give how many bytes, from 0 on", least=0)


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer later. `applied`: the request is carried out at once and only the answer is late."""

    ms: int
    applied: bool = False

    def __post_init__(self) -> None:
        _check("Delay", "ms", self.ms, int, _MILLISECONDS, least=0)
        _check("Delay", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Mute:
    """Never answer, nor any later request of this connection, which stays open."""

    applied: bool = False

    def __post_init__(self) -> None:
        _check("Mute", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class ApplyLate:
    """Close the connection now and carry the request out later, when the client has given it up: a write from the
    past."""

    ms: int

    def __post_init__(self) -> None:
        _check("ApplyLate", "ms", self.ms, int, _MILLISECONDS, least=0)


Effect = Refuse | Disconnect | Cut | Delay | Mute | ApplyLate


# Field, kind, least value, and what to give instead.
_FIELDS: tuple[tuple[str, type, int | None, str], ...] = (
    ("api", ApiKey, None, "give a kwire.protocol.ApiKey, such as ApiKey.PRODUCE"),
    ("node", int, 0, "give a broker's id"),
    ("topic", str, None, "give a topic's name"),
    ("partition", int, 0, "give a partition's number, from 0 on"),
    ("client_id", str, None, "give a client id"),
    ("after", int, 0, "give how many requests pass first, from 0 on"),
    ("times", int, 0, "give how many requests are hit, or None for all"),
)


class FaultKwargs(TypedDict, total=False):
    """Which requests a fault hits: the keywords of `Fault` that `Cluster.add_fault` takes."""

    api: ApiKey | None
    node: int | None
    topic: str | None
    partition: int | None
    client_id: str | None
    after: int
    times: int | None


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """Which requests an effect hits. A field that is None matches everything.

    The first `after` matching requests pass, the next `times` are hit: one by default, all for None. `seen` and `hits`
    count what matched and what was hit. Raises ConfigurationError for values that could never match.
    """

    effect: Effect
    api: ApiKey | None = None
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    after: int = 0
    times: int | None = 1
    seen: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        effect: object = self.effect
        if not isinstance(effect, get_args(Effect)):
            names = ", ".join(kind.__name__ for kind in get_args(Effect))
            raise ConfigurationError(
                f"the effect of a fault is {effect!r}",
                remedy=f"give an instance of one of {names}, such as Delay(ms=50)",
            )
        for name, kind, least, remedy in _FIELDS:
            value = getattr(self, name)
            if value is not None or name == "after":
                _check("a fault", name, value, kind, remedy, least)
        is_applicable = isinstance(self.effect, Disconnect | Mute | Delay) and not self.effect.applied
        if self.api is not None and self.api in SESSION_APIS and not is_applicable:
            remedy = "use Disconnect, Mute or Delay, without `applied`"
            raise ConfigurationError(f"{self.effect} cannot befall {self.api.name}", remedy=remedy)

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def take(self, api: ApiKey, node: int, client_id: str, partitions: Collection[tuple[str, int]]) -> bool:
        """Whether this request is to be hit; counts it. `places` are the partitions that it names."""
        if self.is_spent or not self._matches(api, node, client_id, partitions):
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.hits += 1
        return True

    def _matches(self, api: ApiKey, node: int, client_id: str, partitions: Collection[tuple[str, int]]) -> bool:
        return (
            (self.api == api or (self.api is None and api not in SESSION_APIS))
            and self.node in (None, node)
            and self.client_id in (None, client_id)
            and (not self.names_partition or any(self.covers(*partition) for partition in partitions))
        )

    @property
    def names_partition(self) -> bool:
        return self.topic is not None or self.partition is not None

    def covers(self, topic: str, partition: int) -> bool:
        """A request that names a topic and no partition has NO_PARTITION there."""
        return self.topic in (None, topic) and (self.partition in (None, partition) or partition == NO_PARTITION)

    def error_for(self, topic: str, partition: int) -> ErrorCode | None:
        """What a partition of a request that it has taken is to be answered with, if it is one that it concerns."""
        assert isinstance(self.effect, Refuse)
        return self.effect.code if self.covers(topic, partition) else None


def make_fault(effect: Effect, match: Mapping[str, Any]) -> Fault:
    """Return the fault of a call such as `add_fault(Delay(5), api=ApiKey.FETCH)`. Raises ConfigurationError."""
    names = [item.name for item in fields(Fault) if item.name not in ("effect", "seen", "hits")]
    for name in match:
        if name not in names:
            listed = f"a fault matches by {', '.join(names)}"
            hint = did_you_mean(name, names)
            raise ConfigurationError(f"a fault has no {name}", remedy=f"{hint} {listed}" if hint else listed)
    return Fault(effect=effect, **match)


class Faults:
    def __init__(self) -> None:
        self._rules: list[Fault] = []

    def __len__(self) -> int:
        return len(self._rules)

    def add(self, fault: Fault) -> Fault:
        self._rules.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Harmless when it is spent and gone."""
        if fault in self._rules:
            self._rules.remove(fault)

    def clear(self) -> None:
        self._rules.clear()

    def match(self, api: ApiKey, node: int, client_id: str, partitions: Collection[tuple[str, int]]) -> Fault | None:
        """The rule that takes this request. A spent rule is forgotten."""
        fault = next((fault for fault in self._rules if fault.take(api, node, client_id, partitions)), None)
        if fault is not None and fault.is_spent:
            self._rules.remove(fault)
        return fault
