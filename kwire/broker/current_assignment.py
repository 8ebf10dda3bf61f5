"""How a member of a consumer group reaches its target: give partitions up, report it, get new ones (KIP-848).

`CurrentAssignment` is what Kafka's ConsumerGroupMember knows about partitions and epochs; `reconcile` has the rules of
CurrentAssignmentBuilder. It is immutable and has no clock: each heartbeat makes the next one.

The rule behind it all: a partition is given to a member only after its last holder has reported, by a heartbeat
without it, that it no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import UUID

TopicIdPartition = tuple[UUID, int]
Partitions = frozenset[TopicIdPartition]
NO_PARTITIONS: Partitions = frozenset()


class MemberState(Enum):
    """Where a member is on the way to its target."""

    STABLE = "stable"  # it has the target of its epoch
    UNREVOKED_PARTITIONS = "unrevoked"  # it has to give partitions up, and has not reported that it did
    UNRELEASED_PARTITIONS = "unreleased"  # it waits for partitions that other members still have


@dataclass(frozen=True, slots=True)
class Target:
    """The target of one member: the partitions that the assignor chose, and the epoch of that choice."""

    epoch: int
    partitions: Collection[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The partitions of one member, by the member epoch in which it got each (KIP-1251)."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    pending_revocation: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def reconcile(
        self,
        target: Target,
        *,
        has_holder: Callable[[TopicIdPartition], bool],
        owned: Collection[TopicIdPartition] | None,
        subscribed: Collection[UUID] | None = None,
    ) -> CurrentAssignment:
        """Return the next assignment.

        has_holder   whether any member holds a partition: assigned to it, or not yet revoked by it
        owned        the partitions that the member reports; None if this heartbeat does not say
        subscribed   the topics that the member subscribes to, where partitions of other topics are taken away before
                     the target is computed again (Kafka 4.2, KAFKA-19431); None: the target alone decides
        """
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, self.pending_revocation):
                return self._without_unsubscribed(subscribed, owned)
        elif self.state is MemberState.STABLE and self.epoch == target.epoch:
            return self._without_unsubscribed(subscribed, owned)
        return self._next(target, has_holder, owned, subscribed)

    def _next(
        self,
        target: Target,
        has_holder: Callable[[TopicIdPartition], bool],
        owned: Collection[TopicIdPartition] | None,
        subscribed: Collection[UUID] | None,
    ) -> CurrentAssignment:
        wanted = {part for part in target.partitions if subscribed is None or part[0] in subscribed}
        kept = {part: since for part, since in self.assigned.items() if part in wanted}
        revoked = {part: since for part, since in self.assigned.items() if part not in wanted}
        missing = wanted - kept.keys()
        free = {part for part in missing if not has_holder(part)}
        if revoked and _still_owns(owned, revoked):
            return CurrentAssignment(self.epoch, self.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        waits = len(free) < len(missing)
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return CurrentAssignment(target.epoch, self.epoch, state, {**kept, **dict.fromkeys(sorted(free), target.epoch)})

    def _without_unsubscribed(
        self, subscribed: Collection[UUID] | None, owned: Collection[TopicIdPartition] | None
    ) -> CurrentAssignment:
        if subscribed is None or all(part[0] in subscribed for part in self.assigned):
            return self
        kept = {part: since for part, since in self.assigned.items() if part[0] in subscribed}
        gone = {part: since for part, since in self.assigned.items() if part not in kept}
        revoked = {**self.pending_revocation, **gone}
        if _still_owns(owned, revoked):
            return CurrentAssignment(self.epoch, self.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        return replace(self, previous_epoch=self.epoch, assigned=kept)


def _still_owns(owned: Collection[TopicIdPartition] | None, revoked: Collection[TopicIdPartition]) -> bool:
    """Return whether a member may still have one of these partitions: it reports one, or does not report."""
    return owned is None or any(part in revoked for part in owned)
