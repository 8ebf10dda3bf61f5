"""Write your own assignor: members get partitions in proportion to their workers.

The members of a group agree on an assignor by its name, so all of them need the class. Each tells the leader its number
of workers in its user data. The leader, one of the members, divides the partitions. The program does what the members
of a group do, without a broker.

    python examples/assignor.py
"""

from collections.abc import Collection, Mapping

from kwire.consumer import Assignor, MemberSubscription, TopicRacks
from kwire.consumer.assignors import group_assignment


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


def main() -> None:
    assignors = {"large": ByWorkers(12), "small": ByWorkers(4), "idle": ByWorkers(0)}
    joined = {
        member: MemberSubscription(["orders"], user_data=assignor.user_data(["orders"]))
        for member, assignor in assignors.items()
    }
    # What metadata says of the topic: 8 partitions, none with replicas in a known rack.
    topics: TopicRacks = {"orders": [()] * 8}
    for member, assignment in group_assignment(assignors["large"], topics, joined).items():
        print(f"{member}: {len(assignment.partitions)} partitions")


if __name__ == "__main__":
    main()
