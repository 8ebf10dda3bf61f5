"""Copy a topic to another one as a stream, with a checkpoint: a second run continues where the first one ended.

With `availableNow` the query reads the available records and ends; without a trigger it continues. Needs
`pip install kwire[spark]` and a Java 17; see spark_batch.py for PYSPARK_PYTHON. `availableNow` needs Spark 4.2.

    python examples/spark_stream.py localhost:9092 /tmp/checkpoint
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import kwire.spark


def main(bootstrap: str, checkpoint: str = "checkpoint") -> None:
    spark = SparkSession.builder.master("local[2]").appName("copy").getOrCreate()
    kwire.spark.register(spark)
    servers = {"kafka.bootstrap.servers": bootstrap}

    source = spark.readStream.format("kwire").options(**servers, subscribe="numbers", startingOffsets="earliest").load()
    copied = source.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    query = (
        copied.writeStream.format("kwire")
        .options(**servers, topic="copied", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{sum(progress.numInputRows for progress in query.recentProgress)} records copied")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["localhost:9092"])
