"""The assignor of groups of Kafka Streams: tasks stay where they are, as far as that is balanced.

It has the rules of Kafka's StickyTaskAssignor in 4.3. A process may have several members, which are its threads. The
standby tasks of a task are on other processes than the task itself. There are no warm-up tasks: a task moves at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Task = tuple[str, int]  # subtopology, partition
TaskSet = frozenset[Task]
_NO_TASKS: TaskSet = frozenset()


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one member, of each kind."""

    active: TaskSet = _NO_TASKS
    standby: TaskSet = _NO_TASKS
    warmup: TaskSet = _NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __and__(self, other: Tasks) -> Tasks:
        return Tasks(self.active & other.active, self.standby & other.standby, self.warmup & other.warmup)

    def __or__(self, other: Tasks) -> Tasks:
        return Tasks(self.active | other.active, self.standby | other.standby, self.warmup | other.warmup)

    def __sub__(self, other: Tasks) -> Tasks:
        return Tasks(self.active - other.active, self.standby - other.standby, self.warmup - other.warmup)


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: its process, and what it was to have until now."""

    process: str
    previous: Tasks = field(default_factory=Tasks)


class _Quota:
    """How many tasks a member gets before the others have as many. It falls once some members have their share."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members

    @property
    def per_member(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def filled(self, count: int) -> None:
        """Note that a member has its share."""
        self._tasks -= count
        self._members -= 1


class _Assignment:
    """Tasks while they are assigned."""

    def __init__(self, members: Mapping[str, MemberSpec]) -> None:
        self.members = members
        self.active: dict[str, set[Task]] = {member: set() for member in members}
        self.standby: dict[str, set[Task]] = {member: set() for member in members}
        self.threads: dict[str, list[str]] = {}  # the members of each process
        for member, spec in sorted(members.items()):
            self.threads.setdefault(spec.process, []).append(member)

    def count(self, member: str) -> int:
        return len(self.active[member]) + len(self.standby[member])

    def load(self, process: str) -> float:
        """Return how many tasks each thread of a process has on average."""
        threads = self.threads[process]
        return sum(map(self.count, threads)) / len(threads)

    def has(self, process: str, task: Task) -> bool:
        return any(task in self.active[member] or task in self.standby[member] for member in self.threads[process])

    def least_loaded(self, processes: Iterable[str]) -> str:
        """Return the member that has least to do of the process that has least to do."""
        process = min(processes, key=lambda one: (self.load(one), one))
        return min(self.threads[process], key=lambda member: (self.count(member), member))


def assign(
    members: Mapping[str, MemberSpec], tasks: Mapping[str, int], stateful: frozenset[str], standby_replicas: int
) -> dict[str, Tasks]:
    """Return the tasks of each member.

    `tasks` are how many tasks each subtopology has. Those of `stateful` ones have `standby_replicas` standby tasks, as
    far as there are other processes.
    """
    if not members:
        return {}
    assignment = _Assignment(members)
    all_tasks = [(id, partition) for id in sorted(tasks) for partition in range(tasks[id])]
    _assign_active(assignment, all_tasks)
    if standby_replicas:
        _assign_standby(assignment, [task for task in all_tasks if task[0] in stateful], standby_replicas)
    return {
        member: Tasks(frozenset(assignment.active[member]), frozenset(assignment.standby[member])) for member in members
    }


def _assign_active(assignment: _Assignment, tasks: list[Task]) -> None:
    quota = _Quota(len(tasks), len(assignment.members))
    before = {task: member for member, spec in assignment.members.items() for task in spec.previous.active}
    stood_by = _previous_standby(assignment)
    left = []

    def give(task: Task, member: str) -> None:
        assignment.active[member].add(task)
        if len(assignment.active[member]) == quota.per_member:
            quota.filled(quota.per_member)

    def has_room(member: str) -> bool:
        return len(assignment.active[member]) < quota.per_member

    for task in tasks:
        if task in before and has_room(before[task]):
            give(task, before[task])
        else:
            left.append(task)
    for task in left:
        known = [member for member in stood_by.get(task, ()) if has_room(member)]
        process = {assignment.members[member].process: member for member in known}
        if process:
            give(task, process[min(process, key=lambda one: (assignment.load(one), one))])
        else:
            give(task, assignment.least_loaded(assignment.threads))


def _previous_standby(assignment: _Assignment) -> dict[Task, list[str]]:
    """Return who had a task as a standby task, and so has its state."""
    found: dict[Task, list[str]] = {}
    for member, spec in sorted(assignment.members.items()):
        for task in spec.previous.standby:
            found.setdefault(task, []).append(member)
    return found


def _assign_standby(assignment: _Assignment, tasks: list[Task], replicas: int) -> None:
    """Give each task to other processes, rather to those that had its state."""
    before = _previous_standby(assignment)
    for member, spec in assignment.members.items():
        for task in spec.previous.active:
            before.setdefault(task, []).insert(0, member)
    for task in tasks:
        for _ in range(replicas):
            free = [process for process in assignment.threads if not assignment.has(process, task)]
            if not free:
                break
            least = assignment.least_loaded(free)
            known = [member for member in before.get(task, ()) if assignment.members[member].process in free]
            # A member keeps the state of a task unless it would have more to do than it must.
            kept = next((member for member in known if assignment.count(member) <= assignment.count(least)), None)
            assignment.standby[kept or least].add(task)
