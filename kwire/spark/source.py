"""The data source: checks options and schema on the driver, and creates readers and writers."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kwire.errors import ConfigurationError
from kwire.spark.columns import check_read_schema, read_schema
from kwire.spark.options import (
    ReadOptions,
    check_read_options,
    chosen_columns,
    includes_headers,
    read_options,
    write_options,
)
from kwire.spark.reader import BatchReader, StreamReader, batch_reader
from kwire.spark.sink import SinkColumns
from kwire.spark.writer import BatchWriter, StreamWriter


class KwireDataSource(DataSource):
    """`format("kwire")`."""

    @classmethod
    def name(cls) -> str:
        return "kwire"

    def schema(self) -> StructType:
        check_read_options(self.options)
        return read_schema(with_headers=includes_headers(self.options), names=chosen_columns(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        return batch_reader(self._read_options(schema, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(self._read_options(schema, is_stream=True), schema)

    def _read_options(self, schema: StructType, *, is_stream: bool) -> ReadOptions:
        check_read_schema(schema)
        options = read_options(self.options, is_stream=is_stream)
        if options.columns is not None and list(options.columns) != schema.names:
            raise ConfigurationError(
                f"option columns and the schema contradict each other: {', '.join(options.columns)}, and "
                f"{', '.join(schema.names)}",
                remedy="give one of them",
            )
        return options

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise ConfigurationError("a topic cannot be overwritten", remedy='write with mode("append")')
        options = write_options(self.options)
        return BatchWriter(options, SinkColumns.from_schema(schema, options.topic))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        # `overwrite` is the output mode complete: as in Spark's Kafka sink, each result is appended in full.
        options = write_options(self.options, is_stream=True)
        return StreamWriter(options, SinkColumns.from_schema(schema, options.topic))
