"""A real local Spark session against the embedded cluster, or the brokers at KWIRE_BOOTSTRAP."""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chaos_runs import spark_faults
from chaos_runs.spark_cases import INLINE, SIDES, Case
from chaos_runs.spark_job import run_case
from chaos_runs.spark_table import PARTITIONS, judge, plan_of

import kwire
import kwire.queue
import kwire.spark
from kwire.broker import Cluster, Refuse
from kwire.errors import ErrorCode
from kwire.protocol import ApiKey
from kwire.spark import fault_points

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240, func_only=True),  # a JVM may need long to start
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
# Recent: a real broker deletes what is older than its retention.
TIME = (datetime.now(UTC) - timedelta(hours=1)).replace(microsecond=123000)

NewTopic = Callable[[int], str]


@pytest.fixture(scope="module")
def embedded() -> Iterator[Cluster | None]:
    if "KWIRE_BOOTSTRAP" in os.environ:
        yield None
    else:
        with Cluster(brokers=3) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def bootstrap(embedded: Cluster | None) -> str:
    return embedded.bootstrap if embedded is not None else os.environ["KWIRE_BOOTSTRAP"]


@pytest.fixture(scope="module")
def new_topic(bootstrap: str) -> Iterator[NewTopic]:
    with kwire.Admin(bootstrap) as admin:
        names: list[str] = []

        def create(partitions: int) -> str:
            names.append(f"spark-{uuid.uuid4().hex[:8]}")
            admin.create_topics([kwire.NewTopic(names[-1], partitions, 1)])
            return names[-1]

        yield create
        admin.delete_topics(names)


@pytest.fixture
def where(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap}


def write(frame: DataFrame, where: dict[str, str], **options: str) -> None:
    frame.write.format("kwire").options(**where, **options).mode("append").save()


def read(spark: SparkSession, where: dict[str, str], schema: str | None = None, **options: str) -> list[Any]:
    reader = spark.read.format("kwire").options(**where, **options)
    return (reader.schema(schema) if schema else reader).load().collect()


def values(rows: list[Any]) -> list[str]:
    return sorted(row.value.decode() for row in rows)


def numbers(spark: SparkSession, count: int, topic: str | None = None) -> DataFrame:
    columns = ["CAST(id AS STRING) AS value"] + ([f"'{topic}' AS topic"] if topic else [])
    return spark.range(0, count, 1, 2).selectExpr(*columns)


SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def test_every_column_comes_back(spark: SparkSession, where: dict[str, str], new_topic: NewTopic) -> None:
    first, second = new_topic(3), new_topic(1)
    headers = [("a", b"1"), ("a", None), ("\u00e9", b"")]
    sent = [
        (b"k", b"v", first, 2, TIME, headers),
        (b"k", b"v", first, 2, TIME, headers),  # records are not a set
        (None, b"v", first, 1, TIME, None),
        (b"k", None, first, 0, TIME, None),
        (b"", b"", second, 0, TIME, None),
        (None, b"x" * 100_000, second, 0, TIME, [("h", b"\x00\xff")]),
    ]
    write(spark.createDataFrame(sent, SCHEMA), where)
    found = [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.topic,
            row.partition,
            row.timestamp.replace(tzinfo=UTC) if row.timestamp.tzinfo is None else row.timestamp,
            [(name, None if value is None else bytes(value)) for name, value in row.headers] if row.headers else None,
        )
        for row in read(spark, where, subscribe=f"{first},{second}", includeHeaders="true")
    ]
    local = TIME.astimezone().replace(tzinfo=UTC)  # collect() returns local time
    assert Counter(map(repr, found)) == Counter(repr((*row[:4], local, row[5])) for row in sent)


def test_offsets_bound_a_read(spark: SparkSession, where: dict[str, str], new_topic: NewTopic) -> None:
    topic = new_topic(1)
    write(numbers(spark, 100).coalesce(1), where, topic=topic)
    bounds = {"startingOffsets": f'{{"{topic}":{{"0":10}}}}', "endingOffsets": f'{{"{topic}":{{"0":40}}}}'}
    rows = read(spark, where, "offset BIGINT, value BINARY", subscribe=topic, **bounds, minPartitions="3")
    assert [(row.offset, row.value.decode()) for row in rows] == [(number, str(number)) for number in range(10, 40)]
    assert list(rows[0].asDict()) == ["offset", "value"]
    named = {"columns": "offset,value", "subscribe": topic, "pushFilters": "true"}
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("kwire").options(**where, **bounds, **named).load()
        left = frame.where("offset >= 20 AND offset < 23 AND value <> '21'")
        assert [(row.offset, row.value.decode()) for row in left.collect()] == [(20, "20"), (22, "22")]
        assert frame.where("offset > 99").rdd.getNumPartitions() == 1  # none to read: Spark makes an empty one
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assigned = {"assign": f'{{"{topic}":[0]}}', "maxRecordsPerPartition": "30"}
    frame = spark.read.format("kwire").options(**where, **assigned).load()
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 100
    assert frame.limit(5).count() == 5


def test_a_topic_as_a_view_of_sql(spark: SparkSession, where: dict[str, str], new_topic: NewTopic) -> None:
    topic = new_topic(1)
    write(numbers(spark, 10), where, topic=topic)
    own = {**where, "subscribe": topic, "columns": "value,partition"}
    listed = ", ".join(f"'{name}' '{value}'" for name, value in own.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW numbers USING kwire OPTIONS ({listed})")
    found = spark.sql("SELECT CAST(value AS STRING) AS value FROM numbers WHERE partition = 0").collect()
    assert sorted(row.value for row in found) == sorted(map(str, range(10)))


def test_an_empty_write_and_an_empty_read(spark: SparkSession, where: dict[str, str], new_topic: NewTopic) -> None:
    topic = new_topic(2)
    write(numbers(spark, 0), where, topic=topic)
    assert read(spark, where, subscribe=topic) == []


def test_a_pattern_and_a_session_that_registered_nothing(
    spark: SparkSession, where: dict[str, str], new_topic: NewTopic
) -> None:
    """Spark finds pyspark_kwire by itself."""
    topic = new_topic(2)
    other = spark.newSession()
    write(numbers(other, 10), where, topic=topic)
    rows = read(other, where, subscribePattern=f"{topic[:-1]}.")
    assert values(rows) == values(read(spark, where, subscribe=topic)) == sorted(map(str, range(10)))


def test_a_streaming_write_goes_on_after_a_restart(
    spark: SparkSession, where: dict[str, str], new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(3)
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="50", numPartitions="2").load()
    batches = 0
    for _ in range(2):
        query = (
            source.selectExpr("CAST(value AS STRING) AS value")
            .writeStream.format("kwire")
            .options(**where, topic=topic, checkpointLocation=str(tmp_path))
            .trigger(processingTime="0 seconds")
            .start()
        )
        while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < batches + 1:
            query.awaitTermination(1)
        query.stop()
        assert query.exception() is None
        last = query.lastProgress
        assert last is not None
        batches = last["batchId"] + 1
    found = Counter(values(read(spark, where, subscribe=topic)))
    # The batch that stop() cut off was written in part, and whole after the restart: at least once.
    assert {str(number) for number in range(batches * 50)} <= found.keys()
    assert sum(count - 1 for count in found.values()) <= 100


@pytest.mark.parametrize(
    "case",
    [
        Case(INLINE, spark_faults.WORKER, fault_points.BEFORE_DECISION),
        Case(SIDES, spark_faults.WORKER, fault_points.SIDE_PREPARED),
        Case(SIDES, spark_faults.WORKER, fault_points.AFTER_DECISION),
    ],
    ids=lambda case: case.name,
)
def test_exactly_once_although_a_worker_is_killed(
    spark: SparkSession, tmp_path: Path, strike_order: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """A worker of a task, or of the driver's commit. `tools/chaos spark` has all steps, and the JVM."""
    monkeypatch.setenv(spark_faults.ORDER, str(strike_order))
    with Cluster(brokers=1, topics={case.name: PARTITIONS}) as cluster:
        plan = plan_of(cluster.bootstrap, [case], tmp_path)
        run_case(spark, plan, plan["cases"][0])
        outcome = judge(cluster.bootstrap, case, tmp_path)
    assert outcome.holds, outcome
    assert outcome.starts == 2


def test_a_batch_write_with_an_id_is_written_once(
    spark: SparkSession, where: dict[str, str], new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    options = {"topic": topic, "delivery": "exactly-once", "writeId": f"{topic}-1"}
    for _ in range(2):
        write(numbers(spark, 100), where, **options)
    assert values(read(spark, where, subscribe=topic)) == sorted(map(str, range(100)))
    write(numbers(spark, 100), where, topic=topic, delivery="exactly-once")
    assert len(read(spark, where, subscribe=topic)) == 200
    text = failure(spark, where, numbers(spark, 1).selectExpr("value", "7 AS partition"), **options | {"writeId": "2"})
    assert "DeliveryError: row 0 of DataFrame partition " in text
    assert "the topic has 2 partitions, numbered from 0" in text


def test_a_stream_from_topic_to_topic(
    spark: SparkSession, where: dict[str, str], new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(2)
    options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    options["monitoringGroup"] = f"{source}-progress"

    def run() -> list[int]:
        """Copy what is available. Return the number of rows of each micro-batch."""
        query = (
            spark.readStream.format("kwire")
            .options(**where, **options)
            .load()
            .writeStream.format("kwire")
            .options(**where, topic=target, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert query.exception() is None
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    write(numbers(spark, 70), where, topic=source)
    assert run() == [30, 30, 10]
    write(numbers(spark, 20), where, topic=source)
    assert run() == [20]
    assert run() == []
    copied = read(spark, where, "partition INT, value BINARY, timestamp TIMESTAMP", subscribe=target)
    original = read(spark, where, "partition INT, value BINARY, timestamp TIMESTAMP", subscribe=source)
    assert sorted(map(repr, copied)) == sorted(map(repr, original))
    assert len(copied) == 90
    with kwire.Admin(where["kafka.bootstrap.servers"]) as admin:
        progress = admin.groups.lag(f"{source}-progress")
    assert (progress.total, len(progress.by_partition)) == (0, 2)


def test_rows_become_messages_of_a_queue_once(spark: SparkSession, where: dict[str, str]) -> None:
    name = f"q-{uuid.uuid4().hex[:8]}"
    own = {"queue": name, "queueMessageTopic": f"{name}-m", "queueMarkerTopic": f"{name}-k"}
    for _ in range(2):
        write(numbers(spark, 20), where, **own, delivery="exactly-once", writeId=name)
    topics = {"message_topic": f"{name}-m", "marker_topic": f"{name}-k"}
    with kwire.queue.Service(where["kafka.bootstrap.servers"], **topics) as service:  # type: ignore[arg-type]
        waiting = service.peek(name, 100)
    assert sorted(message.payload or b"" for message in waiting) == sorted(b"%d" % number for number in range(20))
    assert len({message.id for message in waiting}) == 20


def failure(spark: SparkSession, where: dict[str, str], frame: DataFrame, **options: str) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        write(frame, where, **options)
    return str(caught.value)


def test_a_failed_task_names_the_row(spark: SparkSession, where: dict[str, str], new_topic: NewTopic) -> None:
    topic = new_topic(1)
    frame = spark.createDataFrame([(b"a", "1"), (b"b", "2" * 1_000), (b"c", "3")], "key BINARY, value STRING")
    text = failure(spark, where, frame.coalesce(1), topic=topic, **{"kafka.max.request.size": "500"})
    assert "DeliveryError: row 1 of DataFrame partition 0 (key b'b', value of 1,000 bytes) was not written: it" in text
    assert "raise kafka.max.request.size, and the topic's max.message.bytes" in text
    assert f"[topic {topic}]" in text
    text = failure(spark, where, numbers(spark, 1).selectExpr("value", "7 AS partition"), topic=topic)
    assert f"topic {topic}, partition 7]" in text


def test_a_failed_task_names_the_broker(spark: SparkSession) -> None:
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t", 1)
        where = {"kafka.bootstrap.servers": cluster.bootstrap, "kafka.delivery.timeout.ms": "1500"}
        write(numbers(spark, 10), where, topic="t")
        cluster.stop(1)
        text = failure(spark, where, numbers(spark, 10), topic="t")
    assert "was not written (other rows of this batch" in text
    # A fresh worker knows the broker by its address alone, one that has written before its number and the partition.
    assert re.search(rf"broker (1 at )?{re.escape(cluster.bootstrap)}, topic t(, partition 0)?\]", text)


def test_sasl_by_the_options_of_java_clients(spark: SparkSession) -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="{}";'
    with Cluster(brokers=1, sasl={"u": "p"}, topics={"t": 1}) as cluster:
        where = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": login.format("p"),
        }
        write(numbers(spark, 10), where, topic="t")
        assert len(read(spark, where, subscribe="t")) == 10
        text = failure(spark, where | {"kafka.sasl.jaas.config": login.format("s3cret")}, numbers(spark, 1), topic="t")
    assert "check user name and password" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "option startingoffset is not supported: alternatives: startingOffsets"),
        ({"kafka.group.id": "g"}, "option kafka.group.id is not supported"),
        ({"startingOffsets": "latest"}, "a batch read cannot start at the latest offset"),
        ({"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic' that this client may see"),
    ],
)
def test_a_wrong_read_fails_on_the_driver(
    spark: SparkSession, where: dict[str, str], options: dict[str, str], message: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as caught:
        read(spark, where, **({"subscribe": "t"} | options))
    assert message in str(caught.value)


def test_a_wrong_streaming_read_fails_where_it_is_written(spark: SparkSession, where: dict[str, str]) -> None:
    """The error is raised by load(), not in a thread of the query."""
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="option startingoffset is not supported: alternatives: startingOff"):
        spark.readStream.format("kwire").options(**where, subscribe="t", startingOffset="earliest").load()


def test_an_error_of_a_task_names_cause_and_partition(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with Cluster(brokers=1, topics={"t": 1}) as cluster:
        where = {"kafka.bootstrap.servers": cluster.bootstrap}
        write(numbers(spark, 10), where, topic="t")
        ends = {"endingOffsets": '{"t":{"0":99}}'}

        def read_error(**options: str) -> str:
            with pytest.raises(PySparkException) as caught:
                read(spark, where, subscribe="t", **options)
            return str(caught.value)

        text = read_error(**ends)
        assert "offset 99, where the read ends, does not exist: the log ends at 10 [topic t" in text
        assert "set failOnDataLoss to false" in text
        assert len(read(spark, where, subscribe="t", failOnDataLoss="false", **ends)) == 10
        for api in (ApiKey.FETCH, ApiKey.PRODUCE):
            cluster.add_fault(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED), api=api)
        missing = r"TOPIC_AUTHORIZATION_FAILED \(29\) \[.*topic t, partition 0.*\]: an ACL on the topic is missing"
        assert re.search(missing, read_error())
        assert re.search(missing, failure(spark, where, numbers(spark, 1), topic="t"))


def test_a_wrong_write_fails_on_the_driver(spark: SparkSession, where: dict[str, str]) -> None:
    assert "no topic is named" in failure(spark, where, numbers(spark, 1))
    assert "option kafka.acks is '9'" in failure(spark, where, numbers(spark, 1, "t"), **{"kafka.acks": "9"})
    assert "no column id: drop it" in failure(spark, where, spark.range(1).selectExpr("id", "'v' AS value"), topic="t")
