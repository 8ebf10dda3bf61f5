"""What happened to a group in a run: what its members were given and did, and what its coordinators stored.

Members write down what their user code saw; the committed offsets come from the brokers. It is the only evidence of
`group_checker`, and nothing of it comes from the state of the consumers under test.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

TopicPartition = tuple[str, int]

_DELIVERIES_MAX = 5  # Kafka's group.share.delivery.count.limit: then a share group gives a record up

# What user code of a member sees and does:
#   assigned, revoked, lost   a callback of a rebalance begins
#   handed                    it gets a record
#   processed                 its work on a record is over
#   sought, moved             it continues at another offset; `moved`: the consumer had to commit that, too
#   chosen                of a share group: it accepts, releases or rejects a record
#   closing               of a share group: it begins to close, which gives up what it has
#   acquired              of a share group: a broker locks a record for it
#   accepted, released, rejected
#                             of a share group: the consumer confirms what was chosen for a record
#   unsure                    of a share group: the lock ended, or nobody knows whether the choice counts
#   ended                     the process is closed or killed
MemberEventKind = Literal["assigned", "revoked", "lost", "handed", "processed", "sought", "moved", "ended",
    "acquired", "chosen", "accepted", "released", "rejected", "unsure", "closing",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemberEvent:
    at: float
    kind: MemberEventKind
    member: str  # a process: m0.0, after a restart m0.1
    partition: TopicPartition = ("", -1)
    offset: int = -1
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class CommittedEvent:
    """A coordinator stored an offset that `client` sent; `is_in_transaction` when the transaction was committed.

    `is_late`: the client had given the request up before. Kafka stores such an offset also over a newer one.
    """

    at: float
    client: str
    partition: TopicPartition
    offset: int
    is_in_transaction: bool = False
    is_late: bool = False


@dataclass(slots=True)
class GroupHistory:
    """All events in their order, and what is committed and owned now."""

    events: list[MemberEvent | CommittedEvent] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)  # errors that no fault explains
    downgraded_at: list[float] = field(default_factory=list)  # when the group became classic
    # But for late requests that went back: that the newer offset was committed once is enough.
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    owners: dict[TopicPartition, set[str]] = field(default_factory=dict)
    # Of share groups: how often each record was delivered, and those that are done, perhaps.
    deliveries: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter)
    done: set[tuple[TopicPartition, int]] = field(default_factory=set)

    def is_delivered(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a share group owes nobody this record."""
        key = partition, offset
        return key in self.done or self.deliveries[key] >= _DELIVERIES_MAX

    def add(self, event: MemberEvent | CommittedEvent) -> None:
        self.events.append(event)
        if isinstance(event, CommittedEvent):
            if not event.is_late or event.offset > self.committed.get(event.partition, 0):
                self.committed[event.partition] = event.offset
        elif event.kind == "handed":
            self.deliveries[event.partition, event.offset] += 1
        elif event.kind in ("accepted", "rejected", "unsure"):
            self.done.add((event.partition, event.offset))
        elif event.kind == "assigned":
            self.owners.setdefault(event.partition, set()).add(event.member)
        elif event.kind in ("revoked", "lost"):
            self.owners.get(event.partition, set()).discard(event.member)
        elif event.kind == "ended":
            for owners in self.owners.values():
                owners.discard(event.member)
