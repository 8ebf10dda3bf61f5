"""Faults that tests inject: which requests fail, how, and how often.

A `Fault` has a filter (API, broker, topic, partition, client, group, transaction, principal, version, any function of
the request), a range of the matching requests (`after` and `times`), a chance, and an effect, which `broker` carries
out. Faults are tried in the order in which they were added. The first one that matches takes the request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, TypedDict, get_args

from kwire.broker.request_context import RequestContext
from kwire.errors import ConfigurationError, ErrorCode
from kwire.option_checks import did_you_mean
from kwire.protocol import ApiKey, api
from kwire.protocol.schema import Request, Response

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
class Reset:
    """End the connection with a TCP reset (RST) instead of a response, as a broker that crashed or a firewall does.
    `applied`: apply the request before."""

    applied: bool = False

    def __post_init__(self) -> None:
        _check("Reset", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """Forget the connection without a word, as after a power cut: the broker neither reads, responds nor closes, and
    what the client had there is over, such as its share sessions. `applied`: apply the request before."""

    applied: bool = False

    def __post_init__(self) -> None:
        _check("HalfOpen", "applied", self.applied, bool, "give True or False")


@dataclass(frozen=True, slots=True)
class Cut:
    """Apply the request, write the first `keep_bytes` bytes of the response's frame (4-byte size included), close."""

    keep_bytes: int

    def __post_init__(self) -> None:
        _check("Cut", "keep_bytes", self.keep_bytes, int, "give how many bytes, from 0 on", least=0)


@dataclass(frozen=True, slots=True)
class Delay:
    """Respond `ms` later, and up to `jitter_ms` more, by chance. `applied`: apply the request at once, delay only the
    response."""

    ms: int
    applied: bool = False
    jitter_ms: int = 0

    def __post_init__(self) -> None:
        _check("Delay", "ms", self.ms, int, _MILLISECONDS, least=0)
        _check("Delay", "jitter_ms", self.jitter_ms, int, _MILLISECONDS, least=0)
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


@dataclass(frozen=True, slots=True)
class Throttle:
    """Respond with a `throttle_time_ms` of `ms`, and handle no other request of the connection before that time is
    over, as for a client over its quota (KIP-219)."""

    ms: int

    def __post_init__(self) -> None:
        _check("Throttle", "ms", self.ms, int, _MILLISECONDS, least=0)


@dataclass(frozen=True, slots=True)
class Answer:
    """Apply the request and respond with what `change(request, response)` returns; None means the response that it was
    given, which it may have changed."""

    change: Callable[[Any, Any], Response | None]

    def __post_init__(self) -> None:
        change: object = self.change
        if not callable(change):
            remedy = "give a function of the request and the response"
            raise ConfigurationError(f"Answer: change is {self.change!r}", remedy=remedy)


CORRUPTIONS = ("records", "correlation", "length", "garbage", "duplicate")


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Apply the request and damage the bytes of the response.

    "records": the last byte of a Fetch response's records, so that the checksum of a batch is wrong;
    "correlation": another correlation id; "length": a size of 2 GiB; "garbage": other bytes of the same number;
    "duplicate": the response comes twice.
    """

    what: str = "records"

    def __post_init__(self) -> None:
        if self.what not in CORRUPTIONS:
            raise ConfigurationError(f"Corrupt: what is {self.what!r}", remedy=f"give one of {', '.join(CORRUPTIONS)}")


@dataclass(frozen=True, slots=True)
class Trickle:
    """Apply the request and write the response at `bytes_per_second`; later ones of the connection wait."""

    bytes_per_second: int

    def __post_init__(self) -> None:
        remedy = "give bytes per second, from 1 on"
        _check("Trickle", "bytes_per_second", self.bytes_per_second, int, remedy, least=1)


Effect = Refuse | Disconnect | Reset | HalfOpen | Cut | Delay | Mute | ApplyLate | Throttle | Answer | Corrupt | Trickle


# Field, type, least value, remedy.
_FIELDS: tuple[tuple[str, type, int | None, str], ...] = (
    ("api", ApiKey, None, "give a kwire.protocol.ApiKey, such as ApiKey.PRODUCE"),
    ("node", int, 0, "give a broker's id"),
    ("topic", str, None, "give a topic's name"),
    ("partition", int, 0, "give a partition's number, from 0 on"),
    ("client_id", str, None, "give a client id"),
    ("group", str, None, "give a group's id"),
    ("transaction", str, None, "give a transactional id"),
    ("principal", str, None, 'give a principal, such as "User:alice"'),
    ("version", range, None, "give versions of the API: range(9, 13)"),
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
    group: str | None
    transaction: str | None
    principal: str | None
    version: range | None
    when: Callable[[Any], bool] | None
    after: int
    times: int | None
    chance: float
    seed: int | None


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """Which requests an effect applies to. A field that is None matches everything.

    `group`, `transaction`, `principal` and `version` are of the request; `when(request)` is any other condition. The
    first `after` matching requests pass; the effect applies to the next `times`: one by default, all for None; of these
    it takes each with the probability `chance`, derived from `seed`. `seen` and `hits` count both. Raises
    ConfigurationError for values that could never match.
    """

    effect: Effect
    api: ApiKey | None = None
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    group: str | None = None
    transaction: str | None = None
    principal: str | None = None
    version: range | None = None
    when: Callable[[Any], bool] | None = None
    after: int = 0
    times: int | None = 1
    chance: float = 1.0
    seed: int | None = None
    seen: int = 0
    hits: int = 0
    _random: Random = field(init=False, repr=False)

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
        if isinstance(self.chance, bool) or not isinstance(self.chance, int | float) or not 0 <= self.chance <= 1:
            raise ConfigurationError(f"a fault: chance is {self.chance!r}", remedy="give a probability from 0 to 1")
        if self.when is not None and not callable(self.when):
            raise ConfigurationError(f"a fault: when is {self.when!r}", remedy="give a function of the request")
        self._check_selection()
        self._random = Random(self.seed)
        fits_session = isinstance(self.effect, Disconnect | Reset | HalfOpen | Mute | Delay)
        is_applicable = fits_session and not getattr(self.effect, "applied", False)
        if self.api is not None and self.api in SESSION_APIS and not is_applicable:
            remedy = "use Disconnect, Reset, HalfOpen, Mute or Delay, without `applied`"
            raise ConfigurationError(f"{self.effect} cannot apply to {self.api.name}", remedy=remedy)

    def _check_selection(self) -> None:
        """Raise ConfigurationError for conditions that no request meets."""
        if self.principal is not None and not self.principal.startswith("User:"):
            remedy = f"write it with its type: User:{self.principal}"
            raise ConfigurationError(f"a fault: principal is {self.principal!r}", remedy=remedy)
        if self.version is not None and not self.version:
            raise ConfigurationError("a fault: version is empty", remedy="give versions of the API: range(9, 13)")
        if self.api is None:
            return
        name, of = self.api.name, api(self.api)
        given = [item for item in _OF_REQUEST if getattr(self, item) is not None]
        if self.api in SESSION_APIS and given:
            why = f"a fault: {given[0]} does not select requests of {name}"
            raise ConfigurationError(why, remedy="leave it out: such requests are known by their broker only")
        if self.version is not None and not set(self.version) & set(of.versions):
            why = f"a fault: version is {self.version}, {name} has {of.versions.start} to {of.versions.stop - 1}"
            raise ConfigurationError(why, remedy="give versions of the API: range(9, 13)")
        fields = {field.name for field in of.request.FIELDS}
        for item, own in (("group", _GROUP_FIELDS), ("transaction", (*_ID_FIELDS, "transactions"))):
            if getattr(self, item) is not None and not fields & {*own, "key_type"}:
                raise ConfigurationError(f"a fault: requests of {name} name no {item}", remedy=f"leave {item} out")

    def delay_seconds(self) -> float:
        """Return how long a `Delay` takes this time, with its jitter, derived from `seed`."""
        assert isinstance(self.effect, Delay)
        jitter = self._random.uniform(0, self.effect.jitter_ms) if self.effect.jitter_ms else 0.0
        return (self.effect.ms + jitter) / 1000

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def take(
        self,
        api: ApiKey,
        node: int,
        client_id: str,
        partitions: Collection[tuple[str, int]],
        context: RequestContext | None = None,
    ) -> bool:
        """Count a request and return whether the effect applies to it. `partitions` are those in the request.

        Requests that the session handles have no context."""
        if self.is_spent or not self._matches(api, node, client_id, partitions) or not self._matches_context(context):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.chance < 1 and self._random.random() >= self.chance):
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

    def _matches_context(self, context: RequestContext | None) -> bool:
        conditions = (self.group, self.transaction, self.principal, self.version, self.when)
        if context is None:
            return conditions == (None,) * len(conditions)
        request = context.request
        return (
            (self.group is None or self.group in _named(request, _GROUP_FIELDS, "groups", "group_id"))
            and (self.transaction is None or self.transaction in _named(request, _ID_FIELDS, "transactions", _ID))
            and self.principal in (None, context.access.principal)
            and (self.version is None or context.version in self.version)
            and (self.when is None or self._meets_when(request))
        )

    def _meets_when(self, request: Request[Any]) -> bool:
        assert self.when is not None
        try:
            return bool(self.when(request))
        except Exception as error:
            why = f"when of a fault raised {error!r} for a {type(request).__name__}"
            remedy = "name the API whose requests it is for: api=ApiKey.PRODUCE"
            raise ConfigurationError(why, remedy=remedy) from error

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


_OF_REQUEST = ("topic", "partition", "client_id", "group", "transaction", "principal", "version", "when")
_ID = "transactional_id"
_GROUP_FIELDS = ("group_id", "groups_names", "group_ids", "groups")
_ID_FIELDS = (_ID, "v3_and_below_transactional_id", "transactional_ids")


def _named(request: Request[Any], fields: Sequence[str], parts: str, part_field: str) -> set[str]:
    """Return the names that a request has in one of these fields, or in each of its parts."""
    found: set[str] = set()
    for name in fields:
        value = getattr(request, name, None)
        found.update([value] if isinstance(value, str) else [one for one in value or () if isinstance(one, str)])
    found.update(getattr(part, part_field, None) or "" for part in getattr(request, parts, None) or ())
    if getattr(request, "key_type", None) == (0 if "group_id" in fields else 1):  # FindCoordinator
        found.update([getattr(request, "key", ""), *getattr(request, "coordinator_keys", ())])
    return found


def make_fault(effect: Effect, match: Mapping[str, Any]) -> Fault:
    """Return the fault of a call such as `add_fault(Delay(5), api=ApiKey.FETCH)`. Raises ConfigurationError."""
    names = [item.name for item in fields(Fault) if item.name not in ("effect", "seen", "hits", "_random")]
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

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault, if it is there."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    def match(
        self,
        api: ApiKey,
        node: int,
        client_id: str,
        partitions: Collection[tuple[str, int]],
        context: RequestContext | None = None,
    ) -> Fault | None:
        """Return the fault that takes this request. Remove it if it is spent."""
        fault = next((fault for fault in self._faults if fault.take(api, node, client_id, partitions, context)), None)
        if fault is not None and fault.is_spent:
            self._faults.remove(fault)
        return fault
