"""What share groups have done, kept for the leaders of partitions (Kafka's ShareCoordinator and its persister).

A leader reads a share partition's state when it first needs it, and writes it after each change. So a new leader goes
on where the old one was. Locks and acquisitions are not written: they end with the leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kwire.broker.share_partition import NO_OFFSET, StateBatch
from kwire.errors import ErrorCode, broker_error


class ShareKey(NamedTuple):
    """A share partition: one partition as one group sees it."""

    group: str
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class ShareState:
    """The saved state. `start_offset` is -1 until a leader has chosen one by share.auto.offset.reset."""

    start_offset: int = NO_OFFSET
    batches: Sequence[StateBatch] = ()
    state_epoch: int = 0  # grows when an administrator changes the start
    leader_epoch: int = 0  # of the last leader that read it
    delivery_complete_count: int = 0


class ShareCoordinator:
    """The saved states of all share partitions."""

    def __init__(self) -> None:
        self._states: dict[ShareKey, ShareState] = {}

    def initialize(self, key: ShareKey) -> None:
        """Create a share partition's state when a group first subscribes to its topic."""
        self._states.setdefault(key, ShareState())

    def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """Return the state for a leader. Raises FENCED_LEADER_EPOCH if a newer leader has read it."""
        state = self._states.setdefault(key, ShareState())
        self._check_leader_epoch(state, leader_epoch)
        state.leader_epoch = leader_epoch
        return state

    def write(
        self,
        key: ShareKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int,
    ) -> None:
        """Save the state. Raises FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH for those who read an older one."""
        state = self._states.get(key)
        if state is None:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no state of {key}")
        self._check_leader_epoch(state, leader_epoch)
        if state_epoch < state.state_epoch:
            why = f"state epoch {state_epoch}, it is {state.state_epoch} now"
            raise broker_error(ErrorCode.FENCED_STATE_EPOCH, why)
        state.start_offset = start_offset
        state.batches = batches
        state.delivery_complete_count = delivery_complete_count

    def alter(self, key: ShareKey, start_offset: int) -> None:
        """Move the start, and forget what was delivered."""
        before = self._states.get(key)
        epoch = before.state_epoch + 1 if before is not None else 0
        leader_epoch = before.leader_epoch if before is not None else 0
        self._states[key] = ShareState(start_offset, state_epoch=epoch, leader_epoch=leader_epoch)

    def get(self, key: ShareKey) -> ShareState | None:
        return self._states.get(key)

    def of_group(self, group: str) -> Iterator[ShareKey]:
        """Return the share partitions of a group."""
        return iter([key for key in self._states if key.group == group])

    def delete(self, key: ShareKey) -> None:
        self._states.pop(key, None)

    def delete_topic(self, topic_id: UUID) -> None:
        for key in [key for key in self._states if key.topic_id == topic_id]:
            del self._states[key]

    @staticmethod
    def _check_leader_epoch(state: ShareState, leader_epoch: int) -> None:
        if leader_epoch < state.leader_epoch:
            why = f"leader epoch {leader_epoch}, a leader of epoch {state.leader_epoch} has it"
            raise broker_error(ErrorCode.FENCED_LEADER_EPOCH, why)
