"""Faults on purpose: which requests go wrong, how, and how often.

Owns the rules and their counting. A rule says what it matches (API, broker, topic, partition, client) and which of the
matching requests it takes (`after` and `times`); its effect says what becomes of them. Carrying the effect out is
`node`'s. Rules are tried in the order in which they were added, and the first that matches has the request.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kwire.errors import ConfigurationError, ErrorCode
from kwire.protocol import ApiKey

NO_PARTITION = -1

# What the session answers by itself: only a rule that names one of these takes it, and only to be dropped or held up.
OF_THE_SESSION = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error code. `applied`: carry the request out first, and then say that it failed."""

    code: ErrorCode
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection instead of answering. `applied`: after the request was carried out, so that the
    acknowledgement is lost; else before."""

    applied: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Carry the request out, write only so many bytes of the answer's frame (its 4-byte size included), and close."""

    keep_bytes: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer later. `applied`: the request is carried out at once and only the answer is late."""

    ms: int
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Mute:
    """Never answer, nor any later request of this connection, which stays open."""

    applied: bool = False


@dataclass(frozen=True, slots=True)
class ApplyLate:
    """Close the connection now and carry the request out later, when the client has given it up: a write from the
    past."""

    ms: int


Effect = Refuse | Disconnect | Cut | Delay | Mute | ApplyLate


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """None matches everything. The first `after` matching requests pass, the next `times` are hit (None: all)."""

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
        can_befall = isinstance(self.effect, Disconnect | Mute | Delay) and not self.effect.applied
        if self.api in OF_THE_SESSION and not can_befall:
            remedy = "use Disconnect, Mute or Delay, without `applied`"
            raise ConfigurationError(f"{self.effect} cannot befall {self.api.name}", remedy=remedy)

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def takes(self, api: ApiKey, node: int, client_id: str, places: Collection[tuple[str, int]]) -> bool:
        """Whether this request is to be hit; counts it. `places` are the partitions that it names."""
        if self.is_spent or not self._matches(api, node, client_id, places):
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.hits += 1
        return True

    def _matches(self, api: ApiKey, node: int, client_id: str, places: Collection[tuple[str, int]]) -> bool:
        return (
            (self.api == api or (self.api is None and api not in OF_THE_SESSION))
            and self.node in (None, node)
            and self.client_id in (None, client_id)
            and (not self.has_place or any(self.concerns(*place) for place in places))
        )

    @property
    def has_place(self) -> bool:
        return self.topic is not None or self.partition is not None

    def concerns(self, topic: str, partition: int) -> bool:
        """A request that names a topic and no partition has NO_PARTITION there."""
        return self.topic in (None, topic) and (self.partition in (None, partition) or partition == NO_PARTITION)

    def refusal(self, topic: str, partition: int) -> ErrorCode | None:
        """What a partition of a request that it has taken is to be answered with, if it is one that it concerns."""
        assert isinstance(self.effect, Refuse)
        return self.effect.code if self.concerns(topic, partition) else None


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

    def match(self, api: ApiKey, node: int, client_id: str, places: Collection[tuple[str, int]]) -> Fault | None:
        """The rule that takes this request. A spent rule is forgotten."""
        found = next((fault for fault in self._rules if fault.takes(api, node, client_id, places)), None)
        if found is not None and found.is_spent:
            self._rules.remove(found)
        return found
