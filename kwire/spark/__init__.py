"""A PySpark data source: `format("kwire")`.

`register(spark)` once, then `df.write.format("kwire")`, `df.writeStream`, `spark.read` and `spark.readStream`, with the
columns and options of Spark's own Kafka connector and no jar. Writes are at least once, or exactly once if told so.

    source           KwireDataSource: creates readers and writers
    options          Spark's options of a read or a write
    client_options   kafka.* options as keywords of kwire's clients; TLS and SASL
    option_parsers   parsers of option values
    offsets          checkpoints, ranges and splits; which offsets a read covers
    reader           batch and streaming reads
    columns          the columns of a read
    filters          filters of a batch read: which partitions and offsets they leave out
    record_sizes     how many bytes an offset stands for: maxBytesPerTrigger
    monitoring       the progress of a query as the offsets of a group
    queue_read       dead letters and markers of queues as tables
    sink             the columns of a write, and checks of its rows
    writer           batch and streaming writes
    rows             rows as errors name them
    capture_source   format("kwire.capture"): captures as a table of exchanges
    log_source       format("kwire.log"): a broker's segments as a table of records
    files, table     ... their files; their schemas and Arrow batches
    queue_write      rows as messages of a queue
    exactly_once     writes exactly once as Spark runs them
    task_write       ... the part of a task: rows inline, or in a side transaction
    encoder          ... rows as encoded batches
    lead             ... the part of the driver: decide, complete, abort
    marker           ... what a decided batch leaves in Kafka
    transactions     ... the requests of transactions without a producer
    fault_points     ... where tests kill it
    clients          clients cached by a worker process
    error_messages   clients' errors with the names of Spark's options

PySpark and pyarrow (`pip install kwire[spark]`) are imported on first use.

Imports: queue, lint, logs, capture, consumer, producer, admin, cluster, net, protocol, records, wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.spark.capture_source import captures_of
    from kwire.spark.source import KwireDataSource

__all__ = ["KwireDataSource", "captures_of", "register"]


def register(spark: SparkSession) -> None:
    """Register `format("kwire")`, "kwire.capture" and "kwire.log" with this session. Twice does no harm."""
    try:
        from pyspark.errors import AnalysisException

        from kwire.spark.capture_source import CaptureDataSource
        from kwire.spark.log_source import LogDataSource
        from kwire.spark.source import KwireDataSource
    except ImportError as error:
        raise ConfigurationError(
            f"format('kwire') needs PySpark 4.0 or later and pyarrow ({error})", remedy="pip install kwire[spark]"
        ) from error
    for source in (KwireDataSource, CaptureDataSource, LogDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark 4.0 rejects a name that it has already found through pyspark_kwire, which is this data source.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


if not TYPE_CHECKING:  # or checkers would accept every name

    def __getattr__(name: str) -> object:
        if name == "KwireDataSource":
            from kwire.spark.source import KwireDataSource

            return KwireDataSource
        if name == "captures_of":
            from kwire.spark.capture_source import captures_of

            return captures_of
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
