"""A data source without a client: it drops the rows of a write, and makes up those of a read.

What Spark needs for it is the price of its hand-over to Python, which no connector in Python can be below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.contestants.pyspark_job import NOTHING
from bench.task import payloads
from kwire.spark.columns import arrow_schema, read_schema

# A response to a fetch of a partition has about so many bytes.
_BATCH_BYTES = 1_000_000


class Nothing(DataSource):
    """Options: rows; and for a read size and partitions, as in `Task`."""

    @classmethod
    def name(cls) -> str:
        return NOTHING

    def schema(self) -> StructType:
        return read_schema(with_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(*(int(self.options[name]) for name in ("rows", "size", "partitions")))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(int(self.options["rows"]))


@dataclass
class _Dropped(WriterCommitMessage):
    rows: int


class _Writer(DataSourceArrowWriter):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Dropped(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        dropped = sum(one.rows for one in messages if isinstance(one, _Dropped))
        if dropped != self._rows:
            raise RuntimeError(f"{dropped} rows came, not {self._rows}")


class _Reader(DataSourceReader):
    def __init__(self, rows: int, size: int, partitions: int) -> None:
        self._rows = rows
        self._size = size
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        left = self._rows // self._partitions + (partition.value < self._rows % self._partitions)
        batch = self._batch(min(left, _BATCH_BYTES // self._size), partition.value)
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows

    def _batch(self, rows: int, partition: int) -> pa.RecordBatch:
        columns = {
            "key": pa.nulls(rows, pa.binary()),
            "value": pa.array(islice(cycle(payloads(self._size)), rows), pa.binary()),
            "topic": pa.repeat("a-topic-of-the-bench", rows),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.repeat(pa.scalar(1_700_000_000_000_000, pa.timestamp("us", "UTC")), rows),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows),
        }
        schema = arrow_schema(read_schema(with_headers=False))
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
