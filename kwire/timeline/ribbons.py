"""What groups and transactions went through, as spans of time.

A group has a span for each generation, or epoch of KIP-848 as the newest member heard of it. A transactional id has a
span for each transaction: from the first request that belongs to it to the response of EndTxn, or the capture's end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kwire.capture import Exchange
from kwire.lint.contents import request_of, response_of, transactional_id_of
from kwire.protocol import ApiKey

_RIBBONS_MAX = 1000
_GENERATION_APIS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT})
_EPOCH_APIS = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT})
_BEGINS_TRANSACTION = frozenset(
    {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT}
)


@dataclass(slots=True)
class Span:
    """A part of a ribbon. `state` is joining, stable, open, committed, aborted or failed; `end_ns` None: still so."""

    begin_ns: int
    end_ns: int | None
    state: str
    text: str


@dataclass(slots=True)
class Ribbon:
    """What one group or transactional id went through; `kind` is group or transaction."""

    kind: str
    name: str
    spans: list[Span] = field(default_factory=list)
    number: int = -1  # of the group's newest generation or epoch

    def next(self, at_ns: int, state: str, text: str) -> None:
        """End what was, and begin a span."""
        self.end(at_ns)
        self.spans.append(Span(at_ns, None, state, text))

    def end(self, at_ns: int) -> None:
        if self.spans and self.spans[-1].end_ns is None:
            self.spans[-1].end_ns = at_ns

    @property
    def open(self) -> Span | None:
        return self.spans[-1] if self.spans and self.spans[-1].end_ns is None else None


class Ribbons:
    """Fed exchange by exchange, in the order of the capture."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Ribbon] = {}

    def all(self) -> list[Ribbon]:
        """Return the ribbons that have spans: groups, then transactions, each as it was first seen."""
        return sorted((one for one in self._found.values() if one.spans), key=lambda one: one.kind)

    def add(self, exchange: Exchange) -> None:
        request, response = request_of(exchange), response_of(exchange)
        key = exchange.api.key if exchange.api is not None else None
        if request is None or key is None:
            return
        end_ns = exchange.at_ns + int((exchange.latency_ms or 0) * 1e6)
        group = getattr(request, "group_id", "") or ""
        if group and key in _GENERATION_APIS:
            self._generation(exchange, key, group, request, response, end_ns)
        elif group and key in _EPOCH_APIS:
            self._epoch(group, response, end_ns)
        if id := transactional_id_of(request):
            self._transaction(exchange, key, id, request, response, end_ns)

    def _ribbon(self, kind: str, name: str) -> Ribbon:
        if (kind, name) not in self._found and len(self._found) >= _RIBBONS_MAX:
            return Ribbon(kind, name)
        return self._found.setdefault((kind, name), Ribbon(kind, name))

    def _generation(
        self, exchange: Exchange, key: ApiKey, group: str, request: Any, response: Any, end_ns: int
    ) -> None:
        ribbon = self._ribbon("group", group)
        if key == ApiKey.JOIN_GROUP:
            if ribbon.open is None or ribbon.open.state != "joining":
                ribbon.next(exchange.at_ns, "joining", "members join")
            if response is not None and not response.error_code and response.generation_id > ribbon.number:
                ribbon.number = response.generation_id
            return
        number: int = getattr(request, "generation_id", -1)
        number = getattr(request, "generation_id_or_member_epoch", number)
        is_ok = response is not None and not getattr(response, "error_code", 0)
        if is_ok and number >= max(0, ribbon.number):
            self._stable(ribbon, number, end_ns, "generation")

    def _epoch(self, group: str, response: Any, end_ns: int) -> None:
        ribbon = self._ribbon("group", group)
        if response is not None and not response.error_code and response.member_epoch >= max(0, ribbon.number):
            self._stable(ribbon, response.member_epoch, end_ns, "epoch")

    def _stable(self, ribbon: Ribbon, number: int, at_ns: int, what: str) -> None:
        text = f"{what} {number}"
        if ribbon.open is None or ribbon.open.text != text:
            ribbon.next(at_ns, "stable", text)
        ribbon.number = number

    def _transaction(self, exchange: Exchange, key: ApiKey, id: str, request: Any, response: Any, end_ns: int) -> None:
        ribbon = self._ribbon("transaction", id)
        if key == ApiKey.INIT_PRODUCER_ID:
            ribbon.end(end_ns)  # a new producer ends what another left open
        elif key in _BEGINS_TRANSACTION and ribbon.open is None:
            ribbon.next(exchange.at_ns, "open", "open")
        elif key == ApiKey.END_TXN and response is not None and ribbon.open is not None:
            span = ribbon.open
            if not response.error_code:
                span.state = span.text = "committed" if request.committed else "aborted"
                ribbon.end(end_ns)
            elif not any(error.name == "CONCURRENT_TRANSACTIONS" for error in exchange.errors):
                span.state, span.text = "failed", exchange.errors[0].name
                ribbon.end(end_ns)
