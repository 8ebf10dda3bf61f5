"""Check what happened to a group against what a consumer group promises (I1 to I6 of the design).

unprocessed       a record is in a log, and no member ever processed it
committed ahead   an offset was committed before a record below it was processed, or before this owner processed it
                  (I3); a commit that was under way when the program sought back is none
committed back    an owner committed a lower offset than before, and its program had not sought back (I3)
former owner      a commit of a member was stored although another one got the partition after it
two owners        a member got a partition that a live member had not given up, without a fault that explains it; Kafka,
                  too, makes targets the assignments when a group becomes classic, whatever members still have
not owned         a member got a record of a partition that it did not have, or had given up
order             within one ownership, records came twice, backwards, or with a gap
skipped           a new owner began behind a record that nobody had committed
went back         a new owner began before the committed offset
callbacks         a partition was assigned twice, or given up twice, or never assigned
wrong record      a member got something else than the log has at this offset
processed twice   although nothing failed, and every member gave up its partitions in order
no owner          after the faults a partition has no owner, or has two
not committed     after the faults processed records were never committed, or by a client that went back; an old
                  request that a broker carries out when its client has sent a newer one (Kafka allows it) is none
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kwire.simulation.checker import Anomaly
from kwire.simulation.group_history import CommittedEvent, GroupHistory, MemberEvent, TopicPartition

# A commit may have been under way for so long when its program seeks back.
_UNDER_WAY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class GroupPromises:
    """`is_gentle`: no fault can separate a member from the group. `is_tidy`: nothing makes a member read again."""

    is_gentle: bool = False
    is_tidy: bool = False
    live: frozenset[str] = frozenset()  # the processes at the end, before they close
    settled_events: int | None = None  # how many events there were then


@dataclass(slots=True, eq=False)
class _Ownership:
    since: float
    committed_min: int  # the lowest committed offset since then
    position: int | None = None  # the next offset to be handed out; None before the first
    processed: int | None = None  # the offset after what this owner processed; where it began before the first
    committed: int | None = None  # by this owner
    sought_at: float | None = None
    reached: int = 0  # processed before it sought


@dataclass(slots=True, eq=False)
class _Partition:
    log: Mapping[int, bytes | None]
    offsets: Sequence[int]  # of the log's records, in order
    owners: dict[str, _Ownership] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)  # when each process last got it
    processed: dict[int, int] = field(default_factory=dict)  # how often each offset was
    frontier: int = 0  # an index in `offsets`: all before it are processed
    committed: int | None = None
    committed_max: int = 0
    settled: int | None = None  # committed, but for late requests that went back

    def next_offset(self, position: int) -> int | None:
        """Return the offset of the first record from `position` on."""
        index = bisect_left(self.offsets, position)
        return self.offsets[index] if index < len(self.offsets) else None


class GroupChecker:
    """`logs` are the records of each partition: value by offset, as a reader may see them."""

    def __init__(
        self,
        history: GroupHistory,
        logs: Mapping[TopicPartition, Mapping[int, bytes | None]],
        promises: GroupPromises,
    ) -> None:
        self._history = history
        self._promises = promises
        self._partitions = {key: _Partition(log, sorted(log)) for key, log in logs.items()}
        self._found: list[Anomaly] = []

    def anomalies(self) -> list[Anomaly]:
        for number, event in enumerate(self._history.events):
            if number == self._promises.settled_events:
                self._found += self._when_settled()
            if isinstance(event, CommittedEvent):
                self._committed(event)
            elif event.kind == "ended":
                for partition in self._partitions.values():
                    partition.owners.pop(event.member, None)
            else:
                self._seen(event, self._partitions[event.partition])
        self._found += self._unprocessed()
        return self._found

    def _find(self, kind: str, event: MemberEvent | CommittedEvent, what: str) -> None:
        who = event.client if isinstance(event, CommittedEvent) else event.member
        topic, index = event.partition
        self._found.append(Anomaly(kind, f"{topic}-{index} {who} at {event.at:.3f} s: {what}"))

    # -- members

    def _seen(self, event: MemberEvent, partition: _Partition) -> None:
        owned = partition.owners.get(event.member)
        match event.kind:
            case "assigned":
                self._assigned(event, partition, owned)
            case "revoked" | "lost":
                if owned is None:
                    self._find("callbacks", event, f"{event.kind}, and it was not assigned")
                partition.owners.pop(event.member, None)
            case "sought" | "moved" if owned is not None:
                owned.sought_at, owned.reached = event.at, max(owned.reached, owned.processed or 0)
                owned.position = owned.processed = event.offset
                owned.committed = None
            case "handed":
                self._handed(event, partition, owned)
            case "processed":
                if owned is not None:
                    owned.processed = max(event.offset + 1, owned.processed or 0)
                times = partition.processed[event.offset] = partition.processed.get(event.offset, 0) + 1
                if times > 1 and self._promises.is_tidy:
                    self._find("processed twice", event, f"offset {event.offset}")
                offsets = partition.offsets
                while partition.frontier < len(offsets) and offsets[partition.frontier] in partition.processed:
                    partition.frontier += 1

    def _assigned(self, event: MemberEvent, partition: _Partition, owned: _Ownership | None) -> None:
        if owned is not None:
            self._find("callbacks", event, "assigned, and it had been already")
        others = [
            name
            for name, other in partition.owners.items()
            if name != event.member and not any(other.since < at for at in self._history.downgraded_at if at < event.at)
        ]
        if others and self._promises.is_gentle:
            self._find("two owners", event, f"assigned, and {', '.join(others)} has it")
        partition.owners[event.member] = _Ownership(event.at, partition.committed or 0)
        partition.since[event.member] = event.at

    def _handed(self, event: MemberEvent, partition: _Partition, owned: _Ownership | None) -> None:
        if partition.log.get(event.offset, event) != event.value:
            self._find("wrong record", event, f"{event.value!r} at offset {event.offset}")
        if owned is None:
            self._find("not owned", event, f"got offset {event.offset}")
            return
        if owned.position is None:
            missed = partition.next_offset(partition.committed_max)
            if missed is not None and event.offset > missed:
                self._find("skipped", event, f"began at {event.offset}, and nobody had committed {missed}")
            if event.offset < owned.committed_min:
                self._find("went back", event, f"began at {event.offset}, {owned.committed_min} was committed")
            owned.processed = event.offset
        else:
            expected = partition.next_offset(owned.position)
            if expected != event.offset:
                self._find("order", event, f"got offset {event.offset} instead of {expected}")
        owned.position = event.offset + 1

    # -- commits

    def _committed(self, event: CommittedEvent) -> None:
        partition = self._partitions[event.partition]
        offsets = partition.offsets
        if partition.frontier < len(offsets) and offsets[partition.frontier] < event.offset:
            missing = offsets[partition.frontier]
            self._find("committed ahead", event, f"{event.offset}, and {missing} was not processed")
        if not event.is_late:
            self._committed_by_owner(event, partition)
        mine = partition.since.get(event.client, -1.0)
        later = [
            name
            for name, owned in partition.owners.items()
            if name != event.client
            and owned.since > mine
            # A new owner waits for the end of a transaction before it reads.
            and not (event.is_in_transaction and owned.position is None)
        ]
        if later:
            self._find("former owner", event, f"offset {event.offset}, and {', '.join(later)} has it")
        partition.committed = event.offset
        if not event.is_late or event.offset > (partition.settled or 0):
            partition.settled = event.offset
        partition.committed_max = max(partition.committed_max, event.offset)
        for owned in partition.owners.values():
            owned.committed_min = min(owned.committed_min, event.offset)

    def _committed_by_owner(self, event: CommittedEvent, partition: _Partition) -> None:
        owned = partition.owners.get(event.client)
        if owned is None:
            return
        if owned.processed is not None:
            missing = partition.next_offset(owned.processed)
            is_under_way = (
                owned.sought_at is not None
                and event.at - owned.sought_at < _UNDER_WAY_SECONDS
                and event.offset <= owned.reached
            )
            if missing is not None and missing < event.offset and not is_under_way:
                self._find("committed ahead", event, f"{event.offset}, and this member did not process {missing}")
        if owned.committed is not None and event.offset < owned.committed:
            self._find("committed back", event, f"{event.offset} after {owned.committed}")
        owned.committed = event.offset

    # -- after the faults

    def _when_settled(self) -> Iterator[Anomaly]:
        for (topic, index), partition in self._partitions.items():
            owners = [name for name in partition.owners if name in self._promises.live]
            if len(owners) != 1:
                yield Anomaly("no owner", f"{topic}-{index} is of {owners or 'nobody'}")
            last = partition.offsets[-1] + 1 if partition.offsets else 0
            if (partition.settled or 0) < last:
                yield Anomaly("not committed", f"{topic}-{index}: {partition.settled} of {last}")

    def _unprocessed(self) -> Iterator[Anomaly]:
        for (topic, index), partition in self._partitions.items():
            missing = [offset for offset in partition.offsets if offset not in partition.processed]
            if missing:
                yield Anomaly("unprocessed", f"{topic}-{index}: {missing[:10]}")
