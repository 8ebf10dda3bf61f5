"""Why a message cannot be encoded: the first field, in the order of the wire, whose value does not fit.

Asked only after a compiled encoder failed, so it may be slow; it knows the same rules, and a test holds the two to it.
"""
import operator
from typing import Any
from uuid import UUID

from kwire.errors import EncodeError
from kwire.protocol.fields import type_name
from kwire.protocol.types import STRING_BYTES_MAX, Array, Fixed, Sized


def encode_error(message: Any, version: int) -> EncodeError:
    """The error for a message that its compiled encoder refused."""
    name = type(message).__name__
    for path, reason in _faults(message, type(message), version, ""):
        return EncodeError(reason, api=name, version=version, path=path)
    raise AssertionError(f"{name} v{version}: the compiled encoder refuses what validate accepts")


def _faults(struct: Any, cls: Any, version: int, path: str) -> Any:
    """(path, reason) of everything that does not fit, in order."""
    if not isinstance(struct, cls):
        yield path, f"{_shown(struct)} is no {cls.__qualname__}"
        return
    for field in cls.FIELDS:
        here = f"{path}.{field.name}".lstrip(".")
        try:
            value = getattr(struct, field.name)
        except AttributeError:
            yield here, "not set"
            continue
        if field.exists(version):
            yield from _value_faults(value, field.type, field.is_nullable(version), version, here)
        elif not field.lossy and value != field.default:
            yield here, f"version {version} has no such field and would lose the value {_shown(value)}"
    for tag, content in (struct.unknown_tagged_fields or {}).items():
        if not (isinstance(tag, int) and 0 <= tag < 1 << 32 and isinstance(content, bytes)):
            yield f"{path}.unknown_tagged_fields".lstrip("."), f"{_shown(tag)}: not a tag and its bytes"


def _value_faults(value: Any, wire_type: Any, nullable: bool, version: int, path: str) -> Any:
    if value is None and nullable:
        return
    if value is None:
        yield path, f"None, but {type_name(wire_type)} is not nullable in version {version}"
    elif isinstance(wire_type, Array):
        if not isinstance(value, list | tuple):
            yield path, f"{_shown(value)} is no list"
            return
        for index, item in enumerate(value):
            yield from _value_faults(item, wire_type.element, False, version, f"{path}[{index}]")
    elif isinstance(wire_type, Fixed | Sized):
        reason = _fixed_fault(value, wire_type) if isinstance(wire_type, Fixed) else _sized_fault(value, wire_type)
        if reason:
            yield path, reason
    else:
        yield from _faults(value, wire_type, version, path)


def _fixed_fault(value: Any, wire_type: Fixed) -> str | None:
    match wire_type.name:
        case "boolean":
            fits = isinstance(value, int) and value in (0, 1)
        case "float64":
            fits = isinstance(value, int | float)
        case "uuid":
            fits = isinstance(value, UUID)
        case _:
            fits = hasattr(value, "__index__")  # what struct asks for: numpy's integers are welcome
            if fits and not wire_type.minimum <= operator.index(value) <= wire_type.maximum:
                return f"{value} is outside of {wire_type.name}"
    return None if fits else f"{_shown(value)} is no {wire_type.name}"


def _sized_fault(value: Any, wire_type: Sized) -> str | None:
    if wire_type.name != "string":
        try:
            memoryview(value).cast("B")
        except (TypeError, ValueError, BufferError):
            return f"{_shown(value)} is not bytes-like"
        return None
    if not isinstance(value, str):
        return f"{_shown(value)} is no string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        return f"a string that UTF-8 cannot carry: {error.reason} at {error.start}"
    return f"a string of {size} bytes, above Kafka's {STRING_BYTES_MAX}" if size > STRING_BYTES_MAX else None


def _shown(value: Any) -> str:
    """A value for an error message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
