"""Write a DataFrame to Kafka with PySpark, or read one, through either connector."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from brokers.jars import fetch_jars

from bench.meter import Meter, session_cpu_seconds, session_peak_bytes
from bench.settings import BATCH_BYTES, LINGER_MS
from bench.task import Coordination, Sample, Task, payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CONNECTOR = "4.2.0"  # the newest with all its jars in Maven's repository
PRODUCER = {
    "kwire": {"kafka.linger.ms": str(LINGER_MS)},
    "kafka": {"kafka.linger.ms": str(LINGER_MS), "kafka.batch.size": str(BATCH_BYTES)},
}
# Of each write where batches are compared, as of a micro-batch.
BATCH_ROWS = 100_000
_VALUES = "payloads"  # the view of what is written
NOTHING = "nothing"  # see `spark_alone`


def kwire(task: Task, coordination: Coordination) -> Sample:
    return _run(task, "kwire")


def kafka(task: Task, coordination: Coordination) -> Sample:
    return _run(task, "kafka")


def exactly_once(task: Task, coordination: Coordination) -> Sample:
    return _run(task, "kwire", {"delivery": "exactly-once"})


def nothing(task: Task, coordination: Coordination) -> Sample:
    return _run(task, NOTHING)


def _session(source: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master("local[2]").appName("bench")
    if source == "kafka":
        jars = sorted(map(str, fetch_jars("spark-sql-kafka", CONNECTOR).glob("*.jar")))
        builder = builder.config("spark.jars", ",".join(jars))
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if source == "kwire":
        from kwire.spark import register

        register(spark)
    elif source == NOTHING:
        from bench.contestants.spark_alone import Nothing

        spark.dataSource.register(Nothing)
    return spark


def _run(task: Task, source: str, delivery: Mapping[str, str] = MappingProxyType({})) -> Sample:
    import pyspark

    spark = _session(source)
    ways = {"read": _read, "values": _read_values}
    way = ways.get(task.options["way"]) or partial(_write, delivery=delivery)
    values = spark.createDataFrame(list(enumerate(payloads(task.size))), "number LONG, value BINARY")
    values.cache().createOrReplaceTempView(_VALUES)
    call = partial(way, spark, source, task)
    call(task.warm_topic or task.topic, task.warmup)
    with Meter(session_cpu_seconds) as meter:
        call(task.topic, task.records)
    # Workers live for a minute after their last task.
    measures = {"worker_mib": session_peak_bytes("pyspark.daemon") / 2**20}
    spark.stop()
    connector = f", connector {CONNECTOR}" if source == "kafka" else ""
    return meter.sample(task.records, measures=measures, version=f"Spark {pyspark.__version__}{connector}")


def _write(
    spark: SparkSession, source: str, task: Task, topic: str, count: int, *, delivery: Mapping[str, str]
) -> None:
    from pyspark.sql.functions import broadcast, col

    options = {"kafka.bootstrap.servers": task.bootstrap, "topic": topic, **PRODUCER.get(source, {}), **delivery}
    if task.compression != "none":
        options["kafka.compression.type"] = task.compression
    at_once = BATCH_ROWS if task.options["way"] == "batches" else count
    for first in range(0, count, at_once):
        # A join makes a row cheap for Spark whatever its value is.
        ids = spark.range(first, min(count, first + at_once), 1, 4)
        numbers = ids.select((col("id") % len(payloads(task.size))).alias("number"))
        rows = numbers.join(broadcast(spark.table(_VALUES)), "number").select("value")
        if source == NOTHING:
            options["rows"] = str(min(at_once, count - first))
        rows.write.format(source).options(**options).mode("append").save()


def _read_options(source: str, task: Task, topic: str, count: int) -> dict[str, str]:
    if source == NOTHING:
        return {"rows": str(count), "size": str(task.size), "partitions": str(task.partitions)}
    return {"kafka.bootstrap.servers": task.bootstrap, "subscribe": topic}


def _read(spark: SparkSession, source: str, task: Task, topic: str, count: int) -> None:
    from pyspark.sql.functions import col, length
    from pyspark.sql.functions import sum as total

    options = _read_options(source, task, topic, count)
    frame = spark.read.format(source).options(**options).load()
    row = frame.agg(total(length(col("value"))).alias("length"), total(col("offset") * 0 + 1).alias("count")).first()
    assert row is not None
    if (row["count"], row["length"]) != (count, count * task.size):
        raise RuntimeError(f"{row['count']} records of {row['length']} bytes were read, not {count}")


def _read_values(spark: SparkSession, source: str, task: Task, topic: str, count: int) -> None:
    """Read what many programs want, the values. Only kwire can be told so."""
    from pyspark.sql.functions import col, length
    from pyspark.sql.functions import count as number
    from pyspark.sql.functions import sum as total

    options = _read_options(source, task, topic, count)
    if source == "kwire":
        options["columns"] = "value"
    frame = spark.read.format(source).options(**options).load()
    row = frame.agg(total(length(col("value"))).alias("length"), number(col("value")).alias("count")).first()
    assert row is not None
    if (row["count"], row["length"]) != (count, count * task.size):
        raise RuntimeError(f"{row['count']} records of {row['length']} bytes were read, not {count}")
