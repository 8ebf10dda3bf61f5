"""Parsers of option values. Each takes the option's name, for errors, and its text, and returns a Python value.

They raise a ConfigurationError that names the option. `options` and `client_options` say which option has which parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from kwire.errors import ConfigurationError

# Topic and partition number: the key of every mapping by partition in this room.
TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1

_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def own_options(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options, spelt as in `names`: Spark may change their case. Raises ConfigurationError."""
    known = {name.lower(): name for name in names}
    if unknown := [name for name in options if name.lower() not in known]:
        raise ConfigurationError(f"option {unknown[0]} is not supported", remedy=f"the options are {', '.join(names)}")
    return {known[name.lower()]: value for name, value in options.items()}


def parse_bool(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigurationError(f"option {name} is {text!r}", remedy="give true or false")
    return lowered == "true"


def parse_int(name: str, text: str, *, minimum: int = 1) -> int:
    """Parse a whole number of at least `minimum`."""
    try:
        number = int(text.strip())
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise ConfigurationError(f"option {name} is {text!r}", remedy=f"give a whole number of at least {minimum}")
    return number


def parse_choice(name: str, text: str, choices: Mapping[str, str] | tuple[str, ...]) -> str:
    """Return the choice that `text` names in any case. With a mapping, return the value of that choice."""
    table = choices if isinstance(choices, Mapping) else {choice: choice for choice in choices}
    by_lower = {choice.lower(): value for choice, value in table.items()}
    try:
        return by_lower[text.strip().lower()]
    except KeyError:
        raise ConfigurationError(f"option {name} is {text!r}", remedy=f"give one of {', '.join(table)}") from None


def parse_duration_ms(name: str, text: str) -> int:
    """Parse "500ms", "30s", "15m", "2h" or "1d" into milliseconds. A bare number is milliseconds, as in Spark."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] or "ms") not in _MS:
        raise ConfigurationError(f"option {name} is {text!r}", remedy="give a time such as 500ms, 30s, 15m or 2h")
    return int(int(match[1]) * _MS[match[2] or "ms"])


def parse_topics(name: str, text: str) -> tuple[str, ...]:
    """Parse topics separated by commas. Return them sorted, without duplicates."""
    found = tuple(sorted({part.strip() for part in text.split(",")} - {""}))
    if not found:
        raise ConfigurationError(f"option {name} names no topic", remedy="give one or more topics, separated by commas")
    return found


def parse_pattern(name: str, text: str) -> re.Pattern[str]:
    """Parse a regular expression, which a whole topic name must match."""
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise ConfigurationError(
            f"option {name} is not a regular expression: {error}", remedy="write it in the syntax of Python's re module"
        ) from None


def parse_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse {"topic": [0, 1]}. Return the partitions, sorted."""
    example = '{"topic": [0, 1], "other": [2]}'
    found = set()
    for topic, partitions in _parse_object(name, text, example).items():
        if not isinstance(partitions, list):
            raise _shape_error(name, example)
        found |= {(topic, _parse_partition(name, partition, example)) for partition in partitions}
    if not found:
        raise ConfigurationError(f"option {name} names no partition", remedy=f"give JSON such as {example}")
    return tuple(sorted(found))


def parse_numbers_by_partition(name: str, text: str, *, minimum: int) -> dict[TopicPartition, int]:
    """Parse {"topic": {"0": 123}}. Return a number (an offset, or a time in ms) for each partition, sorted."""
    example = '{"topic": {"0": 123, "1": 456}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _parse_object(name, text, example).items():
        if not isinstance(numbers, dict):
            raise _shape_error(name, example)
        for partition, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < minimum:
                raise ConfigurationError(
                    f"option {name} gives {topic}-{partition} the value {number!r}",
                    remedy=f"give a whole number of at least {minimum}",
                )
            found[topic, _parse_partition(name, partition, example)] = number
    if not found:
        raise ConfigurationError(f"option {name} names no partition", remedy=f"give JSON such as {example}")
    return dict(sorted(found.items()))


def _parse_object(name: str, text: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option {name} is not JSON ({error})", remedy=f"give JSON such as {example}"
        ) from None
    if not isinstance(parsed, dict):
        raise _shape_error(name, example)
    return parsed


def _parse_partition(name: str, value: object, example: str) -> int:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit()):
        raise _shape_error(name, example)
    return int(text)


def _shape_error(name: str, example: str) -> ConfigurationError:
    return ConfigurationError(f"option {name} has the wrong shape", remedy=f"give JSON such as {example}")
