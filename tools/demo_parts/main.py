"""Run the demo; tools/demo makes its environment and starts this program.

    tools/demo [--bootstrap HOST:PORT] [--records N] [--no-spark]

It starts three embedded brokers (or uses the cluster at HOST:PORT), produces records while one broker stops and starts
again (not on a real cluster), reads them back and checks them. Unless --no-spark is given, it does the same through
PySpark. The exit code is 0 only if every check passed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import kwire
from demo_parts.proof import Place, Proof, Read, judge
from kwire.broker import Cluster
from kwire.errors import KwireError
from kwire.wire.accel import IMPLEMENTATION

IMPLEMENTATIONS = {"c": "with its C accelerator", "python": "in pure Python (no C accelerator was built or chosen)"}
PARTITIONS = 6
SPARK_ROWS = 5_000
SPARK_TIMEOUT = 120.0
# Small, so that records are always in flight and do not all wait in memory for the broker's return.
BUFFER_BYTES = 2 * 1024 * 1024
# The number of records whose results the demo checks at once.
WINDOW = 2_000


def value_of(number: int) -> bytes:
    """Return a text with the number, of a length that depends on it, so that wrong bytes are noticed."""
    return b"record %d " % number + b"." * (number % 64)


def number_of(key: bytes | None, value: bytes | None) -> int:
    """Return the number of a record, or -1 if its bytes are not exactly those of the record with that number."""
    try:
        number = int((value or b"").split(b" ", 2)[1])
    except (IndexError, ValueError):
        return -1
    return number if value == value_of(number) and key == key_of(number) else -1


def key_of(number: int) -> bytes | None:
    """Return a record's key, which chooses its partition, or None for every tenth record."""
    return None if number % 10 == 0 else b"key %d" % (number % 1_000)


def rate_of(records: int, seconds: float) -> str:
    return f"{records / max(seconds, 1e-9):,.0f} records/s"


class Demo:
    """Run the demo on one cluster. `embedded` is None on a real cluster."""

    def __init__(self, console: Console, bootstrap: str, embedded: Cluster | None) -> None:
        self.console = console
        self.bootstrap = bootstrap
        self.embedded = embedded
        self.topics = {name: f"kwire-demo-{name}-{os.getpid()}-{int(time.time())}" for name in ("records", "rows")}
        self.report: list[tuple[str, str, bool]] = []

    def run(self, count: int, *, has_spark: bool = True) -> bool:
        with kwire.Admin(self.bootstrap, request_timeout_ms=10_000) as admin:
            brokers = len(admin.metadata().brokers)
            new = [kwire.NewTopic(name, PARTITIONS, min(3, brokers)) for name in self.topics.values()]
            admin.create_topics(new)
            plural = "s" if brokers > 1 else ""
            self.console.print(f"{brokers} broker{plural} at {self.bootstrap}, topics of {PARTITIONS} partitions")
            try:
                self._records(count)
                if has_spark:
                    self._spark()
            finally:
                admin.delete_topics(list(self.topics.values()))
        if self.embedded is not None:
            defects = [repr(defect) for defect in self.embedded.failures]
            self.report.append(("defects in the brokers", ", ".join(defects) or "0", not defects))
        return all(is_held for *_, is_held in self.report)

    # -- records, through a failure

    def _records(self, count: int) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            acknowledged = self._produce(count, progress)
            started = time.monotonic()
            proof = judge(count, acknowledged, self._read(progress))
            seconds = time.monotonic() - started
        self._add_proof(proof, seconds)

    def _produce(self, count: int, progress: Progress) -> dict[int, Place]:
        bar = progress.add_task("producing", total=count)
        acknowledged: dict[int, Place] = {}
        waiting: deque[tuple[int, kwire.ProduceResponse]] = deque()

        def settle(number: int, response: kwire.ProduceResponse) -> None:
            metadata = response.result()
            acknowledged[number] = Place(metadata.partition, metadata.offset)

        started = time.monotonic()
        with kwire.Producer(self.bootstrap, max_buffered_bytes=BUFFER_BYTES, compression="lz4") as producer:
            for number in range(count):
                self._disturb(number, count, progress)
                waiting.append((number, producer.send(self.topics["records"], value_of(number), key_of(number))))
                if number % WINDOW == 0:
                    while waiting and waiting[0][1].done():
                        settle(*waiting.popleft())
                    progress.update(bar, completed=len(acknowledged))
            producer.flush()
            while waiting:
                settle(*waiting.popleft())
                if len(waiting) % WINDOW == 0:
                    progress.update(bar, completed=len(acknowledged))
        seconds = time.monotonic() - started
        rate = rate_of(len(acknowledged), seconds)
        self.report.append(("acknowledged", f"{len(acknowledged):,} of {count:,} in {seconds:.1f} s, {rate}", True))
        return acknowledged

    def _disturb(self, number: int, count: int, progress: Progress) -> None:
        """Stop the leader of partition 0 after a third of the records, and start it after two thirds."""
        if self.embedded is None:
            return
        if number == count // 3:
            self._stopped = self.embedded.leader(self.topics["records"], 0)
            self.embedded.stop(self._stopped)
            progress.console.print(f"  broker {self._stopped} is stopped after {number:,} records were sent")
        elif number == count * 2 // 3:
            leader = self.embedded.leader(self.topics["records"], 0)
            self.embedded.restart(self._stopped)
            progress.console.print(f"  broker {self._stopped} is back after {number:,}")
            text = (
                f"broker {self._stopped} stopped, broker {leader} took over, after a third of the records it was back"
            )
            self.report.append(("failure of a broker", text, leader not in (-1, self._stopped)))

    def _read(self, progress: Progress) -> Iterator[Read]:
        topic = self.topics["records"]
        with kwire.Consumer(self.bootstrap) as consumer:
            partitions = [(topic, index) for index in consumer.partitions(topic)]
            ends = consumer.end_offsets(partitions)
            bar = progress.add_task("reading", total=sum(ends.values()))
            consumer.assign([(topic, index, "earliest") for _, index in partitions])
            patience = time.monotonic() + 60
            while any(consumer.position(*key) < end for key, end in ends.items()):
                records = consumer.poll(5_000, timeout=1.0)
                for record in records:
                    number = number_of(record.key, record.value)
                    yield Read(Place(record.partition, record.offset), number, record.key is not None)
                progress.advance(bar, len(records))
                if records:
                    patience = time.monotonic() + 60
                elif time.monotonic() > patience:
                    return  # the check finds the missing records

    def _add_proof(self, proof: Proof, seconds: float) -> None:
        text = f"{proof.read:,} of {proof.sent:,} in {seconds:.1f} s, {rate_of(proof.read, seconds)}"
        self.report.append(("read back and judged", text, proof.read == proof.sent))
        self.report.append(("lost", f"{proof.lost:,}", not proof.lost))
        self.report.append(("duplicated", f"{proof.duplicated:,}", not proof.duplicated))
        self.report.append(("never sent, or altered", f"{proof.foreign:,}", not proof.foreign))
        self.report.append(("out of order in a partition", f"{proof.disordered:,}", not proof.disordered))
        self.report.append(("not where acknowledged", f"{proof.misplaced:,}", not proof.misplaced))
        for finding in proof.findings:
            self.console.print(f"  {finding}", style="red")

    # -- PySpark

    def _spark(self) -> None:
        program = Path(__file__).with_name("spark_job.py")
        command = [sys.executable, str(program), self.bootstrap, self.topics["rows"], str(SPARK_ROWS)]
        with self.console.status(f"PySpark writes {SPARK_ROWS:,} rows and reads them back"):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SPARK_TIMEOUT, check=False)
                output, log, code = done.stdout, done.stderr, done.returncode
            except subprocess.TimeoutExpired as error:
                output, log, code = "", f"{error}\n{(error.stderr or b'').decode(errors='replace')}", 1
        try:
            found = json.loads(output.strip().rpartition("\n")[2])
        except ValueError:
            self.console.print(log[-4_000:], style="red", markup=False)
            self.report.append(("PySpark", "the job failed, see above", False))
            return
        text = f"{found['written']:,} rows written, {found['read']:,} read back, {found['different']:,} differ"
        self.report.append(("PySpark", text, code == 0))


def print_report(console: Console, report: list[tuple[str, str, bool]]) -> None:
    table = Table(title="kwire demo", show_header=False)
    for name, text, is_held in report:
        table.add_row(name, text, "[green]ok" if is_held else "[bold red]FAILED")
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo", description="kwire, end to end, with proofs.")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a real cluster, instead of three embedded brokers")
    parser.add_argument("--no-spark", action="store_true", help="leave PySpark out")
    parser.add_argument("--records", type=int, default=200_000, metavar="N", help="how many (default: 200000)")
    arguments = parser.parse_args()
    if arguments.records < 3:
        parser.error("--records: at least 3")
    # The demo itself reports the loss of the broker, which is intended.
    logging.getLogger("kwire").setLevel(logging.ERROR)
    console = Console()
    console.print(f"kwire {kwire.__version__}, {IMPLEMENTATIONS[IMPLEMENTATION]}")
    embedded = None if arguments.bootstrap else Cluster(brokers=3)
    try:
        with embedded or nullcontext():
            bootstrap = embedded.bootstrap if embedded is not None else arguments.bootstrap
            demo = Demo(console, bootstrap, embedded)
            is_held = demo.run(arguments.records, has_spark=not arguments.no_spark)
    except KwireError as error:
        console.print(f"{type(error).__name__}: {error}", style="bold red", markup=False)
        return 1
    print_report(console, demo.report)
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
