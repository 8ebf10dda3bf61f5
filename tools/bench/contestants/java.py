"""Run Kafka's Java client with Kafka's tools ProducerPerformance and ConsumerPerformance.

The tools report no CPU time, and the start of the JVM would take most of a short run. So each round has two runs, of
`warmup` and of `warmup + records` records, and counts the difference. If the difference is smaller than the variation
of a JVM's start, the round fails: it had too few records.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

from brokers.cluster import NEWEST
from brokers.jars import fetch_jars
from brokers.java import java

from bench.settings import JAVA_OPTIONS, JAVA_PRODUCER
from bench.task import Coordination, Sample, Task, payloads

# The share by which the cost of two equal short runs may differ.
_START_VARIES = 0.15
_PRODUCED = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")


def produce(task: Task, coordination: Coordination) -> Sample:
    if task.keys:
        raise RuntimeError("ProducerPerformance sends no keys")
    properties = JAVA_PRODUCER | {"compression.type": task.compression}
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(payloads(task.size)))
        file.flush()

        def arguments(count: int) -> list[str]:
            return [
                "--bootstrap-server", task.bootstrap, "--topic", task.topic, "--num-records", str(count),
                "--throughput", "-1", "--payload-file", file.name,
                *[part for name, value in properties.items() for part in ("--command-property", f"{name}={value}")],
            ]  # fmt: skip

        less, _ = run_tool("ProducerPerformance", arguments(task.warmup))
        cpu_s, printed = run_tool("ProducerPerformance", arguments(task.warmup + task.records))
    count, per_second = _PRODUCED.findall(printed)[-1]
    if int(count) != task.warmup + task.records:
        raise RuntimeError(f"ProducerPerformance sent {count} records: {printed}")
    # The broker counts the records of the short run as warm-up.
    cost_s = cost_of_more(less, cpu_s, task.records)
    return Sample(task.records, cost_s, task.records / float(per_second), {"extra": task.warmup}, NEWEST)


def consume(task: Task, coordination: Coordination) -> Sample:
    def arguments(topic: str, count: int) -> list[str]:
        return ["--bootstrap-server", task.bootstrap, "--topic", topic, "--num-records", str(count), "--hide-header"]

    less, _ = run_tool("ConsumerPerformance", arguments(task.warm_topic, task.warmup))
    cpu_s, printed = run_tool("ConsumerPerformance", arguments(task.topic, task.records))
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    fields = [field.strip() for field in printed.strip().splitlines()[-1].split(", ")]
    if int(fields[4]) < task.records:
        raise RuntimeError(f"ConsumerPerformance read {fields[4]} records: {printed}")
    records = int(fields[4]) - task.warmup
    return Sample(records, cost_of_more(less, cpu_s, records), records / float(fields[9]), version=NEWEST)


def cost_of_more(short_s: float, long_s: float, records: int) -> float:
    """Return the CPU seconds that the long run needed more. Raises RuntimeError if they are within the variation."""
    more = long_s - short_s
    if more < short_s * _START_VARIES:
        raise RuntimeError(
            f"too few records: {records:,} more took {more:.2f} s of the processor beside the {short_s:.2f} s of a "
            "JVM's start and warm-up, which vary by more; raise --records"
        )
    return more


def run_tool(tool: str, arguments: list[str]) -> tuple[float, str]:
    """Return (CPU seconds, standard output) of one run."""
    jars = fetch_jars("kafka", NEWEST)
    command = [java(), *JAVA_OPTIONS, "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{tool} ended with {process.returncode}: {printed}")
    return used.ru_utime + used.ru_stime, printed
