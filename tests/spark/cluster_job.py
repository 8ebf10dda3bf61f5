"""A program for spark-submit and for Spark Connect: write, read back, and say where the workers have kwire from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS = 20


def work(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, Any]:
    """Write rows and read them back. Return what came back, and the file and the implementation of kwire in a task."""
    import kwire.spark

    kwire.spark.register(spark)
    servers = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(0, ROWS, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kwire").options(**servers, topic=topic).mode("append").save()
    read = spark.read.format("kwire").options(**servers, subscribe=topic, columns="value,offset").load()
    values = [int(bytes(row.value)) for row in read.orderBy("offset").collect()]

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        import kwire.wire.accel

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"file": [kwire.__file__], "has_c": [kwire.wire.accel.speedups is not None]}
            )

    (task,) = spark.range(0, 1, 1, 1).mapInArrow(where, "file STRING, has_c BOOLEAN").collect()
    return {"values": values, "file": task.file, "has_c": task.has_c, "driver": kwire.__file__}


def main() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    print(json.dumps(work(spark, sys.argv[1], sys.argv[2])))
    spark.stop()


if __name__ == "__main__":
    main()
