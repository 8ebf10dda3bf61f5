"""Let many members join one group, and measure the time until each reads its fair share of the partitions.

Every member has a thread of its own that polls. All members are in one process, so a client's threads share its
processor time as the members of one machine would. Nothing is committed, so each owner reads its partitions from their
beginning, and "reads" means that it has got a record of the partition since it became its owner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from bench.meter import Meter
from bench.task import Sample, Task

_WAIT_S = 120.0


class Member(Protocol):
    """Be one member of a group. `poll` returns the partitions of the records that it read, within 0.1 s."""

    def poll(self) -> Iterable[int]: ...
    def close(self) -> object: ...


class Ownership:
    """Say who owns and reads each partition. The callbacks and threads of all members write into it."""

    def __init__(self, partitions: int) -> None:
        self._lock = threading.Condition()
        self._owners: dict[int, int] = {}
        self._read: set[int] = set()
        self._partitions = partitions
        self._wanted = 0
        self.error: BaseException | None = None

    def assigned(self, member: int, partitions: Iterable[int]) -> None:
        with self._lock:
            for partition in partitions:
                self._owners[partition] = member
                self._read.discard(partition)

    def revoked(self, member: int, partitions: Iterable[int]) -> None:
        with self._lock:
            for partition in partitions:
                if self._owners.get(partition) == member:
                    del self._owners[partition]
                    self._read.discard(partition)

    def read(self, member: int, partitions: Iterable[int]) -> None:
        with self._lock:
            self._read.update(partition for partition in partitions if self._owners.get(partition) == member)
            if len(self._read) == self._partitions and self._is_even():
                self._lock.notify_all()

    def failed(self, error: BaseException) -> None:
        with self._lock:
            self.error = self.error or error
            self._lock.notify_all()

    def _is_even(self) -> bool:
        counts = dict.fromkeys(range(self._wanted), 0)
        for owner in self._owners.values():
            counts[owner] += 1
        return max(counts.values()) - min(counts.values()) <= 1

    def expect(self, members: int) -> None:
        with self._lock:
            self._wanted = members

    def wait(self) -> None:
        """Wait until every partition has an owner that has read it, and no member has two more than another."""
        with self._lock:
            done = self._lock.wait_for(
                lambda: self.error is not None or (len(self._read) == self._partitions and self._is_even()), _WAIT_S
            )
        if self.error is not None:
            raise self.error
        if not done:
            raise RuntimeError(f"{len(self._read)} of {self._partitions} partitions were read after {_WAIT_S:.0f} s")


MakeMember = Callable[[int, Ownership], Member]


def storm(task: Task, make: MakeMember, version: str) -> Sample:
    """Start the members of the task at once; with `joining` members, only their joining is measured."""
    members, joining = task.options["members"], task.options["joining"]
    ownership = Ownership(task.partitions)
    end = threading.Event()

    def live(number: int) -> None:
        try:
            member = make(number, ownership)
            while not end.is_set():
                read = set(member.poll())
                if read:
                    ownership.read(number, read)
            member.close()
        except BaseException as error:
            ownership.failed(error)

    def start(first: int, count: int) -> list[threading.Thread]:
        ownership.expect(first + count)
        threads = [threading.Thread(target=live, args=(first + number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        return threads

    threads: list[threading.Thread] = []
    if joining:
        threads += start(0, members)
        ownership.wait()
        time.sleep(task.options["settle_s"])
    with Meter() as meter:
        threads += start(len(threads), joining or members)
        ownership.wait()
    end.set()
    for thread in threads:
        thread.join(30.0)
    return meter.sample(1, measures={"seconds": meter.wall_s, "cpu_seconds": meter.cpu_s}, version=version)
