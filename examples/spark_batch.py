"""Write a DataFrame to Kafka and read it back, in one Spark batch each.

Needs `pip install kwire[spark]` and a Java 17. Spark runs `python3` of PATH in its workers; PYSPARK_PYTHON makes them
use the Python, and so the kwire, of this program.

    python examples/spark_batch.py localhost:9092
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import kwire.spark


def main(bootstrap: str) -> None:
    spark = SparkSession.builder.master("local[2]").appName("numbers").getOrCreate()
    kwire.spark.register(spark)  # only needed where Spark does not find the format by itself
    servers = {"kafka.bootstrap.servers": bootstrap}

    numbers = spark.range(1_000).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    numbers.write.format("kwire").options(**servers, topic="numbers").mode("append").save()

    read = spark.read.format("kwire").options(**servers, subscribe="numbers").load()
    summary = read.selectExpr("count(*) AS records", "max(CAST(CAST(value AS STRING) AS INT)) AS largest").first()
    assert summary is not None
    print(f"{summary['records']} records, the largest is {summary['largest']}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
