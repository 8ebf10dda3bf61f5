"""Arrow tables as columns of records, read from their buffers. Only this file of the producer imports pyarrow.

Keys and values are copied once, into their batch, without a Python object for each; headers do become Python objects.
A table is checked completely before any of its records is sent.
"""

# pyarrow.compute creates its functions at import time, so pyright does not see them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kwire.errors import EncodeError
from kwire.producer.accumulator import BytesCells, ManyColumns
from kwire.producer.bulk import Slice
from kwire.producer.message import to_headers
from kwire.records.rows import Headers as HeadersOfOne


def slices_of(table: Any, now_ms: int) -> list[Slice]:
    """Return a slice for each chunk. Raises EncodeError for columns that no record has, TypeError for no table."""
    if isinstance(table, pa.RecordBatch):
        batches = [table]
    else:
        if not isinstance(table, pa.Table):
            if not hasattr(table, "__arrow_c_stream__"):
                raise TypeError(f"{type(table).__name__} is no Arrow table: give a pyarrow.Table or RecordBatch")
            table = pa.RecordBatchReader.from_stream(table).read_all()
        batches = table.to_batches()
    _check(table.schema)
    return [_slice(batch, now_ms) for batch in batches]


class _Column(NamedTuple):
    expected: str
    fits: Callable[[pa.DataType], bool]


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    plain = pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(plain or pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) or _is_number(kind)


def _is_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return bool(pa.types.is_null(kind))
    pair = kind.value_type
    if not pa.types.is_struct(pair) or [field.name for field in pair] != ["key", "value"]:
        return False
    name, value = pair.field(0).type, pair.field(1).type
    return (pa.types.is_string(name) or pa.types.is_large_string(name)) and _is_bytes(value)


_BYTES = "binary, string, their large and fixed kinds, or a dictionary of these"
_COLUMNS = {
    "value": _Column(_BYTES, _is_bytes),
    "key": _Column(_BYTES, _is_bytes),
    "headers": _Column("list<struct<key: string, value: binary>>", _is_headers),
    "partition": _Column("a whole number, null where the producer is to choose", _is_number),
    "timestamp": _Column("timestamp, or milliseconds since 1970 as a whole number, null for now", _is_time),
}


def _check(schema: pa.Schema) -> None:
    for index, field in enumerate(schema):
        column = _COLUMNS.get(field.name)
        if column is None:
            raise EncodeError(
                f"the column {field.name!r} is none of a record",
                remedy=f"leave it out, or name it one of {', '.join(_COLUMNS)}",
            )
        if schema.get_field_index(field.name) != index:
            raise EncodeError(f"the column {field.name!r} is there more than once", remedy="leave one")
        if not column.fits(field.type):
            raise EncodeError(f"the column {field.name!r} is {field.type}", remedy=f"cast it: it is {column.expected}")
    if "value" not in schema.names:
        raise EncodeError("there is no column 'value'", remedy="name one so; its items may be null")


def _slice(batch: pa.RecordBatch, now_ms: int) -> Slice:
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    partitions, timestamps = columns.get("partition"), columns.get("timestamp")
    return Slice(
        ManyColumns(
            _cells(columns["value"], "value"),
            _cells(columns["key"], "key") if "key" in columns else None,
            _headers(columns["headers"]) if "headers" in columns else None,
            now_ms if timestamps is None else _numbers(timestamps, "timestamp", "q", pa.int64(), now_ms),
            None if partitions is None else _numbers(partitions, "partition", "i", pa.int32(), -1),
        ),
        batch.num_rows,
    )


def _cells(column: pa.Array, name: str) -> BytesCells:
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        column = _cast(column, name, kind.value_type)
        kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        column = _cast(column, name, pa.binary())
        kind = column.type
    if len(column) == 0:
        return []
    _validate(column, name)
    validity, ends, data = column.buffers()
    is_wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    return None if column.null_count == 0 else validity, ends, b"" if data is None else data, is_wide, column.offset


def _validate(column: pa.Array, name: str) -> None:
    try:
        column.validate(full=not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type))
    except pa.ArrowInvalid as error:
        raise EncodeError(f"the column {name!r} is broken: {error}") from error


def _cast(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise EncodeError(
            f"the column {name!r}: {error}", remedy=f"cast it: it is {_COLUMNS[name].expected}"
        ) from error


def _numbers(column: pa.Array, name: str, typecode: str, kind: pa.DataType, absent: int) -> int | array[int]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)  # truncates to milliseconds
    column = _cast(column, name, kind)
    least = pc.min(column).as_py()
    if least is not None and least < 0:
        raise EncodeError(f"the column {name!r} has {least}", remedy="give numbers from 0 up, and null for none")
    own = array(typecode)
    if len(column):
        column = column.fill_null(absent)
        width = own.itemsize
        own.frombytes(memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width])
    return own


def _headers(column: pa.Array) -> list[HeadersOfOne] | None:
    if pa.types.is_null(column.type):
        return None
    found: list[HeadersOfOne] = []
    for index, pairs in enumerate(column.to_pylist()):
        if any(pair is None or pair["key"] is None for pair in pairs or ()):
            raise EncodeError(f"the column 'headers' has a header without a key in row {index}", remedy="leave it out")
        found.append(to_headers([(pair["key"], pair["value"]) for pair in pairs or ()]))
    return found
