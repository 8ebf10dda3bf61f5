"""One partition: its log, its replicas, its leader and leader epoch, and the listeners of its changes.

All replicas share one log. What a follower would not have yet lies between the high watermark and the end. It is lost
with the leader if `replication_ms` is above 0; at 0 there is no such part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kwire.broker.log import LogAppendInfo, PartitionLog, Storage
from kwire.broker.options import Options, TopicSettings
from kwire.errors import BrokerError, ErrorCode, broker_error
from kwire.net.timers import Timers
from kwire.records import Batch

NO_LEADER = -1
NO_EPOCH = -1

Listener = Callable[[float], None]


class Partition:
    """A partition as its leader has it. `is_up(broker)` is the state of the brokers at its creation."""

    def __init__(
        self,
        topic: str,
        index: int,
        replicas: Sequence[int],
        options: Options,
        settings: TopicSettings,
        storage: Storage,
        timers: Timers,
        is_up: Callable[[int], bool],
    ) -> None:
        self.topic = topic
        self.index = index
        self.replicas = tuple(replicas)
        self.log = PartitionLog(options, settings, storage)
        self.isr = [node for node in self.replicas if is_up(node)] or [self.replicas[0]]
        self.leader = self.isr[0] if is_up(self.isr[0]) else NO_LEADER
        self.leader_epoch = 0
        if self.leader != NO_LEADER:
            self.log.begin_epoch(0)
        self.is_deleted = False
        self._left_at: dict[int, int] = {}  # log end of the replicas that left the ISR
        self._replication = options.replication_ms / 1000
        self._has_effective_min_isr = options.is_at_least("3.7")  # KAFKA-15583
        self._timers = timers
        self._listeners: dict[Listener, None] = {}  # an ordered set

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index}, leader {self.leader}, epoch {self.leader_epoch}>"

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    @property
    def min_isr(self) -> int:
        """Return how many replicas must be in sync: min.insync.replicas, since 3.7 at most as many as there are."""
        least = self.settings.min_insync_replicas
        return min(least, len(self.replicas)) if self._has_effective_min_isr else least

    # Checks and writes of requests.

    def check_leader(self, node: int, epoch: int = NO_EPOCH) -> None:
        """Raise BrokerError unless `node` leads, in `epoch` (-1: any epoch, KIP-320)."""
        self.check_epoch(epoch)
        if self.leader != node:
            raise self._error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} does not lead it")

    def check_epoch(self, epoch: int) -> None:
        """Raise BrokerError unless the leader's epoch is `epoch` (-1: any)."""
        if self.is_deleted:
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        if epoch not in (NO_EPOCH, self.leader_epoch):
            fenced = epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise self._error(code, f"epoch {epoch}, but the leader's is {self.leader_epoch}")

    def check_replica(self, node: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless `node` has a replica of the partition."""
        if self.is_deleted:
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        if node not in self.replicas:
            raise self._error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} has no replica of it")

    def append(self, batches: Sequence[Batch], *, all_replicas: bool, now: float, wall_ms: int) -> LogAppendInfo:
        """Append as the leader. `wall_ms` is wall time. Raises BrokerError; the log is then unchanged."""
        if all_replicas and len(self.isr) < self.min_isr:
            why = f"{len(self.isr)} in sync, min.insync.replicas is {self.settings.min_insync_replicas}"
            raise self._error(ErrorCode.NOT_ENOUGH_REPLICAS, why)
        appended = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=wall_ms)
        self.replicate(now)
        return appended

    def append_marker(
        self, kind: str, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, now: float, wall_ms: int
    ) -> LogAppendInfo:
        """Append a transaction marker, "commit" or "abort". Raises BrokerError for a marker of an older epoch."""
        appended = self.log.append_marker(
            kind, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch,
            leader_epoch=self.leader_epoch, now_ms=wall_ms,
        )  # fmt: skip
        self.replicate(now)
        return appended

    def _error(self, code: int, message: str) -> BrokerError:
        return broker_error(code, message, topic=self.topic, partition=self.index)

    # The high watermark.

    def replicate(self, now: float) -> None:
        """Replicate what is in the log now, at once or `replication_ms` later."""
        end, epoch = self.log.end_offset, self.leader_epoch
        if self._replication == 0 or len(self.isr) == 1:
            self._advance_high_watermark(end, now)
        else:
            self._timers.at(now + self._replication, lambda now: self._complete_replication(end, epoch, now))

    def _complete_replication(self, end: int, epoch: int, now: float) -> None:
        # A leader that stopped meanwhile has lost what was not replicated, and its offsets may be other records now.
        if epoch == self.leader_epoch:
            self._advance_high_watermark(end, now)

    def _advance_high_watermark(self, high_watermark: int, now: float) -> None:
        """Show consumers what is replicated; since 3.7 nothing new while too few replicas are in sync."""
        if not self._has_effective_min_isr or len(self.isr) >= self.min_isr:
            self.log.advance_high_watermark(high_watermark)
        self.notify(now)

    # Leadership.

    def broker_stopped(self, node: int, is_up: Callable[[int], bool], now: float) -> None:
        """React to a broker that stopped. The last in-sync replica stays in the ISR: no other replica is complete."""
        if node not in self.replicas:
            return
        if len(self.isr) > 1 and node in self.isr:
            self.isr.remove(node)
            self._left_at[node] = self.log.end_offset if node == self.leader else self.log.high_watermark
        if self.leader != node:
            self.replicate(now)
            return
        candidates = [replica for replica in self.isr if is_up(replica)]
        if not candidates and self.settings.unclean_election:
            candidates = [replica for replica in self.replicas if is_up(replica)]
            if candidates:
                self.elect_unclean(candidates[0], now)
                return
        self._elect(candidates[0] if candidates else NO_LEADER, now, keeps_log=not candidates)

    def broker_started(self, node: int, is_up: Callable[[int], bool], now: float) -> None:
        """React to a broker that started. Replicas join the ISR as soon as there is a leader."""
        if node not in self.replicas:
            return
        if self.leader == NO_LEADER and node in self.isr:
            self._elect(node, now, keeps_log=True)
        elif self.leader == NO_LEADER and self.settings.unclean_election:
            self.elect_unclean(node, now)
        if self.leader != NO_LEADER:
            self.isr += [replica for replica in self.replicas if is_up(replica) and replica not in self.isr]
            for replica in self.isr:
                self._left_at.pop(replica, None)
            self.replicate(now)
        self.notify(now)

    def set_replicas(self, replicas: Sequence[int], is_up: Callable[[int], bool], now: float) -> None:
        """Replace the replicas. Those whose brokers are up are in sync at once; a leader that is none leads no more."""
        self.replicas = tuple(replicas)
        if self.leader == NO_LEADER:
            self.isr = [node for node in self.isr if node in replicas] or [replicas[0]]
        else:
            self.isr = [node for node in replicas if is_up(node)] or [replicas[0]]
        self._left_at = {node: end for node, end in self._left_at.items() if node in replicas}
        if self.leader != NO_LEADER and self.leader not in self.isr:
            self._elect(self.isr[0] if is_up(self.isr[0]) else NO_LEADER, now, keeps_log=True)
        elif self.leader != NO_LEADER:
            self.replicate(now)
        else:
            self.notify(now)

    def move_leader(self, node: int, now: float) -> None:
        """Make another in-sync replica the leader, without loss. Raises NOT_LEADER_OR_FOLLOWER if `node` is not in the
        ISR."""
        if node not in self.isr or self.leader == NO_LEADER:
            raise self._error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} is not in sync: {self.isr}")
        self._elect(node, now, keeps_log=True)

    def _elect(self, node: int, now: float, *, keeps_log: bool) -> None:
        if not keeps_log:
            self.log.truncate(self.log.high_watermark)
        self.leader = node
        self.leader_epoch += 1
        if node != NO_LEADER:
            self.log.begin_epoch(self.leader_epoch)
            self.replicate(now)
        self.notify(now)

    def elect_unclean(self, node: int, now: float) -> None:
        """Elect a replica that is not in sync: what was written since it left the ISR is lost, acknowledged or not."""
        self.isr = [node]
        self.log.truncate(self._left_at.get(node, self.log.high_watermark))
        self._elect(node, now, keeps_log=False)

    def restore(self, leader_epoch: int, now: float) -> None:
        """Begin this epoch on a log that was loaded: all of it is replicated."""
        self.leader_epoch = leader_epoch
        self.log.advance_high_watermark(self.log.end_offset)
        if self.leader != NO_LEADER:
            self.log.begin_epoch(leader_epoch)
        self.notify(now)

    def delete(self, now: float) -> None:
        """Delete the records: the topic is deleted."""
        self.is_deleted = True
        self.leader = NO_LEADER
        self.log.clear()
        self.notify(now)

    # Listeners.

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(now)` after each change of the high watermark or the leader, until `remove_listener`."""
        self._listeners[listener] = None

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)

    def notify(self, now: float) -> None:
        """Call all listeners."""
        for listener in list(self._listeners):
            listener(now)
