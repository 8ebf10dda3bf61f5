"""The state of one group of Kafka Streams (KIP-1071): members, topology, target tasks, and how a member reaches them.

When the state changes is decided in `streams_groups`. An active task is given to a member only after its last process
has reported that it no longer has it; a standby task only waits for the same task on its own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kwire.broker.consumer_group import TopicsImage
from kwire.broker.current_assignment import MemberState
from kwire.broker.group_registry import AnyGroup
from kwire.broker.streams_assignor import MemberSpec, Task, Tasks, assign
from kwire.broker.streams_topology import ConfiguredTopology, Topology, configure
from kwire.net.timers import Timer

PROTOCOL_TYPE = "streams"
NO_TASKS = Tasks()


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    """The tasks of one member, and those that it has to give up and has not reported as given up."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NO_TASKS
    pending_revocation: Tasks = NO_TASKS

    @property
    def held(self) -> Tasks:
        return self.assigned | self.pending_revocation

    def reconcile(
        self, target_epoch: int, target: Tasks, *, process: str, holders: Holders, owned: Tasks | None
    ) -> CurrentTasks:
        """Return the next assignment on the way to the target. `owned` is None if this heartbeat does not say."""
        if self.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & self.pending_revocation:
                return self
        elif self.state is MemberState.STABLE and self.epoch == target_epoch:
            return self
        kept = self.assigned & target
        revoked = self.assigned - kept
        if revoked and (owned is None or owned & revoked):
            return CurrentTasks(self.epoch, self.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        missing = target - kept
        free = Tasks(
            frozenset(task for task in missing.active if not holders.blocks_active(task, process)),
            frozenset(task for task in missing.standby if not holders.blocks_standby(task, process)),
            frozenset(task for task in missing.warmup if not holders.blocks_standby(task, process)),
        )
        state = MemberState.UNRELEASED_PARTITIONS if missing - free else MemberState.STABLE
        return CurrentTasks(target_epoch, self.epoch, state, kept | free)


class Holders:
    """Which processes have each task, whether they are to keep it or not."""

    def __init__(self) -> None:
        self._active: dict[Task, str] = {}
        self._others: dict[Task, set[str]] = {}

    def add(self, process: str, tasks: Tasks) -> None:
        self._active |= dict.fromkeys(tasks.active, process)
        for task in tasks.standby | tasks.warmup:
            self._others.setdefault(task, set()).add(process)

    def blocks_active(self, task: Task, process: str) -> bool:
        return task in self._active or process in self._others.get(task, ())

    def blocks_standby(self, task: Task, process: str) -> bool:
        return self._active.get(task) == process or process in self._others.get(task, ())


@dataclass(slots=True, eq=False)
class StreamsMember:
    """A member of a group of Kafka Streams: one thread of a process."""

    id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    current: CurrentTasks = field(default_factory=CurrentTasks)
    session: Timer | None = None
    revocation: Timer | None = None  # it has to give tasks up until then

    @property
    def epoch(self) -> int:
        return self.current.epoch

    def cancel_timers(self) -> None:
        for timer in (self.session, self.revocation):
            if timer is not None:
                timer.cancel()
        self.session = self.revocation = None


@dataclass(slots=True, eq=False)
class StreamsGroup(AnyGroup):
    """One group of Kafka Streams. The group epoch grows with every change of members, topology or its topics."""

    TYPE: ClassVar[str] = "streams"

    id: str
    epoch: int = 1
    members: dict[str, StreamsMember] = field(default_factory=dict)
    topology: Topology | None = None
    configured: ConfiguredTopology = field(default_factory=ConfiguredTopology)
    topics: dict[str, tuple[UUID, int]] = field(default_factory=dict)  # those that the topology requires and that exist
    topics_revision: int = -1  # of the cluster's topics, when `topics` was computed
    assignment_epoch: int = 0  # the group epoch for which the targets were computed
    targets: dict[str, Tasks] = field(default_factory=dict)
    endpoint_epoch: int = 0
    shutdown_requested_by: str | None = None
    empty_since: float | None = None

    # Of any group.

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.configured.status is not None:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(
            member.current.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    @property
    def shown_protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.required_topics

    def dispose(self) -> None:
        for member in self.members.values():
            member.cancel_timers()

    # Members.

    def remove(self, member: StreamsMember, now: float) -> None:
        """Remove a member with its target and its tasks, and begin a new group epoch."""
        member.cancel_timers()
        del self.members[member.id]
        self.targets.pop(member.id, None)
        self.epoch += 1
        if not self.members:
            self.empty_since = now
            self.shutdown_requested_by = None

    # Topics and targets.

    def update_topics(self, image: TopicsImage) -> bool:
        """Look at the topics again. Return whether one that the topology requires has changed."""
        if self.topology is None or self.topics_revision == image.topics_revision:
            return False
        self.topics_revision = image.topics_revision
        topics = {
            name: (image.topics[name].id, len(image.topics[name].partitions))
            for name in sorted(self.topology.required_topics)
            if name in image.topics
        }
        changed = topics != self.topics
        self.topics = topics
        self.configured = configure(self.topology, {name: count for name, (_, count) in topics.items()})
        return changed

    def compute_targets(self, standby_replicas: int) -> None:
        """Let the assignor choose the tasks of each member, of the present group epoch."""
        stateful = frozenset(one.id for one in self.topology.subtopologies if one.changelogs) if self.topology else ()
        specs = {id: MemberSpec(one.process_id, self.targets.get(id, NO_TASKS)) for id, one in self.members.items()}
        self.targets = assign(specs, self.configured.tasks, frozenset(stateful), standby_replicas)
        self.assignment_epoch = self.epoch

    def reconcile(self, member: StreamsMember, owned: Tasks | None) -> None:
        """Take a member one step towards its target."""
        holders = Holders()
        for one in self.members.values():
            holders.add(one.process_id, one.current.held)
        member.current = member.current.reconcile(
            self.assignment_epoch, self.targets.get(member.id, NO_TASKS), process=member.process_id, holders=holders,
            owned=owned,
        )  # fmt: skip

    def source_partitions(self, tasks: frozenset[Task]) -> dict[str, list[int]]:
        """Return the partitions that these tasks read, by topic."""
        found: dict[str, list[int]] = {}
        for subtopology in self.topology.subtopologies if self.topology is not None else ():
            numbers = sorted(partition for id, partition in tasks if id == subtopology.id)
            for name in subtopology.sources if numbers else ():
                count = self.topics[name][1] if name in self.topics else 0
                found[name] = [number for number in numbers if number < count]
        return found
