"""Faults that tests inject: which requests fail, how, and how often.

A `Fault` has a filter (API, broker, topic, partition, client), a range of the matching requests (`after` and `times`)
and an effect, which `broker` carries out. Faults are tried in the order in which they were added. The first one that
matches takes the request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_args

from kwire.errors import ConfigurationError, ErrorCode
from kwire.options import did_you_mean
from kwire.protocol import ApiKey

NO_PARTITION = -1

# The session handles these APIs. Only a fault that names one matches it, and can only drop or delay it.
SESSION_APIS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


_MILLISECONDS = "give whole milliseconds, from 0 on"


def _check(owner: str, name: str, value: object, kind: type, remedy: str, least: int | None = None) -> None:
    """Raise ConfigurationError for a value of another kind, or a number below `least`."""
    is_kind = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not is_kind or (least is not None and isinstance(value, int) and value < least):
        raise ConfigurationError(f"{owner}: {name} is {value!r}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Refuse:
    """Respond with an error code. `applied`: apply the request before."""

    code: ErrorCode
    applied: bool = False

    def __post_init__(self) -> None:
        remedy = "give a kwire.errors.ErrorCode, such as ErrorCode.NOT_LEADER_OR_FOLLOWER"
        _check("Refuse", "code", self.code, ErrorCode, remedy)
        _check("Refuse", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection instead of responding. `applied`: apply the request before, so that only its acknowledgement
    is lost."""

    applied: bool = False

    def __post_init__(self) -> None:
        _check("Disconnect", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Cut:
    """Apply the request, write the first `keep_bytes` bytes of the response's frame (4-byte size included), close."""

    keep_bytes: int

    def __post_init__(self) -> None:
        _check("Cut", "keep_bytes", self.keep_bytes, int, "give how many bytes, from 0 on", least=0)


@dataclass(frozen=True, slots=True)
class Delay:
    """Respond `ms` later. `applied`: apply the request at once and delay only the response."""

    ms: int
    applied: bool = False

    def __post_init__(self) -> None:
        _check("Delay", "ms", self.ms, int, _MILLISECONDS, least=0)
        _check("Delay", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Mute:
    """Never respond, not to later requests of the connection either, which stays open. `applied`: apply the request."""

    applied: bool = False

    def __post_init__(self) -> None:
        _check("Mute", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class ApplyLate:
    """Close the connection now and apply the request `ms` later: a write that arrives after the client has given it
    up."""

    ms: int

    def __post_init__(self) -> None:
        _check("ApplyLate", "ms", self.ms, int, _MILLISECONDS, least=0)


Effect = Refuse | Disconnect | Cut | Delay | Mute | ApplyLate


# Field, type, least value, remedy.
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
    """Which requests an effect applies to. A field that is None matches everything.

    The first `after` matching requests pass; the effect applies to the next `times`: one by default, all for None.
    `seen` and `hits` count both. Raises ConfigurationError for values that could never match.
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
            raise ConfigurationError(f"{self.effect} cannot apply to {self.api.name}", remedy=remedy)

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def take(self, api: ApiKey, node: int, client_id: str, partitions: Collection[tuple[str, int]]) -> bool:
        """Count a request and return whether the effect applies to it. `partitions` are those in the request."""
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
        """Return whether the fault matches a partition; NO_PARTITION is a request that names only the topic."""
        return self.topic in (None, topic) and (self.partition in (None, partition) or partition == NO_PARTITION)

    def error_for(self, topic: str, partition: int) -> ErrorCode | None:
        """Return the error of a `Refuse` for one partition of the request, None if the fault does not match it."""
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
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault, if it is there."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    def match(self, api: ApiKey, node: int, client_id: str, partitions: Collection[tuple[str, int]]) -> Fault | None:
        """Return the fault that takes this request. Remove it if it is spent."""
        fault = next((fault for fault in self._faults if fault.take(api, node, client_id, partitions)), None)
        if fault is not None and fault.is_spent:
            self._faults.remove(fault)
        return fault
