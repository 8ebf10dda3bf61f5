"""tools/chaos spark: writes exactly once of Spark, whose processes are killed at each step, judged by librdkafka.

Each case is a streaming query from its first batch to its last. A Python worker is killed with SIGKILL where it reaches
the step, in a task or in the driver's commit, or the driver's JVM is. A query that fails is started again on its
checkpoint. Then librdkafka reads the topic with read_committed: each number of each batch once, up to the log's end,
where no transaction is open.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers.cluster import KafkaCluster
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from chaos_runs import spark_faults
from chaos_runs.spark_faults import DRIVER, WORKER
from kwire import Admin, NewTopic
from kwire.spark import fault_points

_ROOT = Path(__file__).parents[2]
_BATCHES, _ROWS, PARTITIONS = 3, 200, 3
INLINE, SIDES = "inline", "sides"
_OPTIONS = {INLINE: {}, SIDES: {"inlineMaxBytes": "0"}}
_TIMEOUT_MS = 30_000  # of side transactions: with brokers that cannot list them, they end by it
_JOB_TIMEOUT_S = 1_800
_JOBS_MAX = 40
_LOW_BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
_SIDE_STEPS = (fault_points.SIDE_INITIALIZED, fault_points.SIDE_PRODUCING, fault_points.SIDE_PREPARED)


@dataclass(frozen=True)
class Case:
    mode: str
    victim: str = ""
    step: str = ""

    @property
    def name(self) -> str:
        return f"{self.mode}-{self.victim or 'calm'}{'-' if self.step else ''}{self.step}"

    @property
    def skip(self) -> int:
        """Strike in the second batch: two tasks have reached the step by then, or one commit."""
        return 2 if self.step in fault_points.IN_TASK else 1


def cases() -> list[Case]:
    found = []
    for mode in (INLINE, SIDES):
        found.append(Case(mode))
        for step in fault_points.IN_TASK + fault_points.IN_COMMIT:
            if mode == SIDES or step not in _SIDE_STEPS:
                found += [Case(mode, WORKER, step), Case(mode, DRIVER, step)]
    return sorted(found, key=lambda case: case.victim == DRIVER)


@dataclass
class Outcome:
    case: Case
    was_struck: bool
    starts: int
    lost: int
    doubled: int
    is_open: bool

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.is_open) and self.was_struck == bool(self.case.step)


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    chosen = [case for case in cases() if not options.cases or any(name in case.name for name in options.cases)]
    console = Console()
    if options.list:
        for case in chosen:
            console.print(case.name, highlight=False)
        return 0
    with KafkaCluster(options.version, nodes=options.nodes, partitions=2, settings=_LOW_BROKER) as cluster:
        console.print(f"{options.nodes} x Kafka {options.version} up", highlight=False)
        outcomes = run(cluster.bootstrap, options.nodes, chosen)
    show(console, outcomes, options.version)
    return 0 if outcomes and all(one.holds for one in outcomes) else 1


def run(bootstrap: str, nodes: int, chosen: Sequence[Case]) -> list[Outcome]:
    """Run the cases in as few Spark sessions as the strikes allow, and judge them."""
    with tempfile.TemporaryDirectory(prefix="kwire-spark-") as name, Admin(bootstrap) as admin:
        folder = Path(name)
        admin.topics.create_many([NewTopic(case.name, PARTITIONS, min(3, nodes)) for case in chosen], wait=True)
        plan = plan_of(bootstrap, chosen, folder)
        (folder / "plan.json").write_text(json.dumps(plan))
        _run_jobs(folder, len(chosen))
        return [judge(bootstrap, case, folder) for case in chosen]


def plan_of(bootstrap: str, chosen: Sequence[Case], folder: Path) -> dict[str, Any]:
    """Return what a job is told: see `spark_job`."""
    return {
        "rows": _ROWS,
        "batches": _BATCHES,
        "options": {
            "kafka.bootstrap.servers": bootstrap,
            "delivery": "exactly-once",
            "kafka.transaction.timeout.ms": str(_TIMEOUT_MS),
        },
        "cases": [_planned(case, folder) for case in chosen],
    }


def _planned(case: Case, folder: Path) -> dict[str, Any]:
    return {
        "topic": case.name, "folder": str(folder / case.name), "options": _OPTIONS[case.mode], "step": case.step,
        "victim": case.victim, "skip": case.skip,
    }  # fmt: skip


def _run_jobs(folder: Path, count: int) -> None:
    """Start the driver again as long as it dies and cases are left."""
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'tools'}",
        spark_faults.FAULTS: spark_faults.HOOK,
        spark_faults.ORDER: str(folder / "order"),
    }
    command = [sys.executable, "-m", "chaos_runs.spark_job", str(folder / "plan.json")]
    for _ in range(_JOBS_MAX):
        with (folder / "job.log").open("a") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=_JOB_TIMEOUT_S, check=False)
        if len(list(folder.glob("*/done"))) == count:
            return
    raise RuntimeError((folder / "job.log").read_text()[-2_000:])


def judge(bootstrap: str, case: Case, folder: Path) -> Outcome:
    """Compare what librdkafka reads with what the case has written."""
    expected = {str(number) for number in range(_BATCHES * _ROWS)}
    found, is_open = _read(bootstrap, case.name)
    # The query may have begun another batch before it was stopped.
    extra = len(found.keys() - expected)
    return Outcome(
        case,
        was_struck=(folder / case.name / "done").read_text() == "True",
        starts=len((folder / case.name / "starts").read_text().splitlines()),
        lost=len(expected - found.keys()) + -extra % _ROWS,
        doubled=sum(count - 1 for count in found.values()),
        is_open=is_open,
    )


def _read(bootstrap: str, topic: str) -> tuple[Counter[str], bool]:
    """Return the values that librdkafka reads with read_committed, and whether a transaction stays open."""
    from confluent_kafka import Consumer, IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

    keys = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def ends(level: IsolationLevel) -> dict[int, int]:
        latest: Any = OffsetSpec
        wanted = dict.fromkeys(keys, latest.latest())
        found = admin.list_offsets(wanted, isolation_level=level)
        return {key.partition: future.result().offset for key, future in found.items()}

    deadline = time.monotonic() + 2 * _TIMEOUT_MS / 1_000
    while (stable := ends(IsolationLevel.READ_COMMITTED)) != (last := ends(IsolationLevel.READ_UNCOMMITTED)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, key.partition, 0) for key in keys])
    found: Counter[str] = Counter()
    at_end: set[int] = set()
    while len(at_end) < len(keys):
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                found[(message.value() or b"").decode()] += 1
            else:
                at_end.add(message.partition() or 0)
    consumer.close()
    return found, stable != last


def show(console: Console, outcomes: Sequence[Outcome], version: str) -> None:
    made = Table(title=f"Spark, exactly once, on Kafka {version}: what librdkafka reads", box=SIMPLE_HEAD)
    for name in ("rows", "killed", "at the step"):
        made.add_column(name)
    for name in ("starts", "lost", "doubled", "open"):
        made.add_column(name, justify="right")
    made.add_column("outcome")
    for one in outcomes:
        verdict = "holds" if one.holds else "FAILS" if one.was_struck or not one.case.step else "NOT STRUCK"
        made.add_row(
            one.case.mode, {WORKER: "Python worker", DRIVER: "driver's JVM"}.get(one.case.victim, "nobody"),
            one.case.step or "-", str(one.starts), str(one.lost), str(one.doubled), "yes" if one.is_open else "no",
            verdict,
        )  # fmt: skip
    console.print(made)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/chaos spark", description=__doc__)
    parser.add_argument("cases", nargs="*", help="parts of names of cases, such as sides-worker (default: all)")
    parser.add_argument("--version", default="4.3.1", help="of the brokers")
    parser.add_argument("--nodes", type=int, default=3, help="the number of brokers")
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser
