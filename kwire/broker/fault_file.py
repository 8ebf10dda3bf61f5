"""Faults from a TOML file, for `kwire broker --faults`:

    [[fault]]
    effect = "Refuse"           # or another effect, except Answer
    code = "NOT_LEADER_OR_FOLLOWER"
    api = "Produce"
    times = "all"               # otherwise a number; 1 by default
    chance = 0.1

The keys are the fields of the effect and of `Fault`, except `when`. A version is written "9" or "9-12".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from kwire.broker.faults import Answer, Effect, Fault, make_fault
from kwire.errors import ConfigurationError, ErrorCode, UnsupportedVersionError
from kwire.option_checks import did_you_mean
from kwire.protocol import api

_EFFECTS = {kind.__name__: kind for kind in get_args(Effect) if kind is not Answer}


def read_faults(path: Path) -> list[Fault]:
    """Read a file. Raises ConfigurationError, which names the file and the fault."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    tables = document.pop("fault", [])
    if document or not isinstance(tables, list):
        names = ", ".join(document) or "one table"
        raise ConfigurationError(f"{path}: it has {names}", remedy="write each fault below [[fault]]")
    faults = []
    for number, table in enumerate(tables, 1):
        try:
            faults.append(parse_fault(table))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, fault {number}: {error.message}", remedy=error.remedy) from None
    return faults


def parse_fault(table: Mapping[str, Any]) -> Fault:
    """Return the fault of a table in a file, or of JSON. Raises ConfigurationError."""
    given = dict(table)
    name = given.pop("effect", None)
    kind = _EFFECTS.get(name) if isinstance(name, str) else None
    if kind is None:
        hint = did_you_mean(str(name), list(_EFFECTS))
        raise ConfigurationError(f"effect is {name!r}", remedy=hint or f"give one of {', '.join(_EFFECTS)}")
    own = {field.name for field in fields(kind)}
    values = {key: _value(key, value) for key, value in given.items()}
    if "when" in values:
        raise ConfigurationError("when is a function", remedy="use Cluster.add_fault")
    if missing := [field.name for field in fields(kind) if field.default is MISSING and field.name not in values]:
        remedy = f"{name} has the keys {', '.join(field.name for field in fields(kind))}"
        raise ConfigurationError(f"{name}: the key {missing[0]} is missing", remedy=remedy)
    effect = kind(**{key: value for key, value in values.items() if key in own})
    return make_fault(effect, {key: value for key, value in values.items() if key not in own})


def _value(key: str, value: Any) -> Any:
    if key == "api" and isinstance(value, str):
        try:
            return api(value).key
        except UnsupportedVersionError:
            raise ConfigurationError(f"there is no API {value!r}") from None
    if key == "code" and isinstance(value, str):
        if value not in ErrorCode.__members__:
            hint = did_you_mean(value, list(ErrorCode.__members__))
            raise ConfigurationError(f"there is no error {value!r}", remedy=hint)
        return ErrorCode[value]
    if key == "times" and value == "all":
        return None
    if key == "version":
        first, _, last = str(value).partition("-")
        if first.isdigit() and (last or first).isdigit():
            return range(int(first), int(last or first) + 1)
    return value
