"""Random messages of any class and version, made of edge values, nulls, empty and nested lists, and odd text."""

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from kwire.protocol import ApiKey, Message, message_class
from kwire.protocol.api import OTHER_MESSAGES
from kwire.protocol.fields import Array, Field, Fixed, Sized, default_of

_TEXTS = ["", "a", "topic-1", "günther", "日本語", "\U0001f600 astral", "\x00 nul", '"quoted" \\ / \n\t',
          "x" * 126, "y" * 127, "z" * 128, "é" * 200]  # fmt: skip
_FLOATS = [0.0, -0.0, 1.5, -1e300, 5e-324, 123456789.125]


def declared_messages() -> list[type[Message]]:
    """Every message that is declared: requests and responses by key, then the others."""
    names = [f"{key.api_name}{kind}" for key in ApiKey for kind in ("Request", "Response")]
    return [message_class(name) for name in [*names, *OTHER_MESSAGES]]


def random_message(cls: Any, version: int, random: Random, *, unknown_tags: bool = False) -> Any:
    """A message that this version can carry. Fields that it lacks have their defaults."""
    flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
    return _struct(cls, version, random, unknown_tags and flexible)


def _struct(cls: Any, version: int, random: Random, unknown_tags: bool) -> Any:
    struct = cls(**{field.name: _field(field, version, random, unknown_tags) for field in cls.FIELDS})
    if unknown_tags and random.random() < 0.3:
        tags = random.sample([90, 127, 128, 16384, 2**31 - 2], random.randint(1, 3))
        struct.unknown_tagged_fields = {tag: random.randbytes(random.choice([0, 1, 130])) for tag in sorted(tags)}
    return struct


def _field(field: Field, version: int, random: Random, unknown_tags: bool) -> Any:
    if not field.exists(version):
        return default_of(field)
    if field.tag is not None and random.random() < 0.4:
        return default_of(field)
    if field.is_nullable(version) and random.random() < 0.25:
        return None
    return _value(field.type, version, random, unknown_tags)


def _value(wire_type: Any, version: int, random: Random, unknown_tags: bool) -> Any:
    if isinstance(wire_type, Array):
        count = random.choice([0, 1, 1, 2, 3])
        if isinstance(wire_type.element, Fixed) and random.random() < 0.05:
            count = 130  # a count of two bytes, where it is cheap
        return [_value(wire_type.element, version, random, unknown_tags) for _ in range(count)]
    if isinstance(wire_type, Fixed):
        return _fixed(wire_type, random)
    if isinstance(wire_type, Sized):
        if wire_type.name == "string":
            return random.choice(_TEXTS)
        return random.randbytes(random.choice([0, 1, 5, 126, 127, 300]))
    return _struct(wire_type, version, random, unknown_tags)


def _fixed(wire_type: Fixed, random: Random) -> Any:
    match wire_type.name:
        case "boolean":
            return random.random() < 0.5
        case "float64":
            return random.choice(_FLOATS)
        case "uuid":
            return random.choice([UUID(int=0), UUID(int=2**128 - 1), UUID(bytes=random.randbytes(16))])
    low, high = wire_type.minimum, wire_type.maximum
    return random.choice([low, high, max(low, -1), 0, 1, random.randint(low, high)])


def class_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in declared_messages():
        for version in cls.VERSIONS:
            yield cls, version
