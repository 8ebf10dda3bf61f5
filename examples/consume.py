"""Read a topic from the beginning to its current end, and report what was read.

`ends` stops the consumer at these offsets. Without it, the consumer continues with new records.

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
