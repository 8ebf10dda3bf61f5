"""Pipelines on a real local Spark session, against embedded clusters: mirror, archive, replay, captures, logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.broker import Cluster
from kwire.errors import ConfigurationError
from kwire.pipeline import mirror
from kwire.pipeline.archive import start_archive
from kwire.pipeline.audit import audit
from kwire.pipeline.mirror import MirrorPlan, prepare_topics, start_mirror
from kwire.pipeline.replay import replay
from kwire.pipeline.report import measure_files, measure_on_spark, to_html
from kwire.pipeline.session import error_of_job
from kwire.pipeline.sides import ArchiveSide, TopicSide
from kwire.pipeline.sides import Cluster as Brokers
from kwire.spark import captures_of
from kwire.spark.reader import HAS_ADMISSION_CONTROL
from tests.cli.running import run
from tests.cli.test_capture_view import CAPTURE
from tests.cli.test_dump_log import LOG, SEGMENT
from tests.pipeline.test_sides import archive, create, send
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240, func_only=True),  # a JVM may need long to start
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[Brokers, Brokers]]:
    with Cluster(brokers=1) as source, Cluster(brokers=1) as target:
        yield Brokers(source.bootstrap), Brokers(target.bootstrap)


def agree(source: TopicSide | ArchiveSide, target: TopicSide | ArchiveSide) -> int:
    """Return the number of records of two sides that agree."""
    report = audit(source, target)
    source.close()
    target.close()
    assert report.is_clean(), report.total
    return report.total.matched


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="maxOffsetsPerTrigger and availableNow need Spark 4.2")
def test_a_mirror_that_is_killed_goes_on(
    spark: SparkSession,
    clusters: tuple[Brokers, Brokers],
    tmp_path: Path,
) -> None:
    """SIGKILL of the whole process group while it writes; the next start neither loses nor doubles."""
    source, target = clusters
    create(source.bootstrap, "orders", partitions=2)
    send(source.bootstrap, "orders", list(range(400)))
    plan = MirrorPlan(("orders",), prefix="copy.")
    assert prepare_topics(plan, source, target, creates=True) == ["copy.orders"]
    program = (
        "import sys\nfrom kwire.pipeline.mirror import MirrorPlan, start_mirror\n"
        "from kwire.pipeline.session import get_session\nfrom kwire.pipeline.sides import Cluster\n"
        "start_mirror(get_session('m'), MirrorPlan(('orders',), 'copy.'), Cluster(sys.argv[1]), Cluster(sys.argv[2]),\n"
        "    sys.argv[3], read={'maxOffsetsPerTrigger': '20'}).awaitTermination()"
    )
    checkpoint = str(tmp_path / "checkpoint")
    own = {name: value for name, value in os.environ.items() if not name.startswith("KWIRE_")}
    environment = {**own, "PYTHONPATH": str(ROOT), "SPARK_MASTER": "local[2]", "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        [sys.executable, "-c", program, source.bootstrap, target.bootstrap, checkpoint],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as running:  # fmt: skip
        try:
            # Spark notes each batch there that is over: two of twenty.
            wait_until(lambda: Path(checkpoint, "commits", "1").exists() or running.poll() is not None, 120)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL  # it was not over
    start_mirror(spark, plan, source, target, checkpoint).awaitTermination()
    assert agree(TopicSide(source, "orders"), TopicSide(target, "copy.orders")) == 400


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="a bound of bytes needs Spark 4.2")
def test_a_mirror_of_an_old_topic_takes_it_in_bounded_batches(
    spark: SparkSession,
    clusters: tuple[Brokers, Brokers],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror, "MAX_BYTES_PER_TRIGGER", 1_000)
    source, target = clusters
    create(source.bootstrap, "old", partitions=2)
    send(source.bootstrap, "old", list(range(200)))
    plan = MirrorPlan(("old",), prefix="copy.")
    prepare_topics(plan, source, target, creates=True)
    batches = {}
    for name, read in (("bounded", None), ("own", {"maxoffsetspertrigger": "200"})):
        start_mirror(spark, plan, source, target, str(tmp_path / name), read=read).awaitTermination()
        batches[name] = len(list((tmp_path / name / "commits").glob("[0-9]*")))
        if name == "bounded":
            assert agree(TopicSide(source, "old"), TopicSide(target, "copy.old")) == 200
    assert batches["bounded"] > 1
    assert batches["own"] == 1


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="availableNow needs Spark 4.2")
def test_an_archive_and_back(
    spark: SparkSession,
    clusters: tuple[Brokers, Brokers],
    tmp_path: Path,
) -> None:
    source, target = clusters
    create(source.bootstrap, "kept", partitions=2)
    path, checkpoint = str(tmp_path / "archive"), str(tmp_path / "checkpoint")
    for numbers in (list(range(100)), list(range(100, 150))):
        send(source.bootstrap, "kept", numbers)
        start_archive(spark, source, "kept", path, checkpoint).awaitTermination()
    assert agree(TopicSide(source, "kept"), ArchiveSide(path, "kept")) == 150
    assert [folder.name for folder in sorted((tmp_path / "archive" / "topic=kept").iterdir())] == ["date=2023-11-14"]
    with pytest.raises(ConfigurationError, match="the target has no topic again"):
        replay(spark, path, target, topic="kept", to="again")
    create(target.bootstrap, "small", partitions=1)
    with pytest.raises(ConfigurationError, match="small has 1 partition on the target, the archived topic 2"):
        replay(spark, path, target, topic="kept", to="small")
    assert replay(spark, path, target, topic="kept", to="created", creates=True) == 150
    assert agree(TopicSide(source, "kept"), TopicSide(target, "created")) == 150
    create(target.bootstrap, "again", partitions=2)
    for _ in range(2):  # the second finds that it is written
        assert replay(spark, path, target, topic="kept", to="again", write_id="first") == 150
    assert agree(TopicSide(source, "kept"), TopicSide(target, "again")) == 150


def test_topics_whose_names_are_equal_numbers(
    spark: SparkSession, clusters: tuple[Brokers, Brokers], tmp_path: Path
) -> None:
    _, target = clusters
    path = str(tmp_path)
    for topic, numbers in (("1.1", [0, 1, 2]), ("1.10", [3, 4, 5, 6, 7])):
        archive(tmp_path, topic, numbers)
    assert replay(spark, path, target, topic="1.10", to="ten", creates=True) == 5
    assert agree(ArchiveSide(path, "1.10"), TopicSide(target, "ten")) == 5


def test_a_failed_job_is_told_by_the_error_of_its_task(spark: SparkSession, clusters: tuple[Brokers, Brokers]) -> None:
    from pyspark.errors import PySparkException

    _, target = clusters
    create(target.bootstrap, "narrow", partitions=1)
    rows = spark.sql("SELECT 'v' AS value, 7 AS partition")
    options = {"kafka.bootstrap.servers": target.bootstrap, "topic": "narrow"}
    with pytest.raises(PySparkException) as caught:
        rows.write.format("kwire").options(**options).mode("append").save()
    message = error_of_job(caught.value).message
    assert message.startswith("row 0 of DataFrame partition 0 (no key, value of 1 byte) was not written")
    assert "\n" not in message


def test_an_audit_in_tasks_finds_the_same(spark: SparkSession, clusters: tuple[Brokers, Brokers]) -> None:
    source, target = clusters
    for brokers in clusters:
        create(brokers.bootstrap, "audited", partitions=3)
    send(source.bootstrap, "audited", list(range(90)))
    send(target.bootstrap, "audited", [*range(50), 7, *range(52, 90)])
    sides = TopicSide(source, "audited"), TopicSide(target, "audited")
    found, expected = audit(*sides, spark=spark), audit(*sides)
    for side in sides:
        side.close()
    assert found == expected
    assert (found.total.matched, found.total.lost, found.total.doubled) == (88, 2, 1)
    assert list(found.by_partition) == [0, 1, 2]
    names = [f"{brokers.bootstrap}/audited" for brokers in clusters]
    ran = run("pipeline", "audit", *names, "--spark", "-f", "json")
    assert (ran.code, ran.lines()[-1]["lost"]) == (1, 2)


def test_captures_and_logs_are_tables(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    for name in ("one.pcap", "two.pcap"):
        (folder / name).write_bytes(CAPTURE)
    frame = spark.read.format("kwire.capture").load(str(folder))
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.where("error IS NOT NULL").groupBy("api", "error").count().collect()
    expected = {("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", 2), ("Heartbeat", "REBALANCE_IN_PROGRESS", 2)}
    assert {tuple(row) for row in rows} == expected
    whole = spark.read.format("kwire.capture").option("lint", "true").load([str(folder / "one.pcap")]).collect()
    assert [row["version"] for row in whole] == [3, 12, 4, 4]
    binary = spark.read.format("binaryFile").load(f"{folder}/*.pcap")
    assert captures_of(binary).where("api = 'Heartbeat'").count() == 4
    paths = [str(folder / name) for name in ("one.pcap", "two.pcap")]
    assert to_html(measure_on_spark(spark, [str(folder)])) == to_html(measure_files(paths))

    segment = tmp_path / "orders-3" / f"{SEGMENT}.log"
    segment.parent.mkdir()
    segment.write_bytes(LOG)
    log = spark.read.format("kwire.log").load(str(tmp_path / "orders-3"))
    facts = log.where("NOT isControl").selectExpr("min(offset)", "max(offset)", "count(*)", "max(partition)").first()
    assert facts == (100, 134, 30, 3)
    assert log.where("isControl").count() == 1
