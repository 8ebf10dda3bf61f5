"""Measure what a tap costs: CPU for a record, and time added to a request. Runs with and without it take turns.

tools/tap-cost [--records N] [--requests N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kwire
from kwire.broker import Cluster

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def produce_and_consume(bootstrap: str, topic: str, records: int) -> None:
    value = bytes(100)
    with kwire.Producer(bootstrap, linger_ms=5) as producer:
        for _ in range(records):
            producer.send(topic, value)
    with kwire.Consumer(bootstrap) as consumer:
        consumer.assign([(topic, partition, "earliest") for partition in range(4)])
        found = 0
        while found < records:
            found += sum(len(batch) for batch in [consumer.poll(timeout=10)])


def latencies_ms(bootstrap: str, topic: str, requests: int) -> list[float]:
    found = []
    with kwire.Producer(bootstrap, linger_ms=0) as producer:
        for _ in range(requests):
            begin = time.perf_counter()
            producer.send(topic, b"v", partition=0).result(10)
            found.append((time.perf_counter() - begin) * 1000)
    return found[requests // 10 :]


class TapProcess:
    """`kwire tap` in a process of its own."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        command = [sys.executable, "-m", "kwire", "tap", "-q", "-b", bootstrap, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.address = self.process.stderr.readline().split()[3]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    with Cluster(3, topics={"t": 4}) as cluster, tempfile.TemporaryDirectory() as folder:
        kinds = {"tap": (), "tap -o": ("-o", f"{folder}/t.pcapng")}
        cpu: dict[str, list[float]] = {name: [] for name in kinds}
        added: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(given.rounds):
            for name, options in kinds.items():
                topic = f"t{number}-{name.replace(' ', '')}"
                cluster.create_topic(topic, partitions=4)
                tap = TapProcess(cluster.bootstrap, *options)
                before = cpu_seconds(tap.process.pid)
                produce_and_consume(tap.address, topic, given.records)
                cpu[name].append((cpu_seconds(tap.process.pid) - before) / (2 * given.records) * 1e6)
                direct = statistics.median(latencies_ms(cluster.bootstrap, topic, given.requests))
                added[name].append(statistics.median(latencies_ms(tap.address, topic, given.requests)) - direct)
                tap.close()
        for name in kinds:
            print(
                f"{name}: {statistics.median(cpu[name]):.2f} us of CPU for a record produced or consumed "
                f"({', '.join(f'{one:.2f}' for one in cpu[name])}), "
                f"{statistics.median(added[name]):.2f} ms added to a request of one record "
                f"({', '.join(f'{one:.2f}' for one in added[name])})"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
