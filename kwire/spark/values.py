"""Option values: texts in, Python values out. Every refusal is a ConfigurationError that names the option.

All functions are pure and take the option's name only to say it. They know no option: `options` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from kwire.errors import ConfigurationError

# A partition of a topic; the key of every table in this room.
TopicPartition = tuple[str, int]

EARLIEST = -2
LATEST = -1

_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def flag(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigurationError(f"option {name} is {text!r}", remedy="give true or false")
    return lowered == "true"


def whole(name: str, text: str, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    try:
        number = int(text.strip())
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigurationError(f"option {name} is {text!r}", remedy=f"give a whole number of at least {least}")
    return number


def one_of(name: str, text: str, choices: Mapping[str, str] | tuple[str, ...]) -> str:
    """One of the choices, in any case; a mapping answers what the choice stands for."""
    table = choices if isinstance(choices, Mapping) else {choice: choice for choice in choices}
    by_lower = {choice.lower(): meant for choice, meant in table.items()}
    try:
        return by_lower[text.strip().lower()]
    except KeyError:
        raise ConfigurationError(f"option {name} is {text!r}", remedy=f"give one of {', '.join(table)}") from None


def duration_ms(name: str, text: str) -> int:
    """Milliseconds in "500ms", "30s", "15m", "2h" or "1d"; a bare number is milliseconds, as for Spark."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] or "ms") not in _MS:
        raise ConfigurationError(f"option {name} is {text!r}", remedy="give a time such as 500ms, 30s, 15m or 2h")
    return int(int(match[1]) * _MS[match[2] or "ms"])


def names(name: str, text: str) -> tuple[str, ...]:
    """A list of topics, separated by commas; sorted, each once."""
    found = tuple(sorted({part.strip() for part in text.split(",")} - {""}))
    if not found:
        raise ConfigurationError(f"option {name} names no topic", remedy="give one or more topics, separated by commas")
    return found


def pattern(name: str, text: str) -> re.Pattern[str]:
    """A regular expression that a whole topic name must match."""
    try:
        return re.compile(text.strip())
    except re.error as error:
        raise ConfigurationError(
            f"option {name} is no regular expression: {error}", remedy="write it in the syntax of Python's re module"
        ) from None


def topic_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """{"topic": [0, 1]}: partitions by topic, sorted."""
    wanted = '{"topic": [0, 1], "other": [2]}'
    found = set()
    for topic, partitions in _object(name, text, wanted).items():
        if not isinstance(partitions, list):
            raise _shape(name, wanted)
        found |= {(topic, _partition(name, partition, wanted)) for partition in partitions}
    if not found:
        raise ConfigurationError(f"option {name} names no partition", remedy=f"give JSON such as {wanted}")
    return tuple(sorted(found))


def numbers_by_partition(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    """{"topic": {"0": 123}}: a number (offset, or time in ms) for each partition, sorted."""
    wanted = '{"topic": {"0": 123, "1": 456}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(name, text, wanted).items():
        if not isinstance(numbers, dict):
            raise _shape(name, wanted)
        for partition, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise ConfigurationError(
                    f"option {name} gives {topic}-{partition} the value {number!r}",
                    remedy=f"give a whole number of at least {least}",
                )
            found[topic, _partition(name, partition, wanted)] = number
    if not found:
        raise ConfigurationError(f"option {name} names no partition", remedy=f"give JSON such as {wanted}")
    return dict(sorted(found.items()))


def _object(name: str, text: str, wanted: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"option {name} is not JSON ({error})", remedy=f"give JSON such as {wanted}") from None
    if not isinstance(parsed, dict):
        raise _shape(name, wanted)
    return parsed


def _partition(name: str, value: object, wanted: str) -> int:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit()):
        raise _shape(name, wanted)
    return int(text)


def _shape(name: str, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"option {name} has the wrong shape", remedy=f"give JSON such as {wanted}")
