"""Make Arrow arrays of columns, without a copy and without a Python object per row. Needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kwire.records.reader import BytesColumn, SomeColumns
    from kwire.wire.buffers import Bytes

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
FIELDS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestamp_type": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("element", HEADER)),
}
# A schema costs more than the arrays of a small batch, and a program asks for few combinations of columns.
_schemas: dict[tuple[str, ...], pa.Schema] = {}


def record_batch(columns: SomeColumns) -> pa.RecordBatch:
    """Return the columns as one RecordBatch, without those that are None."""
    rows, topic, partition, offset, timestamp, timestamp_type, key, value, headers = columns
    arrays: dict[str, pa.Array] = {}
    numbers = {"partition": partition, "offset": offset, "timestamp": timestamp, "timestamp_type": timestamp_type}
    if topic is not None:
        arrays["topic"] = _variable("topic", rows, topic)
    for name, data in numbers.items():
        if data is not None:
            arrays[name] = pa.Array.from_buffers(FIELDS[name], rows, [None, pa.py_buffer(data)])
    for name, column in (("key", key), ("value", value)):
        if column is not None:
            arrays[name] = _variable(name, rows, column)
    if headers is not None:
        validity, ends, names, contents = headers
        count = len(names[1]) // 4 - 1
        pairs = pa.Array.from_buffers(
            HEADER, count, [None], children=[_bytes(pa.string(), count, names), _bytes(pa.binary(), count, contents)]
        )
        arrays["headers"] = pa.Array.from_buffers(
            FIELDS["headers"], rows, [_buffer(validity), pa.py_buffer(ends)], children=[pairs]
        )
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=_schema(tuple(arrays)))


def _schema(names: tuple[str, ...]) -> pa.Schema:
    if names not in _schemas:
        _schemas[names] = pa.schema([(name, FIELDS[name]) for name in names])
    return _schemas[names]


def _variable(name: str, rows: int, column: BytesColumn) -> pa.Array:
    return _bytes(FIELDS[name], rows, column)


def _bytes(kind: pa.DataType, rows: int, column: BytesColumn) -> pa.Array:
    validity, ends, data = column
    return pa.Array.from_buffers(kind, rows, [_buffer(validity), pa.py_buffer(ends), pa.py_buffer(data)])


def _buffer(data: Bytes | None) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
