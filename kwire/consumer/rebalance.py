"""What a rebalance requires of the caller: the steps that the loop thread posts, and the listener that users give.

A rebalance that takes partitions away: `prepare`, then a commit of what was processed, then `revoke`. A rebalance that
gives partitions: `assign`. A membership that ended: `lost`. The caller takes the steps in order at its poll boundaries
and reports each one that is over by `Membership.prepared` or `Membership.step_done`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, final
from uuid import UUID

from kwire.consumer.arguments import TopicPartition

StepKind = Literal["prepare", "revoke", "assign", "lost"]


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceStep:
    """One step of a rebalance. Equal only to itself.

    prepare  the partitions will be revoked: hand out no more of them, and report what was processed (`prepared`)
    revoke   drop the partitions, after on_revoked
    assign   the partitions are new; also without any, because every rebalance ends with on_assigned
    lost     the partitions belong to others already: drop them at once, then on_lost

    `epoch` is the generation or the member epoch in which the step was made. `topic_ids` has the ids of the topics that
    are known.
    """

    kind: StepKind
    partitions: tuple[TopicPartition, ...]
    epoch: int
    topic_ids: Mapping[str, UUID]


RebalanceCallback = Callable[[list[TopicPartition]], object]


@final
@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """The user's callbacks, each with a list of (topic, partition). Without `on_lost`, `on_revoked` gets lost ones.

    `has_empty`: `on_assigned` is also called without partitions, at the end of a rebalance that gives none (Java).
    Unlike Java's, it is no base class: `subscribe` takes any object with these methods as its `listener`.
    """

    on_assigned: RebalanceCallback | None = None
    on_revoked: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None
    has_empty: bool = True

    def __init_subclass__(cls) -> None:
        # Its fields would hide the methods of a subclass, and nothing would be called.
        raise TypeError(
            f"RebalanceListener is no base class: {cls.__name__} needs none to be the `listener` of subscribe"
        )

    def callback(self, step: RebalanceStep) -> RebalanceCallback | None:
        """Return the callback to call for a step, or None. A step that takes nothing away has none."""
        if step.kind == "assign":
            return self.on_assigned if step.partitions or self.has_empty else None
        if step.kind == "prepare" or not step.partitions:
            return None
        return self.on_lost or self.on_revoked if step.kind == "lost" else self.on_revoked
