"""Every program in examples/ runs as its docstring says, without warnings, and prints the expected output."""

from __future__ import annotations

import ast
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

import kwire
from kwire.broker import Cluster
from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.capture.captures import BROKER, CLIENT, Talk, pcap, sized, timed
from tests.spark_sessions import SparkPython

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
TOPICS = {"orders": 3, "numbers": 1, "doubled": 1, "measured": 2, "copied": 1}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics=TOPICS) as cluster:
        yield cluster


def run(name: str, *arguments: str) -> str:
    """Run an example; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class Running:
    """An example that ends when its test stops it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def lines(self, count: int) -> list[str]:
        """Wait until it has printed so many lines; return them."""
        assert self._process.stdout is not None
        return [line.rstrip("\n") for line in islice(self._process.stdout, count)]

    def line(self, wanted: str) -> str:
        """Wait for a line that has these words; return it."""
        assert self._process.stdout is not None
        return next(line for line in self._process.stdout if wanted in line)

    def stop(self) -> str:
        """Send SIGTERM, as Kubernetes does; return what was printed since."""
        self._process.send_signal(signal.SIGTERM)
        printed, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors
        assert not errors
        return printed


@contextmanager
def start(name: str, *arguments: str) -> Iterator[Running]:
    """Start an example that ends by a signal."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        try:
            yield Running(process)
        finally:
            process.kill()


def committed(cluster: Cluster, group: str) -> int:
    """Return how many records the group has committed."""
    return sum(cluster.committed(group).values())


def fill(cluster: Cluster, topic: str, values: list[str]) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        producer.send_many(topic, values).result(timeout=30)


def values_of(cluster: Cluster, topic: str) -> list[bytes]:
    return [record.value or b"" for number in range(TOPICS[topic]) for record in cluster.log(topic, number).records()]


def test_each_has_a_docstring_and_a_row_in_the_table() -> None:
    table = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert path.name in docstring.splitlines()[-1], f"{path.name} does not end its docstring with how to run it"
        assert f"[{path.name}]({path.name})" in table


def test_share_consumer(cluster: Cluster) -> None:
    assert run("share_consumer.py", cluster.bootstrap) == "100 mails sent in 110 attempts\n"


def test_message_queue(cluster: Cluster) -> None:
    assert run("message_queue.py", cluster.bootstrap) == "50 jobs done in 55 attempts\n"


def test_produce(cluster: Cluster) -> None:
    assert run("produce.py", cluster.bootstrap) == "10000 records, 0 failed, in 3 partitions\n"
    assert sorted(values_of(cluster, "orders")) == sorted(b"order %d" % number for number in range(10_000))


def test_consume(cluster: Cluster) -> None:
    fill(cluster, "orders", ["12345"] * 700)
    assert run("consume.py", cluster.bootstrap) == "700 records, 3500 bytes of values, 3 partitions\n"


def test_asyncio_producer(cluster: Cluster) -> None:
    assert run("asyncio_producer.py", cluster.bootstrap) == "2000 records of 20 tasks\n"
    assert len(values_of(cluster, "orders")) == 2_000


def test_shared_cluster(cluster: Cluster) -> None:
    assert run("shared_cluster.py", cluster.bootstrap) == "read b'1' from numbers, by 3 connections of one client_id\n"
    assert len(values_of(cluster, "orders")) == 1_000


def test_transform_continues_where_it_stopped(cluster: Cluster) -> None:
    fill(cluster, "numbers", [str(number) for number in range(60)])
    with start("transform.py", cluster.bootstrap) as example:
        example.line("{('numbers', 0): 60}")
        assert example.stop().endswith("transactions\n")
    fill(cluster, "numbers", ["60"])
    with start("transform.py", cluster.bootstrap) as example:
        assert example.lines(1) == ["up to {('numbers', 0): 61}"]
        assert example.stop() == "1 transactions\n"
    assert cluster.committed("doubler") == {("numbers", 0): 61}
    with kwire.Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        consumer.assign([("doubled", 0, "earliest")])
        records: list[kwire.ConsumerRecord] = []
        while len(records) < 61:
            records += consumer.poll()
        records += consumer.poll(timeout=0)
    assert [record.value for record in records] == [b"%d" % (2 * number) for number in range(61)]


def test_group_consumer_stops_on_sigterm_and_has_committed_all(cluster: Cluster) -> None:
    fill(cluster, "orders", [str(number) for number in range(100)])
    with start("group_consumer.py", cluster.bootstrap) as example:
        assert len(set(example.lines(100))) == 100
        assert example.stop() == "100 records\n"
    assert committed(cluster, "billing") == 100
    fill(cluster, "orders", ["100"])
    with start("group_consumer.py", cluster.bootstrap) as example:
        assert example.lines(1)[0].endswith("b'100'")


@pytest.mark.parametrize("matched_by", ["client", "broker"])
def test_subscribe_pattern(cluster: Cluster, matched_by: str) -> None:
    cluster.create_topic("orders-eu")
    cluster.create_topic("orders-7")
    with kwire.Producer(cluster.bootstrap) as producer:
        for topic in ("orders-eu", "orders-7", "orders"):
            producer.send(topic, topic)
        producer.flush()
        with start("subscribe_pattern.py", cluster.bootstrap, matched_by) as example:
            assert example.lines(1) == ["orders-eu b'orders-eu'"]
            cluster.create_topic("orders-us")
            producer.send("orders-us", "orders-us")
            assert example.lines(1) == ["orders-us b'orders-us'"]
            assert example.stop() == ""


@pytest.mark.parametrize("name", ["commit_records.py", "commit_batches.py"])
def test_committed_is_what_the_database_has(cluster: Cluster, tmp_path: Path, name: str) -> None:
    fill(cluster, "orders", [str(number) for number in range(50)])
    path = str(tmp_path / "orders.db")

    def count_rows() -> int:
        with sqlite3.connect(path) as database:
            return int(database.execute("select count(*) from orders").fetchone()[0])

    with start(name, cluster.bootstrap, path) as example:
        example.lines(1)
        while count_rows() < 50:
            example.lines(1)
        example.stop()
    assert committed(cluster, "archive") == 50


def test_rebalance_callbacks(cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, "orders", [str(number) for number in range(30)])
    everything = [("orders", number) for number in range(3)]
    with start("rebalance_callbacks.py", cluster.bootstrap, str(tmp_path)) as first:
        assert first.lines(1) == [f"assigned {everything}"]
        with start("rebalance_callbacks.py", cluster.bootstrap, str(tmp_path)) as second:
            moved = first.line("revoked").removeprefix("revoked").strip()
            assert second.line(moved).startswith("assigned")
            second.stop()
        first.stop()
    written = [line for path in tmp_path.iterdir() for line in path.read_text().split()]
    assert len(written) == len(set(written)) == committed(cluster, "logs")


def test_backpressure(cluster: Cluster) -> None:
    fill(cluster, "orders", [str(number) for number in range(3_000)])
    with start("backpressure.py", cluster.bootstrap) as example:
        while committed(cluster, "slow") < 3_000:
            example.lines(1)
        assert example.stop().splitlines()[-1].startswith("paused ")


def test_seek_by_time(cluster: Cluster) -> None:
    fill(cluster, "orders", ["new"] * 40)
    printed = run("seek_by_time.py", cluster.bootstrap, "2").splitlines()
    assert printed[0] == "40 records of the last 2 hours"
    assert printed[1:] == [f"orders-{number}: None -> 0" for number in range(3)]
    assert cluster.committed("report") == {}


def test_lag(cluster: Cluster) -> None:
    fill(cluster, "orders", ["new"] * 40)
    printed = run("lag.py", cluster.bootstrap).splitlines()
    assert [line.split(":")[0] for line in printed[:3]] == ["orders-0", "orders-1", "orders-2"]
    assert printed[3].startswith("the consumer ")
    assert printed[-1] == "total: 30"


def test_process_orders(cluster: Cluster) -> None:
    cluster.create_topic("orders.dead")
    with kwire.Producer(cluster.bootstrap) as producer:
        keys = [f"customer {number % 7}" for number in range(100)]
        producer.send_many("orders", [f"order {number}" for number in range(100)], keys=keys).result(timeout=30)
    with start("process_orders.py", cluster.bootstrap) as example:
        lines = example.lines(99)
        with kwire.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders.dead", 0, "earliest")])
            dead = next(consumer)
        assert example.stop() == "100 records processed, 1 of them dead letters\n"
    assert committed(cluster, "billing") == 100
    for number in range(7):
        of_one = [int(line.removesuffix("'").split("order ")[1]) for line in lines if f"customer {number}'" in line]
        assert of_one == sorted(of_one)
    assert dead.value == b"order 13"


def test_asyncio_consumer(cluster: Cluster) -> None:
    fill(cluster, "orders", [str(number) for number in range(100)])
    with start("asyncio_consumer.py", cluster.bootstrap) as example:
        assert example.lines(2) == ["revoked 3", "10 records in a loop"]
        assert len(set(example.lines(91))) == 91  # the tenth was in hand when the loop ended: it comes again
        assert example.stop() == "91 records in parallel\n"
    assert committed(cluster, "billing") == 100


def test_bulk_arrow(cluster: Cluster) -> None:
    assert "50000 rows read, the largest is 7142.714\n" in run("bulk_arrow.py", cluster.bootstrap)


def test_partitioner(cluster: Cluster) -> None:
    assert run("partitioner.py", cluster.bootstrap) == "50 in partition 0, 50 in the others\n"


def test_assignor(cluster: Cluster) -> None:
    assert run("assignor.py", cluster.bootstrap) == "8 workers: 2 partitions, 3 workers: 1\n"


def test_selector(cluster: Cluster) -> None:
    assert run("selector.py", cluster.bootstrap).splitlines()[0] == "5 topics, 1 brokers"


def test_selector_reports_that_nothing_listens() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "selector.py"), "127.0.0.1:1"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_codecs() -> None:
    assert run("codecs.py").splitlines()[-1] == "02 67 00 00 00 03 02 6d 00 00"


def test_slow_requests(tmp_path: Path) -> None:
    talk = Talk().opened()
    request, response = HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse(error_code=0)
    for number in range(3):
        talk.send(CLIENT, sized(encode_request(request, 4, correlation_id=number, client_id="c")))
        talk.send(BROKER, sized(encode_response(response, 4, correlation_id=number)))
    (tmp_path / "traffic.pcap").write_bytes(pcap(timed(talk.packets)))
    printed = run("slow_requests.py", str(tmp_path / "traffic.pcap"))
    assert printed.split()[:3] == ["Heartbeat", "3", "times,"]


def test_faults() -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(EXAMPLES / "test_faults.py")]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_foreign_client() -> None:
    assert run("foreign_client.py") == "10 records, committed: 10\n"


def test_prometheus(cluster: Cluster) -> None:
    printed = run("prometheus.py", cluster.bootstrap)
    assert 'kwire_producer_records_acknowledged_total{client="shop"} 1000.0\n' in printed


def test_interceptors(cluster: Cluster) -> None:
    assert run("interceptors.py", cluster.bootstrap) == "acknowledged: 10, committed: 11, left out: 1\n"


def test_explain() -> None:
    printed = run("explain.py")
    assert "unreachable: broker 1 at " in printed
    assert printed.endswith("delivered after all, at offset 1\n")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_batch(cluster: Cluster, python_with_spark: SparkPython) -> None:
    printed = python_with_spark.run((EXAMPLES / "spark_batch.py").read_text(), cluster.bootstrap)
    assert printed == ["1000 records, the largest is 999\n"]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_stream_continues_at_its_checkpoint(
    cluster: Cluster, python_with_spark: SparkPython, tmp_path: Path
) -> None:
    example = (EXAMPLES / "spark_stream.py").read_text()
    arguments = cluster.bootstrap, str(tmp_path / "checkpoint")
    fill(cluster, "numbers", ["a", "b", "c"])
    assert python_with_spark.run(example, *arguments) == ["3 records copied\n"]
    fill(cluster, "numbers", ["d"])
    assert python_with_spark.run(example, *arguments) == ["1 records copied\n"]
    assert sorted(map(str, values_of(cluster, "copied"))) == ["b'A'", "b'B'", "b'C'", "b'D'"]


def test_pipeline_audits_two_topics(cluster: Cluster) -> None:
    with kwire.Producer(cluster.bootstrap) as producer:
        for topic in ("numbers", "copied"):
            for number in range(10):
                producer.send(topic, b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
    sides = [f"{cluster.bootstrap}/{topic}" for topic in ("numbers", "copied")]
    assert '"partition": null, "source": 10, "target": 10, "lost": 0' in run("pipeline.py", "audit", *sides)
