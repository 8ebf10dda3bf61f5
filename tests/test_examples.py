"""Every program in examples/ runs as its docstring says, without warnings, and prints the expected output."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kwire
from kwire.broker import Cluster
from kwire.protocol.headers import encode_request, encode_response
from kwire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.cli.captures import BROKER, CLIENT, Talk, pcap, sized, timed

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
TOPICS = {"orders": 3, "numbers": 1, "doubled": 1, "measured": 2, "copied": 1}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics=TOPICS) as cluster:
        yield cluster


def run(name: str, *arguments: str, timeout: float = 60, strict: bool = True) -> str:
    """Run an example; return what it printed."""
    warnings = ["-W", "error"] if strict else []
    done = subprocess.run(
        [sys.executable, *warnings, str(EXAMPLES / name), *arguments],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    assert run("transform.py", cluster.bootstrap).endswith("the next offset to read is 60\n")
    fill(cluster, "numbers", ["60"])
    assert run("transform.py", cluster.bootstrap, "60") == "1 transactions, the next offset to read is 61\n"
    assert cluster.committed("doubler") == {("numbers", 0): 61}
    with kwire.Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        ends = consumer.end_offsets([("doubled", 0)])
        consumer.assign([("doubled", 0, "earliest")], ends=ends)
        records: list[kwire.ConsumerRecord] = []
        while len(records) < 61:
            records += consumer.poll()
    assert [record.value for record in records] == [b"%d" % (2 * number) for number in range(61)]


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


def test_explain() -> None:
    printed = run("explain.py")
    assert "unreachable: broker 1 at " in printed
    assert printed.endswith("delivered after all, at offset 1\n")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_batch(cluster: Cluster) -> None:
    printed = run("spark_batch.py", cluster.bootstrap, timeout=280, strict=False)
    assert printed.endswith("1000 records, the largest is 999\n")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_stream_continues_at_its_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, "numbers", ["a", "b", "c"])
    arguments = cluster.bootstrap, str(tmp_path / "checkpoint")
    assert run("spark_stream.py", *arguments, timeout=280, strict=False).endswith("3 records copied\n")
    fill(cluster, "numbers", ["d"])
    assert run("spark_stream.py", *arguments, timeout=280, strict=False).endswith("1 records copied\n")
    assert sorted(map(str, values_of(cluster, "copied"))) == ["b'A'", "b'B'", "b'C'", "b'D'"]
