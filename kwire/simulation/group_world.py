"""A consumer group in a run: its members, the record of what they do, when it has settled, and what was wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kwire.broker.consumer_group import ConsumerGroup, ConsumerMember
from kwire.broker.offsets import OffsetAndMetadata
from kwire.errors import ErrorCode
from kwire.simulation.checker import Anomaly
from kwire.simulation.cluster import SimulatedCluster
from kwire.simulation.copiers import OUTPUT, CopyProcess
from kwire.simulation.copy_checker import anomalies_of_copies
from kwire.simulation.group_checker import GroupChecker, GroupPromises
from kwire.simulation.group_history import CommittedEvent, GroupHistory, MemberEvent, TopicPartition
from kwire.simulation.history import LogCopy
from kwire.simulation.members import Member, MemberPlan, Process
from kwire.simulation.network import Network
from kwire.simulation.scenario import GroupKind
from kwire.simulation.share_checker import anomalies_of_share_group
from kwire.simulation.share_members import ShareProcess

GROUP = "g"
_PROCESSES: Mapping[GroupKind, type[Process]] = {"consumers": Process, "share": ShareProcess, "copiers": CopyProcess}


class GroupWorld:
    """The members of one group, and the record of what they do."""

    def __init__(
        self,
        net: Network,
        cluster: SimulatedCluster,
        plans: Sequence[MemberPlan],
        topics: Sequence[str],
        seed: str,
        *,
        kind: GroupKind = "consumers",
        is_gentle: bool = False,
    ) -> None:
        self.history = GroupHistory()
        self._world = net.world
        self._cluster = cluster
        self._live: frozenset[str] = frozenset()
        self._settled_events: int | None = None
        self._found: list[Anomaly] = []
        self._kind = kind
        self._is_gentle = is_gentle
        self._topics = frozenset(topics)
        if kind == "share":
            cluster.state.group_configs.alter(GROUP, {"share.auto.offset.reset": "earliest"})
            for broker in cluster.brokers.values():
                broker.on_acquired = self._acquired
        self._record_commits()
        self._record_downgrades()
        self.members = {
            plan.name: Member(
                net,
                plan,
                self.history,
                topics,
                cluster.bootstrap,
                seed,
                None,
                _PROCESSES[kind],
                is_undisturbed=is_gentle,
            )
            for plan in plans
        }
        for member in self.members.values():
            self._world.at(member.plan.starts_at, member.start)

    def _record_commits(self) -> None:
        """Note each offset that the coordinators store, with the client whose request did it."""
        offsets, cluster, world = self._cluster.state.offsets, self._cluster, self._world
        commit = offsets.commit

        def recorded(group: str, partition: TopicPartition, committed: OffsetAndMetadata) -> ErrorCode:
            error = commit(group, partition, committed)
            if error is ErrorCode.NONE and group == GROUP:
                self.history.add(
                    CommittedEvent(
                        world.now(), cluster.acting_client, partition, committed.offset, is_late=cluster.is_late
                    )
                )
            return error

        offsets.commit = recorded  # type: ignore[method-assign, assignment]
        commit_in_transaction, complete = offsets.commit_in_transaction, offsets.complete_transaction
        clients: dict[tuple[int, TopicPartition], str] = {}

        def pending(group: str, producer_id: int, partition: TopicPartition, committed: OffsetAndMetadata) -> ErrorCode:
            clients[producer_id, partition] = cluster.acting_client
            return commit_in_transaction(group, producer_id, partition, committed)

        def completed(producer_id: int, partition: int, *, is_commit: bool) -> None:
            before = dict(offsets.of(GROUP))
            complete(producer_id, partition, is_commit=is_commit)
            for key, committed in offsets.of(GROUP).items():
                if before.get(key) is not committed:
                    client = clients[producer_id, key]
                    self.history.add(CommittedEvent(world.now(), client, key, committed.offset, is_in_transaction=True))

        offsets.commit_in_transaction = pending  # type: ignore[method-assign, assignment]
        offsets.complete_transaction = completed  # type: ignore[method-assign]

    def _record_downgrades(self) -> None:
        """Note when the group becomes classic since the last member of KIP-848 leaves it."""
        groups = self._cluster.state.consumer_groups
        downgrade = groups.downgrade

        def recorded(group: ConsumerGroup, leaving: ConsumerMember, now: float) -> bool:
            is_done = downgrade(group, leaving, now)
            if is_done and group.id == GROUP:
                self.history.downgraded_at.append(self._world.now())
            return is_done

        groups.downgrade = recorded

    def _acquired(self, client: str, partition: TopicPartition, offset: int) -> None:
        self.history.add(MemberEvent(self._world.now(), "acquired", client, partition, offset))

    # -- the course of a run

    def heal(self) -> None:
        """Start what does not run."""
        for member in self.members.values():
            member.start()

    def is_settled(self) -> bool:
        """Return whether all members run, each partition has one owner, and all offsets are committed."""
        for partition in self._cluster.state.partitions():
            key = partition.topic, partition.index
            if partition.topic not in self._topics:
                continue
            end = partition.log.end_offset
            if self._kind == "share":
                if not all(self.history.is_delivered(key, offset) for offset in range(end)):
                    return False
                continue
            if self.history.committed.get(key, 0) < end or len(self.history.owners.get(key, ())) != 1:
                return False
        return all(member.process is not None for member in self.members.values())

    def begin_to_end(self) -> None:
        """Close all members: what they own now is what the group has come to."""
        self._live = frozenset(process.name for process in self._processes())
        self._settled_events = len(self.history.events)
        for member in self.members.values():
            member.is_over = True
            if member.process is not None:
                member.process.orders.close = True

    def has_ended(self) -> bool:
        return all(member.process is None for member in self.members.values())

    def close(self) -> None:
        for member in self.members.values():
            for process in member.processes:
                process.discard()

    def _processes(self) -> Iterator[Process]:
        for member in self.members.values():
            if member.process is not None:
                yield member.process

    def coverage(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for event in self.history.events:
            found["group: committed" if isinstance(event, CommittedEvent) else f"group: {event.kind}"] += 1
        return found

    @property
    def processes(self) -> list[Process]:
        """All that ever ran."""
        return [process for member in self.members.values() for process in member.processes]

    def anomalies(self, logs: Sequence[LogCopy], *, is_tidy: bool) -> list[Anomaly]:
        if not self.members:
            return []  # nobody has to process the records of this run
        found = [Anomaly("member", what) for what in self.history.unexpected]
        for process in self.processes:
            found += process.conduct.anomalies
        records = {(log.topic, log.partition): dict(log.records) for log in logs if not log.is_deleted}
        if self._kind == "share":
            lock_seconds = self._cluster.state.options.share_record_lock_ms / 1000 if self._is_gentle else None
            return [*found, *anomalies_of_share_group(self.history, records, lock_seconds)]
        if self._kind == "copiers":
            committed = self._cluster.committed_records(OUTPUT)
            copies = [(partition, record.offset, record.value) for partition, record in committed]
            is_open = [
                one.index
                for one in self._cluster.state.topics[OUTPUT].partitions
                if one.log.producers.first_open_offset() is not None
            ]
            found += anomalies_of_copies(records, copies, is_open)
            for process in self.processes:
                assert isinstance(process, CopyProcess)
                found += process.producer.conduct.anomalies
        promises = GroupPromises(self._is_gentle, is_tidy, self._live, self._settled_events)
        return [*found, *self._found, *GroupChecker(self.history, records, promises).anomalies()]
