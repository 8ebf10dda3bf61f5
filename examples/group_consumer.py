"""Read a topic as a member of a group: start the program twice, and each copy gets a part of the partitions.

A record counts as processed when the loop asks for the next one, and is committed some time after that. Ctrl-C or
SIGTERM ends the loop; then the rest is committed and the group hands the partitions on at once.

    python examples/group_consumer.py localhost:9092
"""

import sys

import kwire


def main(bootstrap: str) -> None:
    count = 0
    with kwire.stop_on_signals(), kwire.Consumer(bootstrap, group="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            count += 1
            print(record.topic, record.partition, record.offset, record.value, flush=True)
    print(f"{count} records")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
