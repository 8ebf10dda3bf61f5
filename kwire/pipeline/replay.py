"""An archive back into topics: records in their order, with their timestamps, headers and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.pipeline.mirror import target_columns
from kwire.pipeline.sides import Cluster, Window, check_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    spark: SparkSession, path: str, target: Cluster, *, topic: str, to: str | None = None,
    window: Window = Window(), keeps_partitions: bool = True, write_id: str | None = None,  # noqa: B008
) -> int:  # fmt: skip
    """Write a topic of an archive to a topic, by default of the same name; return the number of records.

    With a `write_id` the write is exactly once: run it again with the same id after a failure, and what was written is
    not written again. Without one it is at least once. A task writes a partition, in the order of offsets.
    """
    import kwire.spark

    check_topic(topic)
    kwire.spark.register(spark)
    rows = spark.read.parquet(path).where(f"topic = '{topic}'")
    for bound, sign in ((window.since, ">="), (window.until, "<")):
        if bound is not None:
            rows = rows.where(f"timestamp {sign} timestamp_millis({bound})")
    # One task a partition of the topic, whatever the number of cores: order is kept within a task.
    ordered = rows.repartition("partition").sortWithinPartitions("partition", "offset")
    write = (
        ordered.selectExpr(*target_columns(keeps_partitions))
        .write.format("kwire")
        .options(**target.spark_options())
        .option("topic", to or topic)
    )
    if write_id is not None:
        write = write.options(delivery="exactly-once", writeId=write_id)
    count = rows.count()
    if count:
        write.mode("append").save()
    return count
