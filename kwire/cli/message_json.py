"""Messages as Kafka's JSON: parse what a person typed, and find the error codes in a response.

Kafka's own reader, and so `from_json`, rejects missing fields and ignores unknown ones. For a person at a terminal the
reverse is better: fields with a default may be missing, booleans are false then, and an unknown name is an error.
"""

from __future__ import annotations

import json
from typing import Any

from kwire.capture.json import value_to_json
from kwire.errors import EncodeError
from kwire.option_checks import did_you_mean
from kwire.protocol.fields import REQUIRED, Array, Field, Fixed
from kwire.protocol.json import camel_case


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises EncodeError for anything else."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise EncodeError(f"the input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise EncodeError("the input is not a JSON object", remedy='give the message\'s fields: {"name": value, ...}')
    return value


def message_from_json(cls: Any, fields: dict[str, Any], version: int) -> Any:
    """Return a message of this class and version. Raises EncodeError for an unknown or missing field."""
    return cls.from_json(_completed(cls, fields, version, cls.__name__, ""), version)


def _completed(cls: Any, given: Any, version: int, owner: str, path: str) -> Any:
    """Return the given fields with defaults for the missing ones."""
    if not isinstance(given, dict):
        return given  # from_json reports the error
    fields = {camel_case(field.name): field for field in cls.FIELDS if field.exists(version)}
    for name in given:
        if name not in fields:
            raise _no_such_field(name, list(fields), owner, version, path)
    completed = {}
    for name, field in fields.items():
        if name in given:
            completed[name] = _inner(field.type, given[name], version, owner, f"{path}{name}")
        elif field.tag is None and field.default is not REQUIRED:
            completed[name] = default_to_json(field)
        elif field.tag is None and isinstance(field.type, Fixed) and field.type.name == "boolean":
            completed[name] = False
        elif field.tag is None:
            raise EncodeError(
                f"{name!r} is missing, which version {version} requires", version=version, path=f"{path}{name}",
                remedy=f"add it to the JSON; `kwire schema {owner.removesuffix('Request').removesuffix('Response')}` "
                "shows all fields",
            )  # fmt: skip
    return completed


def _inner(wire_type: Any, given: Any, version: int, owner: str, path: str) -> Any:
    if isinstance(wire_type, Array) and isinstance(given, list):
        return [_inner(wire_type.element, item, version, owner, f"{path}[{i}]") for i, item in enumerate(given)]
    if hasattr(wire_type, "FIELDS"):
        return _completed(wire_type, given, version, owner, f"{path}.")
    return given


def _no_such_field(name: str, known: list[str], owner: str, version: int, path: str) -> EncodeError:
    remedy = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
    return EncodeError(f"{owner} v{version} has no field {path}{name}", remedy=remedy)


def default_to_json(field: Field) -> Any:
    """Return a field's default as Kafka's JSON writes it."""
    default = field.default
    if hasattr(default, "FIELDS"):
        return {camel_case(inner.name): default_to_json(inner) for inner in default.FIELDS}
    return value_to_json(default)
