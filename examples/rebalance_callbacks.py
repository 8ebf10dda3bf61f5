"""Keep results of each partition in memory, and write them before another member gets the partition.

The callbacks run in the thread that polls, between two batches. They need not assign anything; they may seek, pause
and commit. on_lost is called when the partitions are another member's already, as after a long stop of the process:
then nothing may be written any more.

    python examples/rebalance_callbacks.py localhost:9092 DIRECTORY
"""

import sys
from pathlib import Path

import kwire


def main(bootstrap: str, directory: str) -> None:
    lines: dict[kwire.TopicPartition, list[bytes]] = {}

    def begin(partitions: list[kwire.TopicPartition]) -> None:
        lines.update((key, []) for key in partitions)
        print("assigned", sorted(partitions), flush=True)

    def write(partitions: list[kwire.TopicPartition]) -> None:
        for topic, number in partitions:
            with (Path(directory) / f"{topic}-{number}.log").open("ab") as file:
                file.write(b"".join(line + b"\n" for line in lines.pop((topic, number))))
        print("revoked", sorted(partitions), flush=True)

    def forget(partitions: list[kwire.TopicPartition]) -> None:
        for key in partitions:
            del lines[key]
        print("lost", sorted(partitions), flush=True)

    with kwire.stop_on_signals(), kwire.Consumer(bootstrap, group="logs") as consumer:
        consumer.subscribe(["orders"], on_assigned=begin, on_revoked=write, on_lost=forget)
        for record in consumer:
            lines[record.topic, record.partition].append(record.value or b"")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092", "."])
