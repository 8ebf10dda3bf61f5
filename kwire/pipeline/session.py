"""The Spark session of a pipeline: that of spark-submit, or a local one on a laptop."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kwire.errors import ConfigurationError, KwireError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

R = TypeVar("R")
T = TypeVar("T")

_WAIT_S = 5  # a hundred batches take longer
_WAITS_PER_MINUTE = 60 // _WAIT_S
_AVAILABLE_NOW = {"availableNow": True}
# How a stack trace ends, of a task in Python or of the driver's Python, that an error of kwire has ended.
_RAISED_BY_KWIRE = re.compile(r"^kwire\.errors\.(\w+): (.+)$", re.MULTILINE)


def trigger_options(trigger: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the keywords of a query's trigger: by default, and in Spark 4.2 and later, it ends with what there is now.

    Raises ConfigurationError before that: Spark asks no source in Python to end.
    """
    from kwire.spark.reader import HAS_ADMISSION_CONTROL

    found = dict(trigger or _AVAILABLE_NOW)
    if found.get("availableNow") and not HAS_ADMISSION_CONTROL:
        from pyspark import __version__

        raise ConfigurationError(
            f"a pipeline that ends with what there is now needs Spark 4.2 or later, and this is {__version__}",
            remedy="let it go on, with a batch at each interval: --every 10s, or a trigger with processingTime",
        )
    return found


def await_query(query: StreamingQuery, meanwhile: Callable[[], None] | None = None) -> int:
    """Wait for the end of a query, and call `meanwhile` once a minute. Return the number of rows that it has read.

    Spark keeps the progress of the last 100 batches, so it is counted all along.
    """
    rows, last, waits = 0, -1, 0
    while True:
        has_ended = query.awaitTermination(_WAIT_S)
        for progress in query.recentProgress:
            # A batch is reported again and again while it has nothing to read, and once when it has.
            if progress["numInputRows"] and progress["batchId"] > last:
                rows += progress["numInputRows"]
                last = progress["batchId"]
        if has_ended:
            return rows
        waits += 1
        if meanwhile is not None and waits % _WAITS_PER_MINUTE == 0:
            meanwhile()


def error_of_job(error: Exception) -> KwireError:
    """Return why a job of Spark failed: the error of kwire at the end of the stack trace, else Spark's first line."""
    text = str(error)
    found = _RAISED_BY_KWIRE.findall(text)
    if found:
        name, message = found[-1]
        return ConfigurationError(message) if name == ConfigurationError.__name__ else KwireError(message)
    return KwireError(f"Spark's job failed: {text.strip().partition(chr(10))[0]}", remedy="run it again with -v")


def get_session(name: str, *, log_level: str = "WARN") -> SparkSession:
    """Return the session that spark-submit or the program has made, or make one on the cores of this machine.

    `log_level` is for the latter: OFF, ERROR, WARN, INFO, ...
    """
    # Workers run this Python, and so this kwire, unless the cluster says otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError(
            f"this pipeline needs PySpark 4.0 or later and pyarrow ({error})", remedy="pip install kwire[spark]"
        ) from error
    import kwire.spark

    builder = SparkSession.builder.appName(name)
    if SparkSession.getActiveSession() is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Not by spark-submit: its own defaults would listen on all addresses.
        builder = (
            builder.master(os.environ.get("SPARK_MASTER", "local[*]"))
            .config("spark.log.level", log_level)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
        )
    session = builder.getOrCreate()
    kwire.spark.register(session)
    return session


def map_in_tasks(spark: SparkSession, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Call a function with each item, in a task of its own, and yield the results in any order. All are pickled."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for item in batch.column("item").to_pylist():
                result = pickle.dumps(function(pickle.loads(item)))
                yield pa.record_batch({"result": pa.array([result], pa.binary())})

    pickled = [(pickle.dumps(item),) for item in items]
    frame = spark.createDataFrame(pickled, "item binary").repartition(max(1, len(items)))
    schema = StructType([StructField("result", BinaryType())])
    for row in frame.mapInArrow(call, schema).toLocalIterator():
        yield pickle.loads(row["result"])
