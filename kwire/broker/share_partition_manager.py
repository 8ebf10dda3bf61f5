"""The share partitions that the brokers lead, their sessions and their timers (Kafka's SharePartitionManager).

A broker makes a `SharePartition` when a member first reads or acknowledges there, from what the share coordinator
saved. The next leader makes another one, so that locks of the former leader are void.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING
from uuid import UUID

from kwire.broker.dead_letters import DeadLetterQueue
from kwire.broker.group_configs import EARLIEST, LATEST, GroupConfigs
from kwire.broker.partition import Partition
from kwire.broker.share_coordinator import ShareCoordinator, ShareKey
from kwire.broker.share_partition import (
    NO_OFFSET,
    Acknowledgement,
    AcknowledgeType,
    InFlight,
    Limits,
    RecordState,
    SharePartition,
    StateBatch,
)
from kwire.broker.share_sessions import SessionKey, ShareSessionCache
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timer

if TYPE_CHECKING:
    from kwire.broker.cluster_state import ClusterState

Listener = Callable[[float], None]


class _Led:
    """A share partition on its leader."""

    __slots__ = ("leader_epoch", "partition", "records", "state_epoch", "timer", "undeliverable")

    def __init__(self, partition: Partition, leader_epoch: int, state_epoch: int) -> None:
        self.undeliverable: list[tuple[InFlight, str]] = []
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state_epoch = state_epoch
        self.records: SharePartition
        self.timer: Timer | None = None

    @property
    def is_current(self) -> bool:
        return not self.partition.is_deleted and self.partition.leader_epoch == self.leader_epoch

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class SharePartitionManager:
    """The share partitions of all brokers. Errors are BrokerErrors."""

    def __init__(self, cluster: ClusterState, configs: GroupConfigs, coordinator: ShareCoordinator) -> None:
        self.sessions = ShareSessionCache(cluster.options.share_max_sessions)
        self._cluster = cluster
        self._configs = configs
        self._coordinator = coordinator
        self._dead_letters = DeadLetterQueue(cluster, configs)
        self._led: dict[ShareKey, _Led] = {}
        self._listeners: dict[ShareKey, dict[Listener, None]] = {}

    # Share partitions.

    def find(self, node: int, key: ShareKey, now: float) -> tuple[Partition, SharePartition]:
        """Return a partition and a group's records in it.

        Raises UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, and NOT_LEADER_OR_FOLLOWER if `node` does not lead it.
        """
        partition = self._partition(node, key)
        led = self._led.get(key)
        if led is None or not led.is_current or led.partition is not partition:
            led = self._lead(key, partition, now)
        led.records.advance_start(partition.log.start_offset)
        return partition, led.records

    def _partition(self, node: int, key: ShareKey) -> Partition:
        partition = self._cluster.find_topic_by_id(key.topic_id).partition(key.partition)
        if partition is None:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {key.partition}")
        partition.check_leader(node)
        return partition

    def _lead(self, key: ShareKey, partition: Partition, now: float) -> _Led:
        self._drop(key)
        state = self._coordinator.read(key, partition.leader_epoch)
        led = _Led(partition, partition.leader_epoch, state.state_epoch)
        start = state.start_offset
        if start == NO_OFFSET:
            start = self._reset_offset(key.group, partition, now)

        led.records = SharePartition(
            start, state.batches, limits=lambda: self._limits(key.group),
            on_undeliverable=lambda records, cause: led.undeliverable.append((records, cause)),
        )  # fmt: skip
        self._led[key] = led
        if state.start_offset == NO_OFFSET:
            self._save(key, led, start)
        return led

    def _limits(self, group: str) -> Limits:
        settings = self._configs.of(group)
        return Limits(
            lock_seconds=settings.share_record_lock_ms / 1000,
            max_delivery_count=settings.share_delivery_count_limit,
            max_record_locks=settings.share_max_record_locks,
        )

    def _reset_offset(self, group: str, partition: Partition, now: float) -> int:
        """Return where a group starts by share.auto.offset.reset."""
        settings, log = self._configs.of(group), partition.log
        if settings.share_offset_reset == EARLIEST:
            return log.start_offset
        if settings.share_offset_reset == LATEST:
            return log.high_watermark
        since_ms = self._cluster.wall_ms(now) - settings.share_offset_reset_age_ms
        found = log.find_time(since_ms, upper_bound=log.high_watermark).offset
        return found if found >= 0 else log.high_watermark

    def acquired(self, key: ShareKey, start: int, now: float) -> None:
        """React to an acquisition: set the timer of its lock, and save the window if it moved from `start`."""
        led = self._led[key]
        if led.records.start_offset != start:
            self._save(key, led, start)
        self._set_timer(key, led, now)

    def acknowledge(
        self, node: int, key: ShareKey, member: str, batches: Sequence[Acknowledgement], now: float, *, renews: bool
    ) -> None:
        """Apply acknowledgements. Only a request that `renews` may extend locks, and only where the group allows it.

        Raises NOT_LEADER_OR_FOLLOWER where the leader has moved: its locks are gone.
        """
        types = {type for batch in batches for type in batch.types}
        if AcknowledgeType.RENEW in types and not (renews and self._configs.of(key.group).share_renew_enabled):
            raise broker_error(ErrorCode.INVALID_REQUEST, "locks cannot be renewed by this request, or in this group")
        self._partition(node, key)
        led = self._led.get(key)
        if led is None or not led.is_current:
            raise broker_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the share partition is not here any more")
        start = led.records.start_offset
        if led.records.acknowledge(member, batches, now):
            self._changed(key, led, start, now)
        else:
            self._set_timer(key, led, now)

    def release(self, key: ShareKey, member: str, now: float) -> None:
        """Release the records that a member holds in a share partition."""
        led = self._led.get(key)
        if led is not None and led.is_current:
            start = led.records.start_offset
            if led.records.release(member):
                self._changed(key, led, start, now)

    def _expire(self, key: ShareKey, led: _Led, now: float) -> None:
        if self._led.get(key) is led and led.is_current:
            led.timer = None
            start = led.records.start_offset
            if led.records.expire(now):
                self._changed(key, led, start, now)
            else:
                self._set_timer(key, led, now)

    def _changed(self, key: ShareKey, led: _Led, start: int, now: float) -> None:
        self._save(key, led, start)
        self._set_timer(key, led, now)
        undeliverable, led.undeliverable = led.undeliverable, []
        for records, cause in undeliverable:
            self._dead_letters.add(key.group, led.partition, records, cause, now)
        for listener in list(self._listeners.get(key, ())):
            listener(now)

    def _save(self, key: ShareKey, led: _Led, start: int) -> None:
        """Save the state after a change of a window that started at `start`.

        Like Kafka, save that start and what is done from there on: the new start is saved with the next change.
        """
        records = led.records
        batches, done = records.state_batches(), max(0, records.start_offset - start)
        if done:
            batches.insert(0, StateBatch(start, records.start_offset - 1, RecordState.ACKNOWLEDGED, 0))
        try:
            self._coordinator.write(
                key,
                state_epoch=led.state_epoch,
                leader_epoch=led.leader_epoch,
                start_offset=start,
                batches=batches,
                delivery_complete_count=done + records.delivery_complete_count,
            )
        except BrokerError:
            self._drop(key)
            raise

    def _set_timer(self, key: ShareKey, led: _Led, now: float) -> None:
        """Set the timer of the first lock to expire. An earlier timer stays: it sets the next one."""
        expiry = led.records.next_expiry
        if expiry == inf or (led.timer is not None and led.timer.is_pending and led.timer.when <= expiry):
            return
        if led.timer is not None:
            led.timer.cancel()
        led.timer = self._cluster.timers.at(expiry, lambda now: self._expire(key, led, now))

    def _drop(self, key: ShareKey) -> None:
        led = self._led.pop(key, None)
        if led is not None:
            led.cancel()

    def drop_group(self, group: str) -> None:
        """Forget the records of a group that is empty or changed by an administrator: leaders read its state again."""
        for key in [key for key in self._led if key.group == group]:
            self._drop(key)

    def drop_topic(self, topic_id: UUID) -> None:
        """Forget a topic that is deleted."""
        for key in [key for key in self._led if key.topic_id == topic_id]:
            self._drop(key)
        self._coordinator.delete_topic(topic_id)

    # Listeners.

    def add_listener(self, key: ShareKey, listener: Listener) -> None:
        """Call `listener(now)` when records of a share partition become available, until `remove_listener`."""
        self._listeners.setdefault(key, {})[listener] = None

    def remove_listener(self, key: ShareKey, listener: Listener) -> None:
        listeners = self._listeners.get(key, {})
        listeners.pop(listener, None)
        if not listeners:
            self._listeners.pop(key, None)

    # Sessions.

    def close_session(self, key: SessionKey, now: float) -> None:
        """Close a session and release what its member holds in the session's partitions."""
        session = self.sessions.close(key)
        for topic_id, index in session.partitions if session is not None else ():
            self.release(ShareKey(key.group, topic_id, index), key.member, now)

    def connection_closed(self, connection: int, now: float) -> None:
        """Close the sessions of a connection that is gone."""
        for key in self.sessions.of_connection(connection):
            self.close_session(key, now)

    def node_stopped(self, node: int) -> None:
        """Forget the sessions of a broker that stopped."""
        for key in self.sessions.of_node(node):
            self.sessions.close(key)
