"""kwire's bytes are Kafka's bytes and kwire's JSON is Kafka's JSON, both ways, for every message and version."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kwire.protocol import Message
from kwire.protocol.fields import Array, Sized
from tests.conformance import oracle
from tests.protocol.samples import declared_messages, random_message

SAMPLES = 8  # of each message and version
SEED = 20


def samples() -> Iterator[tuple[str, int, Any]]:
    random = Random(SEED)
    for cls in declared_messages():
        for version in cls.VERSIONS:
            for index in range(SAMPLES):
                # Tags that Kafka does not know must survive it, as its must survive us; the JSON form has none.
                yield cls.__name__, version, random_message(cls, version, random, unknown_tags=index % 4 == 3)


@pytest.fixture(scope="module")
def by_release() -> dict[str, list[tuple[str, int, Any]]]:
    found: dict[str, list[tuple[str, int, Any]]] = {}
    for name, version, message in samples():
        release = oracle.release_of(name, version)
        assert release, f"no release has {name} v{version}"
        found.setdefault(release, []).append((name, version, message))
    return found


@pytest.mark.parametrize("release", oracle.RELEASES)
def test_bytes_that_we_wrote_are_read_by_kafka_and_written_again_the_same(
    release: str, by_release: dict[str, list[tuple[str, int, Any]]]
) -> None:
    cases = by_release.get(release, [])
    questions = [oracle.Question("bytes", name, version, msg.encode(version).hex()) for name, version, msg in cases]
    wrong = []
    for (name, version, message), response in zip(cases, oracle.ask(release, questions), strict=True):
        ours = without_records(message.to_json(version), type(message), version)
        if response.error or response.data != message.encode(version) or response.obj != ours:
            wrong.append(f"{name} v{version}: {response.error or response}\n{message}")
        elif not records(type(message)):
            again = type(message).from_json(response.obj, version)
            again_without_tags = again.encode(version)
            if type(message).decode(again_without_tags, version) != again:
                wrong.append(f"{name} v{version}: {response.obj}")
    assert not wrong, f"{len(wrong)} of {len(cases)}, seed {SEED}, such as:\n" + "\n\n".join(wrong[:3])


@pytest.mark.parametrize("release", oracle.RELEASES)
def test_json_that_we_wrote_is_read_by_kafka_and_becomes_our_bytes(
    release: str, by_release: dict[str, list[tuple[str, int, Any]]]
) -> None:
    cases = [case for case in by_release.get(release, []) if not has_unknown_tags(case[2])]
    questions = [
        oracle.Question("json", name, version, json.dumps(message.to_json(version))) for name, version, message in cases
    ]
    wrong = []
    for (name, version, message), response in zip(cases, oracle.ask(release, questions), strict=True):
        data = message.encode(version)
        if response.error or response.data != data or type(message).decode(response.data, version) != message:
            wrong.append(f"{name} v{version}: {response.error or response}\n{message}")
        elif type(message).from_json(message.to_json(version), version).encode(version) != data:
            wrong.append(f"{name} v{version}: our own JSON does not come back: {message}")
    assert not wrong, f"{len(wrong)} of {len(cases)}, seed {SEED}, such as:\n" + "\n\n".join(wrong[:3])


def test_every_declared_version_is_compared_with_a_release(by_release: dict[str, list[tuple[str, int, Any]]]) -> None:
    judged = {(name, version) for cases in by_release.values() for name, version, _ in cases}
    declared = {(cls.__name__, version) for cls in declared_messages() for version in cls.VERSIONS}
    assert judged == declared
    print(f"{len(judged)} messages and versions")


def without_records(obj: Any, cls: Any, version: int) -> Any:
    """Return our JSON with an empty string for records: Kafka's JSON writer drops them, but its reader accepts them."""
    obj = dict(obj)
    for field in cls.FIELDS:
        name = field.name.split("_")[0] + "".join(part.capitalize() for part in field.name.split("_")[1:])
        if obj.get(name) is None:
            continue
        element = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(element, Sized) and element.name == "records":
            obj[name] = ""
        elif hasattr(element, "FIELDS"):
            items = obj[name]
            obj[name] = (
                [without_records(item, element, version) for item in items]
                if isinstance(items, list)
                else without_records(items, element, version)
            )
    return obj


def records(cls: Any) -> bool:
    """Return whether a message contains records."""
    for field in cls.FIELDS:
        element = field.type.element if isinstance(field.type, Array) else field.type
        if hasattr(element, "FIELDS"):
            if records(element):
                return True
        elif isinstance(element, Sized) and element.name == "records":
            return True
    return False


def has_unknown_tags(value: Any) -> bool:
    if isinstance(value, list):
        return any(has_unknown_tags(item) for item in value)
    if not hasattr(value, "FIELDS"):
        return False
    return bool(value.unknown_tagged_fields) or any(has_unknown_tags(getattr(value, f.name)) for f in value.FIELDS)


def test_samples_are_of_messages() -> None:
    assert all(isinstance(message, Message) for _, _, message in samples())
