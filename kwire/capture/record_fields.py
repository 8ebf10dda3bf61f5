"""Which fields of a message hold record batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kwire.protocol.fields import Array, type_name


def record_fields(struct: Any) -> Iterator[tuple[Any, str]]:
    """Yield (struct, field) of the fields that hold record batches."""
    for _, owner, name in records_in(struct):
        yield owner, name


def records_in(struct: Any, path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield (path, struct, field) of the fields with record batches that are not null."""
    for one in struct.FIELDS:
        if not _holds_records(one.type):
            continue
        value, here = getattr(struct, one.name), f"{path}.{one.name}" if path else one.name
        if isinstance(one.type, Array):
            for index, item in enumerate(value or []):
                yield from records_in(item, f"{here}[{index}]")
        elif hasattr(one.type, "FIELDS"):
            yield from records_in(value, here)
        elif value is not None and not one.name.startswith("unaligned"):
            yield here, struct, one.name


@cache
def _holds_records(wire_type: Any) -> bool:
    if isinstance(wire_type, Array):
        return hasattr(wire_type.element, "FIELDS") and _holds_records(wire_type.element)
    if hasattr(wire_type, "FIELDS"):
        return any(_holds_records(one.type) for one in wire_type.FIELDS)
    return type_name(wire_type) == "records"
