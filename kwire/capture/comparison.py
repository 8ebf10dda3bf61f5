"""Two captures compared: what each client does by API, its settings, and where the conversations part.

Correlation ids, times, member ids and producer ids are not compared. A client is its client id with the name of its
library, not the library's version: so an upgrade of the library can be judged. If both captures have one client each,
the two are compared whatever they are called.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kwire.capture.exchange import Exchange
from kwire.errors import ConfigurationError

# Fields of requests that come from a client's configuration.
_SETTINGS = frozenset(
    {
        "acks", "timeout_ms", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_timeout_ms",
        "rebalance_timeout_ms", "transaction_timeout_ms", "allow_auto_topic_creation", "server_assignor", "max_records",
    }
)  # fmt: skip
_CONVERSATION_MAX = 10_000


@dataclass(slots=True)
class ApiFacts:
    """What one client did with one API."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    records: int = 0
    batches: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    settings: dict[str, set[Any]] = field(default_factory=dict)

    def add(self, exchange: Exchange) -> None:
        self.requests += 1
        self.request_bytes += exchange.request_bytes
        self.response_bytes += exchange.response_bytes
        self.versions.add(exchange.version)
        self.errors.update({error.name for error in exchange.errors})
        if exchange.latency_ms is not None:
            self.latencies_ms.append(exchange.latency_ms)
        for decoded in (exchange.request, exchange.response):
            for _, batch in decoded.record_batches() if decoded is not None else ():
                self.records += batch.count
                self.batches += 1
        body = exchange.request.body if exchange.request is not None else None
        for one in getattr(body, "FIELDS", ()):
            if one.name in _SETTINGS and one.exists(exchange.version):
                self.settings.setdefault(one.name, set()).add(getattr(body, one.name))

    def quantile(self, share: float) -> float | None:
        """Return the latency that `share` of the responses did not exceed, in milliseconds."""
        if not self.latencies_ms:
            return None
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class ClientFacts:
    """What one client did. `conversation` has its APIs in order, each once where it comes several times in a row."""

    name: str
    software: set[str] = field(default_factory=set)
    apis: dict[str, ApiFacts] = field(default_factory=dict)
    conversation: list[str] = field(default_factory=list)


class Difference(NamedTuple):
    """What differs: `what` is a measure such as "requests"; `change` is how much larger B is, as a share."""

    client: str
    api: str
    what: str
    a: Any
    b: Any
    change: float | None = None


def facts_of(exchanges: Iterable[Exchange]) -> dict[str, ClientFacts]:
    """Return the facts of each client of a capture."""
    clients: dict[str, ClientFacts] = {}
    for exchange in exchanges:
        software = exchange.software.rpartition(" ")[0] or exchange.software
        name = f"{exchange.client_id or '(no client id)'}{f' ({software})' if software else ''}"
        client = clients.setdefault(name, ClientFacts(name))
        if exchange.software:
            client.software.add(exchange.software)
        client.apis.setdefault(exchange.api_name, ApiFacts()).add(exchange)
        said = client.conversation
        if len(said) < _CONVERSATION_MAX and (not said or said[-1] != exchange.api_name):
            said.append(exchange.api_name)
    return clients


def compare(a: dict[str, ClientFacts], b: dict[str, ClientFacts]) -> Iterator[Difference]:
    """Yield what differs between two captures, client by client."""
    if len(a) == len(b) == 1:
        (one,), (other,) = a.values(), b.values()
        yield from _compare_clients(other.name, one, other)
        return
    for name in sorted(a.keys() | b.keys()):
        if name in a and name in b:
            yield from _compare_clients(name, a[name], b[name])
        else:
            yield Difference(name, "", "client", "there" if name in a else "-", "there" if name in b else "-")


def _compare_clients(name: str, a: ClientFacts, b: ClientFacts) -> Iterator[Difference]:
    if a.software != b.software:
        yield Difference(name, "", "software", _listed(a.software), _listed(b.software))
    for api in sorted(a.apis.keys() | b.apis.keys()):
        one, other = a.apis.get(api, ApiFacts()), b.apis.get(api, ApiFacts())
        for what, before, after in (
            ("requests", one.requests, other.requests),
            ("request bytes", _mean(one.request_bytes, one.requests), _mean(other.request_bytes, other.requests)),
            ("response bytes", _mean(one.response_bytes, one.requests), _mean(other.response_bytes, other.requests)),
            ("records a batch", _mean(one.records, one.batches), _mean(other.records, other.batches)),
            ("p50", one.quantile(0.5), other.quantile(0.5)),
            ("p95", one.quantile(0.95), other.quantile(0.95)),
        ):
            if before != after:
                change = (after - before) / before if before and after is not None else None
                yield Difference(name, api, what, before, after, change)
        if one.requests and other.requests and one.versions != other.versions:
            yield Difference(name, api, "versions", _listed(one.versions), _listed(other.versions))
        for error in sorted(one.errors.keys() | other.errors.keys()):
            if one.errors[error] != other.errors[error]:
                yield Difference(name, api, f"errors: {error}", one.errors[error], other.errors[error])
        if one.requests and other.requests:
            for setting in sorted(one.settings.keys() | other.settings.keys()):
                values, others = one.settings.get(setting, set()), other.settings.get(setting, set())
                if values != others:
                    yield Difference(name, api, setting, _listed(values), _listed(others))
    yield from _parting(name, a.conversation, b.conversation)


def _parting(name: str, a: list[str], b: list[str]) -> Iterator[Difference]:
    for index in range(max(len(a), len(b))):
        one, other = (said[index] if index < len(said) else "(its end)" for said in (a, b))
        if one != other:
            yield Difference(name, "", f"order, after {a[index - 1] if index else 'the beginning'}", one, other)
            return


def _mean(total: int, number: int) -> float:
    return round(total / number, 1) if number else 0.0


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, values), key=lambda text: (len(text), text))) or "-"


_LIMIT = re.compile(r"(requests|request bytes|response bytes|p50|p95)\+(\d+(?:\.\d+)?)%")
_KINDS = ("errors", "versions", "order", "any")


class Limits:
    """What counts as a failure: "errors,versions,order,p95+20%,requests+10%", or "any".

    `errors`: B has an error code more often. Raises ConfigurationError for anything else.
    """

    def __init__(self, text: str) -> None:
        self._kinds: set[str] = set()
        self._shares: dict[str, float] = {}
        for part in filter(None, (one.strip() for one in text.split(","))):
            match = _LIMIT.fullmatch(part)
            if match is not None:
                self._shares[match[1]] = float(match[2]) / 100
            elif part in _KINDS:
                self._kinds.add(part)
            else:
                remedy = f"give {', '.join(_KINDS)}, or a measure such as p95+20% or requests+10%"
                raise ConfigurationError(f"there is no limit {part}", remedy=remedy)

    def is_exceeded(self, one: Difference) -> bool:
        """Return whether a difference is a failure."""
        if "any" in self._kinds:
            return True
        if one.what in self._shares:
            return one.change is None or one.change > self._shares[one.what]
        if one.what.startswith("errors: "):
            return "errors" in self._kinds and one.b > one.a
        return one.what.partition(",")[0] in self._kinds
