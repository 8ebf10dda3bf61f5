"""An archive: topics as Parquet files, partitioned by topic, date and hour of the records' timestamps (UTC).

    archive/topic=orders/date=2026-01-31/hour=13/part-....parquet

Columns are those of `format("kwire")`: key, value, partition, offset, timestamp, timestampType, headers. Spark's file
sink writes it and notes in `_spark_metadata` which files count, so what a killed run left behind does not.
`open_archive` respects that without Spark, also after the archive was moved.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from kwire.errors import ConfigurationError
from kwire.pipeline.session import trigger_options
from kwire.pipeline.sides import Cluster

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

METADATA = "_spark_metadata"
PARTITION_COLUMNS = ("topic", "date", "hour")
_COMPACT = ".compact"


def start_archive(
    spark: SparkSession, source: Cluster, topics: str, path: str, checkpoint: str, *, is_pattern: bool = False,
    trigger: dict[str, Any] | None = None, options: dict[str, str] | None = None,
) -> StreamingQuery:  # fmt: skip
    """Start the query that appends topics to an archive, from their beginnings on. Each record is archived once.

    `topics` are names separated by commas, or a pattern. By default the query ends when it has what there is now;
    `trigger={"processingTime": "1 minute"}` lets it go on. `options` are more options of the read.
    """
    import kwire.spark

    when = trigger_options(trigger)
    kwire.spark.register(spark)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # of date and hour
    read = spark.readStream.format("kwire").options(
        **source.spark_options(), includeHeaders="true", startingOffsets="earliest", **(options or {})
    )
    records = read.option("subscribePattern" if is_pattern else "subscribe", topics).load()
    rows = records.selectExpr(
        "*", "date_format(timestamp, 'yyyy-MM-dd') AS date", "date_format(timestamp, 'HH') AS hour"
    )
    write = rows.writeStream.format("parquet").partitionBy(*PARTITION_COLUMNS)
    return write.option("checkpointLocation", checkpoint).trigger(**when).start(path)


def open_archive(path: str, topic: str) -> Any:
    """Return the files of a topic that count as a pyarrow dataset. Raises ConfigurationError if there is none."""
    import pyarrow.dataset as ds

    from kwire.spark.files import file_system

    system, root = file_system(path, "; any other file system is one of Spark alone")
    try:
        files = archived_files(system, root.rstrip("/"), topic)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", remedy="check the path and who may read it"
        ) from None
    if not files:
        raise ConfigurationError(f"{path} has no records of topic {topic}", remedy="check the path and the topic")
    return ds.dataset(files, filesystem=system, format="parquet", schema=_file_schema())


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return all topics of an archive, with the columns of its files and of its folders."""
    from kwire.spark.columns import read_schema

    schema = read_schema(with_headers=True, names=_file_schema().names)
    # Spark would infer the type of a folder's name: topics 1.1 and 1.10 would be the same number.
    for name in PARTITION_COLUMNS:
        schema.add(name, "string")
    return spark.read.schema(schema).parquet(path)


def _file_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([
        ("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ])  # fmt: skip


def archived_files(system: fs.FileSystem, root: str, topic: str) -> list[str]:
    """Return the Parquet files of a topic that count, sorted. `root` is a path in that file system."""
    found = sorted(path for path in _files(system, f"{root}/topic={topic}") if path.endswith(".parquet"))
    counted = committed(system, root)
    return found if counted is None else [path for path in found if _from_topic_on(path) in counted]


def committed(system: fs.FileSystem, root: str) -> set[str] | None:
    """Return the files that Spark's file sink has committed, relative to the archive; None without its log.

    The log has a file per micro-batch, each with a JSON line per Parquet file, and now and then a compact file with all
    lines up to there.
    """
    from pyarrow.fs import FileType

    log = f"{root}/{METADATA}"
    if system.get_file_info(log).type != FileType.Directory:
        return None
    named = {path.rpartition("/")[2]: path for path in _files(system, log)}
    batches = {int(name): path for name, path in named.items() if name.isdigit()}
    compact = {
        int(name.removesuffix(_COMPACT)): path
        for name, path in named.items()
        if name.endswith(_COMPACT) and name.removesuffix(_COMPACT).isdigit()
    }
    last = max(compact, default=-1)
    read = ([compact[last]] if compact else []) + [file for number, file in sorted(batches.items()) if number > last]
    found: set[str] = set()
    for file in read:
        with system.open_input_file(file) as opened:
            version, *lines = opened.read().decode().splitlines()
        if version != "v1":
            raise ConfigurationError(
                f"{file} has version {version}, not v1", remedy="read the archive with Spark: spark.read.parquet"
            )
        for line in filter(None, lines):
            path = _below(json.loads(line)["path"])
            if path is not None:
                found.add(path)
    return found


def _files(system: fs.FileSystem, folder: str) -> list[str]:
    """Return the files below a folder; none if it does not exist."""
    from pyarrow import fs

    found = system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return [one.path for one in found if one.type == fs.FileType.File]


def _below(uri: str) -> str | None:
    """Return the part of a path from topic=... on: the archive may have been moved since."""
    # A URI has the characters of a folder's name twice escaped, by Hive and by the URI.
    return _from_topic_on(unquote(urlparse(uri).path))


def _from_topic_on(path: str) -> str | None:
    at = path.rfind("/topic=")
    return path[at + 1 :] if at >= 0 else None
