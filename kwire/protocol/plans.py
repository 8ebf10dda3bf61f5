"""How a message is read in one version, as the tuples that the accelerator walks: `kwire/wire/_plan.h` says what
they mean. `decoding` writes the same as a function in Python, and says what is right.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, SafeUUID

from kwire.protocol import primitives
from kwire.protocol.fields import Field, least_size
from kwire.protocol.types import Array, Fixed, Sized

if TYPE_CHECKING:
    from kwire.wire.accel import Plan

_SIZED = {"string": "s", "bytes": "y", "records": "r"}
_UNKNOWN = "unknown_tagged_fields"


def plan(cls: Any, version: int, flexible: bool) -> Plan:
    """The plan of a message."""
    return flexible, _shape(cls, version, flexible)


def _shape(cls: Any, version: int, flexible: bool) -> Plan:
    fields: list[Plan] = []
    tagged: list[Plan] = []
    for field in cls.FIELDS:
        is_read = field.exists(version) and field.tag is None
        fields.append((field.name, _read(field, version, flexible) if is_read else _default(field.default)))
        if field.exists(version) and field.tag is not None:
            tagged.append((field.tag, field.name, _read(field, version, flexible)))
    return cls, tuple(fields), tuple(tagged) if flexible else None, _UNKNOWN


def _default(value: Any) -> Plan:
    """The step that makes a default. A struct's own steps read nothing either."""
    if isinstance(value, list):
        return "e", False, None, 0
    if hasattr(value, "FIELDS"):
        fields = tuple((inner.name, _default(inner.default)) for inner in value.FIELDS)
        return "{", False, (type(value), fields, None, _UNKNOWN), 0
    return "=", False, value, 0


def _read(field: Field, version: int, flexible: bool) -> Plan:
    null = primitives.NULL_STRUCT if field.tag is None else primitives.NULL_TAGGED_STRUCT
    return _value(field.type, field.is_nullable(version), version, flexible, null[0])


def _value(wire_type: Any, nullable: bool, version: int, flexible: bool, null: int) -> Plan:
    if isinstance(wire_type, Fixed):
        if wire_type.name == "uuid":
            return "u", False, (primitives.UUIDS, UUID, SafeUUID.unknown), primitives.UUIDS.MOST
        return wire_type.format, False, None, 0
    if isinstance(wire_type, Sized):
        return _SIZED[wire_type.name], nullable, None, 0
    if isinstance(wire_type, Array):
        element = _value(wire_type.element, False, version, flexible, null)
        return "[", nullable, element, least_size(wire_type.element, version, flexible)
    return "{", nullable, _shape(wire_type, version, flexible), null
