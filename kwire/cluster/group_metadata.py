"""Who a consumer is in its group, as commits and transactions name it."""

from __future__ import annotations

from typing import NamedTuple

# Of a member that lost its partitions. No member has it, so brokers refuse it; an empty group takes -1 from anybody.
LOST_GENERATION = 0


class GroupMetadata(NamedTuple):
    """Who commits offsets: with the member's generation, brokers fence a member that lost its partitions (KIP-447).

    `generation_id` is the member epoch in a group of the new protocol (KIP-848).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
