"""Choose partitions by your own rule: partition 0 is reserved for premium customers.

The rule runs in `send`, on the caller's thread. Its arguments are the record and the topic's partitions with their
leaders. If it returns None, the default partitioner decides.

    python examples/partitioner.py localhost:9092
"""

import sys
from collections import Counter

import kwire
from kwire.cluster import Topic
from kwire.producer.partitioner import murmur2_partition


def premium_first(message: kwire.Message, topic: Topic) -> int | None:
    if message.key is None:
        return None
    assert isinstance(message.key, bytes)  # as it always is here, whatever `send` was given
    if message.key.startswith(b"premium"):
        return 0
    return 1 + murmur2_partition(message.key, len(topic.partitions) - 1)


def main(bootstrap: str) -> None:
    with kwire.Producer(bootstrap, partitioner=premium_first) as producer:
        responses = [
            producer.send("orders", b"an order", key=f"{kind} {number}")
            for number in range(50)
            for kind in ("premium", "plain")
        ]
    placed = Counter(response.result().partition for response in responses)
    print(f"{placed[0]} in partition 0, {placed.total() - placed[0]} in the others")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
