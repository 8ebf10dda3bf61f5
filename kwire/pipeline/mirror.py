"""Topics from one cluster to another, exactly once: records with keys, headers, timestamps, and their partitions.

The checkpoint of the query says how far the source was read, a marker on the target what was written (`format("kwire")`
with delivery exactly-once). A mirror that is killed at any moment goes on with the next start, and neither loses nor
doubles a record for consumers that read committed records. Offsets differ between the clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.errors import ConfigurationError, counted
from kwire.pipeline.session import trigger_options
from kwire.pipeline.sides import Cluster, check_topic
from kwire.spark.client_options import admin_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kwire.admin import Admin


# A micro-batch is one transaction on the target, which must end within transaction.max.timeout.ms (15 minutes): the
# first one of an old topic must not be all of it.
MAX_BYTES_PER_TRIGGER = 1 << 30


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Which topics go where. `prefix` comes before the names on the target: "eu." makes eu.orders of orders.

    `keeps_partitions`: a record goes to the partition of the same number; else its key decides.
    """

    topics: tuple[str, ...]
    prefix: str = ""
    keeps_partitions: bool = True

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigurationError("no topic is named", remedy="name one or more")
        for name in (*self.topics, self.prefix or "x"):
            check_topic(name)

    def target_of(self, topic: str) -> str:
        return self.prefix + topic


def target_columns(keeps_partitions: bool) -> list[str]:
    """Return the columns of a write that keeps what a record was. A record without a timestamp gets the current."""
    kept = ["key", "value", "headers", "timestamp"]
    return kept + (["partition"] if keeps_partitions else [])


def prepare_topics(
    plan: MirrorPlan, source: Cluster, target: Cluster, *, creates: bool, dry_run: bool = False
) -> list[str]:
    """Check that the target has the topics with enough partitions; with `creates`, make those that are missing.

    Such a topic has as many partitions as the source's, and its configs (see `mirror_configs`). With `dry_run` it is
    only named. Return the names of topics made. Raises ConfigurationError: a mirror that fails on its first record
    fails late.
    """
    from kwire.admin import Admin

    made: list[str] = []
    with (
        Admin(**admin_options(source.client_options())) as there,
        Admin(**admin_options(target.client_options())) as here,
    ):
        for topic in plan.topics:
            wanted, name = _partition_count(there, topic), plan.target_of(topic)
            if wanted is None:
                raise ConfigurationError(f"the source has no topic {topic}", remedy="check its name")
            origin = f"{topic} {wanted} on the source"
            if is_missing(here, name, wanted if plan.keeps_partitions else 1, origin):
                if not creates:
                    raise no_target(name, "--create-topics")
                from kwire.admin import NewTopic
                from kwire.pipeline.mirror_configs import own_configs

                if not dry_run:
                    here.create_topics([NewTopic(name, wanted, configs={**own_configs(there, topic)})])
                made.append(name)
    return made


def is_missing(target: Admin, name: str, needed: int, origin: str) -> bool:
    """Return whether the target lacks a topic. Raises ConfigurationError if it has fewer partitions than `needed`.

    `origin` says where so many are needed.
    """
    found = _partition_count(target, name)
    if found is not None and found < needed:
        raise ConfigurationError(
            f"{name} has {counted(found, 'partition')} on the target, {origin}",
            remedy="add partitions to the target, or let keys decide (--partitions by-key)",
        )
    return found is None


def no_target(name: str, option: str) -> ConfigurationError:
    return ConfigurationError(f"the target has no topic {name}", remedy=f"create it, or add {option}")


def _partition_count(admin: Admin, topic: str) -> int | None:
    found = admin.metadata([topic]).topics.get(topic)
    return None if found is None or not found.partitions else len(found.partitions)


_BOUNDS = {"maxbytespertrigger", "maxoffsetspertrigger"}  # options of Spark have no case


def start_mirror(
    spark: SparkSession, plan: MirrorPlan, source: Cluster, target: Cluster, checkpoint: str, *,
    trigger: Mapping[str, Any] | None = None, read: Mapping[str, str] | None = None,
    write: Mapping[str, str] | None = None,
) -> StreamingQuery:  # fmt: skip
    """Start the query. By default it ends when it has what there is now; else give a trigger of Spark.

    `read` and `write` are more options of `format("kwire")`, such as maxOffsetsPerTrigger or inlineMaxBytes. From Spark
    4.2 on, a micro-batch has about `MAX_BYTES_PER_TRIGGER` bytes unless `read` bounds it. Records of transactions that
    were aborted on the source are not mirrored.
    """
    import kwire.spark
    from kwire.spark.reader import HAS_ADMISSION_CONTROL

    when = trigger_options(trigger)
    read = dict(read or {})
    if HAS_ADMISSION_CONTROL and not _BOUNDS & {name.lower() for name in read}:
        read["maxBytesPerTrigger"] = str(MAX_BYTES_PER_TRIGGER)
    kwire.spark.register(spark)
    records = (
        spark.readStream.format("kwire")
        .options(**source.spark_options(), **{"kafka.isolation.level": "read_committed"})
        .options(subscribe=",".join(plan.topics), startingOffsets="earliest", includeHeaders="true", **read)
        .load()
    )
    columns = target_columns(plan.keeps_partitions)
    topic = f"concat('{plan.prefix}', topic) AS topic"
    query = (
        records.selectExpr(*columns, topic)
        .writeStream.format("kwire")
        .options(**target.spark_options(), delivery="exactly-once", markerTopic=plan.target_of(plan.topics[0]))
        .options(**(write or {}))
        .option("checkpointLocation", checkpoint)
        .trigger(**when)
    )
    return query.start()
