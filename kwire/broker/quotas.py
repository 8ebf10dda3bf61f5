"""Quotas of clients (KIP-13, KIP-124, KIP-257, KIP-599): limits by user and client id, and how long a client waits.

A rate is measured over the last ten seconds, as Kafka's ClientQuotaManager does with its default samples. Then:

- Produce is applied, and its response says how long the client should wait. Until then the broker handles no request of
  that connection (KIP-219).
- A fetch over the quota gets an empty response with that time. Until then its next fetch is not handled.
- A change of topics over `controller_mutation_rate` fails with THROTTLING_QUOTA_EXCEEDED.

`request_percentage` and `connection_creation_rate` are stored and shown, and limit nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from kwire.errors import BrokerError, ErrorCode, broker_error

PRODUCER_RATE, CONSUMER_RATE, MUTATION_RATE = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
_OF_CLIENTS = frozenset({PRODUCER_RATE, CONSUMER_RATE, MUTATION_RATE, "request_percentage"})
_OF_ADDRESSES = frozenset({"connection_creation_rate"})
_WHOLE = frozenset({PRODUCER_RATE, CONSUMER_RATE, "connection_creation_rate"})
_LONG_LIMIT = 2.0**63
_WINDOW_SECONDS = 10.0

# The parts of an entity: (type, name) in the order user, client-id, ip. The name None is the default of a type.
Entity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """What DescribeClientQuotas wants of one type: a name, the default (None), or either."""

    type: str
    name: str | None
    takes_all: bool = False


class ClientQuota:
    """The bytes of one entity, and its limit."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._samples: deque[tuple[float, int]] = deque()
        self._total = 0
        self.muted_until = 0.0

    def throttle_ms(self, size: int, now: float) -> int:
        """Return how long the client must wait before it gets `size` bytes more; 0 notes that it gets them now."""
        self._forget(now)
        # A client that has fetched nothing for the whole window may exceed the quota once: a large batch needs it.
        if not self._total or (self._total + size) / _WINDOW_SECONDS <= self.bytes_per_second:
            self._note(size, now)
            return 0
        allowed = max(0, int(self.bytes_per_second * _WINDOW_SECONDS) - size)
        left = self._total
        for at, sample in self._samples:
            left -= sample
            if left <= allowed:
                wait_ms = max(1, round((at + _WINDOW_SECONDS - now) * 1000))
                self.muted_until = now + wait_ms / 1000
                return wait_ms
        return 0

    def record_ms(self, size: int, now: float) -> int:
        """Note `size` bytes. Return how long the client should wait, until its rate is the limit again."""
        self._forget(now)
        self._note(size, now)
        return max(0, round((self._total / self.bytes_per_second - _WINDOW_SECONDS) * 1000))

    def _note(self, size: int, now: float) -> None:
        self._samples.append((now, size))
        self._total += size

    def _forget(self, now: float) -> None:
        while self._samples and self._samples[0][0] <= now - _WINDOW_SECONDS:
            self._total -= self._samples.popleft()[1]


class MutationQuota:
    """A bucket of tokens, one for each partition that is created or deleted (KIP-599)."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = rate * _WINDOW_SECONDS
        self._at = now

    def take_ms(self, count: int, now: float) -> int:
        """Take tokens and return 0; return how long to wait, and take none, while the bucket is below zero."""
        self._tokens = min(self.rate * _WINDOW_SECONDS, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 0:
            return max(1, round(-self._tokens / self.rate * 1000))
        self._tokens -= count
        return 0


class Quotas:
    """The limits of a cluster, and what has been used of them. Clients share theirs over all brokers."""

    def __init__(self, default_fetch_rate: int) -> None:
        self._default_fetch_rate = default_fetch_rate
        self._limits: dict[Entity, dict[str, float]] = {}
        self._used: dict[tuple[str, Entity], ClientQuota] = {}
        self._mutations: dict[Entity, MutationQuota] = {}

    @property
    def has_limits(self) -> bool:
        return bool(self._limits)

    def alter(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        """Set limits of an entity, or remove them (None). Raises INVALID_REQUEST."""
        types = [type for type, _ in entity]
        if not entity or len(set(types)) != len(types) or (IP in types and len(types) > 1):
            raise _invalid(f"Invalid client quota entity {dict(entity)}")
        if any(type not in (USER, CLIENT_ID, IP) or name == "" for type, name in entity):
            raise _invalid(f"Invalid client quota entity {dict(entity)}")
        if any(type == IP and name is not None and not _is_address(name) for type, name in entity):
            raise _invalid(f"{dict(entity)[IP]} is not a valid IP or resolvable host.")
        allowed = _OF_ADDRESSES if IP in types else _OF_CLIENTS
        for key, value in changes.items():
            if key not in allowed:
                raise _invalid(f"Invalid configuration key {key}")
            if value is not None and not value > 0:
                raise _invalid(f"Quota {key} must be greater than 0")
            if value is not None and key in _WHOLE and not (value < _LONG_LIMIT and value == int(value)):
                raise _invalid(f"Quota {key} must be a whole number of 64 bits")
        if validate_only:
            return
        limits = {**self._limits.get(entity, {}), **changes}
        self._limits[entity] = {key: value for key, value in limits.items() if value is not None}
        if not self._limits[entity]:
            del self._limits[entity]

    def find(self, filters: list[EntityFilter], *, strict: bool) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """Return the entities that have what each filter wants; with `strict` no entities of other types, too."""
        for entity, limits in self._limits.items():
            names = dict(entity)
            if strict and len(names) != len(filters):
                continue
            if all(one.type in names and (one.takes_all or names[one.type] == one.name) for one in filters):
                yield entity, limits

    def producer(self, principal: str, client_id: str) -> ClientQuota | None:
        return self._quota(PRODUCER_RATE, principal, client_id)

    def consumer(self, principal: str, client_id: str) -> ClientQuota | None:
        """Return the quota of fetches; `fetch_quota_bytes_per_second` holds for each client id without another."""
        found = self._quota(CONSUMER_RATE, principal, client_id)
        if found is None and self._default_fetch_rate:
            key = (CONSUMER_RATE, ((CLIENT_ID, client_id),))
            return self._used.setdefault(key, ClientQuota(self._default_fetch_rate))
        return found

    def mutate_ms(self, principal: str, client_id: str, partitions: int, now: float) -> int:
        """Note that partitions are created or deleted; return how long to wait instead if there were too many."""
        found = self._limit(MUTATION_RATE, principal, client_id)
        if found is None:
            return 0
        limit, scope = found
        quota = self._mutations.get(scope)
        if quota is None or quota.rate != limit:
            quota = self._mutations[scope] = MutationQuota(limit, now)
        return quota.take_ms(partitions, now)

    def _quota(self, key: str, principal: str, client_id: str) -> ClientQuota | None:
        found = self._limit(key, principal, client_id)
        if found is None:
            return None
        limit, scope = found
        quota = self._used.setdefault((key, scope), ClientQuota(limit))
        quota.bytes_per_second = limit
        return quota

    def _limit(self, key: str, principal: str, client_id: str) -> tuple[float, Entity] | None:
        """Return the limit that counts most, and whose bytes are counted together."""
        if not self._limits:
            return None
        user = principal.removeprefix("User:")
        for user_part, client_part in _PRECEDENCE:
            entity: Entity = tuple(
                (type, name if exact else None)
                for type, name, exact in ((USER, user, user_part), (CLIENT_ID, client_id, client_part))
                if exact is not None
            )
            limits = self._limits.get(entity, {})
            if key in limits:
                names = {USER: user, CLIENT_ID: client_id}
                return limits[key], tuple((type, names[type]) for type, _ in entity)
        return None


# For user and client id: named (True), the default (False), or no part of the entity (None).
_PRECEDENCE: tuple[tuple[bool | None, bool | None], ...] = (
    (True, True), (True, False), (True, None), (False, True), (False, False), (False, None), (None, True),
    (None, False),
)  # fmt: skip


def entity_of(parts: list[tuple[str, str | None]]) -> Entity:
    """Return an entity whose parts are in order."""
    order = {USER: 0, CLIENT_ID: 1, IP: 2}
    return tuple(sorted(parts, key=lambda part: order.get(part[0], len(order))))


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address. Kafka also takes the names of hosts, and asks DNS about them."""
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


def _invalid(why: str) -> BrokerError:
    return broker_error(ErrorCode.INVALID_REQUEST, why)
