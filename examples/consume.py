"""Read a topic from the beginning to its current end, and report what was read.

With `ends` nothing is fetched from these offsets on; the last fetch may bring a few records beyond them. `position`
tells when they are reached.

    python examples/consume.py localhost:9092
"""

import sys

import kwire


def main(bootstrap: str) -> None:
    with kwire.Consumer(bootstrap, isolation="read_committed") as consumer:
        partitions = [("orders", number) for number in consumer.partitions("orders")]
        ends = consumer.end_offsets(partitions)
        consumer.assign([(*partition, "earliest") for partition in partitions], ends=ends)
        records = size = 0
        while any(consumer.position(*partition) < end for partition, end in ends.items()):
            for record in consumer.poll(timeout=1.0):
                records += 1
                size += len(record.value or b"")
    print(f"{records} records, {size} bytes of values, {len(partitions)} partitions")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
