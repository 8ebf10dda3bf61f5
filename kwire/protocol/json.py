"""Kafka's JSON form of a message: what org.apache.kafka.common.message.*JsonConverter reads and writes.

Names are in camelCase, bytes and records in base64, a uuid is 22 letters of URL-safe base64. Fields that the version
lacks and tagged fields with their default are omitted. When reading, every untagged field of the version is required,
integers may be strings (also "0x10"), and unknown names are ignored. Unknown tagged fields are not part of the form.

One intended difference: Kafka's writer replaces `records` by an empty string, which loses them. kwire writes their
bytes, which Kafka's reader accepts.

This module converts messages to dicts and lists, not to text.
"""

import binascii
import operator
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kwire.errors import EncodeError
from kwire.protocol.fields import Array, Field, Fixed, Sized, default_of, type_name


def camel_case(name: str) -> str:
    """topic_id -> topicId."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def to_json(struct: Any, cls: Any, version: int, path: str = "") -> dict[str, Any]:
    """Convert a message or nested struct to a dict. Raises EncodeError for a value that the version would lose."""
    obj: dict[str, Any] = {}
    for field in cls.FIELDS:
        value = getattr(struct, field.name)
        here = f"{path}.{field.name}".lstrip(".")
        is_default = value == field.default
        if not field.exists(version):
            if not field.ignorable and not is_default:
                raise EncodeError(f"version {version} has no such field and would lose it", version=version, path=here)
        elif field.tag is None or not is_default:
            obj[camel_case(field.name)] = _to_json(value, field.type, field.is_nullable(version), version, here)
    return obj


def _to_json(value: Any, wire_type: Any, nullable: bool, version: int, path: str) -> Any:
    if value is None:
        if not nullable:
            raise EncodeError(f"None, but {type_name(wire_type)} is not nullable here", version=version, path=path)
        return None
    if isinstance(wire_type, Array):
        if not isinstance(value, list | tuple):
            raise TypeError
        return [_to_json(item, wire_type.element, False, version, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(wire_type, Fixed):
        return _fixed_to_json(value, wire_type)
    if isinstance(wire_type, Sized):
        return _of(str, value) if wire_type.name == "string" else b64encode(value).decode()
    return to_json(value, wire_type, version, path)


def _fixed_to_json(value: Any, wire_type: Fixed) -> Any:
    match wire_type.name:
        case "uuid":
            return uuid_text(value)
        case "float64":
            return _of((int, float), value)
        case "boolean":
            if value not in (0, 1):
                raise ValueError
            return bool(value)
        case _:
            return _in_range(operator.index(value), wire_type)


def from_json(cls: Any, obj: object, version: int, path: str = "") -> Any:
    """Convert a dict to a message or nested struct. Raises EncodeError."""
    if not isinstance(obj, Mapping):
        raise EncodeError(f"{obj!r:.60} is not an object", api=cls.__name__, version=version, path=path or None)
    return cls(**{field.name: _field(field, obj, version, f"{path}.{field.name}".lstrip(".")) for field in cls.FIELDS})


def _field(field: Field, obj: Mapping[str, Any], version: int, path: str) -> Any:
    if not field.exists(version):
        return default_of(field)
    name = camel_case(field.name)
    if name in obj:
        return _from_json(obj[name], field.type, field.is_nullable(version), version, path)
    if field.tag is None:
        raise EncodeError(f"{name!r} is missing, which version {version} requires", version=version, path=path)
    return default_of(field)


def _from_json(value: Any, wire_type: Any, nullable: bool, version: int, path: str) -> Any:
    if value is None and nullable:
        return None
    if isinstance(wire_type, Array):
        if not isinstance(value, list):
            raise EncodeError(f"{value!r:.60} is not an array", version=version, path=path)
        return [_from_json(item, wire_type.element, False, version, f"{path}[{i}]") for i, item in enumerate(value)]
    if not isinstance(wire_type, Fixed | Sized):
        return from_json(wire_type, value, version, path)
    try:
        if isinstance(wire_type, Fixed) and wire_type.minimum < wire_type.maximum:
            return _integer(value, wire_type)
        return _READERS[wire_type.name](value)
    except (TypeError, ValueError):
        raise EncodeError(f"{value!r:.60} is not a valid {wire_type.name}", version=version, path=path) from None


def uuid_text(value: UUID) -> str:
    """Return Kafka's text of a uuid: URL-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Parse the text of `uuid_text`, with padding or without. Raises ValueError, and TypeError for what is no str."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.60} is no str")
    try:
        return UUID(bytes=b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _integer(value: Any, wire_type: Fixed) -> int:
    if isinstance(value, str):
        value = int(value, 16 if value.startswith("0x") else 10)
    return _in_range(_of(int, value), wire_type)


def _in_range(number: int, wire_type: Fixed) -> int:
    if not wire_type.minimum <= number <= wire_type.maximum:
        raise ValueError
    return number


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "boolean": lambda value: _of(bool, value),
    "float64": lambda value: float(_of((int, float), value)),
    "uuid": lambda value: uuid_from_text(_of(str, value)),
    "string": lambda value: _of(str, value),
    "bytes": lambda value: b64decode(_of(str, value), validate=True),
    "records": lambda value: memoryview(b64decode(_of(str, value), validate=True)),
}
