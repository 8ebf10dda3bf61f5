"""Write a DataFrame through format("kwire") with PySpark, read it back and compare it row by row.

    python tools/demo_parts/spark_job.py BOOTSTRAP TOPIC ROWS

It is a separate program, so that the JVM and its log end with it. The last line of its output is JSON: rows written,
rows read, partitions used and the number of different rows. The exit code is 0 only if no row differs.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, concat, encode, expr, lit, struct, when

import kwire.spark


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kwire demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def frame(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows with every column of a record; each seventh key and each eleventh value is null."""
    number = col("id").cast("string")
    return spark.range(0, rows, 1, 4).select(
        when(col("id") % 7 != 0, encode(concat(lit("key-"), number), "UTF-8")).alias("key"),
        when(col("id") % 11 != 0, encode(concat(lit("value-"), number), "UTF-8")).alias("value"),
        array(
            struct(lit("id").alias("key"), encode(number, "UTF-8").alias("value")),
            struct(lit("none").alias("key"), lit(None).cast("binary").alias("value")),
        ).alias("headers"),
        (col("id") % 3).cast("int").alias("partition"),
        expr("timestamp_millis(1700000000000 + id)").alias("timestamp"),
    )


def as_key(row: Any) -> tuple[object, ...]:
    headers = tuple((header.key, _bytes(header.value)) for header in row.headers)
    return _bytes(row.key), _bytes(row.value), headers, row.partition, row.timestamp


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def main(bootstrap: str, topic: str, rows: int) -> int:
    spark = session()
    try:
        kwire.spark.register(spark)
        wanted = frame(spark, rows)
        options = {"kafka.bootstrap.servers": bootstrap}
        wanted.write.format("kwire").options(**options, topic=topic).mode("append").save()
        options |= {"subscribe": topic, "includeHeaders": "true"}
        found = spark.read.format("kwire").options(**options).load()
        written = Counter(map(as_key, wanted.collect()))
        read_rows = found.collect()
        read = Counter(map(as_key, read_rows))
    finally:
        spark.stop()
    different = sum((written - read).values()) + sum((read - written).values())
    partitions = len({row.partition for row in read_rows})
    print(json.dumps({"written": rows, "read": len(read_rows), "partitions": partitions, "different": different}))
    return 0 if different == 0 and len(read_rows) == rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
