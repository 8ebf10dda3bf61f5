"""Translate properties to keywords.

A table maps each property to a rule:

    Keyword       the name of kwire's option, and what makes its value of the property's
    AlwaysSo      the values that say what kwire does anyway; any other is refused
    Unsupported   why there is no counterpart, and what to do instead

Properties of TLS and SASL go to `kwire.cluster.security_properties`. A few properties make sense only together, such as
`enable.auto.commit` and `enable.auto.offset.store`; the tables name a function for each of these groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeAlias, TypeVar

from kwire.cluster.config import ClientConfig
from kwire.cluster.security_properties import SECURITY_PROPERTIES, tls_and_sasl
from kwire.consumer import Ago, ConsumerOptions
from kwire.errors import ConfigurationError
from kwire.option_checks import Option, did_you_mean, options_of, typed
from kwire.producer.options import ProducerSettings
from kwire.share.options import ShareConsumerOptions

T = TypeVar("T")
Values: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Keyword:
    """A property with a counterpart; `convert` gets the property's value first, where the values differ."""

    name: str
    convert: Callable[[object], object] | None = None


@dataclass(frozen=True)
class AlwaysSo:
    """A property that kwire has no option for. The values in `accepted` (lower case) say what kwire does anyway."""

    accepted: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Unsupported:
    """A property without a counterpart."""

    remedy: str


Rule: TypeAlias = Keyword | AlwaysSo | Unsupported


@dataclass(frozen=True)
class Table:
    """What is known of the properties of one library."""

    library: str
    rules: Mapping[str, Rule]
    aliases: Mapping[str, str]  # another name of the same property
    together: Callable[[Values, Values], None]  # takes properties out of the first, adds keywords to the second

    def names(self) -> set[str]:
        return {*self.rules, *self.aliases, *SECURITY_PROPERTIES}


def options(
    *, java: Mapping[str, object] | None = None, librdkafka: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return the keywords of a kwire client for the properties of a Java client or of librdkafka (confluent-kafka).

    Values may be texts, as in a properties file, or numbers and booleans. What is not given keeps kwire's default,
    which is not always the other library's. Raises a ConfigurationError for a property that is unknown or has no
    counterpart, and for a value without one.

    >>> options(java={"bootstrap.servers": "localhost:9092", "linger.ms": "20"})
    {'bootstrap': 'localhost:9092', 'linger_ms': 20}
    """
    from kwire.properties.java import JAVA
    from kwire.properties.librdkafka import LIBRDKAFKA

    given = [(JAVA, java)] if java is not None else []
    given += [(LIBRDKAFKA, librdkafka)] if librdkafka is not None else []
    if len(given) != 1:
        raise ConfigurationError("options takes one dict of properties", remedy="give java={...} or librdkafka={...}")
    (table, properties) = given[0]
    if not isinstance(properties, Mapping):
        raise ConfigurationError(
            f"{table.library} is {type(properties).__name__}", remedy=f'give a dict: {table.library}={{"linger.ms": 5}}'
        )
    return translate(table, properties)


def translate(table: Table, properties: Mapping[str, object]) -> dict[str, Any]:
    """Return the keywords for the properties of the library that the table describes."""
    values = _by_name(table, properties)
    keywords: Values = {}
    security = {name: _text(name, values.pop(name)) for name in list(values) if name in SECURITY_PROPERTIES}
    table.together(values, keywords)
    for name, value in values.items():
        rule = table.rules.get(name)
        if isinstance(rule, Keyword):
            keywords[rule.name] = _value_of(name, rule, value)
        elif isinstance(rule, AlwaysSo):
            if str(value).strip().lower() not in rule.accepted:
                raise ConfigurationError(
                    f"property {name} is {value!r}, which kwire does not support", remedy=rule.remedy
                )
        elif rule is not None:
            raise ConfigurationError(f"property {name} is not supported", remedy=rule.remedy)
        else:
            hint = did_you_mean(name, table.names(), max_names=3)
            raise ConfigurationError(f"{table.library} has no property {name}", remedy=hint or "remove it")
    tls, sasl = tls_and_sasl(security)
    return keywords | ({"tls": tls} if tls else {}) | ({"sasl": sasl} if sasl else {})


def _by_name(table: Table, properties: Mapping[str, object]) -> Values:
    """Return the properties by their main names. None means that a property is not given, as in Java."""
    values: Values = {}
    for given, value in properties.items():
        if not isinstance(given, str):
            raise ConfigurationError(f"the property {given!r} is no text", remedy='give names such as "linger.ms"')
        name = table.aliases.get(given.strip(), given.strip())
        if name in values:
            raise ConfigurationError(f"{given} and another property mean the same, {name}", remedy="give one of them")
        if value is not None:
            values[name] = value
    return values


def converted(name: str, convert: Callable[[object], T], value: object) -> T | None:
    """Return what `convert` makes of a property's value; None stays None. An error names the property."""
    try:
        return None if value is None else convert(value)
    except ValueError as error:
        raise ConfigurationError(f"property {name} is {value!r}", remedy=f"give {error}") from None


def _value_of(name: str, rule: Keyword, value: object) -> object:
    """Return the value of kwire's option. An error about it names the property."""
    if rule.convert is not None:
        value = converted(name, rule.convert, value)
    declared = declarations().get(rule.name)
    if declared is None:  # bootstrap is no option
        return _text(name, value)
    value = typed(declared, value)
    declared._replace(name=f"property {name}").check(value)
    return value


@cache
def declarations() -> dict[str, Option]:
    """Return the declaration of each option, of all clients."""
    declaring = (ShareConsumerOptions, ConsumerOptions, ProducerSettings, ClientConfig)
    return {name: one for each in declaring for name, one in options_of(each).items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"property {name} is of type {type(value).__name__}", remedy="give a text")
    return str(value)


# -- conversions of values: a ValueError says what to give


def flag(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError("true or false")
    return word == "true"


def whole(value: object) -> int:
    try:
        number = float(str(value).strip())
        if number.is_integer():
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise ValueError("a whole number")


def kilobytes(value: object) -> int:
    """Return bytes for librdkafka's kilobytes, which are 1,024 bytes."""
    return whole(value) * 1024


def listed(value: object) -> list[str]:
    """Return the parts of "a, b", or of a list."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts if str(part).strip()]


def one_of(**choices: object) -> Callable[[object], object]:
    """Return a conversion of names, in any case, to values."""

    def convert(value: object) -> object:
        word = str(value).strip().lower()
        if word not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return choices[word]

    return convert


def class_of(choices: Mapping[str, object], of: str) -> Callable[[object], object]:
    """Return a conversion of the names of Java classes, with or without their package."""

    def convert(value: object) -> object:
        name = str(value).rpartition(".")[2].rpartition("$")[2].strip()
        if name not in choices:
            raise ValueError(f"{of}: {', '.join(choices)}; kwire runs no Java classes")
        return choices[name]

    return convert


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def by_duration(text: str) -> Ago:
    """Return what `by_duration:PT1H30M` means (KIP-1106); the duration is in ISO 8601, as in Java."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError("a duration such as by_duration:PT1H30M or by_duration:P7D")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return Ago(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))


def set_offset_reset(keywords: Values, name: str, value: object, words: Mapping[str, str]) -> None:
    """Set both options that `auto.offset.reset` stands for: where to begin, and what to do beyond the log."""
    word = str(value).strip()
    kind, colon, duration = word.partition(":")
    reset: object = words.get(word.lower())
    try:
        if kind.lower() == "by_duration" and colon:
            reset = by_duration(duration)
        elif reset is None:
            raise ValueError(f"one of {', '.join(words)}")
    except ValueError as error:
        raise ConfigurationError(f"property {name} is {value!r}", remedy=f"give {error}") from None
    keywords["on_no_offset"] = keywords["on_out_of_range"] = reset
