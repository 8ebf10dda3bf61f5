"""Make Arrow arrays of columns, without a copy and without a Python object per row. Needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from kwire.records.reader import BytesColumn, Columns
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
_SCHEMA_WITH_HEADERS = pa.schema(FIELDS.items())
_SCHEMA = _SCHEMA_WITH_HEADERS.remove(len(FIELDS) - 1)


def record_batch(columns: Columns) -> pa.RecordBatch:
    """Return the columns as one RecordBatch, with headers if they have any."""
    rows, topic, partition, offset, timestamp, timestamp_type, key, value, headers = columns
    arrays = [_variable("topic", rows, topic)]
    for name, data in zip(
        ("partition", "offset", "timestamp", "timestamp_type"), (partition, offset, timestamp, timestamp_type),
        strict=True,
    ):  # fmt: skip
        arrays.append(pa.Array.from_buffers(FIELDS[name], rows, [None, pa.py_buffer(data)]))
    arrays += [_variable("key", rows, key), _variable("value", rows, value)]
    if headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
    validity, ends, names, contents = headers
    count = len(names[1]) // 4 - 1
    pairs = pa.Array.from_buffers(
        HEADER, count, [None], children=[_bytes(pa.string(), count, names), _bytes(pa.binary(), count, contents)]
    )
    arrays.append(
        pa.Array.from_buffers(FIELDS["headers"], rows, [_buffer(validity), pa.py_buffer(ends)], children=[pairs])
    )
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA_WITH_HEADERS)


def _variable(name: str, rows: int, column: BytesColumn) -> pa.Array:
    return _bytes(FIELDS[name], rows, column)


def _bytes(kind: pa.DataType, rows: int, column: BytesColumn) -> pa.Array:
    validity, ends, data = column
    return pa.Array.from_buffers(kind, rows, [_buffer(validity), pa.py_buffer(ends), pa.py_buffer(data)])


def _buffer(data: Bytes | None) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
