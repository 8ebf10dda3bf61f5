"""The data source: checks options and schema on the driver, and creates readers and writers."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kwire.errors import ConfigurationError
from kwire.spark.columns import check_read_schema, read_schema
from kwire.spark.error_messages import with_option_names
from kwire.spark.options import (
    ReadOptions,
    WriteOptions,
    check_read_options,
    chosen_columns,
    includes_headers,
    queue_table,
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
        table = queue_table(self.options)
        if table is not None:
            return table.schema
        return read_schema(with_headers=includes_headers(self.options), names=chosen_columns(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        return batch_reader(self._read_options(schema, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(self._read_options(schema, is_stream=True), schema)

    def _read_options(self, schema: StructType, *, is_stream: bool) -> ReadOptions:
        options = read_options(self.options, is_stream=is_stream)
        if options.table is not None:
            options.table.check_schema(schema)
            return options
        check_read_schema(schema)
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
        options = _with_place(write_options(self.options))
        columns = SinkColumns.from_schema(schema, options.topic, is_queue=options.queue is not None)
        return BatchWriter(options, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        # `overwrite` is the output mode complete: as in Spark's Kafka sink, each result is appended in full.
        options = _with_place(write_options(self.options, is_stream=True))
        columns = SinkColumns.from_schema(schema, options.topic, is_queue=options.queue is not None)
        return StreamWriter(options, columns)


def _with_place(options: WriteOptions) -> WriteOptions:
    """Return the options with the place of the queue, if they name one. Asks the cluster."""
    if options.queue is None:
        return options
    from kwire.spark.queue_write import find_place  # only a write to a queue needs it

    with with_option_names():
        return replace(options, queue=replace(options.queue, place=find_place(options.queue, options.client)))
