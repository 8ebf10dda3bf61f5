"""An archive back into topics: records in their order, with their timestamps, headers and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.pipeline.archive import read_archive
from kwire.pipeline.mirror import is_missing, no_target, target_columns
from kwire.pipeline.sides import Cluster, Window, check_topic
from kwire.spark.client_options import admin_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    spark: SparkSession, path: str, target: Cluster, *, topic: str, to: str | None = None, creates: bool = False,
    window: Window = Window(), keeps_partitions: bool = True, write_id: str | None = None,  # noqa: B008
) -> int:  # fmt: skip
    """Write a topic of an archive to a topic, by default of the same name; return the number of records.

    With a `write_id` the write is exactly once: run it again with the same id after a failure, and what was written is
    not written again. Without one it is at least once. A task writes a partition, in the order of offsets.

    With `creates`, a topic that the target lacks is made, with as many partitions as the archived one has records of.
    Raises ConfigurationError, before anything is written, for a topic that is missing or has too few partitions.
    """
    import kwire.spark

    check_topic(topic)
    kwire.spark.register(spark)
    rows = read_archive(spark, path).where(f"topic = '{topic}'")
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
    found = rows.selectExpr("count(*) AS records", "coalesce(max(partition), 0) + 1 AS partitions").collect()[0]
    if found.records:
        _prepare_topic(target, to or topic, found.partitions, creates=creates, keeps_partitions=keeps_partitions)
        write.mode("append").save()
    return int(found.records)


def _prepare_topic(target: Cluster, name: str, partitions: int, *, creates: bool, keeps_partitions: bool) -> None:
    """Check that the target has this topic with enough partitions; with `creates`, make it if it is missing."""
    from kwire.admin import Admin, NewTopic

    with Admin(**admin_options(target.client_options())) as admin:
        if is_missing(admin, name, partitions if keeps_partitions else 1, f"the archived topic {partitions}"):
            if not creates:
                raise no_target(name, "--create-topic")
            admin.create_topics([NewTopic(name, partitions)])
