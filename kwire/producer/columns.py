"""What a caller may give to `send_many`, and its conversion to columns: what is wrong is found before any is sent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sized
from typing import TYPE_CHECKING, TypeVar, cast

from kwire.arguments import wrong_type
from kwire.errors import ConfigurationError
from kwire.producer.bulk import Slice
from kwire.producer.message import Data, Headers, to_bytes, to_headers
from kwire.wire.accel import ManyColumns, all_bytes

if TYPE_CHECKING:
    from kwire.wire.accel import Headers as HeadersOfOne

Values = Iterable[Data]
Keys = Iterable[Data] | None
ManyHeaders = Mapping[str, Data] | Iterable[Headers] | None
Timestamps = int | Iterable[int | None] | None
Partitions = int | Iterable[int | None] | None

T = TypeVar("T", bound=Sized)


def slice_of(
    values: Values,
    keys: Keys,
    headers: ManyHeaders,
    timestamps_ms: Timestamps,
    partitions: Partitions,
    now_ms: int,
) -> Slice:
    """Raises TypeError or ValueError for what no records can have."""
    own_values = _data(values, "values")
    count = len(own_values)
    columns = ManyColumns(
        own_values,
        None if keys is None else _as_many(_data(keys, "keys"), count, "keys"),
        _headers(headers, count),
        now_ms if timestamps_ms is None else _numbers(timestamps_ms, count, "timestamps_ms", "q", now_ms),
        None if partitions is None else _numbers(partitions, count, "partitions", "i", -1),
    )
    return Slice(columns, count)


def pyarrow_is_missing() -> ConfigurationError:
    return ConfigurationError("pyarrow is not installed", remedy="install kwire[arrow], or use send_many")


def check_column(items: object, name: str) -> None:
    """Raise TypeError for what is one record's and not a column."""
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} is {type(items).__name__}: it must be a sequence with an item for each record")


def _data(items: Iterable[Data], name: str) -> list[bytes | None]:
    check_column(items, name)
    own = list(items)
    if all_bytes(own):
        return own  # type: ignore[return-value]
    return [to_bytes(item, f"item {index} of {name}") for index, item in enumerate(own)]


def _headers(headers: ManyHeaders, count: int) -> list[HeadersOfOne] | None:
    if headers is None:
        return None
    if isinstance(headers, Mapping):
        for_all: list[HeadersOfOne] = []
        for_all.append(to_headers(headers))  # pyright: ignore[reportArgumentType]
        return for_all * count
    own = list(headers)
    if own and isinstance(own[0], tuple) and own[0] and isinstance(own[0][0], str):
        raise TypeError("headers are the pairs of one record: give a mapping for all, or an item for each record")
    found: list[HeadersOfOne] = [to_headers(one) for one in own]
    return _as_many(found, count, "headers")


def _numbers(given: int | Iterable[int | None], count: int, name: str, typecode: str, absent: int) -> int | array[int]:
    """One number for all, or one for each; `absent` stands for None."""
    bits = array(typecode).itemsize * 8 - 1
    what = "must be milliseconds since 1970" if typecode == "q" else f"must be from 0 to 2**{bits} - 1"
    if isinstance(given, int):
        if isinstance(given, bool) or not 0 <= given < 1 << bits:
            raise ValueError(f"{name} is {given}: it {what}")
        return given
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise wrong_type(name, given, f"one int for all records, or an item for each: it {what}")
    own = list(given)
    column: array[int]
    try:
        column = array(typecode, cast("list[int]", own))  # None is a TypeError
        is_fine = min(column, default=0) >= 0
    except (TypeError, OverflowError):
        is_fine = False
    if not is_fine:
        for index, number in enumerate(own):
            if number is not None and not isinstance(number, int):
                raise TypeError(f"item {index} of {name} is {type(number).__name__}: it {what}, or None")
            if number is not None and not 0 <= number < 1 << bits:
                raise ValueError(f"item {index} of {name} is {number}: it {what}")
        column = array(typecode, [absent if number is None else number for number in own])
    return _as_many(column, count, name)


def _as_many(column: T, count: int, name: str) -> T:
    if len(column) != count:
        raise ValueError(f"{name} has {len(column)} items for {count} values")
    return column
