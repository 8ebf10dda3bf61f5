"""Write your own assignor: members of a group get partitions in proportion to their workers.

The members agree on an assignor by its name, so all of them need the class. Each sends the leader its number of workers
in its user data. The leader, one of the members, divides the partitions. Assignors are for the classic group protocol;
in the newer one the broker divides them.

    python examples/assignor.py localhost:9092
"""

import sys
from collections.abc import Collection, Mapping

import kwire
from kwire.consumer import Assignor, MemberSubscription, TopicRacks


class ByWorkers(Assignor):
    name = "by-workers"

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def user_data(self, topics: Collection[str]) -> bytes:
        return self.workers.to_bytes(4)

    def assign(self, topics: TopicRacks, members: Mapping[str, MemberSubscription]) -> dict[str, list[tuple[str, int]]]:
        workers = {member: int.from_bytes(members[member].user_data or b"") for member in members}
        assigned: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
        for topic, partitions in topics.items():
            able = [member for member in sorted(members) if topic in members[member].topics and workers[member]]
            for partition in range(len(partitions)) if able else ():
                # The member with the most workers for each partition it would then have.
                least = min(able, key=lambda member: (len(assigned[member]) + 1) / workers[member])
                assigned[least].append((topic, partition))
        return assigned


def member(bootstrap: str, workers: int) -> kwire.Consumer:
    return kwire.Consumer(bootstrap, group="by-workers", group_protocol="classic", assignors=[ByWorkers(workers)])


def main(bootstrap: str) -> None:
    # In practice each runs in a process of its own.
    with member(bootstrap, 8) as large, member(bootstrap, 3) as small:
        large.subscribe(["orders"])
        small.subscribe(["orders"])
        while not (large.assignment() and small.assignment()):
            large.poll(timeout=0.1)
            small.poll(timeout=0.1)
        print(f"8 workers: {len(large.assignment())} partitions, 3 workers: {len(small.assignment())}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
