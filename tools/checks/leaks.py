"""Send and read millions of records in every way, and check that Python's allocated blocks do not grow.

Each way runs in ten rounds with a real `kwire.Producer` and `kwire.Consumer`; the broker is another process and is not
counted. Between rounds everything is read or acknowledged and the garbage collector has run. Caches grow in the first
rounds; a leak grows in every round. Memory that C allocates is not counted, so the size of the process is printed too.
The program does not say what leaks: the way that grows shows where to look.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from kwire import Consumer, Producer
from kwire.broker import Cluster

ROUNDS = 10
PARTITIONS = 4
AT_ONCE = 10_000
TOPIC, READ = "sent-to", "read-from"
VALUE, KEY = b"a value that all records share", b"key"
HEADERS = (("name", b"content"),)
# The growth allowed in a round, for threads and dictionaries. One leaked object a record would add a million.
GROWTH_MAX = 500


def broker(pipe: Connection) -> None:
    """Run a broker that deletes the oldest records as its logs grow."""
    with Cluster(1) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, configs={"retention.bytes": "10000000"})
        cluster.create_topic(READ, PARTITIONS)
        pipe.send(cluster.bootstrap)
        pipe.recv()


class Ways:
    """Send or read a number of records, in one way each, and leave none in flight."""

    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer(bootstrap)
        self.consumer = Consumer(bootstrap)
        self.left = 0
        self.all_told = threading.Event()

    def send(self, count: int) -> None:
        for _ in range(count):
            self.producer.send(TOPIC, VALUE, KEY)
        self.producer.flush()

    def send_and_be_told(self, count: int) -> None:
        """Send with a delivery callback for each record, and keep the last future for a while."""
        self.left, kept = count, None
        for number in range(count):
            kept = self.producer.send(TOPIC, VALUE, None, HEADERS, number % PARTITIONS, number, self._tell)
        self.producer.flush()
        self.all_told.wait(60)
        self.all_told.clear()
        assert kept is None or kept.result(10).offset >= 0

    def send_many(self, count: int) -> None:
        for start in range(0, count, AT_ONCE):
            self.producer.send_many(TOPIC, [VALUE] * min(AT_ONCE, count - start), [KEY] * min(AT_ONCE, count - start))
        self.producer.flush()

    def send_arrow(self, count: int) -> None:
        table = pa.table({"value": pa.array([VALUE] * min(AT_ONCE, count), pa.binary())})
        for start in range(0, count, AT_ONCE):
            self.producer.send_arrow(TOPIC, table.slice(0, min(AT_ONCE, count - start)))
        self.producer.flush()

    def poll(self, count: int) -> None:
        self._rewind()
        left = count
        while left > 0:
            for record in self.consumer.poll(500, 10.0):
                assert record.value == VALUE
                left -= 1

    def iterate(self, count: int) -> None:
        self._rewind()
        for number, record in enumerate(self.consumer, 1):
            assert record.headers == ()
            if number == count:
                break

    def poll_batch(self, count: int) -> None:
        self._rewind()
        left = count
        while left > 0:
            left -= len(self.consumer.poll_batch(timeout=10.0))

    def poll_arrow(self, count: int) -> None:
        self._rewind()
        left = count
        while left > 0:
            left -= self.consumer.poll_arrow(timeout=10.0, include_headers=True).num_rows

    def fill(self, count: int) -> None:
        """Write the records that the other ways read repeatedly."""
        for start in range(0, count, AT_ONCE):
            self.producer.send_many(READ, [VALUE] * min(AT_ONCE, count - start))
        self.producer.flush()

    def _rewind(self) -> None:
        self.consumer.assign([(READ, partition, 0) for partition in range(PARTITIONS)])

    def _tell(self, response: object) -> None:
        self.left -= 1
        if not self.left:
            self.all_told.set()


def counted() -> dict[str, int]:
    gc.collect()
    shared = {"VALUE": VALUE, "KEY": KEY, "TOPIC": TOPIC, "READ": READ, "HEADERS": HEADERS}
    return {"blocks": sys.getallocatedblocks(), **{name: sys.getrefcount(one) for name, one in shared.items()}}


def growth(way: Callable[[int], None], count: int) -> dict[str, int]:
    """Return the smallest growth of a later round, for each kind."""
    rounds: list[dict[str, int]] = []
    for _ in range(ROUNDS):
        before = counted()
        way(count // ROUNDS)
        after = counted()
        rounds.append({kind: after[kind] - before[kind] for kind in after})
    return {kind: min(one[kind] for one in rounds[2:]) for kind in rounds[0]}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/leaks", description="What many records leave behind.")
    parser.add_argument("records", nargs="?", type=int, default=10_000_000, help="in each way (10 million)")
    count = parser.parse_args(arguments).records
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=broker, args=(there,), daemon=True)
    process.start()
    ways = Ways(here.recv())
    failed = False
    with ways.producer, ways.consumer:
        ways.fill(count // ROUNDS)
        for way in (ways.send, ways.send_and_be_told, ways.send_many, ways.send_arrow,
                    ways.poll, ways.iterate, ways.poll_batch, ways.poll_arrow):  # fmt: skip
            grown = growth(way, count)
            is_fine = all(abs(number) < GROWTH_MAX for number in grown.values())
            failed |= not is_fine
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            told = ", ".join(f"{kind} {number:+}" for kind, number in grown.items() if number) or "nothing"
            print(f"{way.__name__:18} {count:,} records, a tenth leaves {told}; peak {peak_mb} MB"
                  f"{'' if is_fine else ': IT LEAKS'}", flush=True)  # fmt: skip
    here.send("enough")
    process.join()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
