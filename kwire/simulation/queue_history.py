"""What happened to the messages of a queue in a run: what user code sent, got and settled, and what brokers stored.

It is the evidence of `queue_checker`. Nothing of it comes from the state of consumers or trackers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kwire.consumer import ConsumerRecord
from kwire.errors import ErrorCode

_PADDING = b"."


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the handler does with a message: acks, or once releases, hangs, extends; or always refuses or fails.

    `options` are those of `send`.
    """

    kind: str = "ack"
    seconds: float = 0.0
    options: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class SentMessage:
    at: float
    behaviour: Behaviour
    payload: bytes | None
    process: str
    is_stored: bool = False  # the producer knows that it is
    is_resolved: bool = False  # it knows whether


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """`kind`: stored, handed, acked, nacked, released, lost: ..., unsure: ..., killed, frozen, closing, ended, ..."""

    at: float
    kind: str
    process: str
    id: str = ""
    place: tuple[int, int] = (-1, -1)  # partition and offset in the queue topic
    deliveries: int = 0


@dataclass(slots=True)
class QueueHistory:
    """All events in their order, and what can be said of each message now."""

    events: list[QueueEvent] = field(default_factory=list)
    sent: dict[str, SentMessage] = field(default_factory=dict)
    unexpected: list[str] = field(default_factory=list)
    commits: defaultdict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    acked: set[str] = field(default_factory=set)
    ended: dict[str, float] = field(default_factory=dict)  # processes
    closing: dict[str, float] = field(default_factory=dict)
    frozen: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    records: list[ConsumerRecord] = field(default_factory=list)  # of all topics, at the end
    by_tracker: set[tuple[int, int]] = field(default_factory=set)  # places of markers that trackers wrote
    start_ms: int = 0  # the brokers' clock at the beginning
    refusals: frozenset[ErrorCode] = frozenset()  # that brokers return by a fault of the plan
    numbers: Counter[str] = field(default_factory=Counter)
    is_calm: bool = False

    def next_number(self, member: str) -> int:
        return self.numbers[member]

    def sending(self, now: float, process: str, id: str, behaviour: Behaviour, size: int | None) -> bytes | None:
        """Note that a message is sent; return its payload. `size` None: none at all."""
        self.numbers[process.rpartition(".")[0]] += 1
        payload = None if size is None else id.encode().ljust(size, _PADDING)[:size]
        self.sent[id] = SentMessage(now, behaviour, payload, process)
        return payload

    def behaviour(self, id: str) -> Behaviour:
        known = self.sent.get(id)
        return Behaviour() if known is None else known.behaviour

    def check(self, process: str, id: str, payload: bytes | None, headers: Any, now: float) -> None:
        """Compare what a consumer got with what was sent."""
        sent = self.sent.get(id)
        if sent is None:
            self.unexpected.append(f"{process} at {now:.3f} s got {id!r}, which nobody sent")
        elif sent.payload != payload or headers != (("n", id.encode()),):
            self.unexpected.append(f"{process} at {now:.3f} s got {id} with {payload!r:.40} and {headers!r}")

    def add(
        self, at: float, kind: str, process: str, id: str = "", place: tuple[int, int] = (-1, -1), deliveries: int = 0
    ) -> None:
        self.events.append(QueueEvent(at, kind, process, id, place, deliveries))
        if kind == "acked":
            self.acked.add(id)
        elif kind in ("killed", "ended"):
            self.ended[process] = at
        elif kind == "closing":
            self.closing[process] = at
        elif kind == "frozen":
            self.frozen[process].append(at)

    def committed_before(self, partition: int, at: float) -> int:
        """Return the greatest offset that the queue's group had committed by then."""
        return max((offset for when, offset in self.commits[partition] if when <= at), default=0)

    def stored_at(self, record: ConsumerRecord) -> float:
        """Return when a broker stored a record, where no broker's clock has jumped."""
        return (record.timestamp_ms - self.start_ms) / 1000


TOPICS: Mapping[str, str] = {"messages": "messages", "markers": "markers", "dead": "messages-dead-letters"}
