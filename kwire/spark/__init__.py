"""A PySpark data source: `format("kwire")`.

`register(spark)` once, then `df.write.format("kwire")`, `df.writeStream`, `spark.read` and `spark.readStream`, with the
columns and options of Spark's own Kafka connector and no jar. Writes are at least once.

    values           texts of options into Python values
    options          the options that say what to read and write
    client_options   kafka.* options into keywords of kwire's clients
    security         security.protocol, sasl.* and ssl.* among them
    offsets          checkpoints, ranges, portions, limits
    planning         a subscription and its bounds into offsets of partitions
    columns          what a read answers, as Arrow
    rows             what a write takes, as Arrow, and what can be wrong with a row
    wording          what clients say, in the names of Spark's options
    clients          producers and consumers kept by a worker process
    reader, stream, writer    Spark's interfaces for batch reads, streaming reads and both kinds of write
    source           the data source itself

It refuses to run without PySpark and pyarrow (`pip install kwire[spark]`), which are imported on first use only.

Imports: consumer, producer, admin, net, session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kwire.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.spark.source import KwireDataSource

__all__ = ["KwireDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("kwire")` known to this session. May be repeated."""
    try:
        from pyspark.errors import AnalysisException

        from kwire.spark.source import KwireDataSource
    except ImportError as error:
        raise ConfigurationError(
            f"format('kwire') needs PySpark 4.0 or later and pyarrow ({error})", remedy="pip install kwire[spark]"
        ) from error
    try:
        spark.dataSource.register(KwireDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it has found by itself, through pyspark_kwire; it is ours, so all is well.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def __getattr__(name: str) -> object:
    if name == "KwireDataSource":
        from kwire.spark.source import KwireDataSource

        return KwireDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
