"""tools/chaos spark: writes exactly once of Spark, whose processes are killed at each step, judged by librdkafka.

Each case is a streaming query from its first batch to its last. At a step of the protocol a Python worker is killed
with SIGKILL, in a task or in the driver's commit, or the driver's JVM, an executor or a broker; or a task hangs and
runs twice, a second driver takes over, a marker or a checkpoint is deleted. A query that fails is started again on its
checkpoint. Then librdkafka reads the topic with read_committed: each number of each batch once, up to the log's end,
where no transaction is open. --controls runs cases whose protocol lacks a step: each has to lose or double rows.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers.class_archive import make_spark_archive, spark_environment, spark_version
from brokers.cluster import KafkaCluster
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from chaos_runs import spark_faults, spark_standalone
from chaos_runs.spark_cases import CLUSTER, SPECULATIVE, TWINS, Case, cases, controls, options_of
from chaos_runs.spark_job import errors_of
from chaos_runs.spark_without import WITHOUT
from kwire import Admin, NewTopic

_ROOT = Path(__file__).parents[2]
_BATCHES, _ROWS, PARTITIONS = 3, 200, 3
_TIMEOUT_MS = 60_000  # of side transactions: with brokers that cannot list them, they end by it
_JOB_TIMEOUT_S = 1_800
_JOBS_MAX = 40
_POLL_S = 0.1
_SHOWN_MAX = 2_000  # characters of errors
_LOW_BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}


@dataclass
class Outcome:
    case: Case
    was_struck: bool
    starts: int
    lost: int
    doubled: int
    is_open: bool
    has_refused: bool = True

    @property
    def holds(self) -> bool:
        return not (self.lost or self.doubled or self.is_open) and self._is_valid and self.has_refused

    @property
    def proves(self) -> bool:
        """Return whether a control shows a harm."""
        return bool(self.lost or self.doubled) and self._is_valid

    @property
    def _is_valid(self) -> bool:
        return self.was_struck == bool(self.case.step)

    @property
    def verdict(self) -> str:
        if not self._is_valid:
            return "NOT STRUCK"
        if self.case.without:
            return "loses" if self.lost else "doubles" if self.doubled else "NO HARM"
        if not self.has_refused:
            return "NOT REFUSED"
        return ("holds, refuses" if self.case.refusal else "holds") if self.holds else "FAILS"


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    known = controls() if options.controls else cases()
    chosen = [case for case in known if not options.cases or any(name in case.name for name in options.cases)]
    console = Console()
    if options.list:
        for case in chosen:
            console.print(case.name, highlight=False)
        return 0
    if not chosen:
        console.print("there are no such cases: see --list")
        return 2
    try:
        spark = spark_version(options.python)
    except (OSError, subprocess.CalledProcessError):
        console.print(f"{options.python} is no Python with a PySpark", highlight=False)
        return 2
    make_spark_archive(options.python)  # each driver that is killed costs the start of a JVM
    with KafkaCluster(options.version, nodes=options.nodes, partitions=2, settings=_LOW_BROKER) as cluster:
        console.print(f"{options.nodes} x Kafka {options.version} up", highlight=False)
        outcomes = run(cluster, options.nodes, chosen, options.python, console)
    show(console, outcomes, f"Spark {spark}, {options.nodes} x Kafka {options.version}")
    return 0 if all(one.proves if one.case.without else one.holds for one in outcomes) else 1


def run(cluster: KafkaCluster, nodes: int, chosen: Sequence[Case], python: str, console: Console) -> list[Outcome]:
    """Run the cases in as few Spark sessions as the strikes allow, and judge them."""
    outcomes: list[Outcome] = []
    groups = itertools.groupby(sorted(chosen, key=_group), _group)
    with tempfile.TemporaryDirectory(prefix="kwire-spark-") as name, Admin(cluster.bootstrap) as admin:
        admin.topics.create_many([NewTopic(case.name, PARTITIONS, min(3, nodes)) for case in chosen], wait=True)
        for number, ((place, without), members) in enumerate(groups):
            own, folder = list(members), Path(name, str(number))
            folder.mkdir()
            environment = environment_of(folder, python, without)
            with _session(place, folder, environment, python) as session:
                plan = plan_of(cluster.bootstrap, own, folder) | {"session": session}
                (folder / "plan.json").write_text(json.dumps(plan))
                _run_jobs(folder, len(own), environment, python, has_second=place == TWINS, cluster=cluster)
            for case in own:
                outcomes.append(judge(cluster.bootstrap, case, folder))
                console.print(f"{case.name}: {outcomes[-1].verdict}", highlight=False)
                if not (outcomes[-1].holds or case.without):
                    console.print(errors_of(folder / case.name)[-_SHOWN_MAX:], highlight=False, markup=False)
    return outcomes


def _group(case: Case) -> tuple[str, str]:
    return case.place, case.without


def environment_of(folder: Path, python: str, without: str = "") -> dict[str, str]:
    return {
        **os.environ,
        **spark_environment(python),
        "PYSPARK_PYTHON": python,
        # The option --python names an environment with another PySpark, perhaps without kwire.
        "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'tools'}",
        spark_faults.FAULTS: spark_faults.HOOK,
        spark_faults.ORDER: str(folder / "order"),
        WITHOUT: without,
    }


@contextlib.contextmanager
def _session(place: str, folder: Path, environment: Mapping[str, str], python: str) -> Iterator[dict[str, str]]:
    """Yield the settings of the session, while what it needs runs."""
    if place not in (CLUSTER, SPECULATIVE):
        yield {}
        return
    with spark_standalone.standalone(folder, environment, python) as master:
        more = spark_standalone.SPECULATION if place == SPECULATIVE else {}
        yield {"spark.master": master, **spark_standalone.SESSION, **more}


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
        "topic": case.name, "folder": str(folder / case.name), "options": options_of(case), "step": case.step,
        "victim": case.victim, "skip": case.skip, "kind": case.kind, "refusal": case.refusal,
    }  # fmt: skip


def _run_jobs(
    folder: Path, count: int, environment: Mapping[str, str], python: str, *, has_second: bool, cluster: KafkaCluster
) -> None:
    """Start the driver again as long as it dies and cases are left."""
    command = [python, "-m", "chaos_runs.spark_job", str(folder / "plan.json")]
    for _ in range(_JOBS_MAX):
        with (folder / "job.log").open("a") as log, contextlib.ExitStack() as stack:
            jobs = [
                stack.enter_context(subprocess.Popen([*command, *more], env=environment, stdout=log, stderr=log))
                for more in ([], ["--second"])[: 1 + has_second]
            ]
            try:
                _attend(jobs, folder / "order", cluster)
            finally:
                for job in jobs:
                    job.kill()
        if len(list(folder.glob("*/done"))) == count:
            return
    raise RuntimeError((folder / "job.log").read_text()[-2_000:])


def _attend(jobs: Sequence[subprocess.Popen[bytes]], order: Path, cluster: KafkaCluster) -> None:
    """Wait for the first job's end, and kill a broker when an order says so: then it starts again."""
    deadline = time.monotonic() + _JOB_TIMEOUT_S
    while jobs[0].poll() is None and time.monotonic() < deadline:
        if spark_faults.victim_struck(order) == spark_faults.BROKER and not spark_faults.is_released(order):
            node = cluster.node_ids[0]
            cluster.stop_node(node, graceful=False)
            spark_faults.release(order)
            cluster.start_node(node)
        time.sleep(_POLL_S)


def judge(bootstrap: str, case: Case, folder: Path) -> Outcome:
    """Compare what librdkafka reads with what the case has written."""
    expected = {str(number) for number in range((case.batches or _BATCHES) * _ROWS)}
    if case.without:
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
        has_refused=case.refusal in errors_of(folder / case.name),
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


def show(console: Console, outcomes: Sequence[Outcome], where: str) -> None:
    is_control = any(one.case.without for one in outcomes)
    made = Table(title=f"Writes exactly once, {where}: what librdkafka reads", box=SIMPLE_HEAD)
    for name in ("rows", "struck", "at the step", *(["without"] if is_control else [])):
        made.add_column(name)
    for name in ("starts", "lost", "doubled", "open"):
        made.add_column(name, justify="right")
    made.add_column("outcome")
    for one in outcomes:
        made.add_row(
            one.case.mode, *one.case.told, *([one.case.without] if is_control else []), str(one.starts),
            str(one.lost), str(one.doubled), "yes" if one.is_open else "no", one.verdict,
        )  # fmt: skip
    console.print(made)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/chaos spark", description=__doc__)
    parser.add_argument("cases", nargs="*", help="parts of names of cases, such as sides-worker (default: all)")
    parser.add_argument("--controls", action="store_true", help="the protocol without a step: rows are lost or doubled")
    parser.add_argument("--version", default="4.3.1", help="of the brokers")
    parser.add_argument("--nodes", type=int, default=3, help="the number of brokers")
    parser.add_argument(
        "--python", default=sys.executable, help="of an environment with another PySpark (default: this one)"
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser
