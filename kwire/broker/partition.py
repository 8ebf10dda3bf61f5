"""One partition: its log, its replicas, who leads it in which epoch, and who waits for it to change.

Owns leadership and the high watermark. All replicas share one log; what a follower would not have yet lies between the
high watermark and the end, and is lost when the leader is (with `replication_ms` above 0; at 0 there is no such part).
It refuses to parse requests.
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
        self.is_deleted = False
        self._replication = options.replication_ms / 1000
        self._timers = timers
        self._listeners: dict[Listener, None] = {}  # an ordered set

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index}, leader {self.leader}, epoch {self.leader_epoch}>"

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    # Requests' checks.

    def check_leader(self, node: int, epoch: int = NO_EPOCH) -> None:
        """Raises unless `node` leads in `epoch` (-1: whichever it is, KIP-320)."""
        if self.is_deleted:
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        if epoch not in (NO_EPOCH, self.leader_epoch):
            fenced = epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise self._error(code, f"epoch {epoch}, but this is {self.leader_epoch}")
        if self.leader != node:
            raise self._error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} does not lead it")

    def check_replica(self, node: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless `node` has a copy of the partition, the leader's or a follower's."""
        if self.is_deleted:
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        if node not in self.replicas:
            raise self._error(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node} has no replica of it")

    def append(self, batches: Sequence[Batch], *, all_replicas: bool, now: float, wall_ms: int) -> LogAppendInfo:
        """Append as the leader. Raises BrokerError; NOT_ENOUGH_REPLICAS leaves the log as it was."""
        least = self.settings.min_insync_replicas
        if all_replicas and len(self.isr) < least:
            raise self._error(ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.isr)} in sync, min.insync.replicas is {least}")
        appended = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=wall_ms)
        self.replicate(now)
        return appended

    def append_marker(
        self, kind: str, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, now: float, wall_ms: int
    ) -> LogAppendInfo:
        """A transaction's end, "commit" or "abort". Raises BrokerError for one that comes too late."""
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
        """What is in the log now reaches the followers, at once or `replication_ms` later."""
        end, epoch = self.log.end_offset, self.leader_epoch
        if self._replication == 0 or len(self.isr) == 1:
            self._advance_high_watermark(end, now)
        else:
            self._timers.at(now + self._replication, lambda now: self._complete_replication(end, epoch, now))

    def _complete_replication(self, end: int, epoch: int, now: float) -> None:
        # A leader that fell meanwhile has lost what had not been copied; offsets of its epoch may mean other records.
        if epoch == self.leader_epoch:
            self._advance_high_watermark(end, now)

    def _advance_high_watermark(self, high_watermark: int, now: float) -> None:
        self.log.advance_high_watermark(high_watermark)
        self.notify(now)

    # Leadership.

    def broker_stopped(self, node: int, is_up: Callable[[int], bool], now: float) -> None:
        """A broker stopped. The last in-sync replica stays in sync, since nobody else has everything."""
        if node not in self.replicas:
            return
        if len(self.isr) > 1 and node in self.isr:
            self.isr.remove(node)
        if self.leader != node:
            self.replicate(now)
            return
        candidates = [replica for replica in self.isr if is_up(replica)]
        if not candidates and self.settings.unclean_election:
            candidates = [replica for replica in self.replicas if is_up(replica)]
            self.isr = candidates[:1] or self.isr
        self._elect(candidates[0] if candidates else NO_LEADER, now, keeps_log=not candidates)

    def broker_started(self, node: int, is_up: Callable[[int], bool], now: float) -> None:
        """A broker is back. Who came back before there was a leader to follow is in sync again when there is one."""
        if node not in self.replicas:
            return
        if self.leader == NO_LEADER and node in self.isr:
            self._elect(node, now, keeps_log=True)
        if self.leader != NO_LEADER:
            self.isr += [replica for replica in self.replicas if is_up(replica) and replica not in self.isr]
        self.notify(now)

    def move_leader(self, node: int, now: float) -> None:
        """An orderly move: the old leader hands over everything. Raises NOT_LEADER_OR_FOLLOWER for a broker that is not
        in sync."""
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

    def delete(self, now: float) -> None:
        self.is_deleted = True
        self.leader = NO_LEADER
        self.log.clear()
        self.notify(now)

    # Waiting.

    def add_listener(self, listener: Listener) -> None:
        """Call it after every change of the high watermark or the leader, until `unwatch`."""
        self._listeners[listener] = None

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)

    def notify(self, now: float) -> None:
        for listener in list(self._listeners):
            listener(now)
